"""An Iceberg table with one row per key: what stands after merges in any order, and beside other programs."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.worlds.iceberg_others import (
    append_a_stranger,
    compact,
    current,
    delete_by_position,
    delete_by_value,
    expire,
    forget_older_metadata,
    roll_back,
    upgrade_to_version_3,
)
from tests.worlds.iceberg_readers import read_by_duckdb
from tests.worlds.iceberg_world import KeyedIcebergWorld
from tests.worlds.world import KEYS, wait_stopped, wake

Make = Callable[..., KeyedIcebergWorld]
WHY = ("--why", "a test")


@pytest.fixture
def world(make_keyed_iceberg_world: Make) -> KeyedIcebergWorld:
    return make_keyed_iceberg_world(settings={"kafka": {"slice": {"max_records": 1000}}})


def run(world: KeyedIcebergWorld, count: int, **options: Any) -> int:
    """Produce records and process them; the id of their manifest."""
    world.produce(count, **options)
    world.ok("run", "demo", "--run-key", str(world.produced))
    return int(world.manifests()[-1]["id"])


def code(world: KeyedIcebergWorld, *transforms: dict[str, Any]) -> None:
    """From here on the pipeline makes other rows of the same records."""
    world.settings["transform"] = list(transforms)
    world.write_pipeline()


def test_rows_of_a_key_replace_each_other_and_files_without_a_row_that_stands_leave_the_table(
    world: KeyedIcebergWorld,
) -> None:
    for number in range(6):
        run(world, 30, bad_every=13 if number else 0)
    world.assert_complete()
    table = world.table()
    assert table is not None
    files = table.inspect.data_files()
    assert sum(files["record_count"].to_pylist()) < 6 * 30 / 2, "of six manifests hardly more than one is left"
    assert table.inspect.delete_files().num_rows <= files.num_rows, "a data file has one delete file at most"
    assert sorted(read_by_duckdb(table.metadata_location)) == sorted(place for _, place in world.current().values())


def append_a_key_again(world: KeyedIcebergWorld) -> None:
    world.append_key_again(3)


@pytest.mark.parametrize("other", [append_a_stranger, append_a_key_again, compact])
def test_what_another_program_commits_right_before_our_commit_is_merged_too(
    world: KeyedIcebergWorld, other: Callable[[KeyedIcebergWorld], None]
) -> None:
    run(world, 30)
    world.produce(30)
    paused = world.start("run", "demo", failpoint="publish.before_record:stop")
    wait_stopped(paused)
    other(world)
    woken = wake(paused)
    assert woken.returncode == 0, woken.stderr
    world.assert_complete()


def test_a_table_that_was_compacted_and_whose_past_was_expired_goes_on(world: KeyedIcebergWorld) -> None:
    for _ in range(3):
        run(world, 30, bad_every=13)
    compact(world)
    expire(world)
    assert world.shown() == {1: 1, 2: 1, 3: 1}
    assert world.ok("audit", "demo", "--deep") == ""
    code(world, {"select": ["*", "1::BIGINT AS version"]})
    world.ok("replay", "demo", "--manifest", "3")
    run(world, 5)
    world.assert_readers_complete()
    assert world.ok("audit", "demo", "--deep") == ""


@pytest.mark.parametrize("forgets", [False, True], ids=["with its past", "and its past was cleaned up"])
def test_a_table_that_was_rolled_back_is_refused_until_a_person_adopts_it(
    world: KeyedIcebergWorld, forgets: bool
) -> None:
    run(world, 30)
    before = current(world)
    last = run(world, 30)
    roll_back(world, before)
    if forgets:
        expire(world)
        forget_older_metadata(world)
    assert "went back: it stands at position 1" in world.here("run", "demo").stderr
    assert f"next: tidemark replay demo --manifest {last}" in world.ok("db", "adopt", "demo", *WHY)
    world.ok("replay", "demo", "--manifest", str(last))
    world.assert_complete()


def test_a_table_rolled_back_while_an_attempt_is_at_work_is_not_hidden_by_its_commit(world: KeyedIcebergWorld) -> None:
    run(world, 30)
    before = current(world)
    run(world, 30)
    world.produce(30)
    paused = world.start("run", "demo", failpoint="publish.before_record:stop")
    wait_stopped(paused)
    roll_back(world, before)
    rolled_back = world.all_rows()
    woken = wake(paused)
    assert woken.returncode == 1
    assert "another program restored an older version of the table" in woken.stderr
    assert world.all_rows() == rolled_back
    assert "went back: it stands at position" in world.here("retry", "demo").stderr


def test_a_table_that_is_upgraded_right_before_our_commit_is_refused(world: KeyedIcebergWorld) -> None:
    run(world, 30)
    world.produce(30)
    paused = world.start("run", "demo", failpoint="publish.before_record:stop")
    wait_stopped(paused)
    upgrade_to_version_3(world)
    before = world.all_rows()
    woken = wake(paused)
    assert woken.returncode == 1
    assert world.all_rows() == before
    assert "the table has format version 3" in world.here("retry", "demo").stderr


def test_a_table_with_another_key_or_none_or_of_format_version_3_is_refused(world: KeyedIcebergWorld) -> None:
    run(world, 30)
    other_key = 'the table was made with tidemark.key = ["k"], but the pipeline file says ["k", "n"]'
    for options, message, exit_code in (
        ({"key": ["k", "n"]}, other_key, 1),
        (
            {"key": None, "order_by": None, "partition_by": ["bucket(4, k)"]},
            "has ordered the rows of a key by n, the pipeline file now orders them by their offsets",
            2,
        ),
    ):
        settings = world.entry(**options)["iceberg"]
        world.settings["sinks"] = [{"iceberg": {name: value for name, value in settings.items() if value is not None}}]
        world.write_pipeline()
        world.produce(10)
        refused = world.here("run", "demo", "--run-key", message)
        assert refused.exit_code == exit_code
        assert message in refused.stderr
    world.settings["sinks"] = world.sinks()
    world.write_pipeline()
    world.ok("retry", "demo")
    upgrade_to_version_3(world)
    world.produce(10)
    refused = world.here("run", "demo", "--run-key", "v3")
    assert "the table has format version 3" in refused.stderr


def test_the_evidence_of_merges_is_in_the_snapshot_for_people(world: KeyedIcebergWorld) -> None:
    run(world, 30)
    table = world.table()
    assert table is not None
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["tidemark.superseded"] == str(30 - KEYS)
    assert json.loads(table.properties["tidemark.key"]) == ["k"]
    refused = world.here("objects", "demo")
    assert "its files also hold rows that were replaced" in refused.stderr


def test_a_row_that_others_have_deleted_by_position_does_not_stand_and_an_older_manifest_brings_its_key_back(
    make_keyed_iceberg_world: Make,
) -> None:
    world = make_keyed_iceberg_world()
    world.produce(80)
    world.ok("plan", "demo")
    older, newer = (str(manifest["id"]) for manifest in world.manifests())
    world.ok("retry", "demo", "--manifest", newer)
    delete_by_position(world, 3)
    assert sorted(world.current()) == [k for k in range(KEYS) if k != 3]
    world.ok("retry", "demo", "--manifest", older)
    by_key = {row["k"]: str(row["_manifest_id"]) for row in world.all_rows()}
    assert by_key == {k: older if k == 3 else newer for k in range(KEYS)}
    run(world, 30)
    world.assert_readers_complete()


def test_rows_that_others_have_deleted_by_value_are_refused_until_the_table_is_rewritten(
    world: KeyedIcebergWorld,
) -> None:
    run(world, 30)
    delete_by_value(world, 3)
    world.produce(30)
    refused = world.here("run", "demo", "--run-key", "two")
    assert refused.exit_code == 1
    assert "deleted rows of the table by their values (equality deletes)" in refused.stderr
    assert "rewrite_data_files(table => 'sales.current'" in refused.stderr
