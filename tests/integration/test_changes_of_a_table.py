"""A table that is changed at random, as its change stream leaves it in each sink that keeps current rows."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.worlds.changed_table import COLUMNS, DECODE, ChangedTable, comparable
from tests.worlds.current_rows import CurrentRows
from tests.worlds.table_world import TableWorld


@pytest.mark.parametrize("seed", range(3))
def test_a_table_is_what_its_change_stream_says_in_whatever_order_it_is_processed(
    make_table_world: Callable[..., TableWorld], tmp_path: Path, seed: int
) -> None:
    random = Random(seed)
    sinks = CurrentRows.entries(tmp_path / "tables")
    world = make_table_world(partitions=3, settings={"decode": DECODE, "sinks": sinks, "event_time": {}})
    rows = CurrentRows(world)
    table = ChangedTable(world.targets["warehouse"], world.broker, world.topic, world.partitions, random)
    for number in range(4):
        table.change(30)
        assert table.send() >= 10
        world.ok("plan", "demo", "--run-key", f"run {number}")
        manifests = [str(manifest["id"]) for manifest in world.manifests()]
        random.shuffle(manifests)
        for manifest in manifests[: random.randint(0, len(manifests))]:
            rows.publish(manifest)
    rows.finish()
    for manifest in world.manifests():
        rows.publish(str(manifest["id"]))
    copied = rows.seen(*COLUMNS)
    assert {key: comparable(dict(zip(COLUMNS, row, strict=True))) for key, row in copied.items()} == table.rows()
    assert world.json("objects", "demo", "--dead-letters") == []
    rows.finish()
