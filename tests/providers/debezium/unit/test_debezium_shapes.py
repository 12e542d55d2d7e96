"""What a record of Debezium is, by its whole shape, and values that PostgreSQL did not send.

The records have the shapes that connectors 2.7.4 and 3.4.3 wrote.
"""

import json
from base64 import b64encode
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.providers.debezium.unit.test_debezium import (
    KEY,
    NOON,
    NOON_US,
    PLACEHOLDER,
    avro,
    batch,
    beside,
    change,
    config,
    decoded,
    of_schema,
)
from tidemark.decoders.base import ErrorClass
from tidemark.decoders.registry import open_decoder

STATE = "id BIGINT NOT NULL, status STRING, op STRING, ddl STRING, ts_ms BIGINT"
BEGIN = {"status": "BEGIN", "id": "571:53195829", "ts_ms": 1, "event_count": None, "data_collections": None}
END = {**BEGIN, "status": "END", "event_count": 2, "data_collections": [{"data_collection": "t", "event_count": 2}]}
SCHEMA_CHANGE = {"source": {"db": "shop"}, "ts_ms": 1, "databaseName": "shop", "schemaName": None,
                 "ddl": "ALTER TABLE t", "tableChanges": []}  # fmt: skip


@pytest.mark.parametrize(
    "row",
    [
        {"id": 1, "status": "paid"},
        {"id": 1, "status": "BEGIN"},
        {"id": "1", "status": "END", "event_count": 2},
        {**BEGIN, "amount": 5},
        {**BEGIN, "status": "paid"},
        {**BEGIN, "id": 5},
        {**END, "event_count": None},
        {**END, "data_collections": "all"},
        {"id": 7, "ddl": "x"},
        {"id": 7, "tableChanges": []},
        {**SCHEMA_CHANGE, "source": "web"},
        {**SCHEMA_CHANGE, "id": 7},
        {"ts_ms": "now"},
        {"ts_ms": 5, "id": 1},
        {"id": 2, "op": "d", "after": None},
        {"id": 2, "op": "m"},
        {"op": "c", "after": "x"},
        {"op": "d", "before": "x"},
        {"op": "d", "source": "web", "after": None},
        {"op": "(heartbeat)", "status": "x"},
        {},
    ],
)
def test_a_row_without_its_envelope_is_an_error_whatever_its_columns_are(row: dict[str, Any]) -> None:
    for record in (row, beside([], row)):
        made = decoded({**config(), "schema": STATE}, ({"id": 1}, record))
        assert (made.filtered.to_pylist(), len(made.errors), made.rows.num_rows) == ([], 1, 0)


@pytest.mark.parametrize("op", ["heartbeat", "transaction", "schema change", "(heartbeat)"])
def test_no_op_of_a_record_makes_it_a_record_of_another_kind(op: str) -> None:
    made = decoded(config(), ({"id": 1}, {**change("c"), "op": op}))
    assert (made.filtered.to_pylist(), len(made.errors)) == ([], 1)


@pytest.mark.parametrize("key", [None, b"null", b'{"schema":null,"payload":null}'])
@pytest.mark.parametrize("op", ["r", "c", "u"])
def test_a_change_without_a_key_is_an_error_of_its_key(key: bytes | None, op: str) -> None:
    value = json.dumps(change(op)).encode()
    made = open_decoder(config()).decode(batch([(key, value), (b'{"id": 1}', value)]))
    assert [(bad.index, bad.error, "no key" in bad.reason) for bad in made.errors] == [(0, ErrorClass.KEY, True)]
    assert made.good.to_pylist() == [1]


OF_CONVERTER = (
    ("k STRING NOT NULL", ["k"], b"Struct{k=6f1c2d3e-0000-4000-8000-00000000000a}"),
    ("k STRING NOT NULL", ["k"], b"java.nio.HeapByteBuffer[pos=0 lim=3 cap=3]"),
    ("k STRING NOT NULL, n INT NOT NULL", ["k", "n"], b"Struct{k=a,n=1}"),
    ("k INT NOT NULL", ["k"], b"Struct{k=5}"),
    ("k DATE NOT NULL", ["k"], b"Struct{k=19782}"),
)


