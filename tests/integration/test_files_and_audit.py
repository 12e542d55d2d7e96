"""From Kafka to files and back: what readers find, what the audit says of a damaged lake, and how a replay mends it."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sandbox.postgres import Postgres
from tests.world import World
from tidemark.digest import row_digest
from tidemark.errors import Blocked
from tidemark.sinks.formats import open_format

MakeWorld = Callable[..., World]
Files = dict[str, tuple[bytes, int]]


def data_paths(world: World, *words: str) -> list[Path]:
    return [Path(line) for line in world.ok("objects", "demo", *words).splitlines()]


def files(world: World) -> Files:
    """Every file of the lake with its bytes and the moment it was written."""
    found = [path for path in world.lake.rglob("*") if path.is_file()]
    return {str(path.relative_to(world.lake)): (path.read_bytes(), path.stat().st_mtime_ns) for path in found}


def read(paths: list[Path]) -> list[dict[str, Any]]:
    rows = [row for path in paths for row in pq.read_table(path, partitioning=None).to_pylist()]
    return sorted(rows, key=lambda row: (row["_partition"], row["_offset"]))


# what is written


def test_every_record_is_in_the_folder_of_its_event_hour_once(world: World) -> None:
    world.produce(200)
    done = world.json("run", "demo")
    assert done["counts"]["read"] == done["counts"]["written"] == 200
    paths = data_paths(world)
    totals = "SELECT count(*), count(DISTINCT n), sum(n) FROM read_parquet($paths)"
    found = duckdb.sql(totals, params={"paths": [str(one) for one in paths]})
    assert found.fetchall() == [(200, 200, sum(range(200)))]
    for path in paths:
        hours = {row["at"].strftime("%Y/%m/%d/%H") for row in read([path])}
        assert hours == {str(path.parent.relative_to(world.lake / "raw" / world.topic))}
    assert sum(written for written, _ in done["hours"].values()) == 200
    assert len(done["hours"]) == 5
    world.assert_complete()


def test_every_table_has_the_metadata_columns_and_the_field_types_of_the_schema(world: World) -> None:
    world.produce(10)
    world.ok("run", "demo")
    [manifest] = world.json("manifests", "demo")
    for path in data_paths(world):
        schema = pq.read_schema(path)
        assert schema.names == [
            "_topic",
            "_partition",
            "_offset",
            "_timestamp",
            "_key",
            "_manifest_id",
            "n",
            "at",
            "name",
        ]
        assert str(schema.field("at").type) == "timestamp[us, tz=UTC]"
        assert pq.read_metadata(path).row_group(0).column(6).compression == "ZSTD"
        assert {row["_manifest_id"] for row in read([path])} == {manifest["id"]}
    row = read(data_paths(world))[0]
    assert (row["_topic"], row["_key"], row["n"], row["name"]) == (world.topic, b"0", 0, "r0")


def test_objects_prints_exactly_the_published_paths(world: World) -> None:
    world.produce(100, bad_every=10)
    world.ok("plan", "demo")
    assert world.ok("objects", "demo") == ""
    first = world.json("manifests", "demo")[0]
    world.ok("retry", "demo", "--manifest", str(first["id"]))
    assert {str(path) for path in data_paths(world)} == {
        one["path"] for manifest in world.json("manifests", "demo") for one in manifest["objects"]
    }
    world.ok("retry", "demo")
    on_disk = {path for path in world.lake.rglob("*.parquet") if "_staging" not in path.parts}
    data, letters = set(data_paths(world)), set(data_paths(world, "--dead-letters"))
    assert data | letters == on_disk
    assert not data & letters
    assert [Path(one["path"]) for one in world.json("objects", "demo")] == data_paths(world)


def test_dead_letters_are_counted_and_kept_whole(make_world: MakeWorld) -> None:
    world = make_world(partitions=1)
    bad = [b"\xff\x00", b"", None, b'{"n": 1} junk', b'{"n": "1"}', b'{"n": 1}', b'{"n": 1, "at": "someday"}']
    stamped = datetime(2024, 3, 1, 12, 30, 15, 123_000, tzinfo=UTC)
    headers = [("trace", b"\x01\x02"), ("trace", None)]
    world.send(*bad, at=stamped, key=b"k\xff", headers=headers)
    world.produce(3)
    world.ok("run", "demo")
    [manifest] = world.json("manifests", "demo")
    assert manifest["counts"] == {
        "read": 10, "invisible": 0, "written": 3, "dead_lettered": 7, "filtered": 0, "deduplicated": 0,
        "superseded": 0, "stale": 0,
    }  # fmt: skip
    [path] = data_paths(world, "--dead-letters")
    assert path.is_relative_to(world.lake / "_dead_letters" / world.topic)
    letters = read([path])
    assert [row["_value"] for row in letters] == bad
    assert [row["_offset"] for row in letters] == list(range(7))
    assert {(row["_topic"], row["_partition"], row["_key"], row["_timestamp"]) for row in letters} == {
        (world.topic, 0, b"k\xff", stamped)
    }
    assert letters[0]["_headers"] == [{"key": "trace", "value": b"\x01\x02"}, {"key": "trace", "value": None}]
    assert all(row["_reason"] for row in letters)
    world.assert_whole()


def test_on_error_fail_names_the_record_and_publishes_nothing(make_world: MakeWorld) -> None:
    world = make_world(settings={"on_error": "fail"})
    world.produce(6)
    world.send("{not json", partition=1)
    done = world.here("run", "demo")
    assert done.exit_code == 1
    assert "a record cannot be used" in done.stderr
    assert f"topic={world.topic} partition=1 offset=3" in done.stderr
    [manifest] = world.json("manifests", "demo")
    assert (manifest["state"], manifest["objects"]) == ("failed", [])
    assert "offset=3" in manifest["reason"]
    assert not list(world.lake.rglob("*.parquet"))
    world.settings["on_error"] = "dead_letter"
    world.write_pipeline()
    world.ok("retry", "demo")
    assert world.json("manifests", "demo")[0]["counts"]["dead_lettered"] == 1
    world.assert_whole()


def test_raw_keeps_every_byte(make_world: MakeWorld) -> None:
    world = make_world(partitions=1, settings={"decode": {"format": "raw"}, "event_time": {}})
    stamped = datetime(2024, 2, 29, 23, 59, 59, 999_000, tzinfo=UTC)
    world.send(b"\xff\x00\r\n", b"", None, at=stamped, key=b"\x00key")
    world.send(b"x", at=stamped + timedelta(milliseconds=1), headers=[("a", b"\xfe"), ("a", b""), ("b", None)])
    world.ok("run", "demo")
    rows = read(data_paths(world))
    assert [row["value"] for row in rows] == [b"\xff\x00\r\n", b"", None, b"x"]
    assert [row["_key"] for row in rows] == [b"\x00key"] * 3 + [None]
    assert [row["_timestamp"] for row in rows] == [stamped] * 3 + [stamped + timedelta(milliseconds=1)]
    assert rows[0]["headers"] is None
    assert rows[3]["headers"] == [
        {"key": "a", "value": b"\xfe"},
        {"key": "a", "value": b""},
        {"key": "b", "value": None},
    ]
    hours = Counter(str(path.parent.relative_to(world.lake / "raw" / world.topic)) for path in data_paths(world))
    assert hours == {"2024/02/29/23": 1, "2024/03/01/00": 1}
    assert world.ok("audit", "demo", "--deep") == ""


def test_topics_whose_names_readers_would_skip_are_seen_by_them(make_world: MakeWorld) -> None:
    world = make_world(topic="_orders.v1")
    world.produce(20)
    world.ok("run", "demo")
    assert (world.lake / "raw" / "%5Forders.v1").is_dir()
    world.assert_complete()


# what the audit finds


def rename(world: World, path: Path) -> None:
    path.rename(path.with_name("part-00000.parquet"))


def rename_across(world: World, path: Path) -> None:
    other = world.lake / "raw" / world.topic / "1999"
    other.mkdir()
    path.rename(other / path.name)


def flip_magic(world: World, path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4] + b"PAR2")


def change_rows_in_place(path: Path) -> None:
    """Another good file of the same size and number of rows: its rows claim to be of another manifest."""
    size = path.stat().st_size
    table = pq.read_table(path, partitioning=None)
    at = table.schema.get_field_index("_manifest_id")
    for other in range(2, 200):
        claimed = pa.array([other] * table.num_rows, pa.int64())
        changed = table.set_column(at, table.schema.field(at), claimed)
        with path.open("wb") as file:
            open_format("parquet", "zstd").write(changed, row_digest(changed), file)
        if path.stat().st_size == size:
            return
    raise AssertionError("no file of this size")


def record_of(world: World, manifest: int) -> Path:
    return world.lake / "_manifests" / "demo" / f"{manifest:010d}.0001.json"


def delete_record(world: World, path: Path) -> None:
    record_of(world, int(path.name[:10])).unlink()


def rewrite_record(world: World, path: Path) -> None:
    record = record_of(world, int(path.name[:10]))
    record.write_text(json.dumps({**json.loads(record.read_text()), "digest": "0"}))


MENDED_BY_REPLAY: dict[str, tuple[Callable[[World, Path], Any], str]] = {
    "deleted": (lambda _, path: path.unlink(), "is missing"),
    "truncated": (lambda _, path: path.write_bytes(path.read_bytes()[:-1]), "bytes instead of"),
    "emptied": (lambda _, path: path.write_bytes(b""), "has 0 bytes instead of"),
    "replaced by garbage of the same size": (flip_magic, "cannot be read"),
    "renamed": (rename, "is missing"),
    "moved to another hour": (rename_across, "is missing"),
    "its record deleted": (delete_record, "is missing or says something else"),
    "its record rewritten": (rewrite_record, "is missing or says something else"),
}


@pytest.mark.parametrize("damage", MENDED_BY_REPLAY)
def test_damage_is_one_line_that_names_the_manifest_and_a_replay_mends_it(world: World, damage: str) -> None:
    inflict, said = MENDED_BY_REPLAY[damage]
    world.produce(100, bad_every=9)
    world.ok("run", "demo")
    assert world.ok("audit", "demo") == ""
    path = data_paths(world)[1]
    manifest = int(path.name[:10])
    others = {key: one for key, one in files(world).items() if f"{manifest:010d}" not in key}
    inflict(world, path)
    found = world.here("audit", "demo")
    assert found.exit_code == 1
    lines = [line for line in found.stdout.splitlines() if said in line]
    assert len(lines) == 1, found.stdout
    assert lines[0].startswith(f"manifest {manifest}: ")
    advice = "tidemark repair demo --why TEXT" if "record" in damage else f"tidemark replay demo --manifest {manifest}"
    assert lines[0].endswith(f"next: {advice}")
    world.ok("replay", "demo", "--manifest", str(manifest))
    for line in world.here("audit", "demo").stdout.splitlines():  # what was moved is a stray now
        if "tidemark repair" not in line:
            (world.lake / line.split()[0]).unlink()  # its name is not ours any more: a person removes it
    world.ok("repair", "demo", "--why", "moved by hand")
    assert {key: one for key, one in files(world).items() if f"{manifest:010d}" not in key} == others
    world.assert_complete()


@pytest.mark.parametrize("kind", ["data", "dead letters"])
def test_rows_changed_in_place_are_found_by_a_deep_audit_and_mended_by_a_replay(world: World, kind: str) -> None:
    world.produce(40, bad_every=4)
    world.ok("run", "demo")
    path = data_paths(world, *(["--dead-letters"] if kind == "dead letters" else []))[0]
    change_rows_in_place(path)
    assert world.ok("audit", "demo") == "", "size and footer are as they were"
    found = world.here("audit", "demo", "--deep")
    assert found.exit_code == 1
    manifest = int(path.name[:10])
    assert found.stdout.startswith(f"manifest {manifest}: {path.relative_to(world.lake)} holds other rows")
    world.ok("replay", "demo", "--manifest", str(manifest))
    world.assert_complete()


def another_part(path: Path) -> Path:
    return path.with_name(
        path.name.replace("-00000.parquet", "-00099.parquet").replace("-00001.parquet", "-00098.parquet")
    )


STRAYS: dict[str, tuple[Callable[[Path], Path], bool]] = {
    "a copy under another part number": (another_part, True),
    "a copy under another attempt": (lambda path: path.with_name(path.name.replace("-a0001-", "-a0007-")), True),
    "a copy under a name of no manifest": (lambda path: path.with_name("9999999999" + path.name[10:]), False),
    "a copy in another folder": (lambda path: path.parents[1] / path.name, True),
    "a copy under a name of its own": (lambda path: path.with_name("copy.parquet"), False),
    "a hidden copy, which DuckDB reads": (lambda path: path.with_name("." + path.name), False),
    "an underscored copy, which DuckDB reads": (lambda path: path.with_name("_" + path.name), False),
    "notes of a person": (lambda path: path.with_name("notes.txt"), False),
}


@pytest.mark.parametrize("stray", STRAYS)
def test_a_file_added_by_hand_is_one_line_and_taking_it_away_is_enough(world: World, stray: str) -> None:
    elsewhere, names_manifest = STRAYS[stray]
    world.produce(60)
    world.ok("run", "demo")
    path = data_paths(world)[0]
    added = elsewhere(path)
    shutil.copy(path, added)
    found = world.here("audit", "demo")
    assert found.exit_code == 1
    [line] = found.stdout.splitlines()
    assert str(added.relative_to(world.lake)) in line
    assert line.startswith(f"manifest {int(path.name[:10])}: ") == names_manifest
    assert world.json("objects", "demo") == [one for one in world.json("objects", "demo") if one["path"] != str(added)]
    added.unlink()
    assert world.ok("audit", "demo") == ""


def test_files_of_another_pipeline_of_the_same_database_are_no_strays(make_world: MakeWorld) -> None:
    first = make_world()
    second = make_world(settings={"pipeline": "second", "sinks": [{"files": {"root": str(first.lake)}}]})
    first.produce(20)
    second.produce(20)
    first.ok("run", "demo")
    second.ok("run", "second")
    assert first.ok("audit", "demo") == second.ok("audit", "second") == ""
    assert {one["pipeline"] for one in first.json("manifests")} == {"demo", "second"}


def test_a_record_of_a_manifest_that_does_not_exist_is_a_difference(world: World) -> None:
    world.produce(20)
    world.ok("run", "demo")
    shutil.copy(record_of(world, 1), record_of(world, 77))
    found = world.here("audit", "demo")
    assert found.exit_code == 1
    assert "0000000077.0001.json belongs to no manifest" in found.stdout


def test_the_audit_of_a_pipeline_that_never_ran_finds_nothing(world: World) -> None:
    assert world.ok("audit", "demo") == ""


# replay


def test_a_replay_of_what_did_not_change_touches_no_file(world: World) -> None:
    world.produce(100, bad_every=9)
    world.ok("run", "demo")
    before = files(world)
    for manifest in world.json("manifests", "demo"):
        world.ok("replay", "demo", "--manifest", str(manifest["id"]))
    assert files(world) == before
    attempts = [(one["attempt"], one["published_attempt"], one["state"]) for one in world.json("manifests", "demo")]
    assert attempts == [(2, 1, "done")] * 3
    world.assert_complete()


def test_a_replay_with_another_schema_touches_only_its_own_objects(world: World) -> None:
    world.produce(100, bad_every=9)
    world.ok("run", "demo")
    before = files(world)
    manifest = world.json("manifests", "demo")[1]
    world.settings["decode"] = {"format": "json", "schema": "n BIGINT NOT NULL, at TIMESTAMP NOT NULL"}
    world.write_pipeline()
    world.ok("replay", "demo", "--manifest", str(manifest["id"]))
    own = f"{manifest['id']:010d}"
    after = files(world)
    assert {key: one for key, one in after.items() if own not in key} == {
        key: one for key, one in before.items() if own not in key
    }
    assert not {key for key in after if own in key} & {key for key in before if own in key}
    assert world.json("show", str(manifest["id"]))["published_attempt"] == 2
    world.assert_complete()


def test_a_replay_of_a_run_replays_its_manifests_and_no_others(world: World) -> None:
    world.produce(80)
    world.ok("run", "demo", "--run-key", "one")
    world.produce(40)
    world.ok("run", "demo", "--run-key", "two")
    world.ok("replay", "demo", "--run-key", "one")
    assert [one["attempt"] for one in world.json("manifests", "demo")] == [2, 2, 1]
    world.assert_complete()


def test_a_replay_that_finds_fewer_records_is_refused_and_what_is_published_stays(make_world: MakeWorld) -> None:
    world = make_world(partitions=1, settings={"kafka": {"gaps": "compacted", "slice": {"max_records": 1000}}})
    world.produce(20)
    world.ok("run", "demo")
    before = files(world)
    lifecycle = world.lifecycle()
    manifest = lifecycle.database.manifests("demo")[0]
    receipt = lifecycle.database.receipt(manifest.id, 1)
    assert receipt is not None
    [count] = receipt.partitions
    fewer = replace(receipt, attempt=2, partitions=(replace(count, read=19, distinct=19, decoded=19),))
    with pytest.raises(Blocked, match="the replay read 19 records where 20 are published"):
        lifecycle._refuse_shrunk(manifest, fewer)
    assert files(world) == before


# whose lake it is


def test_the_lake_of_another_database_is_refused_and_left_alone(
    make_world: MakeWorld, postgres: Postgres, template: str
) -> None:
    owner = make_world()
    owner.produce(20)
    owner.ok("run", "demo")
    before = files(owner)
    with postgres.temporary_database("other", template) as dsn:
        migrated_anew(dsn)
        guest = make_world(settings={"sinks": [{"files": {"root": str(owner.lake)}}]})
        guest.dsn = dsn
        guest.produce(20)
        done = guest.here("run", "demo")
        assert done.exit_code == 1
        assert "belongs to another manifest database" in done.stderr
        assert guest.chain() == []
    assert files(owner) == before
    owner.assert_complete()


def migrated_anew(dsn: str) -> None:
    """A database of its own: copies of the template share an id, which no two real ones do."""
    with psycopg.connect(dsn) as connection:
        connection.execute("UPDATE tidemark.database SET id = gen_random_uuid()")


def test_a_database_restored_from_an_older_copy_is_refused(world: World, postgres: Postgres) -> None:
    world.produce(40)
    world.ok("run", "demo")
    older = world.dsn.rpartition("/")[2]
    with postgres.temporary_database("restored", older) as dsn:
        world.produce(40)
        world.ok("run", "demo")
        before, world.dsn = files(world), dsn
        world.produce(10)
        for words in (("plan", "demo"), ("run", "demo"), ("plan", "demo", "--dry-run")):
            done = world.here(*words)
            assert done.exit_code == 1
            assert "holds a record of manifest 2, this database ends at 1" in done.stderr
            assert "restored from an older copy" in done.stderr
        assert files(world) == before


def test_a_restored_database_does_not_give_out_an_attempt_a_second_time(world: World, postgres: Postgres) -> None:
    world.produce(40)
    world.ok("plan", "demo")
    newer, older = world.dsn, world.dsn.rpartition("/")[2]
    with postgres.temporary_database("restored", older) as dsn:
        world.ok("retry", "demo")
        before, world.dsn = files(world), dsn
        done = world.here("retry", "demo")
        assert done.exit_code == 1
        assert "holds a record of attempt 1, this database ends at attempt 0" in done.stderr
        assert files(world) == before
        assert world.json("manifests", "demo")[0]["attempt"] == 0
        world.dsn = newer
        world.assert_complete()


def test_a_changed_root_is_refused_with_both_places(world: World) -> None:
    world.produce(20)
    world.ok("run", "demo")
    elsewhere = world.folder / "elsewhere"
    world.settings["sinks"] = [{"files": {"root": str(elsewhere)}}]
    world.write_pipeline()
    done = world.here("run", "demo")
    assert done.exit_code == 2
    assert f"was planned into {world.lake}" in done.stderr
    assert str(elsewhere) in done.stderr
    assert not elsewhere.exists()
