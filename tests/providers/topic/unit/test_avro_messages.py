"""Avro values of messages: their bytes, and which schemas of a registry fit which columns."""

import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from tidemark.providers.registry.registered_schema import RegisteredSchema
from tidemark.providers.topic import writer
from tidemark.providers.topic.avro import AvroValues, derived, problem_with

AT = datetime(2024, 3, 1, 11, tzinfo=UTC)
PLAIN = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
        ("name", pa.string()),
        ("n", pa.int32()),
        ("share", pa.float64()),
        ("late", pa.bool_()),
    ]
)
ROWS = [
    {"id": 1, "at": AT, "name": "é", "n": -5, "share": 0.1, "late": True},
    {"id": 2, "at": AT, "name": None, "n": None, "share": None, "late": None},
]


def registered(schema: Any, kind: str = "AVRO") -> RegisteredSchema:
    return RegisteredSchema(258, kind, json.dumps(schema))


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "shop.Order", "fields": [{"name": name, "type": kind} for name, kind in fields]}


def read(value: bytes, schema: RegisteredSchema) -> Any:
    """The row of a framed value; nothing may follow it."""
    stream = io.BytesIO(value)
    assert stream.read(5) == b"\0\0\0\1\2"
    row = fastavro.schemaless_reader(stream, json.loads(schema.text), None)
    assert stream.read() == b""
    return row


def test_plain_rows_are_read_back_and_have_the_same_bytes_by_both_libraries() -> None:
    schema = registered(json.loads(derived(PLAIN, "Row")))
    values, rows = AvroValues(schema), pa.RecordBatch.from_pylist(ROWS, PLAIN)
    written = values.of(rows).to_pylist()
    assert [read(value, schema) for value in written] == ROWS
    assert values._fast(rows).to_pylist() == values._slow(rows).to_pylist()
    assert values.of(rows.slice(1)).to_pylist() == written[1:]
    assert values.of(rows.slice(2)).to_pylist() == []


def test_other_types_are_read_back_too() -> None:
    columns = pa.schema(
        [("price", pa.decimal128(9, 2)), ("tags", pa.list_(pa.string())), ("at", pa.struct([("x", pa.int32())])),
         ("by", pa.map_(pa.string(), pa.int64())), ("raw", pa.binary()), ("day", pa.date32())]
    )  # fmt: skip
    row = {
        "price": Decimal("1.50"),
        "tags": ["a", None],
        "at": {"x": 1},
        "by": {"k": 2},
        "raw": b"\0",
        "day": AT.date(),
    }
    schema = registered(json.loads(derived(columns, "Row")))
    rows = pa.RecordBatch.from_pylist([{**row, "by": [("k", 2)]}, {}], columns)
    assert [read(value, schema) for value in AvroValues(schema).of(rows).to_pylist()] == [row, dict.fromkeys(row)]


def test_a_registered_schema_may_have_its_own_order_names_and_wider_numbers() -> None:
    schema = registered(record(("n", ["int", "null"]), ("id", "double"), ("name", ["string", "null"])))
    columns = pa.schema([pa.field("id", pa.int32(), nullable=False), ("name", pa.string()), ("n", pa.int32())])
    assert problem_with(schema, columns) is None
    rows = pa.RecordBatch.from_pylist([{"id": 1, "name": "a", "n": 2}], columns)
    assert [read(value, schema) for value in AvroValues(schema).of(rows).to_pylist()] == [
        {"id": 1, "name": "a", "n": 2}
    ]


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (record(("id", "long")), "it has no field for column name"),
        (record(("id", "long"), ("name", ["null", "string"]), ("x", "int")), "its field x is no column"),
        (record(("id", "int"), ("name", ["null", "string"])), 'its field id is "int", and the column is'),
        (record(("id", "long"), ("name", "string")), 'its field name is "string", and the column is'),
        (
            record(("id", {"type": "long", "logicalType": "timestamp-micros"}), ("name", ["null", "string"])),
            "its field id",
        ),
        (record(("id", "long"), ("name", ["null", "string", "int"])), "its field name is"),
        ("string", "it is no record"),
    ],
)
def test_a_schema_that_does_not_fit_the_columns_is_named(schema: Any, why: str) -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
    assert problem_with(registered(schema), columns).startswith(why)
    assert problem_with(registered(schema, "PROTOBUF"), columns) == "it is PROTOBUF, not AVRO"


def test_a_tombstone_among_rows_is_a_message_without_a_value() -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    schema = registered(json.loads(derived(columns, "Row")))
    rows = pa.RecordBatch.from_arrays([pa.array([1, 0, 3], pa.int64())], schema=columns)
    deleted = pa.array([False, True, False])
    values = writer._values_unless_deleted(AvroValues(schema), rows, deleted).to_pylist()
    assert values[1] is None
    assert [read(values[at], schema) for at in (0, 2)] == [{"id": 1}, {"id": 3}]
