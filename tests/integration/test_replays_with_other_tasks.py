"""Replays after ``spark.records_per_task`` was changed: the same records, in tasks of other partitions."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.worlds.world import World

MAKERS = ["make_world", "make_iceberg_world", "make_delta_world"]
KEYED = ["make_keyed_iceberg_world", "make_keyed_delta_world"]
ONE_MANIFEST = {"kafka": {"slice": {"max_records": 1000}}}
OTHER_ROWS = {
    "format": "json",
    "schema": "n BIGINT NOT NULL, at TIMESTAMP NOT NULL, name STRING, k BIGINT NOT NULL, j BIGINT",
}


def published(request: pytest.FixtureRequest, maker: str) -> World:
    """A manifest of four partitions, each read by a task of its own."""
    make: Callable[..., World] = request.getfixturevalue(maker)
    world = make(partitions=4, settings={**ONE_MANIFEST, "spark": {"records_per_task": 1}})
    world.produce(80, bad_every=13)
    world.ok("run", "demo")
    return world


def replay(world: World, **changes: Any) -> None:
    world.settings |= changes
    world.write_pipeline()
    world.ok("replay", "demo", "--manifest", "1")
    world.ok("audit", "demo", "--deep")


def paths(world: World) -> list[str]:
    """The published files of rows."""
    return sorted(each["path"] for each in world.json("objects", "demo"))


@pytest.mark.parametrize("maker", MAKERS)
def test_equal_rows_stay_where_they_are_and_other_rows_get_files_by_the_tasks_of_now(
    maker: str, request: pytest.FixtureRequest
) -> None:
    world = published(request, maker)
    many = paths(world)
    replay(world, spark={"records_per_task": 1_000_000})
    assert paths(world) == many, "equal rows move nothing"
    replay(world, decode=OTHER_ROWS)
    few = paths(world)
    assert few
    assert len(few) < len(many)
    assert not {*few} & {*many}
    world.assert_complete()


@pytest.mark.parametrize("maker", KEYED)
def test_rows_of_keys_are_the_same_whatever_tasks_have_read(maker: str, request: pytest.FixtureRequest) -> None:
    world = published(request, maker)
    replay(world, spark={"records_per_task": 1_000_000})
    replay(world, decode=OTHER_ROWS)
    world.assert_complete()
