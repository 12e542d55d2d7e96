"""Notes and labels that the scheduler writes; a real one does in tests/e2e/test_dag_run.py."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from airflow.models import import_all_models
from airflow.models.base import Base
from airflow.models.dagrun import DagRun
from airflow.models.xcom import XComModel
from airflow.utils.state import DagRunState
from sqlalchemy import create_engine, delete, insert
from sqlalchemy.orm import Session

from tidemark.airflow import in_scheduler
from tidemark.airflow.run_notes import KEY

UNLABELLED = {"map_index": 0, "operator": "ProcessManifestOperator", "_rendered_map_index": None}
OURS, A_PERSONS = SimpleNamespace(user_id=None), SimpleNamespace(user_id="1")


def note(left: dict[str, Any], kept: SimpleNamespace | None) -> tuple[object, object]:
    """(what was written as a note, the note that was kept)."""
    run = SimpleNamespace(id=1, note="nothing new", dag_run_note=kept)
    with mock.patch.object(in_scheduler, "notes_of_plans", return_value={"plan": left}):
        in_scheduler.on_dag_run_success(dag_run=run)
    return run.note, run.dag_run_note


def test_a_note_is_written_and_taken_back_and_a_persons_note_stays() -> None:
    assert note({"note": "manifest 1 is unfinished"}, None) == ("manifest 1 is unfinished", None)
    assert note({"note": "manifest 2 is unfinished"}, OURS) == ("manifest 2 is unfinished", OURS)
    assert note({"note": "manifest 1 is unfinished"}, A_PERSONS) == ("nothing new", A_PERSONS)
    assert note({"note": ""}, OURS) == ("nothing new", None)
    assert note({"note": ""}, A_PERSONS) == ("nothing new", A_PERSONS)
    assert note({}, OURS) == ("nothing new", OURS), "the DAG of somebody else"
    long, _ = note({"note": "x" * 2000}, None)
    assert (len(str(long)), str(long)[-4:]) == (1000, "x ..")
    links = ["pipeline demo: https://example.org/tidemark/pipelines/demo"]
    assert note({"note": "", "links": links}, None) == (links[0], None)
    assert note({"note": "x" * 2000, "links": links}, OURS)[0] == f"{'x' * (995 - len(links[0]))} ..\n\n{links[0]}"
    assert note({"note": "", "links": links}, A_PERSONS) == ("nothing new", A_PERSONS)


def test_a_plan_that_was_cleared_is_read_anew_and_the_state_of_the_run_stays() -> None:
    """Airflow's own tables. The scheduler keeps one session for as long as it runs, with changes not yet written."""
    import_all_models()
    engine = create_engine("sqlite://")
    Base.metadata.create_all(engine)
    of_run = {"dag_id": "flights", "run_id": "a", "run_type": "manual"}
    with Session(engine, expire_on_commit=False) as session:
        run = DagRun(**of_run, run_after=datetime.now(UTC))
        session.add(run)
        for text in ("manifest 1 is unfinished", "manifest 2 is unfinished"):
            run.set_state(DagRunState.RUNNING)
            session.commit()
            left = XComModel.serialize_value({"labels": [], "note": text})
            of_plan = {"dag_run_id": run.id, "dag_id": "flights", "run_id": "a", "task_id": "plan", "map_index": -1}
            with engine.connect() as tasks:
                tasks.execute(delete(XComModel))
                tasks.execute(insert(XComModel).values(**of_plan, key=KEY, value=left))
                tasks.commit()
            run.set_state(DagRunState.SUCCESS)
            in_scheduler.on_dag_run_success(dag_run=run)
            assert (run.note, run.state) == (text, DagRunState.SUCCESS)


def test_a_hook_that_fails_stops_nothing_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    task = SimpleNamespace(task_id="process", **UNLABELLED)
    for hook, arguments in (
        (in_scheduler.task_instance_mutation_hook, {"task_instance": task, "dag_run": object()}),
        (in_scheduler.on_dag_run_success, {"dag_run": object()}),
        (in_scheduler.on_dag_run_failed, {"dag_run": object()}),
    ):
        caplog.clear()
        hook(**arguments)
        assert "notes and labels of Tidemark's DAG runs cannot be written" in caplog.text


def test_tasks_of_others_and_tasks_with_a_label_are_left_alone() -> None:
    with mock.patch.object(
        in_scheduler, "notes_of_plans", return_value={"plan": {"labels": ["not for this task"]}}
    ) as asked:
        for changes in ({"map_index": -1}, {"operator": "PythonOperator"}, {"_rendered_map_index": "manifest 1"}):
            task = SimpleNamespace(task_id="process", **{**UNLABELLED, **changes})
            in_scheduler.task_instance_mutation_hook(task_instance=task, dag_run=object())
            assert task._rendered_map_index == changes.get("_rendered_map_index")
    asked.assert_not_called()


def test_a_dag_with_two_groups_has_the_labels_of_each_and_the_notes_of_both() -> None:
    left = {
        "orders.plan": {"labels": ["manifest 1"], "note": "orders: unfinished", "links": ["manifest 1: a"]},
        "flights.plan": {"labels": ["manifest 2"], "note": "", "links": ["manifest 2: b"]},
        "again.plan": {"labels": [], "note": "again: unfinished"},
    }
    run = SimpleNamespace(note=None, dag_run_note=None)
    with mock.patch.object(in_scheduler, "notes_of_plans", return_value=left):
        for group, label in (("orders", "manifest 1"), ("flights", "manifest 2"), ("again", None)):
            task = SimpleNamespace(task_id=f"{group}.process", **UNLABELLED)
            in_scheduler.task_instance_mutation_hook(task_instance=task, dag_run=run)
            assert task._rendered_map_index == label
    assert run.note == "orders: unfinished\nagain: unfinished\n\nmanifest 1: a\nmanifest 2: b"
