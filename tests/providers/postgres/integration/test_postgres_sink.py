"""A table with one row per key: what is merged, in which order, and what a tombstone does."""

import json
import string
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from textwrap import dedent
from typing import Any

import pytest

from tests.worlds.table_world import TABLE_SCHEMA, TableWorld, table_sink

MakeTableWorld = Callable[..., TableWorld]


@pytest.fixture(params=["same database", "another database"])
def world(request: pytest.FixtureRequest, make_table_world: MakeTableWorld) -> TableWorld:
    return make_table_world(same=request.param == "same database")


def price(k: int, n: int, **more: Any) -> str:
    return json.dumps({"k": k, "n": n, "at": "2024-03-01T00:00:00Z", **more})


def counts(world: TableWorld) -> list[tuple[int, int, int]]:
    """(written, superseded, stale) of each manifest."""
    by_manifest = [manifest["counts"] for manifest in world.manifests()]
    return [(numbers["written"], numbers["superseded"], numbers["stale"]) for numbers in by_manifest]


def test_a_run_leaves_the_newest_row_of_each_key(world: TableWorld) -> None:
    world.produce(100, bad_every=11)
    world.ok("run", "demo")
    world.assert_whole()
    world.assert_complete()
    rows = world.query("SELECT * FROM public.latest WHERE k = 0")
    assert [(row["n"], row["name"], row["_attempt"], row["_is_deleted"]) for row in rows] == [(90, "r90", 1, False)]


def test_a_stale_update_is_dropped_and_counted_and_a_key_may_come_twice(world: TableWorld) -> None:
    world.send(price(1, 10), price(2, 20), price(1, 11))
    world.ok("run", "demo")
    world.send(price(1, 5), price(2, 21), price(2, 22), price(3, 1))
    world.ok("run", "demo")
    assert {k: n for k, (n, _) in world.rows().items()} == {1: 11, 2: 22, 3: 1}
    assert counts(world) == [(3, 1, 0), (4, 1, 1)]
    assert world.ok("audit", "demo", "--deep") == ""


@pytest.mark.parametrize("times", [1, 2])
def test_manifests_may_be_merged_in_any_order_and_any_number_of_times(world: TableWorld, times: int) -> None:
    world.produce(160)  # four manifests of at most 40 offsets
    world.ok("plan", "demo", "--run-key", "one")
    ids = [str(manifest["id"]) for manifest in world.manifests()]
    assert len(ids) == 4
    for manifest in [ids[2], ids[0], ids[3], ids[1]]:
        world.ok("retry", "demo", "--manifest", manifest)
        world.assert_whole()
    for manifest in ids[::-1] * (times - 1):
        world.ok("replay", "demo", "--manifest", manifest)
    world.assert_complete()


def test_a_row_that_newer_code_makes_of_the_same_record_wins_also_with_a_lower_order(
    make_table_world: MakeTableWorld,
) -> None:
    world = make_table_world(partitions=1)
    code = world.pipelines / "code"
    code.mkdir()
    world.settings |= {"code": "code", "transform": [{"python": "prices:changed"}]}
    text = """
        import pyarrow.compute as pc

        def changed(batch):
            at = batch.schema.get_field_index("n")
            return batch.set_column(at, batch.schema.field(at), pc.multiply(batch.column(at), FACTOR))
    """
    (code / "prices.py").write_text(dedent(text.replace("FACTOR", "100")))  # a mistake, which is mended below
    world.write_pipeline()
    world.send(price(1, 2), price(2, 3))
    world.ok("run", "demo")
    assert {k: n for k, (n, _) in world.rows().items()} == {1: 200, 2: 300}
    (code / "prices.py").write_text(dedent(text.replace("FACTOR", "1")))
    world.ok("replay", "demo", "--manifest", "1")
    assert {k: n for k, (n, _) in world.rows().items()} == {1: 2, 2: 3}
    assert world.ok("audit", "demo", "--deep") == ""
    world.send(price(1, 5))
    world.ok("run", "demo")
    world.ok("replay", "demo", "--manifest", "1")
    assert {k: n for k, (n, _) in world.rows().items()} == {1: 5, 2: 3}, "of another record the order counts"


