"""Schedules 8 and 15 in the functions that the tasks ``plan`` and ``close`` call; Airflow itself is not started."""

import asyncio
import contextlib
import json
import logging
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from airflow.sdk.bases.operator import ExecutorSafeguard
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred
from airflow.sdk.module_loading import import_string

from sandbox.services.postgres import Postgres
from tests.faults.lakes import FolderLake
from tests.faults.model_world import EPOCH, ModelWorld, ScheduleSettings
from tidemark.airflow import dag, other_runs, run_conf, runs, trigger
from tidemark.airflow import planned as airflow_planned
from tidemark.database.client import ManifestDatabase
from tidemark.errors import Blocked, TidemarkError, WorkFailed
from tidemark.lifecycle import attempt
from tidemark.lifecycle.older import TAKEN_ALONG
from tidemark.lifecycle.plan import Tick, plan
from tidemark.lifecycle.publish import Ending
from tidemark.model.manifest import ManifestState, RunKind
from tidemark.model.order import Order
from tidemark.model.receipt import Receipt
from tidemark.operations.rename import rename_pipeline
from tidemark.pipeline.settings import Pipeline, Unfinished

HOUR = timedelta(hours=1)
Task = Callable[..., contextlib.AbstractContextManager[dict[str, Any]]]


@pytest.fixture(autouse=True)
def _logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tidemark.airflow")


@pytest.fixture
def world(postgres: Postgres, template: str) -> Iterator[ModelWorld]:
    settings = ScheduleSettings(partitions=1, max_records=10, max_slices=100)
    with contextlib.closing(ModelWorld(postgres, template, settings, Counter())) as made:
        yield made


@pytest.fixture
def task(world: ModelWorld) -> Task:
    """``task(kind, begin, end, **params)``: what a task of a DAG run sees. Airflow gives that to its workers only.

    ``at_work`` are the DAG runs that have not ended, ``succeeded`` those that have ended well. It yields XComs that the
    task leaves, by key.
    """

    @contextlib.contextmanager
    def block(
        kind: RunKind = RunKind.MANUAL,
        begin: datetime | None = None,
        end: datetime | None = None,
        run_id: str = "a run",
        at_work: Sequence[str] = (),
        succeeded: Sequence[str] = (),
        deferrable: bool = False,
        **params: object,
    ) -> Iterator[dict[str, Any]]:
        left: dict[str, Any] = {}
        run = SimpleNamespace(
            run_id=run_id, run_type=kind, data_interval_start=begin, data_interval_end=end, logical_date=begin,
            conf=params,
        )  # fmt: skip
        instance = SimpleNamespace(
            dag_id="demo",
            run_id=run_id,
            task_id="close",
            task=SimpleNamespace(deferrable=deferrable, execution_timeout=None),
            try_number=1,
            max_tries=0,
            xcom_push=left.__setitem__,
            get_dr_count=lambda _, run_ids, states: len(
                {*run_ids} & {*(succeeded if states == ["success"] else at_work)}
            ),
        )
        given = {"params": params, "dag_run": run, "ti": instance}
        opened = contextlib.nullcontext(world.onlooker())
        with (
            mock.patch.object(runs, "get_current_context", return_value=given),
            mock.patch.object(runs, "opened", return_value=opened),
            mock.patch.object(runs, "database_of", side_effect=lambda _: world.onlooker().database.reopened()),
            mock.patch.object(runs, "require_spark"),
        ):
            yield left

    return block


def with_unfinished(world: ModelWorld, policy: Unfinished) -> Pipeline:
    """The world's pipeline file with another ``unfinished``."""
    changed = world.pipeline().model_copy(update={"unfinished": policy})
    world.pipeline = lambda: changed  # type: ignore[method-assign]
    return changed


def broken_stage(order: Order) -> Receipt:
    raise WorkFailed("the disk is full", next_step="free some space", manifest=order.manifest_id)


def publish(world: ModelWorld, manifests: list[int]) -> None:
    for manifest_id in manifests:
        attempt.process(world.onlooker(), manifest_id, world.stage)