@pytest.mark.parametrize(("schema", "fields", "key"), OF_CONVERTER)
def test_a_key_that_another_converter_wrote_deletes_nothing(schema: str, fields: list[str], key: bytes) -> None:
    kinds = {"STRING": "a", "INT": 1, "DATE": 19_782}
    before = {name: kinds[kind] for name, kind in (column.split()[:2] for column in schema.split(", "))}
    settings = {**config(), "schema": schema, "tombstones": fields}
    deletion = json.dumps({**change("d"), "before": before}).encode()
    made = open_decoder(settings).decode(batch([(key, deletion)]))
    assert [(bad.error, bad.reason.startswith("a deletion with a wrong key")) for bad in made.errors] == [
        (ErrorClass.KEY, True)
    ]
    if key.startswith(b"Struct"):
        assert len(open_decoder(settings).decode(batch([(key, None)])).errors) == 1


def test_the_key_of_a_deletion_agrees_with_the_row_before_it() -> None:
    settings = {**config(times={"at": "us"}), "tombstones": ["id", "at"]}
    key = {"id": 1, "at": NOON_US}
    befores = (
        {"id": 1, "at": NOON_US, "name": 5},
        {"id": 1, "at": None},
        {"id": 2, "at": NOON_US},
        {"id": 1, "at": 1},
        None,
    )
    made = decoded(settings, *((key, {**change("d"), "before": before}) for before in befores), (key, None))
    assert made.good.to_pylist() == [0, 1, 4, 5]
    assert made.rows.column("at").to_pylist() == [NOON] * 4
    assert [(bad.index, bad.error, "another key" in bad.reason) for bad in made.errors] == [
        (2, ErrorClass.KEY, True), (3, ErrorClass.KEY, True),
    ]  # fmt: skip


# Values that PostgreSQL did not send.

LARGE = (
    "v STRING", "v DECIMAL(38,8)", "v ARRAY<DOUBLE>", "v ARRAY<STRING>", "v ARRAY<TIMESTAMP>", "v MAP<STRING,STRING>",
    "v STRUCT<wkb STRING>",
)  # fmt: skip
SMALL = ("v BIGINT", "v DOUBLE", "v FLOAT", "v BOOLEAN", "v DATE", "v TIMESTAMP")
CODES = [ord(letter) for letter in PLACEHOLDER]


def update(value: Any, before: Any = None, op: str = "u") -> dict[str, Any]:
    return {**change(op, v=value), "before": before}


@pytest.mark.parametrize("with_schema", [False, True])
@pytest.mark.parametrize("column", LARGE)
def test_null_of_a_column_that_can_be_large_is_not_taken_from_an_update_without_before(
    column: str, with_schema: bool
) -> None:
    settings = {**config(), "schema": f"id BIGINT NOT NULL, {column}"}
    records = [update(None), update(None, before={"id": 1, "v": None}), update(None, op="c"), change("u")]
    made = decoded(settings, *(({"id": 1}, beside([], record) if with_schema else record) for record in records))
    assert made.good.to_pylist() == [1, 2, 3]
    assert [(bad.index, "keep_null" in bad.reason, "after.v" in bad.reason) for bad in made.errors] == [(0, True, True)]
    settings["envelope"] = {"kind": "debezium", "unavailable": "keep_null"}
    assert decoded(settings, ({"id": 1}, update(None))).good.to_pylist() == [0]


@pytest.mark.parametrize("column", SMALL)
def test_null_of_a_column_of_a_fixed_size_is_null(column: str) -> None:
    settings = {**config(), "schema": f"id BIGINT NOT NULL, {column}"}
    assert decoded(settings, ({"id": 1}, update(None))).good.to_pylist() == [0]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("v STRING", f'{{"{PLACEHOLDER}":"{PLACEHOLDER}"}}'),  # of an hstore
        ("v STRING", f'{{"{PLACEHOLDER}": "{PLACEHOLDER}"}}'),
        ("v STRING", f'["{PLACEHOLDER}"]'),
        ("v STRING", PLACEHOLDER.encode().hex().upper()),
        ("v MAP<STRING,STRING>", {PLACEHOLDER: PLACEHOLDER}),
        ("v ARRAY<DECIMAL(20,4)>", CODES),
        ("v ARRAY<DOUBLE>", CODES),
        ("v ARRAY<TIMESTAMP>", CODES),
        ("v ARRAY<STRUCT<a STRING>>", [{"a": PLACEHOLDER}]),
        ("v DECIMAL(38,8)", PLACEHOLDER),
    ],
)
def test_a_placeholder_is_known_in_every_shape(column: str, value: Any) -> None:
    settings = {**config(times={"v": "us"} if "TIMESTAMP" in column else {}), "schema": f"id BIGINT NOT NULL, {column}"}
    [bad] = decoded(settings, ({"id": 1}, update(value))).errors
    assert "did not send" in bad.reason


