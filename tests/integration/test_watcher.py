"""The watcher of ``trigger``, on a real Kafka and manifest database: a burst starts a run, and nothing stops it."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from sandbox.bootstrap.checkout import STATE
from sandbox.services.broker import Broker
from sandbox.services.processes import wait_until
from tests.worlds.world import World
from tidemark.airflow import watcher
from tidemark.airflow.watcher import LagTrigger, Seen
from tidemark.lifecycle.plan import PlannedRun, Tick, plan
from tidemark.model.manifest import RunKind
from tidemark.operations.lags import Lags

MakeWorld = Callable[..., World]
S = timedelta(seconds=1)
pytestmark = [pytest.mark.thorough, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker of this module alone, which may stand still."""
    with Broker(tmp_path_factory.mktemp("mortal"), STATE / "jars" / "kafka") as server:
        yield server


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Seen]]:
    """What watchers have seen, oldest first; they look several times a second."""
    seen: list[dict[str, Seen]] = []

    def look(names: set[str], lags: Lags) -> dict[str, Seen]:
        seen.append(watched(names, lags))
        return seen[-1]

    watched = watcher.look
    monkeypatch.setattr(watcher, "look", look)
    monkeypatch.setattr(watcher, "POLL", S / 5)
    monkeypatch.setattr("tidemark.operations.lags.FRESH", 0.0)
    return seen


def use(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """Watchers find the world by the environment."""
    for name, value in world.environment().items():
        if name.startswith("TIDEMARK_"):
            monkeypatch.setenv(name, value)
    return world


@contextmanager
def watching(name: str = "demo") -> Iterator[list[dict[str, Any]]]:
    """The events of a watcher, in an event loop of its own as in a triggerer, until the block ends."""
    events: list[dict[str, Any]] = []

    async def watch() -> None:
        async for event in LagTrigger(name).run():
            events.append(event.payload)  # noqa: PERF401 - one by one, as they come

    loop = asyncio.new_event_loop()
    task = loop.create_task(watch())

    def run() -> None:
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(task)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield events
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def planned(world: World, run_key: str) -> PlannedRun:
    return plan(world.context(), Tick(run_key, RunKind.SCHEDULED, None))


def wait_seen(looks: list[dict[str, Seen]], is_true: Callable[[Seen], bool], what: str) -> None:
    """Until a look that began after this call, and the one after it, has seen it."""
    begun = len(looks)
    wait_until(
        lambda: sum("demo" in look and is_true(look["demo"]) for look in looks[begun + 1 :]) > 1, what, timeout=150
    )


def test_a_burst_starts_a_run_when_enough_wait_and_again_until_a_plan_has_taken_it(
    make_world: MakeWorld, looks: list[dict[str, Seen]], monkeypatch: pytest.MonkeyPatch
) -> None:
    trigger = {"lag": 100, "at_most_every": "10s", "at_least_every": "1d"}
    world = use(make_world(settings={"trigger": trigger}), monkeypatch)
    with watching() as events:
        wait_until(lambda: events, "a pipeline that was never planned", timeout=60)
        planned(world, "first")
        world.produce(99)
        wait_seen(looks, lambda seen: seen.lag == 99 and (seen.planned_ago or S) > 11 * S, "99 records for 11 s")
        assert {event["planned_ago"] for event in events} == {"None"}
        begun = len(events)
        world.produce(1)
        wait_until(lambda: len(events) > begun, "enough records", timeout=60)
        wait_until(lambda: len(events) > begun + 1, "it lasts", timeout=60)

        first, second = planned(world, "of a scheduler"), planned(world, "of a second scheduler")
        assert first.manifests
        assert (second.manifests, second.covered_by) == ((), first.manifests)
        wait_seen(looks, lambda seen: seen.lag == 0, "the plan")
        begun_again = len(events)
        world.produce(100)
        wait_until(lambda: len(events) > begun_again, "another burst", timeout=60)
        assert {event["lag"] for event in events[begun:]} == {100}
        assert min(event["planned_ago"] for event in events[begun:]) >= "0:00:10"


def test_a_run_begins_after_the_longest_time_whatever_waits_and_a_watcher_that_starts_again_knows_it(
    make_world: MakeWorld, looks: list[dict[str, Seen]], monkeypatch: pytest.MonkeyPatch
) -> None:
    trigger = {"lag": 100, "at_most_every": "10s", "at_least_every": "20s"}
    world = use(make_world(settings={"trigger": trigger}), monkeypatch)
    world.produce(1)
    for run_key in ("first", "second"):
        planned(world, run_key)
        with watching() as events:
            wait_until(lambda events=events: events, "20 s after the plan", timeout=60)
        assert min(event["planned_ago"] for event in events) >= "0:00:20"
    assert looks[-1]["demo"].lag == 0


def test_neither_a_silent_broker_nor_a_database_that_is_away_nor_a_wrong_file_ends_a_watcher(
    make_world: MakeWorld, looks: list[dict[str, Seen]], monkeypatch: pytest.MonkeyPatch, mortal: Broker,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    trigger = {"lag": 100, "at_most_every": "10s", "at_least_every": "1d"}
    world = make_world(settings={"trigger": trigger})
    world.broker = mortal
    world.create_topic()
    use(world, monkeypatch).write_pipeline()
    planned(world, "first")
    with watching() as events:
        wait_seen(looks, lambda seen: seen.lag == 0, "a first look")
        mortal.stop_signal()
        try:
            wait_seen(looks, lambda seen: seen.lag is None, "silence")
        finally:
            mortal.cont_signal()
        assert "pipeline demo: the lag is not known: " in caplog.text

        monkeypatch.setenv("TIDEMARK_DB", "postgresql://nobody@127.0.0.1:1/nowhere")
        wait_until(lambda: "it is not known how far" in caplog.text, "the database to be missed", timeout=60)
        monkeypatch.setenv("TIDEMARK_DB", world.dsn)
        file = world.pipelines / "demo.yaml"
        file.write_text(file.read_text().replace("source:", "sorce:"))
        wait_seen(looks, lambda seen: seen.lag == 0, "the last valid text of the file")
        assert events == []
        world.produce(100)
        wait_until(lambda: events, "a burst", timeout=60)
        assert events[0]["lag"] == 100
