"""Records with the frame of AWS's serializers; of AWS's own Java, too. No registry is asked."""

import zlib
from base64 import b64encode
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from tests.unit.pipeline_text import changed
from tests.worlds.glue_world import WRITTEN, Written, written
from tidemark.decoders.base import Decoded, ErrorClass
from tidemark.decoders.pins import Pins
from tidemark.kinds import DECODERS
from tidemark.model.record_schema import HEADERS
from tidemark.pipeline.loader import load
from tidemark.pipeline.problems import InvalidPipelines
from tidemark.providers.glue.framing import LARGEST, unframe
from tidemark.providers.protobuf.framed import message_at
from tidemark.providers.registry.base import MessagePlace
from tidemark.providers.registry.framing import RecordPart, Unframed
from tidemark.providers.registry.registered_schema import RegisteredSchema

WRITER = "469eea4d-6b17-4c75-bea6-0a9446e8022b"
FORMATS = {"AVRO": "avro", "JSON": "json_schema", "PROTOBUF": "protobuf"}
ROWS = {
    "AVRO": {"id": 7, "item": "tea"},
    "JSON": {"id": 7, "item": "tea"},
    "PROTOBUF": {"id": 7, "lines": [{"sku": "tea", "count": 2}], "notes": []},
}


def framed(data: bytes, *, compression: int = 0, version: int = 3) -> bytes:
    return bytes([version, compression]) + UUID(WRITER).bytes + data


def batch(*values: bytes | None) -> pa.RecordBatch:
    empty = pa.array([[]] * len(values), HEADERS)
    return pa.record_batch(
        {"value": pa.array(values, pa.binary()), "key": pa.array(values, pa.binary()), "headers": empty}
    )


def decoded(record: Written, *more: bytes, reader: dict[str, Any] | None = None) -> Decoded:
    """The record decoded with a schema that is pinned under its UUID, and other records after it."""
    pinned = RegisteredSchema(record.writer, record.format, record.schema).as_dict()
    config: dict[str, Any] = {
        "format": FORMATS[record.format],
        "reader": reader or pinned,
        "registry": {"kind": "glue", "name": "shop"},
        "schemas": {f"glue shop: writer {record.writer}": pinned},
    }
    if record.format == "PROTOBUF":
        config["message"] = "shop.Order"
    decoder = DECODERS.module(FORMATS[record.format], "decoder").open_decoder(config)
    result: Decoded = decoder.decode(batch(record.record, *more))
    assert decoder.schemas_used == {f"glue shop: writer {record.writer}": pinned}
    return result


def orders() -> list[Written]:
    """Of the messages only orders: each is followed by a line of an order, another message of the same schema."""
    records = [*written()]
    return [
        record
        for at, record in enumerate(records)
        if record.format != "PROTOBUF" or records[at - 1].format != "PROTOBUF"
    ]


@pytest.mark.parametrize("record", orders(), ids=lambda record: f"{record.format}, {record.compression}")
def test_what_java_wrote_is_read_with_the_schema_that_glue_holds(record: Written) -> None:
    result = decoded(record)
    assert not result.errors
    [row] = result.rows.to_pylist()
    assert {name: row[name] for name in ROWS[record.format]} == ROWS[record.format]


def test_a_message_is_read_with_the_schema_of_a_file() -> None:
    [order, *_] = [record for record in orders() if record.format == "PROTOBUF"]
    content = b64encode((WRITTEN / "order.desc").read_bytes()).decode()
    [row] = decoded(order, reader=RegisteredSchema(-1, "PROTOBUF", content).as_dict()).rows.to_pylist()
    assert row == ROWS["PROTOBUF"]


def test_another_message_of_the_schema_is_named_by_its_number() -> None:
    order, line = [record for record in written() if record.format == "PROTOBUF" and record.compression == "NONE"]
    [bad] = decoded(order, line.record).errors
    assert bad.reason.startswith("it is a message shop.Order.Line, and the reader needs shop.Order")
    numbered = [message_at(order.schema, (number,), MessagePlace.NUMBER) for number in range(5)]
    assert numbered == ["shop.Cancelled", "shop.Order", "shop.Order.Line", "shop.Order.NotesEntry", None]
    beyond = framed(b"\x09").replace(UUID(WRITER).bytes, order.record[2:18])
    assert [bad.reason.partition(" (")[0] for bad in decoded(order, beyond, beyond[:18]).errors] == [
        f"schema {order.writer} has no message at [9]",
        "it does not say which message it is",
    ]


def unframed(*values: bytes | None) -> Unframed:
    return unframe(batch(*values), RecordPart.VALUE)


def test_plain_and_compressed_records_of_one_writer() -> None:
    result = unframed(framed(b"a"), None, framed(zlib.compress(b"b"), compression=5), framed(b""))
    assert sorted(
        (at, group.writer, data)
        for group in result.groups
        for at, data in zip(group.indices.to_pylist(), group.data.to_pylist(), strict=True)
    ) == [(0, WRITER, b"a"), (2, WRITER, b"b"), (3, WRITER, b"")]
    assert result.missing.to_pylist() == [1]
    assert not result.errors


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "it is empty"),
        (b"\0\0\0\0\x07data", "its first byte is 0, and must be 3"),
        (framed(b"")[:9], "it ends within the frame: 03 00 46 9e ea 4d 6b 17 4c"),
        (framed(b"", compression=1), "its second byte is 1, and must be 0 (plain) or 5 (zlib)"),
        (framed(b"no zlib", compression=5), "cannot be decompressed"),
        (framed(zlib.compress(b"cut")[:-3], compression=5), "cannot be decompressed"),
        (framed(zlib.compress(bytes(LARGEST + 1)), compression=5), f"or is larger than {LARGEST:,} bytes"),
    ],
)
def test_a_bad_frame_is_told_and_the_others_are_read(value: bytes, reason: str) -> None:
    result = unframed(framed(b"good"), value)
    [bad] = result.errors
    assert (bad.index, bad.error) == (1, ErrorClass.VALUE)
    assert reason in bad.reason
    assert [data for group in result.groups for data in group.data.to_pylist()] == [b"good"]


def decode_of(text: str, tmp_path: Any) -> Any:
    (tmp_path / "flights.yaml").write_text(
        changed(("  format: json\n  schema: id BIGINT NOT NULL, at TIMESTAMP, gate STRING, late BOOLEAN\n", text))
    )
    return load(tmp_path / "flights.yaml", {}).decode


def test_the_registry_is_written_as_one_key_with_its_settings(tmp_path: Any) -> None:
    decode = decode_of("  format: avro\n  registry: {glue: {region: eu-west-1, connection: aws_shop}}\n", tmp_path)
    order = {"kind": "glue", "name": "default-registry", "connection": "aws_shop", "region": "eu-west-1"}
    assert decode.registry.order() == order
    assert decode.connections() == {"aws_shop"}
    assert decode.decides_output()["framed"] == "glue"
    assert Pins(("orders",)).subject("value", decode.registry.subject) == "orders"


@pytest.mark.parametrize(
    ("registry", "problem"),
    [
        ("{glue: {url: http://x}}", "decode.registry.glue.url"),
        ("{glue: {name: a b}}", "decode.registry.glue.name"),
        ("{glue: {}, url: http://x}", "decode.registry"),
        ("{glu: {}}", "decode.registry.glu"),
    ],
)
def test_a_wrong_key_is_named_with_its_place(registry: str, problem: str, tmp_path: Any) -> None:
    with pytest.raises(InvalidPipelines) as refused:
        decode_of(f"  format: avro\n  registry: {registry}\n", tmp_path)
    assert problem in str(refused.value)