def test_avro_reads_whether_before_is_null() -> None:
    row = {
        "type": "record",
        "name": "Value",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "v", "type": ["null", "bytes"]},
            {"name": "n", "type": ["null", "int"]},
        ],
    }
    fields = [{"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "Value"]},
              {"name": "op", "type": "string"}]  # fmt: skip
    envelope = {"type": "record", "name": "Envelope", "fields": fields}
    settings = {**of_schema(envelope), "key": {**of_schema(KEY), "part": "key"}, "tombstones": ["id"],
                "envelope": {"kind": "debezium"}}  # fmt: skip
    bare, full = {"id": 1, "v": None, "n": None}, {"id": 1, "v": b"x", "n": 1}
    changes = [(None, bare, "u"), (bare, bare, "u"), (None, bare, "c"), (None, full, "u")]
    values = [avro(envelope, {"before": before, "after": after, "op": op}) for before, after, op in changes]
    made = open_decoder(settings).decode(batch([(avro(KEY, {"id": 1}), value) for value in values]))
    assert made.good.to_pylist() == [1, 2, 3]
    assert [(bad.index, bad.reason.partition(":")[0]) for bad in made.errors] == [(0, "field after.v")]
    settings["envelope"] = {"kind": "debezium", "unavailable": "keep_null"}
    made = open_decoder(settings).decode(batch([(avro(KEY, {"id": 1}), values[0])]))
    assert made.good.to_pylist() == [0]


# Numbers and times


@pytest.mark.parametrize(("column", "infinite"), [("v DOUBLE", True), ("v FLOAT", True), ("v ARRAY<DOUBLE>", True),
                                                  ("v DECIMAL(38,8)", False), ("v BIGINT", False)])  # fmt: skip
@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("settings", [{}, {"decimals": "base64"}, {"decimals": "text"}])
@pytest.mark.parametrize("kind", [None, "double", "string"])
def test_what_is_not_finite_is_a_float_and_no_decimal(
    column: str, infinite: bool, value: str, settings: dict[str, str], kind: str | None
) -> None:
    given = [value] if "ARRAY" in column else value
    record = change("c", v=given)
    if kind is not None:
        field = {"type": "array", "items": {"type": kind}} if "ARRAY" in column else {"type": kind}
        record = beside([{**field, "field": "v"}], record)
    made = decoded({**config(**settings), "schema": f"id BIGINT NOT NULL, {column}"}, ({"id": 1}, record))
    wanted = [float(value)] if "ARRAY" in column else float(value)
    assert [repr(row["v"]) for row in made.rows.to_pylist()] == ([repr(wanted)] if infinite else [])


def test_minus_zero_stays() -> None:
    made = decoded({**config(), "schema": "id BIGINT NOT NULL, v DOUBLE"}, ({"id": 1}, change("c", v=-0.0)))
    assert [repr(row["v"]) for row in made.rows.to_pylist()] == ["-0.0"]


@pytest.mark.parametrize(
    ("text", "either", "base64", "as_text"),
    [
        ("AUU=", "3.25", "3.25", None),
        ("3.25", "3.25", None, "3.25"),
        ("-12", "-12.00", None, "-12.00"),
        ("1234", None, "-26588.24", "1234.00"),  # both: the file must say it
        ("1E+3", None, "-28631.77", "1000.00"),
        ("AAAA", None, None, None),  # Java writes no zeros before a number
        ("AAFF", None, None, None),
        ("//8=", None, None, None),
        ("AA==", "0.00", "0.00", None),
        ("POSITIVE_INFINITY", None, None, None),
    ],
)
def test_a_text_is_a_decimal_as_far_as_it_can_only_be_one(
    text: str, either: str | None, base64: str | None, as_text: str | None
) -> None:
    for settings, wanted in (({}, either), ({"decimals": "base64"}, base64), ({"decimals": "text"}, as_text)):
        made = decoded(config(**settings), ({"id": 1}, change("c", price=text)))
        assert [row["price"] for row in made.rows.to_pylist()] == ([Decimal(wanted)] if wanted else []), settings


@given(st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-(10**7), max_value=10**7))
def test_a_decimal_that_java_writes_is_read_again(number: Decimal) -> None:
    digits = int(number.scaleb(2))
    length = (digits if digits >= 0 else ~digits).bit_length() // 8 + 1
    text = b64encode(digits.to_bytes(length, "big", signed=True)).decode()
    made = decoded(config(decimals="base64"), ({"id": 1}, change("c", price=text)))
    assert made.rows.column("price").to_pylist() == [number]


