"""A table that is changed at random, as its change stream leaves it in each sink that keeps current rows."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest

from tests.protobuf_schemas import descriptor_set, message_class, proto
from tests.worlds.changed_table import COLUMNS, DECODE, comparable
from tests.worlds.current_rows import CurrentRows, rows_of_a_changed_table
from tests.worlds.table_world import TableWorld
from tests.worlds.topic_world import TopicWorld


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3))
def test_a_table_is_what_its_change_stream_says_in_whatever_order_it_is_processed(
    make_table_world: Callable[..., TableWorld], tmp_path: Path, seed: int
) -> None:
    random = Random(seed)
    rows, table = rows_of_a_changed_table(make_table_world, tmp_path / "tables", random)
    world = rows.world
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


def test_what_tells_nothing_about_a_row_is_filtered_and_a_deletion_without_a_key_is_a_dead_letter(
    make_table_world: Callable[..., TableWorld],
) -> None:
    """Records of one topic in whose shapes Debezium writes what is no row of a table."""
    orders = {"connection": "warehouse", "table": "copied.orders", "key": ["id"], "auto_create": True}
    settings = {"decode": DECODE, "sinks": [{"postgres": orders}], "event_time": {}, "on_error": "dead_letter"}
    world = make_table_world(partitions=1, settings=settings)
    row = {"id": 1, "state": "new"}
    signal = {"op": "c", "after": {"id": "ad-hoc", "type": "execute-snapshot"}, "source": {"table": "debezium_signal"}}
    world.send(json.dumps({"ts_ms": 1}), key=b'{"serverName": "shop"}')
    world.send(json.dumps({"op": "m", "ts_ms": 1, "message": {"prefix": "a"}}), key=b'{"prefix": "a"}')
    world.send(json.dumps(signal), key=b'{"id": "ad-hoc"}')
    world.send(json.dumps({"op": "d", "after": None}), json.dumps({"op": "t", "after": None}))
    world.send(json.dumps({"op": "c", "after": row}), json.dumps({"op": "d", "after": None}), key=b'{"id": 1}')
    world.ok("run", "demo")
    [manifest] = world.manifests()
    names = ("read", "written", "filtered", "dead_lettered", "superseded", "stale")
    assert [manifest["counts"][name] for name in names] == [7, 2, 3, 2, 1, 0]
    assert world.query("SELECT id, _offset, _is_deleted FROM copied.orders") == [
        {"id": 1, "_offset": 6, "_is_deleted": True}
    ]
    assert world.ok("audit", "demo", "--deep") == ""
    assert world.status()[0]["newest"]["filtered"] == 3


def test_what_is_expected_is_asked_of_the_rows_that_changes_leave_and_of_no_deletion(
    make_table_world: Callable[..., TableWorld],
) -> None:
    orders = {"connection": "warehouse", "table": "copied.orders", "key": ["id"], "auto_create": True}
    decode = {"format": "json", "schema": "id BIGINT NOT NULL, price BIGINT, state STRING", "tombstones": ["id"],
              "envelope": "debezium"}  # fmt: skip
    expect = [
        {"name": "priced", "check": "price > 0", "otherwise": "dead_letter", "at_most": 1},
        {"name": "any state", "check": "state IS NOT NULL"},
    ]
    settings = {"decode": decode, "sinks": [{"postgres": orders}], "event_time": {}, "expect": expect}
    world = make_table_world(partitions=1, settings=settings)
    free, cheap = {"id": 1, "price": 0, "state": "new"}, {"id": 2, "price": 5, "state": None}
    changes = [
        {"op": "r", "before": None, "after": free},
        {"op": "c", "before": None, "after": cheap},
        {"op": "u", "before": cheap, "after": {**cheap, "state": "paid"}},
        {"op": "d", "before": free, "after": None},
    ]
    for change in changes:
        world.send(json.dumps(change), key=json.dumps({"id": (change["after"] or change["before"])["id"]}).encode())
    world.ok("run", "demo")
    asked = world.json("show", "1")["expectations"]
    assert {each["name"]: (each["rows"], each["unmet"], each["unknown"]) for each in asked} == {
        "priced": (3, 1, 0), "any state": (3, 1, 0),
    }  # fmt: skip
    assert world.query("SELECT id, state, _is_deleted FROM copied.orders ORDER BY id") == [
        {"id": 1, "state": None, "_is_deleted": True}, {"id": 2, "state": "paid", "_is_deleted": False},
    ]  # fmt: skip
    world.send(*(json.dumps({"op": "c", "after": {"id": 3, "price": n}}) for n in (1, 0, -1, 2)), key=b'{"id": 3}')
    blocked = world.here("run", "demo")
    assert (blocked.exit_code, world.manifests()[-1]["state"]) == (1, "blocked"), blocked.stderr
    assert world.query("SELECT id FROM copied.orders WHERE id = 3") == []
    world.send(*(json.dumps({"op": "d", "before": {"id": 3}, "after": None}) for _ in range(2)), key=b'{"id": 3}')
    world.ok("accept", "expectation", "demo", "--manifest", "2", "--why", "free goods")
    world.ok("run", "demo")
    assert world.query("SELECT id, _is_deleted FROM copied.orders WHERE id = 3") == [{"id": 3, "_is_deleted": True}]
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_unit_that_seems_wrong_and_manifests_that_filter_everything_are_told(
    make_table_world: Callable[..., TableWorld],
) -> None:
    orders = {"connection": "warehouse", "table": "copied.orders", "key": ["id"], "auto_create": True}
    decode = {"format": "json", "schema": "id BIGINT NOT NULL, at TIMESTAMP", "tombstones": ["id"],
              "envelope": {"debezium": {"times": {"at": "ms"}}}}  # fmt: skip
    settings = {"decode": decode, "sinks": [{"postgres": orders}], "event_time": {}, "on_error": "dead_letter"}
    world = make_table_world(partitions=1, settings=settings)
    world.send(json.dumps({"op": "c", "after": {"id": 1, "at": 1_777_000_000}}), key=b'{"id": 1}')  # seconds
    told = "column at: the only moment lies in January 1970"
    assert told in world.here("peek", "demo").stderr
    findings = json.loads(world.here("doctor", "demo", "--json").stdout)
    assert [finding["severity"] for finding in findings if finding["message"] == told] == ["warning"]
    world.ok("run", "demo")
    assert world.status()[0]["warning"] is None
    for number in range(2):
        world.send(json.dumps({"ts_ms": number}))
        world.ok("run", "demo")
    [status] = world.status()
    assert (status["state"], status["warning"]) == (
        "ok", "all of the newest 2 records were filtered, so no row was written"
    )  # fmt: skip
    assert f"  warning: {status['warning']}\n" in world.here("status", "demo").stdout


def test_a_deletion_is_a_message_without_a_value_in_a_topic_and_a_marked_row_in_files(
    make_topic_world: Callable[..., TopicWorld],
) -> None:
    decode = {"format": "json", "schema": "k BIGINT NOT NULL", "tombstones": ["k"], "envelope": "debezium"}
    world = make_topic_world(partitions=1, has_lake=True, settings={"decode": decode, "event_time": {}})
    for change in ({"op": "c", "after": {"k": 7}}, {"op": "d", "before": {"k": 7}, "after": None}):
        world.send(json.dumps(change), key=b'{"k": 7}')
    world.ok("run", "demo")
    created, deleted = world.sent()
    assert (created.key(), deleted.key()) == (deleted.key(), created.key())
    assert json.loads(created.value() or b"")["k"] == 7
    assert deleted.value() is None
    rows = [row for path in world.ok("objects", "demo").splitlines() for row in pq.read_table(path).to_pylist()]
    assert sorted((row["_offset"], row["k"], row["_is_deleted"]) for row in rows) == [(0, 7, False), (1, 7, True)]
    assert world.ok("audit", "demo", "--deep") == ""


@pytest.mark.parametrize("lake", ["iceberg", "delta"])
def test_a_deletion_is_a_marked_row_in_a_lake_table_of_all_rows(request: pytest.FixtureRequest, lake: str) -> None:
    decode = {"format": "json", "schema": "k BIGINT NOT NULL", "tombstones": ["k"], "envelope": "debezium"}
    settings = {"decode": decode, "event_time": {}}
    world = request.getfixturevalue(f"make_{lake}_world")(partitions=1, settings=settings)
    for change in ({"op": "c", "after": {"k": 7}}, {"op": "d", "before": {"k": 7}, "after": None}, None):
        world.send(change and json.dumps(change), key=b'{"k": 7}')
    world.ok("run", "demo")
    rows = [(row["_offset"], row["k"], row["_is_deleted"]) for row in world.all_rows()]
    assert sorted(rows) == [(0, 7, False), (1, 7, True), (2, 7, True)]
    assert world.ok("audit", "demo", "--deep") == ""


Encode = Callable[[dict[str, Any], int], tuple[bytes, bytes]]
AT = 1_600_000_000_000_000  # in microseconds
VALUE: dict[str, Any] = {
    "type": "record", "name": "Value", "fields": [
        {"name": "id", "type": "long"}, {"name": "state", "type": "string"},
        {"name": "at", "type": {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}},
    ],
}  # fmt: skip
ENVELOPE: dict[str, Any] = {
    "type": "record", "name": "Envelope", "namespace": "shop.public.orders", "fields": [
        {"name": "before", "type": ["null", VALUE], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "op", "type": "string"},
    ],
}  # fmt: skip
KEY: dict[str, Any] = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
FIELDS = ["int64 id = 1", "string state = 2", "int64 at = 3"]
PROTO = descriptor_set(
    proto("shop", {"Value": FIELDS, "Envelope": ["Value before = 1", "Value after = 2", "string op = 3"]})
)


def avro(schema: dict[str, Any], content: dict[str, Any]) -> bytes:
    written = BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(json.loads(json.dumps(schema))), content)
    return written.getvalue()


def in_json(change: dict[str, Any], key: int) -> tuple[bytes, bytes]:
    """With the schema beside each part, as ``schemas.enable`` does."""
    fields = [{"field": "id", "type": "int64"}, {"field": "state", "type": "string"},
              {"field": "at", "type": "int64", "name": "io.debezium.time.MicroTimestamp"}]  # fmt: skip
    rows = [{"field": name, "type": "struct", "optional": True, "fields": fields} for name in ("before", "after")]
    value = {"schema": {"type": "struct", "fields": rows}, "payload": change}
    key_schema = {"type": "struct", "fields": [{"field": "id", "type": "int64"}]}
    return json.dumps({"schema": key_schema, "payload": {"id": key}}).encode(), json.dumps(value).encode()


def in_avro(change: dict[str, Any], key: int) -> tuple[bytes, bytes]:
    return avro(KEY, {"id": key}), avro(ENVELOPE, change)


def in_protobuf(change: dict[str, Any], key: int) -> tuple[bytes, bytes]:
    parts = {name: part for name, part in change.items() if part is not None}
    return json.dumps({"id": key}).encode(), message_class(PROTO, "shop.Envelope")(**parts).SerializeToString()


FORMATS: dict[str, tuple[Encode, dict[str, Any]]] = {
    "json": (in_json, {"schema": "id BIGINT NOT NULL, state STRING NOT NULL, at TIMESTAMP", "envelope": "debezium"}),
    "avro": (in_avro, {"schema": ENVELOPE, "key": {"format": "avro", "schema": KEY}, "envelope": "debezium"}),
    "protobuf": (
        in_protobuf,
        {
            "message": "shop.Envelope", "descriptor_set": "orders.desc",
            "key": {"format": "json", "schema": "id BIGINT NOT NULL"},
            "envelope": {"debezium": {"times": {"at": "us"}}},
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_changes_in_each_format_leave_the_current_rows(
    make_table_world: Callable[..., TableWorld], tmp_path: Path, name: str
) -> None:
    encoded, settings = FORMATS[name]
    sinks = CurrentRows.entries(tmp_path / "tables")
    decode = {"format": name, "tombstones": ["id"], **settings}
    world = make_table_world(partitions=1, settings={"decode": decode, "sinks": sinks, "event_time": {}})
    (world.pipelines / "orders.desc").write_bytes(PROTO)
    for key, op, state in ((1, "c", "new"), (2, "r", "new"), (1, "u", "paid"), (2, "d", None), (3, "c", "new")):
        row = {"id": key, "state": state, "at": AT}
        before, after = (row | {"state": ""}, None) if op == "d" else (None, row)
        record_key, value = encoded({"before": before, "after": after, "op": op}, key)
        world.send(value, key=record_key)
    world.ok("run", "demo")
    rows = CurrentRows(world)
    seen = {key: (state, at.replace(tzinfo=UTC)) for key, (state, at) in rows.seen("state", "at").items()}
    moment = datetime(2020, 9, 13, 12, 26, 40, tzinfo=UTC)
    assert seen == {1: ("paid", moment), 3: ("new", moment)}
    assert world.json("objects", "demo", "--dead-letters") == []
    rows.finish()