def test_a_run_of_an_interval_waits_for_its_slices_and_a_run_by_hand_for_all_before_its_time(
    world: ModelWorld, task: Task
) -> None:
    pipeline: Any = with_unfinished(world, Unfinished.REPORT)
    world.produce(30, minutes=6)  # ten an hour
    plan(world.onlooker(), Tick("by hand", RunKind.MANUAL, None))
    publish(world, [1, 3])
    first = EPOCH + timedelta(minutes=6)
    hours = [(first + number * HOUR, first + (number + 1) * HOUR) for number in range(3)]
    closed = []
    for begin, end in hours:
        with task(RunKind.BACKFILL, begin, end):
            assert runs.plan_run(pipeline) == []
            try:
                closed.append(runs.close_run(pipeline, []).event)
            except AirflowException as refused:
                closed.append(str(refused).partition(" of run")[0])
    expected = [None, "1 of 1 manifests are not published: manifest 2", None]
    assert closed == expected, "what others have published is no news"
    with task(plan_until=(hours[2][1] - timedelta(minutes=1)).isoformat()):
        assert runs.plan_run(pipeline) == []
        with pytest.raises(AirflowException, match="1 of 2 manifests are not published: manifest 2 of run by hand"):
            runs.close_run(pipeline, [])


def test_more_manifests_than_airflow_maps_are_retried_in_turns_and_planned_or_replayed_whole_or_not_at_all(
    world: ModelWorld, task: Task, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "2")
    pipeline: Any = world.pipeline()
    world.produce(30)
    for params in ({}, {"replay": [1, 2, 3]}):
        with task(**params), pytest.raises(AirflowFailException) as refused:
            runs.plan_run(pipeline)
        assert "there are 3 manifests to process, and Airflow makes at most 2 tasks of one list" in str(refused.value)
        assert "set AIRFLOW__CORE__MAX_MAP_LENGTH to 3 or more" in str(refused.value)
    with task(retry_unfinished=True):
        first = runs.plan_run(pipeline)
        assert first == [1, 2]
        assert "3 manifests are not done; this run does the 2 oldest" in caplog.text
        publish(world, first)
        with pytest.raises(AirflowFailException, match="1 more are not done") as left:
            runs.close_run(pipeline, first)
        assert "trigger the retry again until nothing is left, or: tidemark retry demo" in str(left.value)
        last = runs.plan_run(pipeline)
        publish(world, last)
        event: Any = runs.close_run(pipeline, last).event
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
            planned = runs.plan_run(pipeline)
            publish(world, planned)
            events.append(runs.close_run(pipeline, planned).event)
    with task(retry_unfinished=True):
        assert runs.close_run(pipeline, runs.plan_run(pipeline)).event is None
    run, replay, retry = events
    assert list(run) == list(replay) == list(retry)
    assert (run["manifests"], run["read"], run["reached"]) == ([1, 2, 3], 25, True)
    assert (replay["manifests"], replay["read"], replay["run_key"]) == ([1, 3], 17, "a run")
    assert (retry["manifests"], retry["read"], retry["covered_by"]) == ([4], 5, [])


def test_a_run_that_is_to_retry_a_blocked_manifest_lets_it_be_attempted_again(world: ModelWorld, task: Task) -> None:
    world.produce(10)
    [blocked] = plan(world.onlooker(), Tick("by hand", RunKind.MANUAL, None)).manifests
    number = world.database.attempts.start(blocked, "a test") or 0
    assert world.database.attempts.block(blocked, number, "the numbers do not agree")
    world.database.attempts.release(blocked, number)
    pipeline: Any = world.pipeline()
    with task(retry_unfinished=True):
        assert runs.plan_run(pipeline) == []
    with task(retry=[blocked], dry_run=True):
        assert runs.plan_run(pipeline) == []
    assert world.database.manifests.get(blocked).state is ManifestState.BLOCKED, "a dry run changes nothing"
    with task(retry=[blocked]):
        assert runs.plan_run(pipeline) == [blocked]
        publish(world, [blocked])
        event: Any = runs.close_run(pipeline, [blocked]).event
    assert event["manifests"] == [blocked]
    with task(retry=[blocked]):
        assert runs.plan_run(pipeline) == [], "it is done"


