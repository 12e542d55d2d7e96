"""An envelope of another tool is one folder and a registry line: with every format that may have one, and in a run.

The shapes of values and keys are those that Maxwell documents (maxwells-daemon.io/dataformat, ../producers).
"""

import io
import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from tests.protobuf_schemas import descriptor_set, message_class, proto
from tests.worlds.table_world import TableWorld
from tests.worlds.world import World
from tidemark.decoders.registry import open_decoder
from tidemark.errors import ConfigurationError
from tidemark.kinds import ENVELOPES
from tidemark.model.record_schema import HEADERS

SCHEMA = "id BIGINT NOT NULL, name STRING"
ROW = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}],
}
CHANGE = {
    "type": "record",
    "name": "Change",
    "fields": [
        {"name": "type", "type": "string"},
        {"name": "data", "type": ["null", ROW]},
        {"name": "old", "type": ["null", "Row"]},
    ],
}


@pytest.fixture(autouse=True)
def _the_toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENVELOPES, "toy", "tests.toys.toy_envelope")


def change(kind: str, number: int, name: str | None) -> str:
    return json.dumps(
        {
            "database": "shop",
            "table": "orders",
            "type": kind,
            "ts": 1_477_053_217,
            "xid": 23_396,
            "commit": True,
            "data": {"id": number, "name": name},
            "old": {},
        }
    )


def key(number: int) -> bytes:
    return json.dumps({"database": "shop", "table": "orders", "pk.id": number}).encode()


def test_a_run_keeps_the_rows_that_its_changes_leave(make_table_world: Callable[..., TableWorld]) -> None:
    decode = {"format": "json", "schema": SCHEMA, "tombstones": ["id"], "envelope": "toy"}
    orders = {"connection": "warehouse", "table": "copied.orders", "key": ["id"], "auto_create": True}
    settings = {"decode": decode, "sinks": [{"postgres": orders}], "event_time": {}, "on_error": "dead_letter"}
    world = make_table_world(partitions=1, settings=settings)
    world.send(change("bootstrap-start", 0, None), key=b'{"database": "shop", "table": "orders"}')
    world.send(change("bootstrap-insert", 1, "ada"), change("update", 1, "bea"), key=key(1))
    world.send(change("insert", 2, "cid"), change("delete", 2, "cid"), key=key(2))
    world.send(change("table-drop", 3, None), key=key(3))
    world.ok("run", "demo")
    [manifest] = world.manifests()
    names = ("read", "written", "filtered", "dead_lettered", "superseded")
    assert [manifest["counts"][name] for name in names] == [6, 4, 1, 1, 2]
    rows = world.query("SELECT id, name, _is_deleted FROM copied.orders ORDER BY id")
    assert [tuple(row.values()) for row in rows] == [(1, "bea", False), (2, None, True)]
    assert "type 'table-drop' has no row" in world.ok("dead-letters", "demo", "--json")


def test_its_unknown_fields_are_proposed_as_lines_of_the_schema(make_world: Callable[..., World]) -> None:
    decode = {"format": "json", "schema": "id BIGINT NOT NULL", "tombstones": ["id"], "envelope": "toy"}
    world = make_world(partitions=1, settings={"decode": decode, "event_time": {}})
    world.send(change("insert", 1, "ada"), key=key(1))
    assert "name STRING" in world.ok("peek", "demo", "--drift")


def test_a_file_that_names_another_is_told_which_there_are(make_world: Callable[..., World]) -> None:
    world = make_world(settings={"decode": {"format": "json", "schema": SCHEMA, "tombstones": ["id"]}})
    world.settings["decode"]["envelope"] = "canal"
    world.write_pipeline()
    refused = world.here("validate")
    assert "allowed: debezium, toy" in " ".join((refused.stdout + refused.stderr).split())


def of_avro(envelope: dict[str, Any]) -> dict[str, Any]:
    reader = {"id": -1, "kind": "AVRO", "text": json.dumps(envelope), "references": []}
    return {"format": "avro", "reader": reader}


def avro_value(record: dict[str, Any]) -> bytes:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(json.loads(json.dumps(CHANGE))), record)
    return written.getvalue()


def protobuf_file(part: str) -> bytes:
    row, of_change = ["int64 id = 1", "optional string name = 2"], ["string type = 1", f"Row {part} = 2", "Row old = 3"]
    return descriptor_set(proto("shop", {"Row": row, "Change": of_change}))


def of_protobuf(descriptors: bytes) -> dict[str, Any]:
    reader = {"id": -1, "kind": "PROTOBUF", "text": b64encode(descriptors).decode(), "references": []}
    return {"format": "protobuf", "reader": reader, "message": "shop.Change"}


def protobuf_value(record: dict[str, Any]) -> bytes:
    message: Any = message_class(protobuf_file("data"), "shop.Change")
    written: bytes = message(**{name: value for name, value in record.items() if value is not None}).SerializeToString()
    return written


KEY = {"format": "json", "schema": "id BIGINT NOT NULL", "part": "key"}


@pytest.mark.parametrize(
    ("of_format", "value"), [(of_avro(CHANGE), avro_value), (of_protobuf(protobuf_file("data")), protobuf_value)]
)
def test_a_format_with_a_schema_reads_the_row_in_the_part_that_the_envelope_names(
    of_format: dict[str, Any], value: Callable[[dict[str, Any]], bytes]
) -> None:
    decode = {**of_format, "key": KEY, "tombstones": ["id"], "envelope": {"kind": "toy"}}
    ada = {"id": 1, "name": "ada"}
    records = [
        {"type": "insert", "data": ada, "old": None},
        {"type": "delete", "data": ada, "old": None},
        {"type": "bootstrap-start", "data": None, "old": None},
        {"type": "insert", "data": None, "old": ada},
    ]
    batch = pa.RecordBatch.from_pydict(
        {
            "topic": pa.array(["orders"] * len(records)),
            "key": pa.array([b'{"id": 1}'] * len(records)),
            "value": pa.array([value(record) for record in records], pa.binary()),
            "headers": pa.nulls(len(records), HEADERS),
        }
    )
    made = open_decoder(decode).decode(batch)
    assert made.rows.to_pylist() == [{"key_id": 1, **ada}, {"key_id": 1, "id": 1, "name": None}]
    assert (made.deleted.to_pylist(), made.filtered.to_pylist()) == ([False, True], [2])
    assert [(bad.index, bad.reason) for bad in made.errors] == [(3, "type 'insert' has no row")]


@pytest.mark.parametrize("of_format", [of_avro(ROW), of_protobuf(protobuf_file("row"))])
def test_a_schema_without_that_part_is_refused_with_its_name(of_format: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="is not the schema of an envelope: it has no record data"):
        open_decoder({**of_format, "key": KEY, "tombstones": ["id"], "envelope": {"kind": "toy"}})
