"""The DAG of a group, and what its task ``verdict`` says; without a service."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from airflow.sdk.exceptions import AirflowFailException

from tidemark.airflow import group_dag
from tidemark.airflow.dag import build_dag
from tidemark.airflow.process import ProcessManifestOperator
from tidemark.airflow.runs import asset_of
from tidemark.pipeline.group import Group
from tidemark.pipeline.loader import load

WELL = {"plan": "success", "process_0": "success", "close": "success"}


@pytest.fixture
def group(tmp_path: Path) -> Group:
    file = tmp_path / "shop.yaml"
    file.write_text(
        "{pipeline: shop, each_topic: true, source: {kafka: {connection: k, topics_regex: 'shop-.*'}},"
        " decode: {format: raw}, sinks: [{files: {root: lake}}]}"
    )
    loaded = load(file, {})
    assert isinstance(loaded, Group)
    return loaded


def judge(group: Group, states: dict[str, str], failed: dict[str, Any]) -> None:
    """``failed``: what the tasks say of members, by task."""
    instance = SimpleNamespace(
        dag_id="shop",
        task_id="verdict",
        xcom_pull=lambda task_ids, **_: failed.get(task_ids),
        get_task_states=lambda *_, **__: {"a run": states},
    )
    given = {"ti": instance, "dag_run": SimpleNamespace(run_id="a run")}
    with mock.patch.object(group_dag, "get_current_context", return_value=given):
        group_dag.judge_group(group)


def test_the_dag_of_a_group_has_a_verdict_and_its_form_asks_for_topics(group: Group) -> None:
    dag = build_dag(group)
    assert {task_id: sorted(task.downstream_task_ids) for task_id, task in dag.task_dict.items()} == {
        "plan": ["close", "process", "verdict"],
        "process": ["close", "verdict"],
        "close": ["verdict"],
        "verdict": [],
    }
    assert "topics" in dag.params
    assert asset_of(group.name).name == "tidemark_shop"
    assert dag.task_dict["process"].operator_class is ProcessManifestOperator


def test_a_run_in_which_all_went_well_is_green(group: Group) -> None:
    judge(group, WELL, {"plan": {}, "close": {}})


@pytest.mark.parametrize("task", ["plan", "close"])
def test_a_run_of_which_nobody_knows_the_failed_topics_is_not_green(group: Group, task: str) -> None:
    known = {name: {} for name in ("plan", "close") if name != task}
    with pytest.raises(AirflowFailException, match=f"the result of {task} of this run was removed"):
        judge(group, WELL, known)


@pytest.mark.parametrize("task", WELL)
def test_a_run_is_as_red_as_each_of_its_tasks(group: Group, task: str) -> None:
    with pytest.raises(AirflowFailException, match=f"{task} of this run failed"):
        judge(group, {**WELL, task: "failed"}, {})


@pytest.mark.parametrize("task", ["plan", "close"])
def test_members_that_a_plan_or_a_close_names_make_the_run_red(group: Group, task: str) -> None:
    with pytest.raises(AirflowFailException, match=r"1 topic of shop failed, the others are done: shop\.a: it is bad"):
        judge(group, WELL, {task: {"shop.a": "it is bad"}})
