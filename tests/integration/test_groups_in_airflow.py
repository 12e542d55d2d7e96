"""The tasks of a group's DAG, by the functions that they call; Airflow itself is not started."""

import contextlib
import os
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from airflow.sdk.exceptions import AirflowFailException

from tests.worlds.world import World
from tidemark.airflow import group_dag
from tidemark.database.client import ManifestDatabase
from tidemark.model.manifest import RunKind
from tidemark.pipeline.group import Group
from tidemark.pipeline.loader import find_file

MakeWorld = Callable[..., World]


class Events(dict[Any, Any]):
    """In the place of what Airflow gives a task for the events of its outlets."""

    def __missing__(self, asset: Any) -> Any:
        self[asset] = SimpleNamespace(extra=None, partitions=[])
        self[asset].add_partitions = self[asset].partitions.extend
        return self[asset]


class Run:
    """A DAG run of a group: what its tasks see, and what they leave."""

    def __init__(self, world: World, run_id: str = "a run", **params: Any) -> None:
        self.world, self.run_id, self.params = world, run_id, params
        self.left: dict[tuple[str, str], Any] = {}
        self.states = {"plan": "success", "process_0": "success", "close": "success"}
        file = find_file(world.pipelines, world.name)
        assert isinstance(file, Group)
        self.group = file

    @contextlib.contextmanager
    def task(self, task_id: str) -> Iterator[Any]:
        run = SimpleNamespace(
            run_id=self.run_id, run_type=RunKind.MANUAL, data_interval_start=None, data_interval_end=None,
            logical_date=None, conf=self.params,
        )  # fmt: skip
        instance = SimpleNamespace(
            dag_id="demo", run_id=self.run_id, task_id=task_id, try_number=1, max_tries=0,
            task=SimpleNamespace(outlets=[]),
            map_index=-1, xcom_push=lambda key, value: self.left.__setitem__((task_id, key), value),
            xcom_pull=lambda task_ids, key: self.left.get((task_ids, key)),
            get_dr_count=lambda *_, **__: 0,
            get_task_states=lambda *_, run_ids, **__: {self.run_id: self.states} if self.run_id in run_ids else {},
        )  # fmt: skip
        given = {"params": self.params, "dag_run": run, "ti": instance}

        def database_of(_: Any) -> ManifestDatabase:
            return ManifestDatabase(self.world.dsn, f"airflow demo {self.run_id} {task_id} try 1")

        with (
            mock.patch.dict(os.environ, self.world.environment()),
            mock.patch.object(group_dag, "get_current_context", return_value=given),
            mock.patch.object(group_dag, "database_of", database_of),
            mock.patch.object(group_dag, "require_spark"),
        ):
            yield instance

    def plan(self) -> list[int]:
        with self.task("plan"):
            return group_dag.plan_group(self.group)

    def close(self, planned: list[int] | None) -> tuple[set[str], set[str]]:
        """The members that are closed, and those that failed."""
        with self.task("close") as instance:
            closed, failed = group_dag.close_group(self.group, planned)
            instance.xcom_push(group_dag.FAILED, failed)
            self.events = Events()
            group_dag.tell(self.group, closed, self.events)
            self.outlets = [asset.name for asset in instance.task.outlets]
        return set(closed), set(failed)

    def judge(self) -> None:
        with self.task("verdict"):
            group_dag.judge_group(self.group)


@pytest.fixture
def world(make_world: MakeWorld, prefix: str) -> World:
    kafka = {"topics": [], "topics_regex": rf"{prefix}-.*"}
    made = make_world(settings={"kafka": kafka, "decode": {"format": "raw"}, "event_time": {}, "each_topic": True})
    for name in ("a", "b"):
        made.add_topic(f"{prefix}-{name}", b"1")
    return made


def test_a_bad_topic_keeps_no_other_from_being_closed_and_announced(world: World, prefix: str) -> None:
    world.broker.create_topic(f"{prefix}-compacted", 1, {"cleanup.policy": "compact"})
    run = Run(world)
    planned = run.plan()
    assert len(planned) == 2
    world.ok("retry", f"demo.{prefix}-a")
    assert run.close(planned) == ({f"demo.{prefix}-a"}, {f"demo.{prefix}-b"})
    assert run.outlets[:2] == ["tidemark_demo", f"tidemark_demo.{prefix}-a"]
    with pytest.raises(AirflowFailException) as failed:
        run.judge()
    assert "2 topics of demo failed, the others are done" in str(failed.value)
    for name in ("b", "compacted"):
        assert f"demo.{prefix}-{name}: " in str(failed.value)
    assert run.plan() == planned, "planned again, a run has the same manifests"


def test_the_form_names_topics_and_the_limit_of_lists_is_shared(
    world: World, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(Run(world, topics=[f"{prefix}-a"]).plan()) == 1
    with pytest.raises(AirflowFailException, match=f"demo reads no topic {prefix}-x"):
        Run(world, topics=[f"{prefix}-x"]).plan()
    with pytest.raises(AirflowFailException, match="accept needs exactly one topic of the group"):
        Run(world, accept={"decision": "accept-loss", "why": "test"}).plan()
    world.add_topic(f"{prefix}-c", *[b"x"] * 200)
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "3")
    again = Run(world)
    assert len(again.plan()) <= 3
    with ManifestDatabase(world.dsn, "test") as database:
        assert len(database.manifests.find(f"demo.{prefix}-c")) == 1


@pytest.mark.parametrize("depth", ["light", "deep"])
def test_an_audit_of_a_group_fails_by_the_names_of_those_that_differ_and_keeps_the_others_results(
    world: World, prefix: str, depth: str
) -> None:
    Run(world).plan()
    for name in ("a", "b"):
        world.ok("retry", f"demo.{prefix}-{name}")
    for path in world.lake.glob(f"raw/{prefix}-a/**/*.parquet"):
        path.unlink()
    run = Run(world, "an audit", audit=depth)
    assert run.plan() == []
    run.close([])
    with pytest.raises(AirflowFailException) as failed:
        run.judge()
    assert f"demo.{prefix}-a: " in str(failed.value)
    assert f"demo.{prefix}-b: " not in str(failed.value)
    audits = {each["pipeline"]: each["audits"] for each in world.status("demo")}
    assert {name: [audit["deep"] for audit in known] for name, known in audits.items()} == {
        f"demo.{prefix}-{name}": [depth == "deep"] for name in ("a", "b")
    }
    assert [audits[f"demo.{prefix}-{name}"][0]["differences"] > 0 for name in ("a", "b")] == [True, False]


def test_when_not_all_manifests_fit_into_a_run_the_oldest_are_processed_first(
    world: World, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a topic that stands last waits for ever, while those before it have something new each time."""
    world.settings["unfinished"] = "retry"
    world.write_pipeline()
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "1")
    first = Run(world).plan()
    world.ok("retry", f"demo.{prefix}-a", "--manifest", str(first[0]))
    producer = world.broker.producer()
    producer.produce(f"{prefix}-a", b"2")
    assert producer.flush(30) == 0
    [second] = Run(world, "another run").plan()
    assert world.json("show", str(second))["pipeline"] == f"demo.{prefix}-b"
