"""Attempts whose driver works on while no process waits for it: a lease takes the place of the process."""

import asyncio
import contextlib
import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from sandbox.services.postgres import Postgres
from tests.faults.model_world import ModelWorld, ScheduleSettings
from tidemark.airflow import driver_trigger, trigger
from tidemark.airflow.driver_trigger import DriverAnswers
from tidemark.database.client import ManifestDatabase
from tidemark.errors import Fenced, TidemarkError, Unavailable, WorkFailed
from tidemark.lifecycle import attempt
from tidemark.lifecycle.attempt import process
from tidemark.lifecycle.deferral import AttemptDeferred, Deferral, StagedElsewhere
from tidemark.lifecycle.plan import Tick, plan
from tidemark.lifecycle.publish import Ending, Outcome
from tidemark.lifecycle.select import unfinished
from tidemark.model.manifest import ManifestState, RunKind
from tidemark.model.order import Order
from tidemark.model.receipt import Receipt
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
        raise StagedElsewhere(ADDRESS, LOG)

    def defer(self, *, replay: bool = False) -> Deferral:
        with pytest.raises(AttemptDeferred) as deferred:
            process(self.world.onlooker(), 1, self.is_started, replay=replay)
        return deferred.value.deferral

    def take_up(self, going_on: Deferral, *, replay: bool = False) -> Outcome:
        receipt = self.world.stage(self.orders[going_on.attempt - 1])
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
