"""Schedules 8 and 15 in the functions that the tasks ``plan`` and ``close`` call; Airflow itself is not started."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from sandbox.services.postgres import Postgres
from tests.faults.model_world import EPOCH, ModelWorld, ScheduleSettings
from tidemark.airflow import dag
from tidemark.lifecycle import attempt
from tidemark.lifecycle.plan import Tick, plan
from tidemark.manifest import RunKind

HOUR = timedelta(hours=1)
Task = Callable[..., contextlib.AbstractContextManager[object]]


@pytest.fixture
def world(postgres: Postgres, template: str) -> Iterator[ModelWorld]:
    settings = ScheduleSettings(partitions=1, max_records=10, max_slices=100)
    with contextlib.closing(ModelWorld(postgres, template, settings, Counter())) as made:
        yield made


@pytest.fixture
def task(world: ModelWorld) -> Task:
    """``task(kind, begin, end, **params)``: what a task of a DAG run sees. Airflow gives that to its workers only."""

    @contextlib.contextmanager
    def block(
        kind: RunKind = RunKind.MANUAL, begin: datetime | None = None, end: datetime | None = None, **params: object
    ) -> Iterator[None]:
        run = SimpleNamespace(
            run_id="a run", run_type=kind, data_interval_start=begin, data_interval_end=end, logical_date=begin
        )
        given = {"params": params, "dag_run": run}
        opened = contextlib.nullcontext(world.onlooker())
        with (
            mock.patch.object(dag, "get_current_context", return_value=given),
            mock.patch.object(dag, "opened", return_value=opened),
            mock.patch.object(dag, "spark_master"),
        ):
            yield

    return block


def publish(world: ModelWorld, manifests: list[int]) -> None:
    for manifest_id in manifests:
        attempt.process(world.onlooker(), manifest_id, world.stage)


def test_a_run_of_an_interval_waits_for_its_slices_and_a_run_by_hand_for_all_before_its_time(
    world: ModelWorld, task: Task
) -> None:
    pipeline: Any = world.pipeline()
    world.produce(30, minutes=6)  # ten an hour
    plan(world.onlooker(), Tick("by hand", RunKind.MANUAL, None))
    publish(world, [1, 3])
    first = EPOCH + timedelta(minutes=6)
    hours = [(first + number * HOUR, first + (number + 1) * HOUR) for number in range(3)]
    closed = []
    for begin, end in hours:
        with task(RunKind.BACKFILL, begin, end):
            assert dag.plan_run(pipeline) == []
            try:
                closed.append(dag.close_run(pipeline, []))
            except AirflowException as refused:
                closed.append(str(refused).partition(" [")[0])
    assert closed == [None, "1 of 1 manifests are not published: 2 (planned)", None], "others have published it"
    with task(plan_until=(hours[2][1] - timedelta(minutes=1)).isoformat()):
        assert dag.plan_run(pipeline) == []
        with pytest.raises(AirflowException, match=r"1 of 2 manifests are not published: 2 \(planned\)"):
            dag.close_run(pipeline, [])


def test_more_manifests_than_airflow_maps_are_retried_in_turns_and_planned_or_replayed_whole_or_not_at_all(
    world: ModelWorld, task: Task, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "2")
    pipeline: Any = world.pipeline()
    world.produce(30)
    for params in ({}, {"replay": [1, 2, 3]}):
        with task(**params), pytest.raises(AirflowFailException) as refused:
            dag.plan_run(pipeline)
        assert "there are 3 manifests to process, and Airflow makes at most 2 tasks of one list" in str(refused.value)
        assert "set AIRFLOW__CORE__MAX_MAP_LENGTH to 3 or more" in str(refused.value)
    with task(retry_unfinished=True):
        first = dag.plan_run(pipeline)
        assert first == [1, 2]
        assert "3 manifests are unfinished; this run does the 2 oldest" in capsys.readouterr().out
        publish(world, first)
        with pytest.raises(AirflowFailException, match="1 more are unfinished") as left:
            dag.close_run(pipeline, first)
        assert "trigger the retry again until nothing is left, or: tidemark retry demo" in str(left.value)
        last = dag.plan_run(pipeline)
        publish(world, last)
        event: Any = dag.close_run(pipeline, last)
        assert (event["manifests"], event["read"]) == ([3], 10)


def test_the_event_of_a_run_a_retry_and_a_replay_has_the_same_keys_and_there_is_none_without_news(
    world: ModelWorld, task: Task
) -> None:
    pipeline: Any = world.pipeline()
    world.produce(25, minutes=6)  # ten an hour
    events: list[Any] = []
    for params in ({}, {"replay": [1, 3]}, {"retry_unfinished": True}):
        if params.get("retry_unfinished"):
            world.produce(5)
            plan(world.onlooker(), Tick("by hand", RunKind.MANUAL, None))
        with task(**params):
            planned = dag.plan_run(pipeline)
            publish(world, planned)
            events.append(dag.close_run(pipeline, planned))
    with task(retry_unfinished=True):
        assert dag.close_run(pipeline, dag.plan_run(pipeline)) is None
    run, replay, retry = events
    assert list(run) == list(replay) == list(retry)
    assert (run["manifests"], run["read"], run["reached"]) == ([1, 2, 3], 25, True)
    assert (replay["manifests"], replay["read"], replay["run_key"]) == ([1, 3], 15, "a run")
    assert (retry["manifests"], retry["read"], retry["covered_by"]) == ([4], 5, [])