def test_the_event_tells_a_first_publication_from_a_replay_that_changed_rows_and_from_one_that_did_not(
    world: ModelWorld, task: Task
) -> None:
    def told(**params: Any) -> list[tuple[int, int, int]]:
        """(manifest, attempt that readers see, revision) of the event of a run."""
        with task(**params):
            planned = runs.plan_run(world.pipeline())
            for manifest_id in planned:
                context = run_conf.sinks_of(world.onlooker(), params)
                attempt.process(context, manifest_id, world.stage, replay="run_id" not in params)
            event: Any = runs.close_run(world.pipeline(), planned).event
        assert [each["manifest"] for each in event["published"]] == event["manifests"]
        return [(each["manifest"], each["attempt"], each["revision"]) for each in event["published"]]

    failed_run(world, task)
    assert told(run_id="a failed run") == [(1, 2, 1), (2, 2, 1)], "a failed attempt shows readers nothing"
    assert told(replay=[1]) == [(1, 2, 1)], "equal rows: nothing has moved"
    world.change_code()
    assert told(replay=[1, 2]) == [(1, 4, 2), (2, 3, 2)]
    assert told(replay=[1]) == [(1, 4, 2)]
    world.lakes["second"] = FolderLake(world.folder / "second")
    assert told(fill="second") == [(1, 4, 2), (2, 3, 2)], "the other sink shows what it did"
    world.change_code()
    assert told(replay=[2]) == [(2, 5, 3)], "both sinks, and one replay"


def test_runs_of_a_renamed_dag_find_their_intervals_done_process_nothing_and_emit_their_events_again(
    world: ModelWorld, task: Task
) -> None:
    world.produce(30, minutes=6)  # ten an hour
    begin = EPOCH + timedelta(minutes=6)

    def run(number: int, pipeline: Any) -> tuple[list[Ending], Any]:
        with task(RunKind.SCHEDULED, begin + number * HOUR, begin + (number + 1) * HOUR, run_id=f"run {number}"):
            planned = runs.plan_run(pipeline)
            outcomes = [attempt.process(world.onlooker(), manifest_id, world.stage) for manifest_id in planned]
            return [outcome.ending for outcome in outcomes], runs.close_run(pipeline, planned).event

    before = [run(number, world.pipeline()) for number in range(3)]
    assert [endings for endings, _ in before] == [[Ending.PUBLISHED]] * 3

    renamed = world.pipeline().model_copy(update={"name": "orders"})
    world.pipeline = lambda: renamed  # type: ignore[method-assign]
    rename_pipeline(world.onlooker(), "demo", "a better word", dry_run=False)
    after = [run(number, renamed) for number in range(3)]
    assert [endings for endings, _ in after] == [[Ending.ALREADY_DONE]] * 3
    assert [event for _, event in after] == [event for _, event in before]


def failed_run(world: ModelWorld, task: Task, run_id: str = "a failed run", stage: Any = broken_stage) -> list[int]:
    """A DAG run that planned manifests and published none; each has an attempt that failed."""
    world.produce(20)
    with task(run_id=run_id):
        planned = runs.plan_run(world.pipeline())
    for manifest_id in planned:
        with pytest.raises((WorkFailed, Blocked)):
            attempt.process(world.onlooker(), manifest_id, stage)
    return planned