@pytest.mark.parametrize(
    ("unit", "number", "reads"),
    [
        ("us", 1_709_168_523_000, False),  # of timestamp(0): milliseconds
        ("us", 1_709_168_523_123_456, True),
        ("us", 0, True),
        ("us", -1, True),
        ("ns", 1_709_168_523_000, False),
        ("ns", 1_709_168_523_123_456, False),
        ("ms", 1_709_168_523_000, True),
        ("ms", 1_709_168_523_123_456, False),
    ],
)
def test_a_number_of_another_unit_than_the_file_says_is_an_error(unit: str, number: int, reads: bool) -> None:
    made = decoded(config(times={"at": unit}), ({"id": 1}, change("c", at=number)))
    assert (made.rows.num_rows, len(made.errors)) == ((1, 0) if reads else (0, 1))


def test_a_moment_of_january_1970_is_one_where_the_record_says_its_unit() -> None:
    fields = [{"field": "at", "type": "int64", "name": "io.debezium.time.MicroTimestamp"}]
    made = decoded(config(), ({"id": 1}, beside(fields, change("c", at=1_709_168_523_000))))
    assert made.rows.column("at").to_pylist()[0].year == 1970


@pytest.mark.parametrize(
    "name", ["io.debezium.time.Year", "io.debezium.time.MicroTime", "io.debezium.time.MicroDuration"]
)
@pytest.mark.parametrize("column", ["at", "day"])
def test_a_number_that_is_no_moment_by_its_schema_is_none(name: str, column: str) -> None:
    fields = [{"field": column, "type": "int32", "name": name}]
    [bad] = decoded(config(times={"at": "ms"}), ({"id": 1}, beside(fields, change("c", **{column: 2024})))).errors
    assert "no date and no moment" in bad.reason


# Source types in Avro: the same columns as in JSON


def named(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "connect.version": 1, "connect.name": name, **more}


