"""Attempts whose driver works on while no process waits for it: a lease takes the place of the process."""

import asyncio
import contextlib
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from airflow.sdk.bases.operator import ExecutorSafeguard, TriggerFailureReason
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowRuntimeError,
    ErrorType,
    TaskDeferralError,
    TaskDeferralTimeout,
    TaskDeferred,
)
from airflow.sdk.execution_time.comms import ErrorResponse

from sandbox.services.postgres import Postgres
from tests.faults.model_world import ModelWorld, ScheduleSettings
from tidemark.airflow import driver_trigger, trigger
from tidemark.airflow import process as process_task
from tidemark.airflow.driver_trigger import DriverAnswers
from tidemark.database.client import ManifestDatabase
from tidemark.errors import Fenced, TidemarkError, Unavailable, WorkFailed
from tidemark.lifecycle import attempt
from tidemark.lifecycle.attempt import process
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.deferral import AttemptDeferred, Deferral, StagedElsewhere
from tidemark.lifecycle.plan import Tick, plan
from tidemark.lifecycle.publish import Ending, Outcome
from tidemark.lifecycle.select import unfinished
from tidemark.model.manifest import ManifestState, RunKind
from tidemark.model.order import Order
from tidemark.model.receipt import Receipt
from tidemark.pipeline.settings import Engine, Spark
from tidemark.spark import orders
from tidemark.spark.orders import FAILURE, ORDER, PROGRESS, RECEIPT, OrderFolder
from tidemark.storage.local import LocalStore

ADDRESS, LOG = "/orders/order.json", "yarn logs -applicationId application_1_1"


class Driver:
    """The two halves of an attempt at manifest 1, and the driver between them."""

    def __init__(self, world: ModelWorld) -> None:
        self.world = world
        self.orders: list[Order] = []

    def is_started(self, order: Order) -> Receipt:
        self.orders.append(order)
        raise StagedElsewhere(ADDRESS, None, LOG, lambda: None)

    def defer(self, *, replay: bool = False) -> Deferral:
        with pytest.raises(AttemptDeferred) as deferred:
            process(self.world.onlooker(), 1, self.is_started, replay=replay)
        return deferred.value.deferral

    def take_up(self, going_on: Deferral, *, replay: bool = False) -> Outcome:
        [order] = [order for order in self.orders if order.attempt == going_on.attempt]
        receipt = self.world.stage(order)
        return process(self.world.onlooker(), 1, lambda _: receipt, replay=replay, deferral=going_on)


@pytest.fixture
def world(postgres: Postgres, template: str) -> Iterator[ModelWorld]:
    settings = ScheduleSettings(partitions=2, max_records=100, max_slices=1)
    with contextlib.closing(ModelWorld(postgres, template, settings, Counter())) as made:
        made.produce(10)
        plan(made.onlooker(), Tick("by hand", RunKind.MANUAL, None))
        yield made


@pytest.fixture
def driver(world: ModelWorld) -> Driver:
    return Driver(world)


def expire(world: ModelWorld, attempt: int = 1) -> None:
    assert world.database.attempts.lease(1, attempt, 0)


def published_attempt(world: ModelWorld) -> int | None:
    return world.database.manifests.get(1).published_attempt


def test_a_deferred_attempt_is_at_work_until_it_is_taken_up_and_publishes(world: ModelWorld, driver: Driver) -> None:
    going_on = driver.defer()
    assert (going_on.attempt, going_on.order, going_on.log) == (1, ADDRESS, LOG)
    manifest = world.database.manifests.get(1)
    assert (manifest.state, manifest.alive) == (ManifestState.RUNNING, True)
    assert unfinished(world.onlooker()) == [], "retry leaves it out"
    outcome = driver.take_up(going_on)
    assert (outcome.ending, outcome.attempt) == (Ending.PUBLISHED, 1)
    manifest = world.database.manifests.get(1)
    assert (manifest.state, manifest.alive, manifest.published_attempt) == (ManifestState.DONE, False, 1)


def test_a_replay_may_be_deferred_and_what_is_published_stays_meanwhile(world: ModelWorld, driver: Driver) -> None:
    driver.take_up(driver.defer())
    world.change_code()
    going_on = driver.defer(replay=True)
    manifest = world.database.manifests.get(1)
    assert (manifest.state, manifest.alive, manifest.published_attempt) == (ManifestState.DONE, True, 1)
    assert driver.take_up(going_on, replay=True).ending is Ending.PUBLISHED
    assert published_attempt(world) == 2


