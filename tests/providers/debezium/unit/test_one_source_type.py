"""One source type is one column, with the same value, in JSON with the schema beside each record and in Avro.

The Avro schemas are those that Kafka Connect's ``AvroData`` makes of a schema of Connect.
"""

import json
from base64 import b64encode
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from tests.providers.debezium.unit.test_debezium import batch
from tidemark.decoders.base import Decoded
from tidemark.decoders.registry import open_decoder
from tidemark.providers.debezium.json import types_inside

TIME, DATA, CONNECT = "io.debezium.time.", "io.debezium.data.", "org.apache.kafka.connect.data."
INSTANT = pa.timestamp("us", "UTC")
NOON = datetime(2020, 9, 13, 12, 26, 40, tzinfo=UTC)
AVRO = {"int8": "int", "int16": "int", "int32": "int", "int64": "long", "float": "float", "double": "double",
        "boolean": "boolean", "string": "string", "bytes": "bytes"}  # fmt: skip
LOGICAL = {f"{CONNECT}Date": "date", f"{CONNECT}Time": "time-millis", f"{CONNECT}Timestamp": "timestamp-millis"}
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
Schema = dict[str, Any]


def connect(kind: str, name: str | None = None, **parameters: str) -> Schema:
    more = {} if name is None else {"name": name, "version": 1}
    return {"type": kind, "optional": True, **more, **({"parameters": parameters} if parameters else {})}


def exact(scale: int, precision: int | None = None) -> Schema:
    digits = {} if precision is None else {"connect.decimal.precision": str(precision)}
    return connect("bytes", f"{CONNECT}Decimal", scale=str(scale), **digits)


def array(items: Schema) -> Schema:
    return {"type": "array", "optional": True, "items": items}


def map_of(values: Schema) -> Schema:
    return {"type": "map", "optional": True, "keys": {"type": "string", "optional": False}, "values": values}


def struct(name: str | None = None, **fields: Schema) -> Schema:
    return {**connect("struct", name), "fields": [{**field, "field": key} for key, field in fields.items()]}


VARIABLE = struct(f"{DATA}VariableScaleDecimal", scale=connect("int32"), value=connect("bytes"))
POINT = struct(f"{DATA}geometry.Point", x=connect("double"), wkb=connect("bytes"), srid=connect("int32"))


def avro(schema: Schema) -> Any:
    """The type in Avro, of values that may be null."""
    name = schema.get("name")
    known: dict[str, Any] = {} if name is None else {"connect.name": name}
    if "parameters" in schema:
        known["connect.parameters"] = schema["parameters"]
    match schema["type"]:
        case "array":
            kind: dict[str, Any] = {"type": "array", "items": avro(schema["items"])}
        case "map":
            kind = {"type": "map", "values": avro(schema["values"])}
        case "struct":
            fields = [{"name": field["field"], "type": avro(field)} for field in schema["fields"]]
            kind = {"type": "record", "name": (name or "inner").rpartition(".")[2], "fields": fields}
        case scalar:
            kind = {"type": AVRO[scalar]} | ({"connect.type": scalar} if scalar in ("int8", "int16") else {})
    if name == f"{CONNECT}Decimal":
        digits = int(schema["parameters"].get("connect.decimal.precision", 64))
        kind |= {"logicalType": "decimal", "scale": int(schema["parameters"]["scale"]), "precision": digits}
    elif name in LOGICAL:
        kind["logicalType"] = LOGICAL[name]
    return ["null", {**kind, **known}]


def digits_of(number: int) -> bytes:
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)


def as_json(value: Any) -> Any:
    match value:
        case bytes():
            return b64encode(value).decode()
        case list():
            return [as_json(each) for each in value]
        case dict():
            return {key: as_json(each) for key, each in value.items()}
    return value


def without_logical(kind: Any) -> Any:
    """The type as fastavro writes plain values of it."""
    match kind:
        case list():
            return [without_logical(each) for each in kind]
        case dict():
            return {key: without_logical(each) for key, each in kind.items() if key != "logicalType"}
    return kind


def of_json(schema: Schema, value: Any) -> Decoded:
    row = struct("Value", id=connect("int64"), v=schema)
    fields = [{**row, "field": "before"}, {**row, "field": "after"}, {**connect("string"), "field": "op"}]
    record = {
        "schema": {**connect("struct", "Envelope"), "fields": fields},
        "payload": {"before": None, "after": {"id": 1, "v": as_json(value)}, "op": "r"},
    }  # fmt: skip
    types = types_inside({"kind": "debezium"}, record)
    settings = {"format": "json", "schema": f"id BIGINT NOT NULL, v {types['v']}", "tombstones": ["id"],
                "envelope": {"kind": "debezium"}}  # fmt: skip
    key, content = b'{"id":1}', json.dumps(record, separators=(",", ":")).encode()
    return open_decoder(settings).decode(batch([(key, content)] * 4))