def test_without_order_by_the_later_offset_of_a_partition_wins(make_table_world: MakeTableWorld) -> None:
    world = make_table_world(partitions=1)
    world.settings["sinks"] = [table_sink(order_by=None)]
    world.write_pipeline()
    world.send(price(1, 10), price(1, 3))
    world.ok("run", "demo")
    world.send(price(1, 7))
    world.ok("run", "demo")
    [first, _] = world.manifests()
    world.query("UPDATE public.latest SET name = 'by hand' RETURNING k")
    world.ok("replay", "demo", "--manifest", str(first["id"]))
    assert {k: n for k, (n, _) in world.rows().items()} == {1: 7}


@pytest.fixture
def deleting(make_table_world: MakeTableWorld) -> TableWorld:
    """One partition, keys as JSON, records without a value delete."""
    return make_table_world(
        partitions=1,
        settings={
            "decode": {"format": "json", "schema": TABLE_SCHEMA, "tombstones": ["k"]},
            "sinks": [table_sink(order_by=None)],
            "event_time": {"field": "at"},
        },
    )


def test_a_tombstone_deletes_its_key_and_a_replay_of_something_older_does_not_bring_it_back(
    deleting: TableWorld,
) -> None:
    deleting.send(price(1, 10), price(2, 20))
    deleting.ok("run", "demo")
    deleting.send(None, key=b'{"k": 1}')
    deleting.send(None, key=b"7")  # a key that was never there; one field may be bare
    deleting.ok("run", "demo")
    assert {k: n for k, (n, _) in deleting.rows().items()} == {2: 20}
    kept = deleting.query("SELECT k, n, name, _is_deleted FROM public.latest WHERE _is_deleted ORDER BY k")
    assert [tuple(row.values()) for row in kept] == [(1, None, None, True), (7, None, None, True)]
    [first, _] = deleting.manifests()
    deleting.query("UPDATE public.latest SET _attempt = 0 WHERE k = 2 RETURNING k")
    deleting.ok("replay", "demo", "--manifest", str(first["id"]))
    assert {k: n for k, (n, _) in deleting.rows().items()} == {2: 20}, "I18 newest version"
    deleting.send(price(1, 30))
    deleting.ok("run", "demo")
    assert {k: n for k, (n, _) in deleting.rows().items()} == {1: 30, 2: 20}
    assert deleting.ok("audit", "demo", "--deep") == ""


def test_a_tombstone_whose_key_is_no_use_is_a_dead_letter(deleting: TableWorld) -> None:
    deleting.send(None, key=b"[1]")
    deleting.send(None)
    deleting.send(price(1, 1))
    deleting.ok("run", "demo")
    letters = deleting.query("SELECT _offset, _reason, _value FROM tidemark_target.dead_letter ORDER BY _offset")
    assert [(row["_offset"], row["_value"]) for row in letters] == [(0, None), (1, None)]
    assert all(row["_reason"].startswith("a deletion with a wrong key: ") for row in letters)
    assert deleting.ok("audit", "demo", "--deep") == ""


@pytest.mark.parametrize(("column", "tombstones"), [("k", ["k"]), ("key_k", ["key_k"])])
def test_a_tombstone_with_a_typed_key_deletes_its_row(
    make_table_world: MakeTableWorld, column: str, tombstones: list[str]
) -> None:
    fields = [{"name": name, "type": "long"} for name in ("k", "n")]
    decode = {
        "format": "avro",
        "schema": {"type": "record", "name": "Price", "fields": fields},
        "key": {"format": "avro", "schema": {"type": "record", "name": "Key", "fields": fields[:1]}},
        "tombstones": tombstones,
    }
    sink = table_sink(order_by=None, key=[column])
    world = make_table_world(partitions=1, settings={"decode": decode, "sinks": [sink], "event_time": {}})
    world.send(b"\x02\x0a", key=b"\x02")
    world.send(b"\x04\x0c", key=b"\x04")
    world.send(None, key=b"\x02")
    world.send(None, key=b"no key")
    world.ok("run", "demo")
    rows = world.query("SELECT key_k, n, _is_deleted FROM public.latest ORDER BY key_k")
    assert [tuple(row.values()) for row in rows] == [(1, None, True), (2, 6, False)]
    [letter] = world.query("SELECT _reason FROM tidemark_target.dead_letter")
    assert "the key: " in letter["_reason"]
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_dead_letter_keeps_all_of_its_record(make_table_world: MakeTableWorld) -> None:
    world = make_table_world(partitions=1)
    stamped = datetime(2024, 3, 1, 12, 30, 15, 123_000, tzinfo=UTC)
    world.send(b"\xff\x00", at=stamped, key=b"k\xff", headers=[("first", b"\x01"), ("trace", None)])
    world.ok("run", "demo")
    [letter] = world.query("SELECT * FROM tidemark_target.dead_letter")
    assert (letter["_topic"], letter["_partition"], letter["_offset"]) == (world.topic, 0, 0)
    assert (letter["_key"], letter["_value"], letter["_timestamp"]) == (b"k\xff", b"\xff\x00", stamped)
    assert letter["_headers"] == [{"key": "first", "value": "\\x01"}, {"key": "trace", "value": None}]
    assert letter["_reason"] == "not UTF-8 at byte 0"


