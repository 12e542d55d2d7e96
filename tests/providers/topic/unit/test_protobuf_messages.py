"""Protobuf values of messages: read back by Protobuf's own library, and which schemas fit which columns."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.message_factory import GetMessageClass

from tidemark.errors import ConfigurationError
from tidemark.providers.registry.registered_schema import RegisteredSchema
from tidemark.providers.topic.protobuf import ProtobufValues, _descriptor, derived, problem_with

COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
        ("name", pa.string()),
        ("small", pa.int8()),
        ("share", pa.float64()),
        ("late", pa.bool_()),
        ("raw", pa.binary()),
        ("place", pa.struct([pa.field("x", pa.int32(), nullable=False), ("seen", pa.timestamp("us", "UTC"))])),
    ]
)
TEXT = """syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Row {
  int64 id = 1;
  google.protobuf.Timestamp at = 2;
  optional string name = 3;
  optional int32 small = 4;
  optional double share = 5;
  optional bool late = 6;
  optional bytes raw = 7;
  message place_message {
    int32 x = 1;
    google.protobuf.Timestamp seen = 2;
  }
  place_message place = 8;
}
"""


def registered(text: str, kind: str = "PROTOBUF") -> RegisteredSchema:
    return RegisteredSchema(258, kind, text)


def read(value: bytes, schema: RegisteredSchema) -> dict[str, Any]:
    """The row of a framed value."""
    assert value[:6] == b"\0\0\0\1\2\0"
    message = GetMessageClass(_descriptor(schema)).FromString(value[6:])
    return MessageToDict(message, preserving_proto_field_name=True)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"a_b": pa.int64(), "aB": pa.int64()}, "column aB: in Protobuf's JSON it has the same name as a_b"),
        ({"a_1": pa.int64(), "a1": pa.int64()}, "column a1: in Protobuf's JSON it has the same name as a_1"),
        ({"x": pa.struct([("a", pa.int64())]), "x_message": pa.int64()}, "column x_message: that is the name of"),
    ],
)
def test_names_that_are_one_name_in_protobuf_are_refused_at_any_depth(fields: dict[str, pa.DataType], why: str) -> None:
    columns = pa.schema(fields)
    with pytest.raises(ConfigurationError, match=f"Protobuf cannot hold {why}"):
        derived(columns, "Row")
    with pytest.raises(ConfigurationError, match=f"Protobuf cannot hold {why.replace('column ', 'column s.')}"):
        derived(pa.schema([("s", pa.struct(list(columns)))]), "Row")


def test_the_schema_of_columns_is_the_text_of_a_proto_file() -> None:
    assert derived(COLUMNS, "Row") == TEXT
    assert problem_with(registered(TEXT), COLUMNS) is None
    assert "import" not in derived(pa.schema([("n", pa.int64())]), "Row")


def test_rows_are_read_back_with_what_is_null_absent_and_times_before_1970() -> None:
    schema = registered(TEXT)
    rows = [
        {
            "id": -1, "at": datetime(1969, 12, 31, 23, 59, 59, 500_000, UTC), "name": "é", "small": -5, "share": 0.5,
            "late": False, "raw": b"\0\xff", "place": {"x": 0, "seen": datetime(2024, 3, 1, 0, 0, 0, 1, UTC)},
        },
        {"id": 0, "at": datetime(1970, 1, 1, tzinfo=UTC), "place": {"x": 7, "seen": None}},
        {"id": 2**63 - 1, "at": datetime(9999, 12, 31, tzinfo=UTC)},
    ]  # fmt: skip
    values = ProtobufValues(schema).of(pa.RecordBatch.from_pylist(rows, COLUMNS)).to_pylist()
    assert [read(value, schema) for value in values] == [
        {
            "id": "-1", "at": "1969-12-31T23:59:59.500Z", "name": "é", "small": -5, "share": 0.5, "late": False,
            "raw": "AP8=", "place": {"seen": "2024-03-01T00:00:00.000001Z"},
        },
        {"at": "1970-01-01T00:00:00Z", "place": {"x": 7}},
        {"id": "9223372036854775807", "at": "9999-12-31T00:00:00Z"},
    ]  # fmt: skip
    assert ProtobufValues(schema).of(pa.RecordBatch.from_pylist([], COLUMNS)).to_pylist() == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('syntax = "proto3"; message Order { optional string name = 9; int64 id = 4; }', None),
        ('syntax = "proto3"; message Order { int64 id = 1; }', "it has no field for column name"),
        ('syntax = "proto3"; message Order { int64 id = 1; string name = 2; }',
         "its field name cannot be absent, and the column may be null"),
        ('syntax = "proto3"; message Order { int32 id = 1; optional string name = 2; }',
         "its field id is int32, and the column is int64"),
        ('syntax = "proto3"; message Order { int64 id = 1; optional string name = 2; bool more = 3; }',
         "its field more is bool, and there is no such column"),
        ('syntax = "proto3"; enum Order { NONE = 0; }', "it has no message"),
        ("message {", "the registry holds schema 258 as the text of a .proto file that cannot be used"),
    ],
)  # fmt: skip
def test_a_registered_schema_must_have_a_field_for_each_column_and_no_other(text: str, why: str | None) -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
    problem = problem_with(registered(text), columns)
    assert problem is None if why is None else problem.startswith(why)
    assert problem_with(registered(text, "AVRO"), columns) == "it is AVRO, not PROTOBUF"


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (pa.field("tags", pa.list_(pa.string())), "column tags: it is list"),
        (pa.field("by", pa.map_(pa.string(), pa.int64())), "column by: it is map"),
        (pa.field("price", pa.decimal128(9, 2)), "column price: it is decimal128"),
        (pa.field("a-b", pa.int64()), "column a-b: its name has other characters"),
        (pa.field("place", pa.struct([("days", pa.list_(pa.date32()))])), "column place.days: it is list"),
    ],
)
def test_a_column_that_cannot_be_a_field_is_named(column: pa.Field, why: str) -> None:
    with pytest.raises(ConfigurationError, match="Protobuf cannot hold") as refused:
        derived(pa.schema([column]), "Row")
    assert why in refused.value.what