def test_after_its_lease_another_attempt_takes_over_and_who_wakes_late_changes_nothing(
    world: ModelWorld, driver: Driver
) -> None:
    paused = driver.defer()
    assert paused.attempt == 1
    expire(world)
    assert [manifest.id for manifest in unfinished(world.onlooker())] == [1]
    newer = driver.defer()
    assert not world.database.attempts.lease(1, 1, 60), "the trigger of the older one finds the newer one"
    with pytest.raises(Fenced, match="attempt 1 is fenced: attempt 2 is the newest"):
        driver.take_up(paused)
    assert world.database.manifests.get(1).alive
    driver.take_up(newer)
    assert driver.take_up(paused).ending is Ending.SUPERSEDED
    assert published_attempt(world) == 2


def test_a_lease_that_nobody_renewed_harms_nothing_if_no_other_attempt_began(world: ModelWorld, driver: Driver) -> None:
    going_on = driver.defer()
    expire(world)
    assert driver.take_up(going_on).ending is Ending.PUBLISHED


def test_a_process_that_dies_when_its_driver_is_started_leaves_an_attempt_that_ends_with_its_lease(
    world: ModelWorld, driver: Driver
) -> None:
    child = os.fork()
    if child == 0:

        def die(name: str) -> None:
            if name == "attempt.deferred":
                os.kill(os.getpid(), signal.SIGKILL)

        with mock.patch.object(attempt, "failpoint", die), ManifestDatabase(world.dsn, "a process") as database:
            process(replace(world.onlooker(), database=database), 1, driver.is_started)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert unfinished(world.onlooker()) == [], "nobody knows yet that nobody looks for its driver"
    expire(world)
    assert [manifest.id for manifest in unfinished(world.onlooker())] == [1]
    assert process(world.onlooker(), 1, world.stage).attempt == 2
    assert published_attempt(world) == 2


def test_an_attempt_is_taken_up_once(world: ModelWorld, driver: Driver) -> None:
    going_on = driver.defer()
    driver.take_up(going_on)
    with pytest.raises(Fenced):
        driver.take_up(going_on)
    assert published_attempt(world) == 1


def test_a_pipeline_file_that_was_changed_meanwhile_fails_the_attempt_and_the_next_one_uses_it(
    world: ModelWorld, driver: Driver
) -> None:
    going_on = driver.defer()
    world.change_code()
    with pytest.raises(WorkFailed, match="was changed while the driver worked") as changed:
        driver.take_up(going_on)
    assert "tidemark retry demo" in changed.value.next_step
    manifest = world.database.manifests.get(1)
    assert (manifest.state, manifest.alive, manifest.reason) == (ManifestState.FAILED, False, str(changed.value))
    driver.take_up(driver.defer())
    assert published_attempt(world) == 2


def test_an_attempt_that_has_ended_is_not_alive_by_a_lease_that_a_second_triggerer_has_renewed_meanwhile(
    world: ModelWorld, driver: Driver
) -> None:
    def renewed(order: Order) -> Receipt:
        assert world.database.attempts.lease(1, order.attempt, 60)
        raise WorkFailed("the disk is full", next_step="free some space")

    with pytest.raises(WorkFailed):
        process(world.onlooker(), 1, renewed, deferral=driver.defer())
    assert not world.database.manifests.get(1).alive
    assert [manifest.id for manifest in unfinished(world.onlooker())] == [1]


def test_the_error_of_a_driver_fails_the_attempt(world: ModelWorld, driver: Driver) -> None:
    going_on = driver.defer()

    def fails(order: Order) -> Receipt:
        raise WorkFailed("the disk is full", next_step="free some space", manifest=order.manifest_id)

    with pytest.raises(WorkFailed, match="the disk is full"):
        process(world.onlooker(), 1, fails, deferral=going_on)
    assert world.database.manifests.get(1).state is ManifestState.FAILED


@pytest.fixture
def watched(world: ModelWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OrderFolder]:
    """The folder of an order, and a triggerer that looks often."""
    monkeypatch.setenv("TIDEMARK_DB", world.dsn)
    monkeypatch.setattr(driver_trigger, "POLL_S", 0.02)
    with contextlib.closing(trigger.SharedDatabase()) as database:
        monkeypatch.setattr(driver_trigger, "DATABASE", database)
        folder = OrderFolder(LocalStore(str(tmp_path)), "one")
        folder.put(ORDER, b"{}")
        yield folder