ZONED = named("string", "io.debezium.time.ZonedTimestamp")
DAY = named("int", "io.debezium.time.Date")
VARIABLE = {"type": "record", "name": "VariableScaleDecimal", "namespace": "io.debezium.data",
            "connect.name": "io.debezium.data.VariableScaleDecimal",
            "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}]}  # fmt: skip
MONEY = named("bytes", "org.apache.kafka.connect.data.Decimal", scale=2, precision=64, logicalType="decimal")
MONEY["connect.parameters"] = {"scale": "2"}
LARGE_NUMBER = {**MONEY, "precision": 60, "connect.parameters": {"scale": "2", "connect.decimal.precision": "60"}}
MOMENT = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("kind", "value", "column", "wanted"),
    [
        (ZONED, "2020-09-13T12:26:40Z", MOMENT, NOON),
        (VARIABLE, {"scale": 2, "value": b"\x04\xd2"}, pa.string(), "12.34"),
        (VARIABLE, {"scale": -3, "value": b"\x01"}, pa.string(), "1000"),
        (MONEY, Decimal("-12.34"), pa.decimal128(38, 2), Decimal("-12.34")),
        (LARGE_NUMBER, Decimal("-12.34"), pa.string(), "-12.34"),
        ({"type": "array", "items": ["null", DAY]}, [18_518, None], pa.list_(pa.date32()), [NOON.date(), None]),
        ({"type": "map", "values": ZONED}, {"a": "2020-09-13T12:26:40Z"}, pa.map_(pa.string(), MOMENT), [("a", NOON)]),
        ({"type": "array", "items": VARIABLE}, [{"scale": 0, "value": b"\x05"}], pa.list_(pa.string()), ["5"]),
        (
            {"type": "record", "name": "Inner", "fields": [{"name": "day", "type": DAY}, {"name": "n", "type": "int"}]},
            {"day": 18_518, "n": 1},
            pa.struct([("day", pa.date32()), ("n", pa.int32())]),
            {"day": NOON.date(), "n": 1},
        ),
    ],
)
def test_avro_has_the_column_of_the_source_type(kind: Any, value: Any, column: pa.DataType, wanted: Any) -> None:
    row = {
        "type": "record",
        "name": "Value",
        "fields": [{"name": "id", "type": "long"}, {"name": "v", "type": ["null", kind]}],
    }
    fields = [
        {"name": "before", "type": ["null", row]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "op", "type": "string"},
    ]
    envelope = {"type": "record", "name": "Envelope", "fields": fields}
    settings = {**of_schema(envelope), "key": {**of_schema(KEY), "part": "key"}, "tombstones": ["id"],
                "envelope": {"kind": "debezium"}}  # fmt: skip
    values = [
        avro(envelope, {"before": None, "after": {"id": 1, "v": v}, "op": "c"}) for v in (None, value, None, value)
    ]
    made = open_decoder(settings).decode(batch([(avro(KEY, {"id": 1}), each) for each in values]))
    assert made.errors == ()
    assert str(made.rows.schema.field("v").type) == str(column) or made.rows.schema.field("v").type.equals(column)
    assert made.rows.column("v").to_pylist() == [None, wanted, None, wanted]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (ZONED, "infinity"),
        ({"type": "array", "items": ZONED}, ["2020-09-13T12:26:40Z", "-infinity"]),
        ({"type": "array", "items": DAY}, [2**31 - 1]),
        (MONEY, Decimal(10**37)),
        (VARIABLE, {"scale": 2**30, "value": b"\x05"}),
    ],
)
def test_avro_has_an_error_for_a_value_that_the_column_cannot_hold(kind: Any, value: Any) -> None:
    row = {
        "type": "record",
        "name": "Value",
        "fields": [{"name": "id", "type": "long"}, {"name": "v", "type": ["null", kind]}],
    }
    fields = [{"name": "after", "type": ["null", row]}, {"name": "op", "type": "string"}]
    envelope = {"type": "record", "name": "Envelope", "fields": fields}
    settings = {**of_schema(envelope), "key": {**of_schema(KEY), "part": "key"}, "tombstones": ["id"],
                "envelope": {"kind": "debezium"}}  # fmt: skip
    values = [avro(envelope, {"after": {"id": 1, "v": v}, "op": "c"}) for v in (None, value, None)]
    made = open_decoder(settings).decode(batch([(avro(KEY, {"id": 1}), each) for each in values]))
    assert [(bad.index, bad.reason.partition(":")[0]) for bad in made.errors] == [(1, "field after.v")]
    assert made.good.to_pylist() == [0, 2]


# Flattened rows

FLAT = {
    **config(flattened=True, times={"at": "us"}, columns={"op": "op", "at_source": "source.ts_ms", "lsn": "source.lsn"})
}


@pytest.mark.parametrize("deleted", [True, "true"])
@pytest.mark.parametrize("with_schema", [False, True])
def test_a_flattened_row_is_a_row_or_a_deletion(deleted: Any, with_schema: bool) -> None:
    row = {"id": 1, "name": "ada", "price": "BNI=", "at": NOON_US, "__op": "u", "__source_ts_ms": 1_600_000_000_000,
           "__lsn": 5, "__table": "orders", "__deleted": "false" if deleted == "true" else False}  # fmt: skip
    records = [row, {**row, "__deleted": deleted, "__op": "d"}, {"id": 1, "name": "bare"}, {**row, "__op": "d"}]
    if with_schema:
        fields = [{"field": "at", "type": "int64", "name": "io.debezium.time.MicroTimestamp"}]
        records = [{"schema": {"type": "struct", "fields": fields}, "payload": record} for record in records]
        records.append({"schema": {"type": "struct", "fields": fields}, "payload": None})
    made = decoded(FLAT, *(({"id": 1}, record) for record in records))
    assert made.errors == ()
    assert made.deleted.to_pylist() == [False, True, False, True, True][: len(records)]
    first, _, bare, *_ = made.rows.to_pylist()
    assert (first["name"], first["price"], first["at"]) == ("ada", Decimal("12.34"), NOON)
    assert (first["op"], first["at_source"], first["lsn"]) == ("u", datetime_of(1_600_000_000_000), 5)
    assert (bare["name"], bare["op"]) == ("bare", "r")
    assert made.unknown is not None
    assert {path.partition(" ")[2] for path in made.unknown.paths.to_pylist()} == {"(absent)"}


