"""Manifests that an expectation blocks, and that you accept, while processes die and answers are lost."""

import signal
from collections.abc import Callable

import psycopg
import pytest

from sandbox.services.processes import wait_until
from tests.faults.postgres_proxy import Armed, Fault, Proxy
from tests.faults.runs_with_lost_answers import FAULTS, fails
from tests.worlds.dead_sessions import wait_without_the_dead
from tests.worlds.world import World, wait_ended

EXPECT = {"name": "no tenth", "check": "n % 10 <> 3", "at_most": 2}
UNMET = "4 of 40 rows do not meet no tenth"
ACCEPT = ("accept", "expectation", "demo", "--manifest", "1", "--why", "they are known")
RETRY = ("retry", "demo", "--manifest", "1")
NOTES = (
    "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' "
    "AND query LIKE '%INSERT INTO event%'"
)


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """One manifest, in which more rows do not meet a condition than it allows."""
    world = make_world(settings={"expect": [EXPECT], "kafka": {"slice": {"max_records": 1000}}})
    world.produce(40)
    return world


@pytest.fixture
def behind_proxy(world: World, postgres_proxy: Proxy) -> World:
    """The same, which reaches its database through the proxy."""
    world.dsn = postgres_proxy.dsn(world.dsn)
    return world


def killed(world: World, point: str, *words: str) -> None:
    for file in world.folder.glob("_failpoints/*"):  # those that have acted act again
        file.unlink()
    done = world.tidemark(*words, failpoint=f"{point}:kill9")
    assert done.returncode == -signal.SIGKILL, done.stderr


def blocked_again(world: World, *words: str) -> None:
    """The command tells why, and nothing can be seen."""
    tried = world.here(*words)
    assert tried.exit_code == 1
    assert UNMET in tried.stderr
    [manifest] = world.manifests()
    assert manifest["state"] == "blocked"
    assert (world.exact(), world.listing(), world.recorded()) == ({}, {}, {})


def done_since_it_is_accepted(world: World) -> None:
    world.ok(*RETRY)
    world.assert_complete()
    [expected] = world.json("show", "1")["expectations"]
    assert (expected["rows"], expected["unmet"]) == (40, 4)


def test_killed_before_its_block_is_stored_it_is_blocked_by_the_next_attempt(world: World) -> None:
    killed(world, "stage.done", "run", "demo")
    blocked_again(world, "retry", "demo")
    killed(world, "stage.done", *RETRY)
    blocked_again(world, "retry", "demo")
    world.ok(*ACCEPT)
    for point in ("stage.done", "publish.receipt", "publish.mid"):
        killed(world, point, *RETRY)
    done_since_it_is_accepted(world)


@FAULTS
def test_a_block_that_may_be_stored_or_not_publishes_nothing(
    behind_proxy: World, postgres_proxy: Proxy, fault: Fault
) -> None:
    armed = postgres_proxy.arm(Armed(fault, having="SET state = 'blocked'"))
    tried = behind_proxy.here("run", "demo")
    assert (tried.exit_code, UNMET in tried.stderr) == (1, True), tried.stderr
    assert armed.struck
    wait_without_the_dead(behind_proxy.dsn)
    [manifest] = behind_proxy.manifests()
    assert manifest["state"] == ("blocked" if fault is Fault.ANSWER_LOST else "failed")
    assert (behind_proxy.exact(), behind_proxy.listing(), behind_proxy.recorded()) == ({}, {}, {})
    blocked_again(behind_proxy, *RETRY)
    behind_proxy.ok(*ACCEPT)
    done_since_it_is_accepted(behind_proxy)


@FAULTS
def test_an_acceptance_that_may_be_stored_or_not_is_repeated(
    behind_proxy: World, postgres_proxy: Proxy, fault: Fault
) -> None:
    blocked_again(behind_proxy, "run", "demo")
    armed = postgres_proxy.arm(Armed(fault, having="INSERT INTO accepted_expectation"))
    fails(behind_proxy, *ACCEPT)
    assert armed.struck
    if fault is Fault.CUT_BEFORE:
        blocked_again(behind_proxy, *RETRY)
    behind_proxy.ok(*ACCEPT)
    done_since_it_is_accepted(behind_proxy)


def test_killed_in_the_middle_of_an_acceptance_nothing_is_accepted(world: World) -> None:
    blocked_again(world, "run", "demo")
    with psycopg.connect(world.dsn) as held:
        held.execute("LOCK TABLE tidemark.event IN SHARE MODE")  # the note of the decision is its last statement
        accepting = world.start(*ACCEPT)
        with psycopg.connect(world.dsn, autocommit=True) as onlooker:
            wait_until(lambda: bool(onlooker.execute(NOTES).fetchall()), "the decision to be noted", timeout=60)
        accepting.kill()
        assert wait_ended(accepting).returncode == -signal.SIGKILL
    blocked_again(world, *RETRY)
    assert world.json("history", "demo") == []
    world.ok(*ACCEPT)
    done_since_it_is_accepted(world)
