"""A table with one row per key: what is merged, what is refused, and what a person is told."""

from collections.abc import Callable

import pytest

from tests.table_world import TableWorld


@pytest.fixture(params=["same database", "another database"])
def world(request: pytest.FixtureRequest, make_table_world: Callable[..., TableWorld]) -> TableWorld:
    return make_table_world(same=request.param == "same database")


def test_a_run_leaves_the_newest_row_of_each_key(world: TableWorld) -> None:
    world.produce(100, bad_every=11)
    world.ok("run", "demo")
    world.assert_whole()
    world.assert_complete()