def datetime_of(milliseconds: int) -> Any:
    return pa.scalar(milliseconds * 1_000, pa.timestamp("us", "UTC")).as_py()


@pytest.mark.parametrize("envelope", [{}, {"envelope": {"kind": "debezium", "flattened": True}}])
@pytest.mark.parametrize("key", [False, True])
def test_null_as_a_text_is_a_deletion(envelope: dict[str, Any], key: bool) -> None:
    settings = {"format": "json", "schema": "id BIGINT NOT NULL, name STRING", "tombstones": ["id"], **envelope}
    if key:
        settings["key"] = {"format": "json", "schema": "id BIGINT NOT NULL", "part": "key"}
    made = open_decoder(settings).decode(batch([(b'{"id": 7}', b"null"), (b'{"id": 8}', b'{"id": 8}')]))
    assert (made.deleted.to_pylist(), made.rows.column("id").to_pylist()) == ([True, False], [7, 8])


def test_null_as_a_text_is_no_record_where_no_record_deletes() -> None:
    made = open_decoder({"format": "json", "schema": "id BIGINT"}).decode(batch([(None, b"null")]))
    assert [bad.reason for bad in made.errors] == ["expected an object, found null"]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"id": 1, "__deleted": "yes"}, "__deleted"),
        ({"id": 1, "__deleted": 1}, "__deleted"),
        ({"id": 1, "__deleted": []}, "__deleted"),
        ({"id": 1, "__op": "z"}, "op 'z'"),
        (change("c"), "leave that out"),
    ],
)
def test_what_is_no_flattened_row_is_an_error(record: dict[str, Any], reason: str) -> None:
    [bad] = decoded(FLAT, ({"id": 1}, record)).errors
    assert reason in bad.reason


def test_a_plain_row_and_its_key_may_have_a_schema_beside_them() -> None:
    settings = {"format": "json", "schema": "id BIGINT NOT NULL, name STRING, __deleted STRING", "tombstones": ["id"]}
    beside_it = {"schema": {"type": "struct", "fields": []}}
    records: list[tuple[Any, Any]] = [
        ({**beside_it, "payload": {"id": 1}}, {**beside_it, "payload": {"id": 1, "name": "a", "__deleted": mark}})
        for mark in ("false", "true")
    ]
    made = decoded(settings, *records, (records[0][0], None))
    assert (made.deleted.to_pylist(), made.rows.column("id").to_pylist()) == ([False, True, True], [1, 1, 1])


@pytest.mark.parametrize("kind", ["STRING", "BOOLEAN"])
def test_a_plain_row_with_the_mark_of_a_deletion_is_one(kind: str) -> None:
    settings = {"format": "json", "schema": f"id BIGINT NOT NULL, name STRING, __deleted {kind}, __op STRING",
                "tombstones": ["id"]}  # fmt: skip
    marks = ("false", "true", None) if kind == "STRING" else (False, True, None)
    records = [{"id": 1, "name": "a", "__deleted": mark, "__op": "u"} for mark in marks]
    made = decoded(settings, *(({"id": 1}, record) for record in records))
    assert made.rows.schema.names == ["id", "name", "op"]
    assert (made.deleted.to_pylist(), made.rows.column("name").to_pylist()) == ([False, True, False], ["a", None, "a"])
    del settings["tombstones"]
    rows = open_decoder(settings).decode(batch([(None, json.dumps(record).encode()) for record in records])).rows
    assert rows.column("deleted").to_pylist() == list(marks)
