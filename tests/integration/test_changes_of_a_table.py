"""A table that is changed at random, as its change stream leaves it in each sink that keeps current rows."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.worlds.changed_table import DECODE, ChangedTable, comparable
from tests.worlds.table_world import TableWorld

MakeTableWorld = Callable[..., TableWorld]
ORDERS = {"connection": "warehouse", "table": "copied.orders", "key": ["id"], "auto_create": True}


def in_postgres(world: TableWorld) -> dict[int, tuple[Any, ...]]:
    rows = world.query("SELECT * FROM copied.orders WHERE NOT _deleted")
    return {row["id"]: comparable(row) for row in rows}


@pytest.mark.parametrize("seed", range(3))
def test_a_table_is_what_its_change_stream_says_in_whatever_order_it_is_processed(
    make_table_world: MakeTableWorld, seed: int
) -> None:
    random = Random(seed)
    world = make_table_world(
        partitions=3, settings={"decode": DECODE, "sinks": [{"postgres": ORDERS}], "event_time": {}}
    )
    table = ChangedTable(world.targets["warehouse"], world.broker, world.topic, world.partitions, random)
    for number in range(4):
        table.change(30)
        assert table.send() >= 10
        world.ok("plan", "demo", "--run-key", f"run {number}")
        manifests = [str(manifest["id"]) for manifest in world.manifests()]
        random.shuffle(manifests)
        for manifest in manifests[: random.randint(0, len(manifests))]:
            done = next(each for each in world.manifests() if str(each["id"]) == manifest)["state"] == "done"
            world.ok("replay" if done else "retry", "demo", "--manifest", manifest)
    if any(manifest["state"] != "done" for manifest in world.manifests()):
        world.ok("retry", "demo")
    for manifest in world.manifests():
        world.ok("replay", "demo", "--manifest", str(manifest["id"]))
    assert in_postgres(world) == table.rows()
    assert world.json("objects", "demo", "--dead-letters") == []
    assert world.ok("audit", "demo", "--deep") == ""
