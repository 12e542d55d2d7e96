"""PostgreSQL itself is killed in the middle of the work and recovers, with fsync, on a server that only this module
uses."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sandbox.services.postgres import Postgres
from tests.worlds.world import World, wait_stopped, wake
from tidemark.database.migrate import migrate
from tidemark.failpoints import FAILPOINTS

IN_MAKE_TEST = ("plan.before_commit", "publish.before_mark")
POINTS = [
    pytest.param(point, marks=() if point in IN_MAKE_TEST else pytest.mark.exhaustive, id=point) for point in FAILPOINTS
]


@pytest.fixture
def database(mortal: Postgres) -> Iterator[str]:
    """In place of the session's: this one may die."""
    with mortal.temporary_database("test") as dsn:
        migrate(dsn)
        yield dsn


@contextmanager
def dead(mortal: Postgres) -> Iterator[None]:
    mortal.kill()
    try:
        yield
    finally:
        mortal.restart()


@pytest.mark.parametrize("point", POINTS)
def test_killed_and_back_while_a_process_is_stopped_at_a_failpoint(world: World, mortal: Postgres, point: str) -> None:
    world.produce(60, bad_every=9)
    process = world.start("run", "demo", "--run-key", "one", failpoint=f"{point}:stop")
    wait_stopped(process)
    with dead(mortal):
        pass
    published = world.json("manifests", "demo", "--state", "done")
    ended = wake(process)
    assert ended.returncode == 1, "its session is gone, so it must not go on"
    assert "the manifest database failed" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert world.json("manifests", "demo", "--state", "done") == published, "what was committed is there, and no more"
    world.finish()


@pytest.mark.parametrize("point", POINTS)
def test_down_while_a_process_goes_on_from_a_failpoint(world: World, mortal: Postgres, point: str) -> None:
    world.produce(60)
    process = world.start("run", "demo", "--run-key", "one", failpoint=f"{point}:stop")
    wait_stopped(process)
    with dead(mortal):
        started = time.monotonic()
        ended = wake(process)
        assert time.monotonic() - started < 15
        listed = world.listing()
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert listed == world.listing()
    world.finish()


@pytest.mark.exhaustive
@pytest.mark.parametrize("seconds", [0.05, 0.25, 0.45, 0.65, 0.85, 1.05, 1.25])
def test_killed_at_any_moment_of_a_run(world: World, mortal: Postgres, seconds: float) -> None:
    world.produce(200, bad_every=9)
    process = world.start("run", "demo", "--run-key", "one")
    time.sleep(seconds)  # the work takes from about 0.1 to 1.7 s after the start
    with dead(mortal):
        out, err = process.communicate(timeout=60)
    assert process.returncode in (0, 1), out + err
    assert "Traceback" not in err
    world.finish()


@pytest.mark.exhaustive
def test_killed_with_an_attempt_and_its_process_nobody_counts_as_alive(world: World, mortal: Postgres) -> None:
    world.produce(30)
    process = world.start("run", "demo", "--run-key", "one", failpoint="publish.mid:stop")
    wait_stopped(process)
    process.send_signal(signal.SIGKILL)
    with dead(mortal):
        pass
    [manifest] = world.json("manifests", "demo")
    assert manifest["state"] == "running"
    world.finish()
