"""Several slices at once in one process (``spark.parallel_slices``): `kill -9` in the middle of two, then `retry`."""

import os
import signal
import time
from collections.abc import Callable, Sequence

import pytest

from sandbox.services.processes import wait_until
from tests.faults.kinds_of_worlds import world_of
from tests.worlds.world import World
from tidemark.failpoints import FAILPOINTS

AT_ONCE = {"spark": {"parallel_slices": 2}}
SINKS = ("lake", "lake and table", "table in the manifest database", "iceberg", "lake and totals", "dynamodb")
OF_ATTEMPTS = [point for point in FAILPOINTS if not point.startswith("plan.")]
QUICK = {
    "lake and table": ("attempt.started", "stage.mid", "publish.mid", "publish.before_mark"),
    "iceberg": ("publish.before_record",),
    "lake and totals": ("publish.before_record",),
}
CASES = [
    *(pytest.param(points, sink, id=f"{sink}, quick", marks=pytest.mark.thorough) for sink, points in QUICK.items()),
    *(
        pytest.param(
            [point for point in OF_ATTEMPTS if point not in QUICK.get(sink, ())],
            sink, marks=[pytest.mark.exhaustive, pytest.mark.timeout(600)], id=sink,
        )
        for sink in SINKS
    ),
]  # fmt: skip


@pytest.fixture
def world(request: pytest.FixtureRequest) -> World:
    return world_of(request.param, request, settings=AT_ONCE)


@pytest.mark.parametrize(("points", "world"), CASES, indirect=["world"])
def test_killed_in_the_middle_of_two_slices_nothing_is_missing_and_nothing_twice(
    world: World, points: Sequence[str]
) -> None:
    for point in points:
        world.produce(160, bad_every=9)
        killed = world.tidemark("run", "demo", "--run-key", point, failpoint=f"{point}:kill9@2")
        assert killed.returncode == -signal.SIGKILL, (point, killed.stderr)
        world.assert_whole()
        done = world.tidemark("retry", "demo")
        assert done.returncode == 0, (point, done.stderr)
        world.ok("run", "demo", "--run-key", point)
        world.assert_readers_complete()
    world.assert_complete()
    world.produce(80)
    done = world.tidemark("run", "demo", "--run-key", "two")
    assert done.returncode == 0, done.stderr
    world.assert_complete()


def alive(world: World) -> int:
    return sum(each["alive"] for each in world.manifests())


def has_staged(world: World) -> int:
    """The number of manifests that have a staged file."""
    return len({path.parents[2] for path in world.lake.glob("_staging/*/*/files/[!.]*.parquet")})


def test_two_attempts_are_alive_at_once_and_both_are_taken_for_dead_when_their_process_is(
    make_world: Callable[..., World],
) -> None:
    world = make_world(settings=AT_ONCE)
    world.produce(160)
    stopped = world.start("run", "demo", failpoint="read.before:hang:240@always")
    wait_until(lambda: alive(world) == 2, "two attempts", timeout=60)
    running = [each for each in world.manifests() if each["state"] == "running"]
    assert [each["alive"] for each in running] == [True, True]
    assert {each["id"] for each in running} == {each["id"] for each in world.manifests()[:2]}
    stopped.kill()
    stopped.communicate(timeout=60)
    assert alive(world) == 0
    world.ok("retry", "demo")
    world.assert_complete()


def test_a_paused_process_with_two_slices_changes_nothing_when_it_wakes_after_both_were_taken_over(
    make_world: Callable[..., World],
) -> None:
    world = make_world(settings=AT_ONCE)
    world.produce(160)
    paused = world.start("run", "demo", "--run-key", "one", failpoint="stage.done:hang:15@always")
    wait_until(lambda: alive(world) == 2 and has_staged(world) == 2, "two attempts that have staged", timeout=60)
    time.sleep(3)  # then both are at the failpoint, and none is inside a transaction whose locks others wait for
    os.kill(paused.pid, signal.SIGSTOP)
    world.ok("replay", "demo", "--run-key", "one", "--take-over")
    world.assert_readers_complete()
    published = [each["publications"] for each in world.manifests()]
    paused.send_signal(signal.SIGCONT)
    printed = paused.communicate(timeout=120)[1]
    assert "Traceback" not in printed
    assert [each["publications"] for each in world.manifests()] == published
    world.assert_complete()