def test_text_with_nul_is_a_dead_letter_for_every_sink(make_table_world: MakeTableWorld) -> None:
    world = make_table_world(partitions=1, has_lake=True)
    world.send(price(1, 1, name="a\0b"), price(2, 2, name="fine"))
    world.ok("run", "demo")
    assert set(world.rows()) == {2}
    [letter] = world.query("SELECT _reason FROM tidemark_target.dead_letter")
    assert letter["_reason"] == "field name: holds the character NUL, which PostgreSQL cannot store"
    assert len(world.json("objects", "demo", "--dead-letters")) == 1
    assert world.ok("audit", "demo", "--deep") == ""


def test_every_type_arrives_as_it_was(make_table_world: MakeTableWorld) -> None:
    columns = (
        "k BIGINT NOT NULL, n BIGINT NOT NULL, b BOOLEAN, i INT, s SMALLINT, f FLOAT, d DOUBLE, t STRING, day DATE, "
        "at TIMESTAMP, m DECIMAL(10,2), l ARRAY<STRING>, o STRUCT<x: INT, y: STRING>, p MAP<STRING, INT>"
    )
    world = make_table_world(partitions=1, settings={"decode": {"format": "json", "schema": columns}})
    full = (
        '{"k": 1, "n": 1, "b": true, "i": 7, "s": -5, "f": 0.1, "d": 1e-300, "t": "a \\"quoted\\", ü\\n", '
        '"day": "0001-02-03", "at": "2024-03-01T12:00:00.123456Z", "m": 12.30, "l": ["a,b", null], "o": {"x": 1}, '
        '"p": {"u": 2}}'
    )
    world.send(full, '{"k": 2, "n": 1, "t": "", "at": "2024-03-01T12:00:00Z", "l": []}')
    world.ok("run", "demo")
    [first, second] = world.query("SELECT * FROM public.latest ORDER BY k")
    assert {name: value for name, value in first.items() if not name.startswith("_")} == {
        "k": 1, "n": 1, "b": True, "i": 7, "s": -5, "f": pytest.approx(0.1), "d": 1e-300, "t": 'a "quoted", ü\n',
        "day": date(1, 2, 3), "at": datetime(2024, 3, 1, 12, 0, 0, 123456, UTC), "m": Decimal("12.30"),
        "l": ["a,b", None], "o": {"x": 1, "y": None}, "p": {"u": 2},
    }  # fmt: skip
    assert (second["t"], second["l"], second["i"], second["day"], second["o"]) == ("", [], None, None, None)


def test_both_sinks_of_a_pipeline_get_every_record(make_table_world: MakeTableWorld) -> None:
    world = make_table_world(has_lake=True)
    world.produce(100, bad_every=13)
    world.ok("run", "demo")
    world.assert_complete()
    [first, *_] = world.manifests()
    assert len(first["objects"]) > 0


def test_a_key_that_is_too_long_for_the_index_is_a_dead_letter(make_table_world: MakeTableWorld) -> None:
    """Random letters, which PostgreSQL cannot pack."""
    schema = "n BIGINT NOT NULL, at TIMESTAMP NOT NULL, name STRING NOT NULL"
    sink = table_sink(key=["name", "n", "at"], order_by=None)
    world = make_table_world(settings={"decode": {"format": "json", "schema": schema}, "sinks": [sink]})
    names = ["".join(Random(size).choices(string.ascii_letters, k=size)) for size in (2_490, 2_600, 5_000)]
    at = "2024-03-01T00:00:00Z"
    world.send(*(json.dumps({"n": number, "at": at, "name": name}) for number, name in enumerate([*names, "a", "b"])))
    world.ok("run", "demo")
    letters = world.json("dead-letters", "demo", "--show")["records"]
    assert [letter["offset"] for letter in letters] == [1, 2]
    assert {letter["reason"] for letter in letters} == {
        "its key (name, n, at) has more bytes than the 2600 of sink postgres"
    }
    assert [row["n"] for row in world.query("SELECT n FROM public.latest ORDER BY n")] == [0, 3, 4]