def trigger_of(folder: OrderFolder, attempt: int = 1) -> DriverAnswers:
    made = DriverAnswers("demo", 1, attempt, folder.address, None)
    path, arguments = made.serialize()
    assert path == "tidemark.airflow.driver_trigger.DriverAnswers"
    return DriverAnswers(**json.loads(json.dumps(arguments)))


async def _event(of: DriverAnswers) -> Any:
    return [event.payload async for event in of.run()]


@pytest.mark.parametrize("answer", [RECEIPT, FAILURE])
def test_the_trigger_renews_the_lease_and_fires_when_the_driver_has_answered(
    world: ModelWorld, driver: Driver, watched: OrderFolder, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.defer()

    async def fired() -> None:
        waiting = asyncio.create_task(_event(trigger_of(watched)))
        while not world.database.manifests.get(1).alive:
            await asyncio.sleep(0.01)
        assert not waiting.done()
        watched.put(answer, b"{}")
        assert await waiting == [None]

    asyncio.run(fired())
    assert world.database.manifests.get(1).alive, "until the task has a slot"


@pytest.mark.parametrize(
    ("limit", "progress", "reason"),
    [
        ("BEGINS_S", None, "it has not begun within"),
        ("QUIET_S", "after 30 s: 1 of 4 tasks", "it has written no progress for"),
    ],
)
def test_the_trigger_gives_up_a_driver_that_never_begins_or_says_nothing_more(
    driver: Driver,
    watched: OrderFolder,
    limit: str,
    progress: str | None,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver.defer()
    monkeypatch.setattr(orders, limit, 0.1)
    if progress:
        watched.put(PROGRESS, progress.encode())
    [event] = asyncio.run(_event(trigger_of(watched)))
    assert reason in event
    assert progress is None or event.endswith(f"the last was: {progress}")


def test_the_trigger_of_a_fenced_attempt_fires(world: ModelWorld, driver: Driver, watched: OrderFolder) -> None:
    driver.defer()
    expire(world)
    driver.defer()
    assert asyncio.run(_event(trigger_of(watched))) == ["a newer attempt has taken over"]
    assert world.database.manifests.get(1).alive


def test_a_database_that_does_not_answer_for_a_while_ends_no_wait(
    driver: Driver, watched: OrderFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.defer()
    renews, away = DriverAnswers._lease, [True, True, True]

    def lease(self: DriverAnswers, seconds: float, database: Any) -> bool:
        if away:
            away.pop()
            raise Unavailable("the manifest database does not answer", next_step="wait")
        watched.put(RECEIPT, b"{}")
        return renews(self, seconds, database)

    monkeypatch.setattr(DriverAnswers, "_lease", lease)
    assert asyncio.run(_event(trigger_of(watched))) == [None]
    monkeypatch.setattr(driver_trigger, "SILENT_S", -1.0)
    away.append(True)
    [reason] = asyncio.run(_event(trigger_of(watched)))
    assert "the manifest database does not answer" in reason


def test_a_store_that_hangs_does_not_let_the_lease_lapse(
    world: ModelWorld, driver: Driver, watched: OrderFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.defer()
    hangs, looks = threading.Event(), driver_trigger._has_answered
    monkeypatch.setattr(driver_trigger, "_has_answered", lambda folder: hangs.wait(60) and looks(folder))
    monkeypatch.setattr(driver_trigger, "RENEW_S", 0.02)

    async def fired() -> None:
        waiting = asyncio.create_task(_event(trigger_of(watched)))
        for _ in range(3):
            expire(world)
            while not world.database.manifests.get(1).alive:
                await asyncio.sleep(0.01)
        watched.put(RECEIPT, b"{}")
        hangs.set()
        assert await waiting == [None]

    asyncio.run(fired())


def test_a_store_that_did_not_answer_for_long_is_no_silence_of_the_driver(
    driver: Driver, watched: OrderFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver could not write there either."""
    driver.defer()
    monkeypatch.setattr(orders, "QUIET_S", 0.5)
    watched.put(PROGRESS, b"the driver has begun")
    away_until, looks, reads = [0.0], driver_trigger._has_answered, []

    def look(folder: OrderFolder) -> bool:
        if reads and not away_until[0]:
            away_until[0] = time.monotonic() + 0.7
        if time.monotonic() < away_until[0]:
            raise Unavailable("the store does not answer", next_step="wait")
        reads.append(1)
        if away_until[0]:
            watched.put(PROGRESS if len(reads) < 4 else RECEIPT, b"after 60 s: 1 of 4 tasks")
        return looks(folder)

    monkeypatch.setattr(driver_trigger, "_has_answered", look)
    assert asyncio.run(_event(trigger_of(watched))) == [None]


def test_the_trigger_waits_for_an_airflow_that_does_not_give_the_connection(
    driver: Driver, watched: OrderFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.defer()
    opens, away = driver_trigger.folder_of, [True]

    def opened(*arguments: Any) -> OrderFolder:
        if away:
            away.pop()
            raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR))
        watched.put(RECEIPT, b"{}")
        return opens(*arguments)

    monkeypatch.setattr(driver_trigger, "folder_of", opened)
    assert asyncio.run(_event(trigger_of(watched))) == [None]


def test_who_marks_or_clears_the_task_of_a_replay_is_told_to_replay(
    world: ModelWorld, driver: Driver, watched: OrderFolder
) -> None:
    driver.take_up(driver.defer())
    driver.defer(replay=True)
    asyncio.run(trigger_of(watched, 2).on_kill())
    told = str(world.database.attempts.of_manifest(1)[-1]["error"])
    assert "tidemark replay demo --manifest 1" in told
    assert "tidemark retry" not in told


def test_who_marks_or_clears_the_task_ends_the_attempt_and_its_driver(
    world: ModelWorld, driver: Driver, watched: OrderFolder
) -> None:
    going_on = driver.defer()
    asyncio.run(trigger_of(watched).on_kill())
    assert watched.get(ORDER) is None
    manifest = world.database.manifests.get(1)
    assert (manifest.state, manifest.alive) == (ManifestState.FAILED, False)
    assert "the task was marked or cleared" in str(manifest.reason)
    assert "tidemark retry demo" in str(manifest.reason)
    with pytest.raises(TidemarkError):
        driver.take_up(going_on)
    driver.take_up(driver.defer())
    assert published_attempt(world) == 2


class Tasks:
    """The task `process` of manifest 1 in Airflow, whose driver a script submits; each part is a process of its own."""

    def __init__(self, world: ModelWorld, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world, self.orders = world, folder / "orders"
        script = folder / "job.sh"
        script.write_text("#!/bin/sh\nexit 0\n")
        script.chmod(0o755)
        self.spark = Spark(engine=Engine.CLUSTER, orders=str(self.orders), submit=(str(script),))
        self.host = "worker-1"
        monkeypatch.setattr(process_task, "opened", self.opened)
        monkeypatch.setattr(process_task, "database_of", self.database)
        monkeypatch.setattr(ExecutorSafeguard, "test_mode", True)

    def database(self, _: Any) -> ManifestDatabase:
        return ManifestDatabase(self.world.dsn, f"airflow demo run process[0] try 1 on {self.host}")

    def pipeline(self) -> Any:
        return self.world.pipeline().model_copy(update={"spark": self.spark})

    @contextlib.contextmanager
    def opened(self, pipeline: Any, _: Any) -> Iterator[Context]:
        with self.database(None) as database:
            yield replace(self.world.onlooker(), pipeline=pipeline, database=database)

    def operator(self) -> Any:
        return process_task.ProcessManifestOperator(
            task_id="process", pipeline=self.pipeline(), manifest_id=1, deferrable=True
        )

    def context(self, *, replay: bool = False) -> dict[str, Any]:
        ti = SimpleNamespace(max_tries=0, try_number=1, task=self.operator())
        run = SimpleNamespace(start_date=None)
        return {"params": {"replay": True} if replay else {}, "ti": ti, "dag_run": run}

    def defer(self, *, replay: bool = False) -> TaskDeferred:
        with pytest.raises(TaskDeferred) as deferred:
            self.operator().execute(self.context(replay=replay))
        return deferred.value

    def resume(self, method: str, kwargs: dict[str, Any] | None) -> None:
        self.host = "worker-2"
        self.operator().resume_execution(method, json.loads(json.dumps(kwargs)), self.context())

    def take_up(self, deferred: TaskDeferred, event: str | None = None) -> None:
        self.resume(deferred.method_name, {**(deferred.kwargs or {}), "event": event})

    def answer(self, deferred: TaskDeferred) -> None:
        """What the driver does."""
        folder = orders.folder_of((deferred.kwargs or {})["order"])
        order = Order.from_json((folder.get(ORDER) or b"").decode())
        folder.put(RECEIPT, self.world.stage(order).to_json().encode())

    def files(self) -> list[Path]:
        return [path for path in self.orders.rglob("*") if path.is_file()]


@pytest.fixture
def tasks(world: ModelWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tasks:
    return Tasks(world, tmp_path, monkeypatch)


def test_a_task_takes_up_its_attempt_and_removes_the_order(world: ModelWorld, tasks: Tasks) -> None:
    deferred = tasks.defer()
    tasks.answer(deferred)
    tasks.take_up(deferred)
    assert (published_attempt(world), tasks.files()) == (1, [])


def test_a_task_whose_file_no_longer_names_the_place_of_orders_takes_up_its_attempt(
    world: ModelWorld, tasks: Tasks
) -> None:
    deferred = tasks.defer()
    tasks.answer(deferred)
    tasks.spark = Spark()
    tasks.take_up(deferred)
    assert (published_attempt(world), tasks.files()) == (1, [])


def changed(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    del monkeypatch
    tasks.world.change_code()


def not_opened(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(*_: Any) -> Any:
        raise Unavailable("the registry does not answer", next_step="wait, then: tidemark retry demo")

    monkeypatch.setattr(process_task, "opened", opened)


def renamed(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    del monkeypatch
    with tasks.world.database.because("a better name"):
        tasks.world.database.pipelines.rename("demo", "other")


@pytest.mark.parametrize(
    ("prevents", "reason"),
    [
        (changed, "the pipeline file, or a schema in the registry, was changed while the driver worked"),
        (not_opened, "the registry does not answer"),
        (renamed, "manifest 1 belongs to pipeline other"),
    ],
)
def test_what_prevents_a_task_from_taking_up_its_attempt_ends_that_at_once_and_its_driver(
    world: ModelWorld, tasks: Tasks, prevents: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deferred = tasks.defer()
    tasks.answer(deferred)
    with monkeypatch.context() as meanwhile:
        prevents(tasks, meanwhile)
        with pytest.raises(AirflowException, match=reason):
            tasks.take_up(deferred)
    manifest = world.database.manifests.get(1)
    assert (manifest.state, manifest.alive) == (ManifestState.FAILED, False)
    assert reason in str(manifest.reason)
    assert tasks.files() == [], "the driver ends"


@pytest.mark.parametrize("error", [TriggerFailureReason.TRIGGER_TIMEOUT, TriggerFailureReason.TRIGGER_FAILURE])
def test_a_task_that_airflow_does_not_let_take_up_its_attempt_ends_that_and_its_driver(
    world: ModelWorld, tasks: Tasks, error: TriggerFailureReason
) -> None:
    tasks.defer()
    assert tasks.files()
    with pytest.raises((TaskDeferralError, TaskDeferralTimeout)):
        tasks.resume("__fail__", {"error": error})
    manifest = world.database.manifests.get(1)
    assert (manifest.state, manifest.alive, tasks.files()) == (ManifestState.FAILED, False, [])
    assert f"Airflow has ended the wait for the driver: {error.value}" in str(manifest.reason)
    assert "tidemark retry demo" in str(manifest.reason)


def test_a_task_that_was_overtaken_ends_no_attempt_of_others(world: ModelWorld, tasks: Tasks, driver: Driver) -> None:
    deferred = tasks.defer()
    expire(world)
    newer = driver.defer()
    with pytest.raises((TaskDeferralError, TaskDeferralTimeout)):
        tasks.resume("__fail__", {"error": TriggerFailureReason.TRIGGER_TIMEOUT})
    assert tasks.files() == []
    with pytest.raises(AirflowException, match="attempt 1 is fenced"):
        tasks.take_up(deferred)
    assert world.database.manifests.get(1).alive
    driver.take_up(newer)
    assert published_attempt(world) == 2


def test_who_is_overtaken_while_the_driver_is_submitted_removes_the_order(world: ModelWorld, driver: Driver) -> None:
    withdrawn = []

    def overtaken(order: Order) -> Receipt:
        del order
        process(world.onlooker(), 1, world.stage)
        raise StagedElsewhere(ADDRESS, None, LOG, lambda: withdrawn.append(ADDRESS))

    assert process(world.onlooker(), 1, overtaken).ending is Ending.SUPERSEDED
    assert withdrawn == [ADDRESS]
    assert published_attempt(world) == 2
