"""From Kafka to files: what readers find."""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq

from tests.worlds.world import World

MakeWorld = Callable[..., World]


def read(paths: list[Path]) -> list[dict[str, Any]]:
    rows = [row for path in paths for row in pq.read_table(path, partitioning=None).to_pylist()]
    return sorted(rows, key=lambda row: (row["_partition"], row["_offset"]))


def test_every_record_is_in_the_folder_of_its_event_hour_once(world: World) -> None:
    world.produce(200)
    done = world.json("run", "demo")
    assert done["counts"]["read"] == done["counts"]["written"] == 200
    paths = world.data_paths()
    totals = "SELECT count(*), count(DISTINCT n), sum(n) FROM read_parquet($paths)"
    result = duckdb.sql(totals, params={"paths": [str(path) for path in paths]})
    assert result.fetchall() == [(200, 200, sum(range(200)))]
    for path in paths:
        hours = {row["at"].strftime("%Y/%m/%d/%H") for row in read([path])}
        assert hours == {str(path.parent.relative_to(world.lake / "raw" / world.topic))}
    assert sum(written for written, _ in done["hours"].values()) == 200
    assert len(done["hours"]) == world.hours
    world.assert_complete()


def test_every_table_has_the_metadata_columns_and_the_field_types_of_the_schema(world: World) -> None:
    world.produce(10)
    world.ok("run", "demo")
    [manifest] = world.json("manifests", "demo")
    for path in world.data_paths():
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
    row = read(world.data_paths())[0]
    assert (row["_topic"], row["_key"], row["n"], row["name"]) == (world.topic, b"0", 0, "r0")


def test_objects_prints_exactly_the_published_paths(world: World) -> None:
    world.produce(100, bad_every=10)
    world.ok("plan", "demo")
    assert world.ok("objects", "demo") == ""
    first = world.manifests()[0]
    world.ok("retry", "demo", "--manifest", str(first["id"]))
    assert {str(path) for path in world.data_paths()} == {
        object_["path"] for manifest in world.manifests() for object_ in manifest["objects"]
    }
    world.ok("retry", "demo")
    on_disk = {path for path in world.lake.rglob("*.parquet") if "_staging" not in path.parts}
    data, letters = set(world.data_paths()), set(world.data_paths("--dead-letters"))
    assert data | letters == on_disk
    assert not data & letters
    assert [Path(object_["path"]) for object_ in world.json("objects", "demo")] == world.data_paths()


def test_dead_letters_are_counted_and_kept_whole(make_world: MakeWorld) -> None:
    world = make_world(partitions=1, settings={"max_dead_letters": None})
    bad = [b"\xff\x00", b"", None, b'{"n": 1} junk', b'{"n": "1"}', b'{"n": 1}', b'{"n": 1, "at": "someday"}']
    stamped = datetime(2024, 3, 1, 12, 30, 15, 123_000, tzinfo=UTC)
    headers = [("trace", b"\x01\x02"), ("trace", None)]
    world.send(*bad, at=stamped, key=b"k\xff", headers=headers)
    world.produce(3)
    world.ok("run", "demo")
    [manifest] = world.json("manifests", "demo")
    assert manifest["counts"] == {
        "read": 10, "invisible": 0, "written": 3, "dead_lettered": 7, "filtered": 0, "deduplicated": 0, "exploded": 0,
        "superseded": 0, "stale": 0, "unknown_fields": 3, "unmet": 0,
    }  # fmt: skip
    [path] = world.data_paths("--dead-letters")
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
    assert world.manifests()[0]["counts"]["dead_lettered"] == 1
    world.assert_whole()


def test_raw_keeps_every_byte(make_world: MakeWorld) -> None:
    world = make_world(partitions=1, settings={"decode": {"format": "raw"}, "event_time": {}})
    stamped = datetime(2024, 2, 29, 23, 59, 59, 999_000, tzinfo=UTC)
    world.send(b"\xff\x00\r\n", b"", None, at=stamped, key=b"\x00key")
    world.send(b"x", at=stamped + timedelta(milliseconds=1), headers=[("a", b"\xfe"), ("a", b""), ("b", None)])
    world.ok("run", "demo")
    rows = read(world.data_paths())
    assert [row["value"] for row in rows] == [b"\xff\x00\r\n", b"", None, b"x"]
    assert [row["_key"] for row in rows] == [b"\x00key"] * 3 + [None]
    assert [row["_timestamp"] for row in rows] == [stamped] * 3 + [stamped + timedelta(milliseconds=1)]
    assert rows[0]["headers"] is None
    assert rows[3]["headers"] == [
        {"key": "a", "value": b"\xfe"},
        {"key": "a", "value": b""},
        {"key": "b", "value": None},
    ]
    hours = Counter(str(path.parent.relative_to(world.lake / "raw" / world.topic)) for path in world.data_paths())
    assert hours == {"2024/02/29/23": 1, "2024/03/01/00": 1}
    assert world.ok("audit", "demo", "--deep") == ""


def test_topics_whose_names_readers_would_skip_are_seen_by_them(make_world: MakeWorld) -> None:
    world = make_world(topic="_orders.v1")
    world.produce(20)
    world.ok("run", "demo")
    assert (world.lake / "raw" / "%5Forders.v1").is_dir()
    world.assert_complete()
