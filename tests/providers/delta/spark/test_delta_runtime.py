"""Delta tables that Spark reads, optimizes, vacuums, changes and restores, with Delta's own runtime."""

from collections import Counter
from collections.abc import Callable

import pytest

from tests.worlds.asked_spark import AskedSpark
from tests.worlds.delta_readers import by_spark
from tests.worlds.delta_world import DeltaWorld, KeyedDeltaWorld
from tests.worlds.world import KEYS

ROWS = "SELECT _topic, _topic_partition, _offset FROM {table}"
AT = "SELECT count(*) FROM {table} WHERE at >= '2024-03-01T01:00:00Z'"
WHY = ("--why", "a test")


@pytest.mark.thorough
def test_spark_reads_a_table_and_its_optimize_and_vacuum_are_survived_and_its_restore_is_noticed(
    asked_spark: AskedSpark,
    make_delta_world: Callable[..., DeltaWorld],
) -> None:
    world = make_delta_world(settings={"kafka": {"slice": {"max_records": 1000}}})
    for number in range(3):
        world.produce(30, bad_every=13)
        world.ok("run", "demo", "--run-key", str(number))
    before = world.rows()
    read, [[late]], _, _, again = by_spark(
        asked_spark, world, ROWS, AT, "OPTIMIZE {table}", "VACUUM {table} RETAIN 0 HOURS", ROWS
    )
    assert Counter(map(tuple, read)) == Counter(map(tuple, again)) == before
    assert late == sum(row["at"].hour >= 1 for row in world.all_rows()), "no file is skipped that has such a row"
    world.assert_complete()
    assert "unchanged" in world.here("replay", "demo", "--manifest", "1").stderr
    world.settings["decode"] = {"format": "json", "schema": "n BIGINT NOT NULL, at TIMESTAMP NOT NULL, k BIGINT"}
    world.write_pipeline()
    version = world.loaded().version()
    world.ok("replay", "demo", "--manifest", "2")
    world.assert_complete()
    [again, _] = by_spark(asked_spark, world, ROWS, f"RESTORE TABLE {{table}} TO VERSION AS OF {version}")
    assert Counter(map(tuple, again)) == before
    assert "went back: it stands at position" in world.here("plan", "demo").stderr
    world.ok("db", "adopt", "demo", *WHY)
    world.ok("replay", "demo", "--manifest", "2")
    world.assert_complete()


@pytest.mark.thorough
def test_spark_reads_and_changes_a_table_with_a_key_and_later_merges_replace_what_it_wrote(
    asked_spark: AskedSpark,
    make_keyed_delta_world: Callable[..., KeyedDeltaWorld],
) -> None:
    world = make_keyed_delta_world(settings={"kafka": {"slice": {"max_records": 1000}}})
    for number in range(2):
        world.produce(30, bad_every=13)
        world.ok("run", "demo", "--run-key", str(number))
    current = "SELECT k, n FROM {table} WHERE NOT _is_deleted"
    read, _, _, again = by_spark(
        asked_spark, world, current, "OPTIMIZE {table}", "UPDATE {table} SET name = 'by Spark' WHERE k = 3", current
    )
    expected = {key: n for key, (n, _) in world.current().items()}
    assert dict(map(tuple, read)) == dict(map(tuple, again)) == expected
    assert len(read) == KEYS
    assert [row["name"] for row in world.all_rows() if row["k"] == 3] == ["by Spark"]
    assert world.ok("audit", "demo", "--deep") == ""
    world.produce(30)
    world.ok("run", "demo", "--run-key", "after")
    world.assert_complete()
    [read] = by_spark(asked_spark, world, current)
    assert dict(map(tuple, read)) == {key: n for key, (n, _) in world.current().items()}
