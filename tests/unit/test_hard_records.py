"""Records that are huge, or nested as deeply as bytes allow, for every decoder: a row or a dead letter, never more."""

import json
from base64 import b64encode
from typing import Any

import pyarrow as pa
import pytest

from tests.protobuf_schemas import descriptor_set, proto
from tidemark.decoders.base import Decoded
from tidemark.decoders.registry import open_decoder
from tidemark.errors import ConfigurationError
from tidemark.kinds import DECODERS
from tidemark.model.record_schema import HEADERS

HUGE = 30_000_000
DEEP = 100_000


def avro(*fields: dict[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def schema(number: int, kind: str, text: str) -> dict[str, Any]:
    return {"id": number, "kind": kind, "text": text, "references": []}


def of_avro(reader: dict[str, Any]) -> dict[str, Any]:
    return {"format": "avro", "reader": schema(-1, "AVRO", json.dumps(reader))}


def of_protobuf(**messages: list[str]) -> dict[str, Any]:
    text = b64encode(descriptor_set(proto("t", messages))).decode()
    return {"format": "protobuf", "message": "t.M", "reader": schema(-1, "PROTOBUF", text)}


def of_json_schema(**properties: Any) -> dict[str, Any]:
    text = json.dumps({"type": "object", "properties": properties})
    pinned = {"http://none: writer 7": schema(7, "JSON", "{}")}
    registry = {"url": "http://none"}
    return {"format": "json_schema", "reader": schema(8, "JSON", text), "registry": registry, "schemas": pinned}


def varint(number: int) -> bytes:
    low = bytes([number & 127 | (128 if number > 127 else 0)])
    return low + (varint(number >> 7) if number > 127 else b"")


TEXT_FIELD = {"name": "t", "type": "string"}
FRAME = b"\0\0\0\0\7"


def large() -> dict[str, tuple[dict[str, Any], bytes, bytes, str]]:
    """For each decoder: a config; a record of 30 MB that is good; one that is not, and its reason."""
    text = b"x" * HUGE
    return {
        "avro": (
            of_avro(avro(TEXT_FIELD)), varint(2 * HUGE) + text, varint(2 * HUGE + 2) + text, "ends before the record",
        ),
        "json": ({"format": "json", "schema": "t STRING"}, b'{"t":"' + text + b'"}', b'{"t":"' + text, "not JSON"),
        "json_schema": (
            of_json_schema(t={"type": "string"}), FRAME + b'{"t":"' + text + b'"}', FRAME + text, "not JSON",
        ),
        "protobuf": (
            of_protobuf(M=["string t = 1"]),
            b"\x0a" + varint(HUGE) + text, b"\x0a" + varint(HUGE + 1) + text, "not a t.M",
        ),
        "raw": ({"format": "raw"}, text, b"", ""),
        "string": ({"format": "string"}, text, text + b"\xff", f"not UTF-8 at byte {HUGE}"),
    }  # fmt: skip


def decoded(config: dict[str, Any], *values: bytes) -> Decoded:
    batch = pa.RecordBatch.from_pydict(
        {"value": pa.array(values, pa.binary()), "headers": pa.array([[]] * len(values), HEADERS)}
    )
    result = open_decoder(config).decode(batch)
    assert sorted([*result.good.to_pylist(), *(bad.index for bad in result.errors)]) == list(range(len(values)))
    return result


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", DECODERS)
def test_records_of_30_mb_are_rows_or_dead_letters_and_harm_no_other(kind: str) -> None:
    config, good, bad, reason = large()[kind]
    values = [good, bad, good] if reason else [good, good]
    result = decoded(config, *values)
    column = "t" if "t" in result.rows.schema.names else "value"
    assert [len(value) for value in result.rows.column(column).to_pylist()] == [HUGE, HUGE]
    assert [bad.index for bad in result.errors] == ([1] if reason else [])
    assert all(reason in bad.reason and len(bad.reason) <= 200 for bad in result.errors)


LISTS = {"type": "array", "items": {"type": "array", "items": "int"}}
NESTED = {
    "json": ({"format": "json", "schema": "t STRING"}, b'{"u":' + b"[" * DEEP + b"]" * DEEP + b"}", "nested deeper"),
    "json_schema": (of_json_schema(t={"type": "string"}), FRAME + b'{"u":' + b'{"a":' * DEEP, "nested deeper"),
    "groups that begin": (of_protobuf(M=["string t = 1"]), b"\x7b" * DEEP, "not a t.M"),
    "groups that end too": (of_protobuf(M=["string t = 1"]), b"\x7b" * DEEP + b"\x7c" * DEEP, "not a t.M"),
    "avro": (of_avro(avro({"name": "a", "type": LISTS})), b"\x02" * DEEP, "ends before the record"),
}


@pytest.mark.parametrize(("config", "value", "reason"), NESTED.values(), ids=NESTED)
def test_bytes_that_nest_without_end_are_dead_letters(config: dict[str, Any], value: bytes, reason: str) -> None:
    [bad] = decoded(config, value).errors
    assert reason in bad.reason


def nested(depth: int) -> str:
    """An Avro schema that is this deep."""
    return '{"type": "array", "items": ' * depth + '"int"' + "}" * depth


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(avro({"name": "next", "type": "R"})),
        json.dumps(avro({"name": "items", "type": {"type": "array", "items": "R"}}, {"name": "own", "type": "R"})),
        nested(DEEP),
        nested(500),
        "{}",
        "not JSON",
    ],
    ids=["endless", "endless beside a list", "very deep", "deep", "empty", "no JSON"],
)
def test_a_schema_of_an_avro_writer_that_cannot_be_used_makes_its_records_dead_letters(text: str) -> None:
    config = of_avro(avro({"name": "a", "type": ["null", "int"], "default": None}))
    pinned = {f"http://none: writer {number}": schema(number, "AVRO", text) for number in (7,)}
    pinned["http://none: writer 8"] = schema(8, "AVRO", json.dumps(avro({"name": "a", "type": "int"})))
    result = decoded(
        {**config, "registry": {"url": "http://none"}, "schemas": pinned}, FRAME + b"\0", b"\0\0\0\0\x08\2"
    )
    assert result.rows.to_pylist() == [{"a": 1}]
    [bad] = result.errors
    assert "schema 7 " in bad.reason


@pytest.mark.parametrize(
    "config",
    [
        of_avro(avro({"name": "next", "type": ["null", "R"]})),
        {"format": "avro", "reader": schema(-1, "AVRO", nested(DEEP))},
        of_protobuf(M=["t.M next = 1"]),
        of_protobuf(M=["repeated t.N items = 1"], N=["t.M back = 1"]),
        of_json_schema(
            **json.loads('{"a": ' + '{"type": "object", "properties": {"a": ' * 200 + "{}" + "}}" * 200 + "}")
        ),
    ],
    ids=["avro, recursive", "avro, deep", "protobuf", "protobuf, by another", "json_schema, deep"],
)
def test_a_reader_s_schema_without_end_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        open_decoder(config)