def of_avro(schema: Schema, value: Any) -> Decoded:
    row = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "long"},
                                                        {"name": "v", "type": avro(schema)}]}  # fmt: skip
    fields = [{"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "Value"]},
              {"name": "op", "type": "string"}]  # fmt: skip
    envelope = {"type": "record", "name": "Envelope", "fields": fields}
    settings = {**of_schema(envelope), "key": {**of_schema(KEY), "part": "key"}, "tombstones": ["id"],
                "envelope": {"kind": "debezium"}}  # fmt: skip
    content = written(without_logical(envelope), {"before": None, "after": {"id": 1, "v": value}, "op": "r"})
    return open_decoder(settings).decode(batch([(written(KEY, {"id": 1}), content)] * 4))


def of_schema(schema: Any) -> Schema:
    return {"format": "avro", "reader": {"id": 7, "kind": "AVRO", "text": json.dumps(schema), "references": []}}


def written(schema: Any, value: Any) -> bytes:
    content = BytesIO()
    fastavro.schemaless_writer(content, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return content.getvalue()


@pytest.mark.parametrize(
    ("schema", "value", "column", "wanted"),
    [
        (connect("int8"), -128, pa.int16(), -128),
        (connect("int16"), 32_767, pa.int16(), 32_767),
        (connect("int32"), -7, pa.int32(), -7),
        (connect("int32", f"{TIME}Year"), 2024, pa.int32(), 2024),
        (connect("int64"), 2**62, pa.int64(), 2**62),
        (connect("float"), 0.5, pa.float32(), 0.5),
        (connect("double"), 0.1, pa.float64(), 0.1),
        (connect("boolean"), True, pa.bool_(), True),
        (connect("string", f"{DATA}Uuid"), "6f1c", pa.string(), "6f1c"),
        (connect("string", f"{DATA}Enum", allowed="a,b"), "a", pa.string(), "a"),
        (connect("bytes"), b"\x00\xff\x01", pa.binary(), b"\x00\xff\x01"),
        (connect("bytes"), b"", pa.binary(), b""),
        (connect("bytes", f"{DATA}Bits", length="12"), b"\x01\x08", pa.binary(), b"\x01\x08"),
        (exact(2, 10), digits_of(-1234), pa.decimal128(10, 2), Decimal("-12.34")),
        (exact(2), digits_of(1234), pa.decimal128(38, 2), Decimal("12.34")),
        (exact(20, 60), digits_of(10**50 + 1), pa.string(), f"1{'0' * 30}.{'0' * 19}1"),
        (exact(5, 3), digits_of(123), pa.decimal128(5, 5), Decimal("0.00123")),
        (exact(-2, 5), digits_of(123), pa.decimal128(7, 0), Decimal(12300)),
        (exact(50, 10), digits_of(123), pa.string(), f"0.{'0' * 47}123"),
        (VARIABLE, {"scale": 3, "value": digits_of(-7)}, pa.string(), "-0.007"),
        (connect("int32", f"{TIME}Date"), 18_518, pa.date32(), date(2020, 9, 13)),
        (connect("int64", f"{TIME}Timestamp"), 1_600_000_000_000, INSTANT, NOON),
        (connect("int64", f"{TIME}MicroTimestamp"), 1_600_000_000_000_000, INSTANT, NOON),
        (connect("int64", f"{TIME}NanoTimestamp"), 1_600_000_000_000_000_000, INSTANT, NOON),
        (connect("string", f"{TIME}ZonedTimestamp"), "2020-09-13T12:26:40Z", INSTANT, NOON),
        (connect("string", f"{TIME}ZonedTime"), "12:26:40Z", pa.string(), "12:26:40Z"),
        (connect("int64", f"{TIME}MicroTime"), 44_800_000_000, pa.int64(), 44_800_000_000),
        (connect("int32", f"{TIME}Time"), 44_800_000, pa.int32(), 44_800_000),
        (connect("int64", f"{TIME}MicroDuration"), 7, pa.int64(), 7),
        (connect("int32", f"{CONNECT}Date"), 18_518, pa.date32(), date(2020, 9, 13)),
        (connect("int32", f"{CONNECT}Time"), 44_800_007, pa.int32(), 44_800_007),
        (connect("int64", f"{CONNECT}Timestamp"), 1_600_000_000_000, INSTANT, NOON),
        (POINT, {"x": 1.5, "wkb": b"\x01", "srid": None},
         pa.struct([("x", pa.float64()), ("wkb", pa.binary()), ("srid", pa.int32())]),
         {"x": 1.5, "wkb": b"\x01", "srid": None}),
        (array(connect("int16")), [1, None], pa.list_(pa.int16()), [1, None]),
        (array(exact(2, 10)), [digits_of(150), None], pa.list_(pa.decimal128(10, 2)), [Decimal("1.50"), None]),
        (array(exact(20, 60)), [digits_of(10**20), None], pa.list_(pa.string()), [f"1.{'0' * 20}", None]),
        (array(VARIABLE), [{"scale": 0, "value": digits_of(5)}], pa.list_(pa.string()), ["5"]),
        (array(connect("int32", f"{TIME}Date")), [18_518, None], pa.list_(pa.date32()), [date(2020, 9, 13), None]),
        (array(connect("bytes")), [b"\x01", None], pa.list_(pa.binary()), [b"\x01", None]),
        (map_of(connect("string")), {"a": "b", "c": None}, pa.map_(pa.string(), pa.string()),
         [("a", "b"), ("c", None)]),
        (struct(day=connect("int32", f"{TIME}Date"), at=connect("int32", f"{CONNECT}Time")),
         {"day": 18_518, "at": 1}, pa.struct([("day", pa.date32()), ("at", pa.int32())]),
         {"day": date(2020, 9, 13), "at": 1}),
    ],
)  # fmt: skip
def test_a_source_type_is_one_column_in_each_format(
    schema: Schema, value: Any, column: pa.DataType, wanted: Any
) -> None:
    for form in (of_json, of_avro):
        for content, expected in ((value, wanted), (None, None)):
            made = form(schema, content)
            assert made.errors == (), form.__name__
            assert plain(made.rows.schema.field("v").type) == plain(column), form.__name__
            assert made.rows.column("v").to_pylist() == [expected] * 4, form.__name__


def plain(kind: pa.DataType) -> str:
    """A type without the names of elements, and without what may be null in it."""
    if pa.types.is_list(kind):
        return f"[{plain(kind.value_type)}]"
    if pa.types.is_map(kind):
        return f"{{{plain(kind.item_type)}}}"
    if pa.types.is_struct(kind):
        return ", ".join(f"{field.name}: {plain(field.type)}" for field in kind)
    return str(kind)


def test_a_number_that_is_no_small_one_is_an_error_of_its_record() -> None:
    """A connector writes none; bytes that say another number must not become one."""
    [error] = {bad.reason for bad in of_avro(connect("int16"), 40_000).errors}
    assert error == "field after.v: it does not fit int16"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"scale": 1_001, "value": "AQ=="}, "no number with a scale"),
        ({"scale": "1", "value": "AQ=="}, "no number with a scale"),
        ({"scale": 1, "value": "x"}, "no number with a scale"),
        ({"scale": 1}, "expected string, found object"),
        ({}, "expected string, found object"),
        (7, "expected string, found integer"),
    ],
)
def test_an_object_in_a_column_of_texts_is_an_error_unless_it_is_a_number(value: Any, reason: str) -> None:
    record = {"before": None, "after": {"id": 1, "v": value}, "op": "r"}
    settings = {"format": "json", "schema": "id BIGINT NOT NULL, v STRING", "tombstones": ["id"],
                "envelope": {"kind": "debezium"}}  # fmt: skip
    [error] = open_decoder(settings).decode(batch([(b'{"id":1}', json.dumps(record).encode())])).errors
    assert error.reason == f"field after.v: {reason}"


@pytest.mark.parametrize("text", ["AQ", "AQ=", "A*==", "žluť", "AQ==AQ==", "AQ\n=="])
def test_a_text_that_is_no_base64_is_an_error_of_its_record(text: str) -> None:
    settings = {"format": "json", "schema": "id BIGINT NOT NULL, v BINARY"}
    contents = [json.dumps({"id": 1, "v": v}, separators=(",", ":")).encode() for v in ("AQ==", text, "")]
    made = open_decoder(settings).decode(batch([(None, content) for content in contents]))
    assert made.rows.column("v").to_pylist() == [b"\x01", b""]
    assert [(bad.index, bad.reason) for bad in made.errors] == [(1, "field v: not base64")]
