"""Avro records become rows: types, evolution, and what bad bytes get. Writers are fastavro's own."""

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from tidemark.decoders.base import Decoded, ErrorClass
from tidemark.errors import ConfigurationError
from tidemark.model.record_schema import HEADERS
from tidemark.providers.avro.decoder import open_decoder


def record(*fields: tuple[str, Any] | dict[str, Any], name: str = "R") -> dict[str, Any]:
    named = [field if isinstance(field, dict) else {"name": field[0], "type": field[1]} for field in fields]
    return {"type": "record", "name": name, "fields": named}


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return out.getvalue()


def framed(writer: int, data: bytes) -> bytes:
    return b"\0" + writer.to_bytes(4, "big") + data


def registered(number: int, schema: Any, kind: str = "AVRO") -> dict[str, Any]:
    return {"id": number, "kind": kind, "text": json.dumps(schema), "references": []}


def batch(values: list[bytes | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array(values, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array([None] * len(values), HEADERS),
        }
    )


def local(schema: Any, values: list[bytes | None]) -> Decoded:
    return open_decoder({"format": "avro", "reader": registered(-1, schema)}).decode(batch(values))


def by_registry(reader: Any, writers: dict[int, Any], values: list[bytes | None], **more: Any) -> Decoded:
    pinned = {f"http://r: writer {number}": registered(number, schema) for number, schema in writers.items()}
    config = {"registry": {"url": "http://r"}, "schemas": pinned, "reader": registered(99, reader), **more}
    return open_decoder({"format": "avro", **config}).decode(batch(values))


MAP = {"type": "map", "values": "long"}
POINT = record(("x", "double"), ("seen", ["null", {"type": "long", "logicalType": "timestamp-millis"}]), name="Point")


@pytest.mark.parametrize(
    ("kind", "value", "arrow", "expected"),
    [
        ("boolean", True, pa.bool_(), True),
        ("int", -(2**31), pa.int32(), -(2**31)),
        ("long", 2**63 - 1, pa.int64(), 2**63 - 1),
        ("float", 0.5, pa.float32(), 0.5),
        ("double", 0.1, pa.float64(), 0.1),
        ("bytes", b"\0\xff", pa.binary(), b"\0\xff"),
        ("string", "é", pa.string(), "é"),
        ({"type": "fixed", "name": "F", "size": 3}, b"abc", pa.binary(), b"abc"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", pa.string(), "B"),
        (["null", "int"], None, pa.int32(), None),
        (["int", "null"], 5, pa.int32(), 5),
        (["null", "int", "string"], "a", pa.string(), '"a"'),
        (["int", "string"], 7, pa.string(), "7"),
        ({"type": "array", "items": ["null", "int"]}, [1, None], pa.list_(pa.field("element", pa.int32())), [1, None]),
        (MAP, {"a": 1}, pa.map_(pa.string(), pa.int64()), [("a", 1)]),
        ({"type": "int", "logicalType": "date"}, date(2024, 2, 29), pa.date32(), date(2024, 2, 29)),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            datetime(2024, 2, 29, 1, 2, 3, 4000, UTC),
            pa.timestamp("us", "UTC"),
            datetime(2024, 2, 29, 1, 2, 3, 4000, UTC),
        ),
        (
            {"type": "long", "logicalType": "timestamp-micros"},
            datetime(1913, 2, 28, 1, 2, 3, 4, UTC),
            pa.timestamp("us", "UTC"),
            datetime(1913, 2, 28, 1, 2, 3, 4, UTC),
        ),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, 1, pa.string(), "1970-01-01T00:00:00.001000"),
        ({"type": "int", "logicalType": "time-millis"}, 3_600_001, pa.string(), "01:00:00.001000"),
        ({"type": "string", "logicalType": "uuid"}, "not checked", pa.string(), "not checked"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            Decimal("-123.45"),
            pa.decimal128(9, 2),
            Decimal("-123.45"),
        ),
        ({"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 3}, Decimal("1e40"), pa.string(), None),
        ({"type": "long", "logicalType": "timestamp-nanos"}, 5, pa.int64(), 5),
        (
            {"type": "array", "items": POINT},
            [{"x": 1.5, "seen": datetime(2024, 1, 1, tzinfo=UTC)}],
            None,
            [{"x": 1.5, "seen": datetime(2024, 1, 1, tzinfo=UTC)}],
        ),
    ],
)
def test_a_value_of_each_type_arrives_as_it_was_written(kind: Any, value: Any, arrow: Any, expected: Any) -> None:
    schema = record(("f", kind))
    decoded = local(schema, [written(schema, {"f": value})])
    assert decoded.errors == ()
    column = decoded.rows.column("f")
    assert arrow is None or column.type == arrow
    if isinstance(value, Decimal) and expected is None:
        assert Decimal(column[0].as_py()) == value
    else:
        assert column[0].as_py() == expected


def test_a_schema_that_is_no_record_is_one_column() -> None:
    decoded = local("long", [written("long", 5), written("long", -1)])
    assert decoded.rows.to_pydict() == {"value": [5, -1]}


def test_the_readers_schema_decides_by_avros_rules() -> None:
    old = record(("id", "int"), ("name", "string"), ("gone", "boolean"))
    new = record(
        ("id", "long"),
        {"name": "title", "type": ["null", "string"], "aliases": ["name"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["x"]},
        {"name": "raw", "type": "bytes", "default": "\u00ff"},
    )
    values = [
        framed(2, written(new, {"id": 2, "title": None, "tags": [], "raw": b""})),
        framed(1, written(old, {"id": 1, "name": "a", "gone": True})),
    ]
    decoded = by_registry(new, {1: old, 2: new}, values)
    assert decoded.errors == ()
    assert decoded.rows.to_pylist() == [
        {"id": 2, "title": None, "tags": [], "raw": b""},
        {"id": 1, "title": "a", "tags": ["x"], "raw": b"\xff"},
    ]


MILLIS, MICROS = ({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros"))
CENTS, EURO = ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": scale} for scale in (2, 0))


@pytest.mark.parametrize(
    ("old", "new", "value", "reason"),
    [
        ("string", "int", "a", "field f is string, and the reader needs int"),
        (MILLIS, MICROS, datetime(2024, 1, 1, tzinfo=UTC), "timestamp-millis, and the reader needs timestamp-micros"),
        (CENTS, EURO, Decimal("1.25"), "decimal with scale 2, and the reader needs decimal with scale 0"),
        (["null", "int"], "int", None, "does not resolve"),
        (
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            {"type": "enum", "name": "E", "symbols": ["A"]},
            "B",
            "B",
        ),
    ],
)
def test_what_does_not_resolve_is_an_error_with_both_ids(old: Any, new: Any, value: Any, reason: str) -> None:
    good = [framed(2, written(record(("f", new)), {"f": 1}))] if new == "int" else []
    values = [framed(1, written(record(("f", old)), {"f": value})), *good]
    decoded = by_registry(record(("f", new)), {1: record(("f", old)), 2: record(("f", new))}, values)
    [bad] = decoded.errors
    assert reason in bad.reason
    assert (bad.index, bad.error, bad.schemas) == (0, ErrorClass.SCHEMA, "writer 1, reader 99")
    assert "writer 1, reader 99" in bad.reason
    assert decoded.rows.num_rows == len(values) - 1


def test_bad_bytes_are_errors_and_the_others_are_unharmed() -> None:
    schema = record(("id", "int"), ("name", "string"), ("at", MICROS))
    good = written(schema, {"id": 1, "name": "a", "at": datetime(2024, 1, 1, tzinfo=UTC)})
    year = b"\x02\x02a" + written("long", 253_402_300_800_000_000)
    values: list[bytes | None] = [good, good[:-1], good + b"\0", b"", None, b"\x02\x02\xff\x02", year, good]
    decoded = local(schema, values)
    assert decoded.good.to_pylist() == [0, 7]
    reasons = [bad.reason for bad in decoded.errors]
    assert reasons == [
        "it ends before the record does",
        "1 bytes follow the record",
        "it ends before the record does",
        "it has no value",
        "it holds text that is not UTF-8",
        "field at: a time outside the years 1 to 9999",
    ]
    assert {bad.error for bad in decoded.errors} == {ErrorClass.VALUE}


def test_numbers_that_do_not_fit_are_errors_of_their_records_alone() -> None:
    schema = record(("id", "int"), ("cost", {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1}))
    large, right = b"\x80\x80\x80\x80\x80\x01\x02\x01", b"\x02\x02\x01"
    wide = b"\x02\x08\x7f\xff\xff\xff"
    decoded = local(schema, [right, large, right, wide, right])
    assert decoded.good.to_pylist() == [0, 2, 4]
    assert [bad.index for bad in decoded.errors] == [1, 3]


def test_a_writer_that_cannot_be_used_is_an_error_of_class_schema() -> None:
    reader = record(("id", "int"))
    endless = record(("id", "int"), ("next", "R"))
    decoded = by_registry(reader, {1: reader, 2: endless}, [framed(1, b"\x02"), framed(2, b"\x02\x00")])
    [bad] = decoded.errors
    assert decoded.good.to_pylist() == [0]
    assert "schema 2 cannot be used: the Avro schema is recursive: R contains itself without an end" in bad.reason
    assert bad.error is ErrorClass.SCHEMA


def test_keys_are_read_from_the_key_and_their_errors_are_of_class_key() -> None:
    decoded = by_registry("string", {1: "string"}, [framed(1, b"\x02k"), framed(1, b"\x09k"), b"x"], part="key")
    assert decoded.rows.to_pydict() == {"value": ["k"]}
    assert [(bad.index, bad.error) for bad in decoded.errors] == [(1, ErrorClass.KEY), (2, ErrorClass.KEY)]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (record(("next", ["null", "R"])), "is recursive: R contains itself"),
        ("nonsense", "names a type nonsense"),
        (record(("_id", "int")), "has a field _id"),
        (record(), "is a record without fields"),
        (record(("f", {"type": "array", "items": "null"})), "items take no bytes"),
        (record(("f", record(name="Empty"))), "holds a record without fields, Empty"),
    ],
)
def test_a_schema_without_columns_is_refused(schema: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        open_decoder({"format": "avro", "reader": registered(-1, schema)})


def test_types_of_references_are_known() -> None:
    schema = record(("at", "geo.Point"), ("to", "geo.Point"))
    point = {**POINT, "namespace": "geo"}
    reader = {**registered(-1, schema), "references": [["geo.Point", json.dumps(point)]]}
    decoder = open_decoder({"format": "avro", "reader": reader})
    [at, to] = decoder.schema
    assert at.type == to.type
    data = written("double", 1.5) + b"\0" + written("double", 2.5) + b"\0"
    assert decoder.decode(batch([data])).rows.to_pylist() == [
        {"at": {"x": 1.5, "seen": None}, "to": {"x": 2.5, "seen": None}}
    ]
