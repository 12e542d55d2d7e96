"""Runs of which each loses another answer of PostgreSQL, and what must be true after each."""

import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from tests.faults.postgres_proxy import Armed, Fault, Proxy
from tests.worlds.dead_sessions import wait_without_the_dead
from tests.worlds.world import World

Fresh = Callable[[], AbstractContextManager[World]]
FAULTS = pytest.mark.parametrize("fault", Fault)
MOST = 600  # more statements than a run has, so that the loop ends


def fails(world: World, *words: str) -> str:
    """The command must end with 1 and report the database's error; readers see no half manifest."""
    done = world.here(*words)
    assert done.exit_code == 1, done.stderr
    assert "the manifest database failed" in done.stderr
    assert "the next try finds out whether it succeeded" in done.stderr
    wait_without_the_dead(world.dsn)  # the server ends a session a moment after its connection
    world.assert_whole()
    return done.stderr


def lose_each(fresh: Fresh, proxy: Proxy, fault: Fault, *, every: bool, step: int = 1, having: str = "") -> list[str]:
    """Repeat a run, each time with a fault at the next COMMIT (or statement); returns those that were hit, in order.

    ``step``: only every such COMMIT or statement, from a random first. ``having``: only those with this text.
    """
    met: list[str] = []
    for at in range(1 + secrets.randbelow(step), MOST, step):
        with fresh() as world:
            struck = lose(world, proxy, Armed(fault, at, having, every))
        if not struck:
            return met
        met.append(struck)
    raise AssertionError(f"a run has more than {MOST} statements: is it the same every time?")


def lose(world: World, proxy: Proxy, armed: Armed) -> str:
    """A run of two manifests with a fault, then a retry without. Returns the SQL that was hit; "" when none was."""
    world.produce(50)
    proxy.arm(armed)
    done = world.here("run", "demo", "--run-key", "one")
    proxy.disarm()
    wait_without_the_dead(world.dsn)
    assert done.exit_code in ((0, 1) if armed.struck else (0,)), done.stderr
    world.finish()
    return armed.struck