def test_the_next_run_takes_along_what_a_failed_run_left_and_its_event_names_it(
    world: ModelWorld, task: Task, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline: Any = world.pipeline()
    assert failed_run(world, task) == [1, 2]
    world.produce(10)
    with task(run_id="next run") as left:
        assert runs.plan_run(pipeline) == [3, 1, 2]
        told = caplog.text
        assert left["tidemark"]["labels"] == [
            f"manifest {number} a 0:[{start}, {start + 10})" for number, start in ((3, 20), (1, 0), (2, 10))
        ]
        note = left["tidemark"]["note"].splitlines()
        assert len(note) == 2
        assert all(line in told for line in note)
        publish(world, [3, 1])
        with pytest.raises(AirflowFailException, match="1 of 3 manifests are not published: manifest 2"):
            runs.close_run(pipeline, [3, 1, 2])
        publish(world, [2])
        event: Any = runs.close_run(pipeline, [3, 1, 2]).event
    assert "not done: manifest 1 of run a failed run, a-0 [0, 10) (failed): the disk is full" in told
    assert "manifest=1]; this run takes it along" in told
    assert "next:" not in told
    assert (event["manifests"], event["read"]) == ([1, 2, 3], 30)
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://example.org")
    with task(run_id="a quiet run") as left:
        assert runs.plan_run(pipeline) == []
    page = f"pipeline {pipeline.name}: https://example.org/tidemark/pipelines/{pipeline.name}"
    assert left["tidemark"] == {"labels": [], "note": "", "links": [page]}
    assert "run a quiet run: nothing new up to offset 30 of a-0; covered by manifests 3" in caplog.text


def test_a_run_leaves_to_another_dag_run_that_has_not_ended_what_that_one_is_to_process(
    world: ModelWorld, task: Task, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline: Any = world.pipeline()
    failed_run(world, task, "busy run")
    world.produce(10)
    caplog.clear()
    with task(run_id="next run", at_work=["busy run"]):
        assert runs.plan_run(pipeline) == [3]
        assert "not done" not in caplog.text
    with task(run_id="the run after that", at_work=["next run"]):
        assert runs.plan_run(pipeline) == [1, 2], "the next run has 3"
        with pytest.raises(AirflowException, match="wait until the other DAG run that has these") as waiting:
            runs.close_run(pipeline, [3])
    assert not isinstance(waiting.value, AirflowFailException), "it may help to try again"


def test_a_run_takes_along_few_of_many_and_first_those_that_were_tried_the_least(
    world: ModelWorld, task: Task, caplog: pytest.LogCaptureFixture
) -> None:
    failed_run(world, task)
    world.produce(10 * TAKEN_ALONG)
    plan(world.onlooker(), Tick("by hand", RunKind.MANUAL, None))
    caplog.clear()
    with task(run_id="next run"):
        assert runs.plan_run(world.pipeline()) == list(range(3, 3 + TAKEN_ALONG))
    told = caplog.text
    assert f"not done: {TAKEN_ALONG + 2 - 10} more; next: tidemark status demo" in told
    assert "next: tidemark retry demo" in told


@pytest.mark.parametrize("policy", [Unfinished.REPORT, Unfinished.FAIL])
def test_a_run_that_takes_nothing_along_names_what_is_unfinished_and_fails_when_the_file_says_so(
    world: ModelWorld, task: Task, caplog: pytest.LogCaptureFixture, policy: Unfinished
) -> None:
    pipeline: Any = with_unfinished(world, policy)
    failed_run(world, task)
    world.produce(10)
    with task(run_id="next run"):
        assert runs.plan_run(pipeline) == [3]
        told = caplog.text
        publish(world, [3])
        failed = pytest.raises(AirflowFailException, match="unfinished: fail") if policy is Unfinished.FAIL else None
        with failed or contextlib.nullcontext() as refused:
            event: Any = runs.close_run(pipeline, [3]).event
            assert event["manifests"] == [3]
    assert "not done: manifest 2 of run a failed run" in told
    assert "next: tidemark retry demo" in told
    assert refused is None or "earlier runs left 2 manifests not done" in str(refused.value)


def test_a_blocked_manifest_is_named_by_every_run_and_taken_along_by_none(
    world: ModelWorld, task: Task, caplog: pytest.LogCaptureFixture
) -> None:
    def blocked_stage(order: Order) -> Receipt:
        raise Blocked("the numbers do not agree", manifest=order.manifest_id)

    failed_run(world, task, stage=blocked_stage)
    with task(run_id="next run"):
        assert runs.plan_run(world.pipeline()) == []
    told = caplog.text
    assert "(blocked): the numbers do not agree" in told
    assert "next: tidemark retry demo --manifest 1 and tidemark retry demo --manifest 2" in told


def test_a_failed_close_names_cause_attempt_and_the_forms_way_and_is_not_tried_again(
    world: ModelWorld, task: Task
) -> None:
    pipeline: Any = world.pipeline()
    failed_run(world, task)
    with task(run_id="a failed run"), pytest.raises(AirflowFailException) as refused:
        runs.close_run(pipeline, [1, 2])
    text = str(refused.value)
    assert "2 of 2 manifests are not published: manifest 1 of run a failed run, a-0 [0, 10) (failed): " in text
    assert "the disk is full" in text
    assert "attempt 1 by onlooker" in text
    assert (
        'next: trigger the DAG demo with "Retry manifests that are not done", or: tidemark retry demo; then clear'
        in text
    )


def test_complete_hours_are_told_by_one_run_and_by_the_next_when_that_failed(
    world: ModelWorld, task: Task, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline: Any = world.pipeline()
    day = EPOCH.replace(hour=0)

    def close(run_id: str, hours: int, **task_settings: Any) -> list[str]:
        """The keys that a run up to some hours after midnight tells."""
        with task(run_id=run_id, plan_until=(day + hours * HOUR).isoformat(), **task_settings):
            planned = runs.plan_run(pipeline)
            publish(world, planned)
            return [key.removeprefix("2024-03-01T") for key in runs.close_run(pipeline, planned).hours]

    world.produce(30, minutes=6)  # three hours
    assert close("one", 2) == ["00:00:00", "01:00:00"]
    assert "event hours complete: 2024-03-01T00:00Z to 2024-03-01T02:00Z" in caplog.text
    assert close("two", 3, at_work=["one"]) == ["02:00:00"], "one is to tell its own"
    assert close("two", 3, at_work=["one"]) == ["02:00:00"], "another try of the same run"
    assert close("three", 4, succeeded=["two"]) == ["00:00:00", "01:00:00", "03:00:00"], "one has failed"
    assert close("four", 5, succeeded=["three"]) == ["04:00:00"]
    world.produce(1, minutes=-170)  # a late one
    assert close("five", 6, succeeded=["four"]) == ["00:00:00", "05:00:00"]


def test_a_dry_run_says_what_the_run_would_do_and_stores_nothing(
    world: ModelWorld, task: Task, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline: Any = world.pipeline()
    world.produce(20)
    with task(dry_run=True):
        assert runs.plan_run(pipeline) == []
        assert runs.close_run(pipeline, []) == runs.Closed(None, [])
    assert "would plan a-0 [0, 10)" in caplog.text
    assert "would plan a-0 [10, 20)" in caplog.text
    assert world.database.pipelines.names() == []
    plan(world.onlooker(), Tick("by hand", RunKind.MANUAL, None))
    publish(world, [1])
    caplog.clear()
    with task(dry_run=True, retry_unfinished=True):
        assert runs.plan_run(pipeline) == []
    assert "would process manifest 2 a 0:[10, 20)" in caplog.text
    caplog.clear()
    with task(dry_run=True, replay=[1]):
        assert runs.plan_run(pipeline) == []
    assert "would process manifest 1 a 0:[0, 10)" in caplog.text
    assert {manifest.dag_run for manifest in world.database.manifests.find("demo")} == {None}, "nothing is handed out"


def test_a_loss_is_given_up_once_with_its_reason_before_the_run_plans(world: ModelWorld, task: Task) -> None:
    pipeline: Any = world.pipeline()
    world.produce(10)
    plan(world.onlooker(), Tick("by hand", RunKind.MANUAL, None))
    publish(world, [1])
    world.produce(10)
    world.log("a", 0).start = 14
    wish = {"decision": "accept-loss", "why": "the disk was too small"}
    with task(dry_run=True, accept=wish):
        runs.plan_run(pipeline)
    assert world.database.decisions.of_pipeline("demo") == []
    for _ in range(2):  # also when the task is tried again
        with task(accept=wish, run_id="on call"):
            assert runs.plan_run(pipeline) == [2]
    [decision] = world.database.decisions.of_pipeline("demo")
    assert (decision["decision"], decision["why"]) == ("accept-loss", "the disk was too small (DAG run on call)")
    assert world.database.ranges.lost_offsets("demo") == 4
    assert [(part.start, part.end) for part in world.database.manifests.get(2).ranges] == [(14, 20)]


def test_another_topic_and_a_cut_log_are_accepted_by_a_run(world: ModelWorld, task: Task) -> None:
    pipeline: Any = with_unfinished(world, Unfinished.REPORT)
    world.produce(10)
    plan(world.onlooker(), Tick("by hand", RunKind.MANUAL, None))
    publish(world, [1])
    world.truncate(4)
    with task(), pytest.raises(AirflowFailException, match="error=topic-changed"):
        runs.plan_run(pipeline)
    world.produce(2)
    cut = {"decision": "accept-truncation", "why": "a disk died", "topic": "a", "partition": 0}
    with task(accept=cut, run_id="the cut"):
        [manifest] = runs.plan_run(pipeline)
    assert [(part.start, part.end) for part in world.database.manifests.get(manifest).ranges] == [(6, 8)]
    publish(world, [manifest])
    world.recreate(partitions=1)
    world.produce(3)
    with task(run_id="refused"), pytest.raises(AirflowFailException, match="error=topic-changed"):
        runs.plan_run(pipeline)
    with task(accept={"decision": "accept-topic", "why": "it is meant", "topic": "a"}, run_id="the topic"):
        [manifest] = runs.plan_run(pipeline)
    assert [(part.start, part.end) for part in world.database.manifests.get(manifest).ranges] == [(0, 3)]


def test_an_audit_plans_nothing_and_its_differences_stand_in_the_log_the_note_and_the_database(
    world: ModelWorld, task: Task, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline: Any = world.pipeline()
    world.produce(10)
    plan(world.onlooker(), Tick("by hand", RunKind.MANUAL, None))
    publish(world, [1])
    world.produce(10)
    with task(dry_run=True, audit="light"):
        assert runs.plan_run(pipeline) == []
    assert world.database.audits.last("demo") == []
    for depth in ("light", "deep"):
        with task(audit=depth, run_id=depth) as left:
            assert runs.plan_run(pipeline) == []
            assert runs.close_run(pipeline, []).event is None
        assert left["tidemark"]["note"] == f"the {depth} audit found 0 differences"
    for file in world.lake.files("raw/"):
        (world.folder / "lake" / file).unlink()
    for depth in ("light", "deep"):
        with (
            task(audit=depth, run_id=depth) as left,
            pytest.raises(AirflowFailException, match=rf"the {depth} audit found \d+ differences"),
        ):
            runs.plan_run(pipeline)
        assert re.match(rf"the {depth} audit found \d+ differences\nmanifest 1: ", left["tidemark"]["note"])
        assert "next: tidemark replay demo --manifest 1" in caplog.text
    assert sorted(row["deep"] for row in world.database.audits.last("demo")) == [False, True]
    assert len(world.database.manifests.find("demo")) == 1, "nothing was planned"


def test_what_is_gone_of_a_manifest_is_given_up_by_a_run(world: ModelWorld, task: Task) -> None:
    pipeline: Any = world.pipeline()
    world.produce(10)
    plan(world.onlooker(), Tick("by hand", RunKind.MANUAL, None))
    publish(world, [1])
    for file in world.lake.files("raw/"):
        (world.folder / "lake" / file).unlink()
    wish = {"decision": "accept-damage", "why": "the disk died", "manifest": 1}
    with task(accept=wish), pytest.raises(AirflowFailException, match="still holds its offsets"):
        runs.plan_run(pipeline)
    world.log("a", 0).start = 10
    with task(accept=wish, run_id="on call"):
        assert runs.plan_run(pipeline) == []
    [decision] = world.database.decisions.of_pipeline("demo")
    assert (decision["decision"], decision["why"]) == ("accept-damage", "the disk died (DAG run on call)")


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"decision": "accept-los", "why": "x"}, 'did you mean "accept-loss"'),
        ({"decision": "accept-loss"}, "accept lacks why"),
        ({"decision": "accept-truncation", "why": "x"}, "accept lacks topic and partition"),
        ({"decision": "accept-truncation", "why": "x", "topic": "a", "partition": "b"}, "accept lacks partition"),
        ({"decision": "accept-loss", "why": "x"}, "nothing is lost"),
        ({"decision": "accept-damage", "why": "x"}, "accept lacks manifest"),
    ],
)
def test_a_decision_that_cannot_be_made_fails_the_plan_and_plans_nothing(
    world: ModelWorld, task: Task, wish: dict[str, object], message: str
) -> None:
    pipeline: Any = world.pipeline()
    world.produce(10)
    plan(world.onlooker(), Tick("by hand", RunKind.MANUAL, None))
    world.produce(10)
    with task(accept=wish), pytest.raises(AirflowFailException, match=message):
        runs.plan_run(pipeline)
    assert len(world.database.manifests.find("demo")) == 1


def test_a_run_fills_a_sink_that_was_added_and_fails_while_it_lacks_some(
    postgres: Postgres, template: str, task: Task, world: ModelWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "1")
    world.produce(20)
    plan(world.onlooker(), Tick("by hand", RunKind.MANUAL, None))
    publish(world, [1, 2])
    world.lakes["second"] = FolderLake(world.folder / "second")
    pipeline: Any = world.pipeline()
    with task(fill="secnd"), pytest.raises(AirflowFailException, match="has no sink secnd; it has: lake, second"):
        runs.plan_run(pipeline)
    for done, left in ((1, "sink second still lacks 1 manifest"), (2, "")):
        with task(fill="second"):
            assert runs.plan_run(pipeline) == [done]
            whole = world.onlooker()
            attempt.process(run_conf.sinks_of(whole, {"fill": "second"}), done, world.stage, replay=True)
            ended = pytest.raises(AirflowFailException, match=left) if left else contextlib.nullcontext()
            with ended:
                runs.close_run(pipeline, [done])
    assert world.database.publications.lacking("demo", "second") == []
    shown = world.database.manifests.get(1).publications
    assert {(publication.sink, publication.attempt) for publication in shown} == {("lake", 1), ("second", 2)}


def test_tasks_find_their_manifests_when_airflow_has_removed_the_list_of_plan(world: ModelWorld, task: Task) -> None:
    pipeline: Any = world.pipeline()
    world.produce(20)
    planned = plan(world.onlooker(), Tick("a run", RunKind.MANUAL, None)).manifests
    assert len(planned) == 2
    mapped = dag.build_dag(pipeline).task_dict["process"].expand_input
    for index, manifest_id in enumerate(planned):
        given: Any = {"ti": mapped_instance(index)}
        with mock.patch.object(airflow_planned, "database_of", side_effect=lambda _: database_as(world, "someone")):
            with pytest.raises(AirflowFailException, match="clear the task plan of this run too") as refused:
                mapped.resolve(given)
            assert "tidemark retry demo" in str(refused.value)
            with database_as(world, f"airflow demo a run process[{index}] try 1") as database:
                attempt.process(replace(world.onlooker(), database=database), manifest_id, world.stage)
            assert mapped.resolve(given) == ({"manifest_id": manifest_id}, set())
    with task(run_id="a run"):
        closed = runs.close_run(pipeline, None)
    assert closed.event is not None
    assert closed.event["manifests"] == list(planned)


def database_as(world: ModelWorld, actor: str) -> ManifestDatabase:
    return ManifestDatabase(world.onlooker().database._dsn, actor)


def mapped_instance(index: int) -> SimpleNamespace:
    """A mapped task of a run whose XComs are gone."""

    def no_xcom(**asked: Any) -> Any:
        return asked["default"]

    return SimpleNamespace(
        dag_id="demo", run_id="a run", task_id="process", map_index=index, xcom_pull=no_xcom,
        get_relevant_upstream_map_indexes=lambda **_: None,
    )  # fmt: skip


class OfTriggers(trigger.SharedDatabase):
    def __init__(self) -> None:
        super().__init__()
        self.answered = asyncio.Event()

    async def ask(self, question: Callable[[ManifestDatabase], trigger.Answer]) -> trigger.Answer:
        answer = await super().ask(question)
        self.answered.set()
        return answer


@pytest.fixture
def at_work(world: ModelWorld, monkeypatch: pytest.MonkeyPatch) -> Iterator[ManifestDatabase]:
    """The session of an attempt at manifest 1 that is alive until ``close``. The triggerer has its database."""
    monkeypatch.setenv("TIDEMARK_DB", world.dsn)
    monkeypatch.setattr(trigger, "POLL_S", 0.05)
    database = OfTriggers()
    monkeypatch.setattr(trigger, "DATABASE", database)
    world.produce(10)
    plan(world.onlooker(), Tick("by hand", RunKind.MANUAL, None))
    with contextlib.closing(database), contextlib.closing(world.onlooker().database.reopened()) as session:
        assert session.attempts.start(1, "somebody") == 1
        yield session


def test_a_close_that_defers_has_not_failed_and_its_trigger_fires_when_the_attempt_of_others_has_ended(
    world: ModelWorld, task: Task, at_work: ManifestDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline: Any = world.pipeline()
    with task(deferrable=True):
        runs.plan_run(pipeline)
        with pytest.raises(TaskDeferred) as deferred:
            runs.close_run(pipeline, [])
    assert "waiting for the end of attempt 1 at manifest 1 by " in caplog.text
    assert world.database.tasks.failed("demo") == []
    path, arguments = deferred.value.trigger.serialize()
    assert (path, arguments) == ("tidemark.airflow.trigger.AttemptsEnd", {"manifests": [1], "also_replays": False})
    again = import_string(path)(**json.loads(json.dumps(arguments)))
    assert again.serialize() == (path, arguments), "a triggerer that starts makes the same one"

    async def fired() -> None:
        waiting = asyncio.create_task(again.wait())
        await trigger.DATABASE.answered.wait()  # type: ignore[attr-defined]
        assert not waiting.done()
        at_work.close()
        await waiting

    asyncio.run(fired())
    publish(world, [1])
    with task(deferrable=True):
        assert runs.close_run(pipeline, []).event is None


def test_a_close_that_does_not_defer_waits_in_its_slot(
    world: ModelWorld, task: Task, at_work: ManifestDatabase
) -> None:
    pipeline: Any = world.pipeline()
    with task():
        runs.plan_run(pipeline)
        ending = threading.Thread(target=lambda: (publish(world, [1]), at_work.close()))
        ending.start()  # it takes over from the attempt at work, and is alive itself until it has published
        assert runs.close_run(pipeline, []).event is None
        ending.join()


@pytest.mark.parametrize("dsn", ["postgresql://nobody@127.0.0.1:1/nothing", ""])
def test_a_trigger_that_cannot_ask_the_database_says_why_and_the_task_waits_in_its_slot(
    world: ModelWorld, at_work: ManifestDatabase, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_DB", dsn)
    monkeypatch.setattr(trigger, "SILENT_S", 0.2)
    attempts_end = trigger.AttemptsEnd([1], also_replays=False)

    async def fired() -> list[Any]:
        return [event.payload async for event in attempts_end.run()]

    [reason] = asyncio.run(fired())
    with pytest.raises(TidemarkError) as caught:  # as in a slot: the attempts may be alive
        asyncio.run(attempts_end.wait())
    assert reason == str(caught.value)
    assert ("cannot be reached" if dsn else "TIDEMARK_DB is not set") in reason

    class Waiting(other_runs.WaitingOperator):
        def execute(self, context: Any) -> bool:
            del context
            return self.deferrable

    waiting = Waiting(task_id="waits", deferrable=True)
    monkeypatch.setattr(ExecutorSafeguard, "test_mode", True)
    assert waiting.resume({}) is True
    assert waiting.resume({}, event=reason) is False
