"""`kill -9` of a command whose manifests are staged on a Spark Connect server, over every kind of sink.

tests/spark/test_spark_server.py has the failpoints of a lake over a server, test_kills.py those of all sinks without
one.
"""

import os
import random
import signal
from collections.abc import Callable

import pytest

from sandbox.services.processes import wait_until
from sandbox.services.spark_server import SparkServer
from tests.faults.kinds_of_worlds import KINDS, world_of
from tests.worlds.slow_batches import at_work, slow
from tests.worlds.world import World, wait_ended

POINTS = ("stage.mid", "stage.done", "publish.mid", "publish.marked")
IN_ALL = ("table", "topic")  # kinds; over the others test_kills.py kills at all points, without a server


@pytest.fixture
def world(request: pytest.FixtureRequest) -> World:
    """Some of its rows do not meet what is expected of them."""
    return world_of(request.param, request, expects=True)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("world", "points", "number"),
    [
        ("table", POINTS[:1], 1),
        *(
            pytest.param(
                kind, *((POINTS, 4) if kind in IN_ALL else (POINTS[::2], 1)), marks=pytest.mark.exhaustive, id=kind
            )
            for kind in KINDS
        ),
    ],
    indirect=["world"],
)
def test_killed_at_a_failpoint_nothing_is_missing_and_nothing_twice(
    world: World, points: tuple[str, ...], number: int, spark_server: SparkServer
) -> None:
    """At so many of the points, which are drawn."""
    for point in random.sample(points, number):
        world.produce(100, bad_every=9)
        killed = world.tidemark("run", "demo", failpoint=f"{point}:kill9", on=spark_server.remote)
        assert killed.returncode == -signal.SIGKILL, (point, killed.stderr)
        world.assert_whole()
        done = world.tidemark("retry", "demo", on=spark_server.remote)
        assert done.returncode == 0, (point, done.stderr)
        world.ok("run", "demo")  # there is nothing left to read, so it needs no Spark
        world.assert_readers_complete()
    world.assert_complete()


@pytest.mark.exhaustive
def test_a_client_and_its_server_killed_at_once_leave_nothing_half(
    make_table_world: Callable[..., World], spark_server: SparkServer
) -> None:
    world = make_table_world(has_lake=True)
    world.produce(40)
    slow(world, 120)
    running = world.start("run", "demo", on=spark_server.remote)
    wait_until(lambda: at_work(world, 1), "a task to be at work", timeout=120)
    os.killpg(running.pid, signal.SIGKILL)
    spark_server.kill()
    wait_ended(running)
    world.assert_whole()
    slow(world, 0)
    spark_server.restart()
    done = world.tidemark("retry", "demo", on=spark_server.remote)
    assert done.returncode == 0, done.stderr
    world.assert_complete()
