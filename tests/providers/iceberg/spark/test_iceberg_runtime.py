"""An Iceberg table that Spark reads, compacts and expires snapshots of, with Iceberg's own runtime."""

import os
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.worlds.asked_spark import AskedSpark
from tests.worlds.iceberg_others import forget_older_metadata
from tests.worlds.iceberg_readers import by_spark
from tests.worlds.iceberg_world import TABLE, IcebergWorld, KeyedIcebergWorld

ALL = "map('rewrite-all', 'true')"


@pytest.mark.thorough
def test_spark_reads_a_table_and_its_compaction_and_expired_snapshots_are_survived(
    asked_spark: AskedSpark,
    make_iceberg_world: Callable[..., IcebergWorld],
) -> None:
    world = make_iceberg_world(settings={"kafka": {"slice": {"max_records": 1000}}})
    for number in range(3):
        world.produce(30, bad_every=13)
        world.ok("run", "demo", "--run-key", str(number))
    before = world.rows()
    rows = f"SELECT _topic, _topic_partition, _offset FROM tidemark.{TABLE}"
    rewrite = f"CALL tidemark.system.rewrite_data_files(table => '{TABLE}', options => map('rewrite-all', 'true'))"
    expire = f"CALL tidemark.system.expire_snapshots(table => '{TABLE}', older_than => TIMESTAMP '2100-01-01')"
    where = world.targets["warehouse"], world.folder / "warehouse"
    read, [rewritten], _, [expired], again = by_spark(asked_spark, *where, rows, rewrite, rewrite, expire, rows)
    assert Counter(map(tuple, read)) == Counter(map(tuple, again)) == before
    assert rewritten[0] > rewritten[1], "there are fewer files"
    assert expired[0] == rewritten[1], "those of the first compaction; a tag has kept what it replaced"
    table = world.table()
    assert table is not None
    assert len(table.metadata.snapshots) == 2, "that of the tag, and the second compaction"

    assert world.ok("audit", "demo", "--deep") == ""
    assert "unchanged" in world.here("replay", "demo", "--manifest", "1").stderr
    world.settings["decode"] = {"format": "json", "schema": "n BIGINT NOT NULL, at TIMESTAMP NOT NULL, k BIGINT"}
    world.write_pipeline()
    world.ok("replay", "demo", "--manifest", "2")
    world.produce(10)
    world.ok("run", "demo")
    [expired], again = by_spark(asked_spark, *where, expire, rows)
    assert expired[0] >= rewritten[0], "the tag has moved, and the files before the compaction are gone"
    assert Counter(map(tuple, again)) == world.rows()
    world.assert_readers_complete()
    assert world.ok("audit", "demo", "--deep") == ""

    shown = world.shown()
    orphan = world.location / "data" / "of-nobody.parquet"
    orphan.touch()
    for file in world.location.rglob("*"):  # as if written long ago
        os.utime(file, (0, 0))
    orphans, again = by_spark(
        asked_spark, *where, f"CALL tidemark.system.remove_orphan_files(table => '{TABLE}')", rows
    )
    assert [path.removeprefix("file:") for [path] in orphans] == [str(orphan)]
    assert Counter(map(tuple, again)) == world.rows()
    assert world.shown() == shown
    assert world.ok("audit", "demo", "--deep") == ""


@pytest.mark.thorough
def test_spark_takes_a_table_of_which_nobody_can_tell_what_it_holds_to_its_newest_publication(
    asked_spark: AskedSpark,
    make_iceberg_world: Callable[..., IcebergWorld],
) -> None:
    """Spark rewrites it twice, sorts it and expires the rest; then its older metadata goes as well."""
    world = make_iceberg_world(settings={"kafka": {"slice": {"max_records": 1000}}})
    world.produce(30, bad_every=13)
    world.ok("run", "demo")
    rewrite = f"CALL tidemark.system.rewrite_data_files(table => '{TABLE}', options => {ALL}"
    expire = f"CALL tidemark.system.expire_snapshots(table => '{TABLE}', older_than => TIMESTAMP '2100-01-01')"
    manifests = f"CALL tidemark.system.rewrite_manifests('{TABLE}')"
    where = world.targets["warehouse"], world.folder / "warehouse"
    by_spark(
        asked_spark, *where, f"{rewrite})", manifests, f"{rewrite}, strategy => 'sort', sort_order => 'n')", expire
    )
    assert world.ok("audit", "demo", "--deep") == ""
    forget_older_metadata(world)
    refused = world.here("plan", "demo").stderr
    [statement] = re.findall(r"CALL CATALOG\.(system\.set_current_snapshot\([^)]*\))", refused)
    by_spark(asked_spark, *where, f"CALL tidemark.{statement}")
    world.assert_readers_complete()
    assert world.ok("audit", "demo", "--deep") == ""


@pytest.mark.thorough
def test_spark_reads_and_rewrites_a_table_with_a_key_and_later_merges_replace_what_it_wrote(
    asked_spark: AskedSpark,
    make_keyed_iceberg_world: Callable[..., KeyedIcebergWorld],
) -> None:
    world = make_keyed_iceberg_world(settings={"kafka": {"slice": {"max_records": 1000}}})
    for number in range(3):
        world.produce(30 - 10 * number, bad_every=13)
        world.ok("run", "demo", "--run-key", str(number))
    rows = f"SELECT k, n, _topic, _topic_partition, _offset FROM tidemark.{world.written} WHERE NOT _is_deleted"
    drop = f"CALL tidemark.system.rewrite_position_delete_files(table => '{world.written}', options => {ALL})"
    rewrite = f"CALL tidemark.system.rewrite_data_files(table => '{world.written}', options => {ALL})"
    expire = f"CALL tidemark.system.expire_snapshots(table => '{world.written}', older_than => TIMESTAMP '2100-01-01')"
    where = world.targets["warehouse"], world.folder / "warehouse"
    before = world.current()
    read, _, [rewritten], _, again = by_spark(asked_spark, *where, rows, drop, rewrite, expire, rows)
    assert by_key(read) == by_key(again) == before == world.current()
    assert rewritten[0] > rewritten[1], "there are fewer files"
    assert world.shown() == {1: 1, 2: 1, 3: 1}
    assert world.ok("audit", "demo", "--deep") == ""

    world.settings["transform"] = [{"select": ["*", "1::BIGINT AS version"]}]
    world.write_pipeline()
    world.ok("replay", "demo", "--manifest", "2")
    world.produce(5)
    world.ok("run", "demo")
    [read] = by_spark(asked_spark, *where, rows)
    assert by_key(read) == world.current()
    world.assert_readers_complete()
    assert world.ok("audit", "demo", "--deep") == ""


def by_key(rows: list[list[Any]]) -> dict[Any, tuple[Any, ...]]:
    """As ``KeyedIcebergWorld.current`` has them."""
    assert len({k for k, *_ in rows}) == len(rows), "a key has one row"
    return {k: (n, (topic, partition, offset)) for k, n, topic, partition, offset in rows}
