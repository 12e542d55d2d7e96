"""Confluent's framing, as confluent-kafka's own serializers write it."""

import struct
from uuid import UUID

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import header_schema_id_serializer, prefix_schema_id_serializer
from confluent_kafka.schema_registry.serde import SchemaId
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given
from hypothesis import strategies as st

from tidemark.decoders.base import ErrorClass
from tidemark.model.record_schema import HEADERS
from tidemark.providers.registry.framing import RecordPart, Unframed, unframe

GUID = "89791762-2336-4186-9674-299b90a802e2"


def batch(values: list[bytes | None], headers: list[list[tuple[str, bytes | None]] | None] | None = None) -> pa.Table:
    rows = [
        None if row is None else [{"key": k, "value": v} for k, v in row] for row in headers or [None] * len(values)
    ]
    return pa.RecordBatch.from_pydict(
        {
            "value": pa.array(values, pa.binary()),
            "key": pa.array(values, pa.binary()),
            "headers": pa.array(rows, HEADERS),
        }
    )


def framed(writer: int, data: bytes) -> bytes:
    return struct.pack(">bI", 0, writer) + data


def groups(unframed: Unframed) -> dict[str, list[tuple[int, bytes]]]:
    result: dict[str, list[tuple[int, bytes]]] = {}
    for group in unframed.groups:
        pairs = zip(group.indices.to_pylist(), group.data.to_pylist(), strict=True)
        result.setdefault(group.writer, []).extend(pairs)
    return result


def test_records_are_grouped_by_their_writer_in_the_order_of_the_batch() -> None:
    values = [framed(7, b"a"), framed(3, b""), framed(7, b"b"), None]
    unframed = unframe(batch(values), RecordPart.VALUE)
    assert groups(unframed) == {"7": [(0, b"a"), (2, b"b")], "3": [(1, b"")]}
    assert unframed.missing.to_pylist() == [3]
    assert not unframed.errors


@pytest.mark.parametrize("field", [MessageField.KEY, MessageField.VALUE])
def test_ids_as_the_serializers_of_confluent_write_them(field: str) -> None:
    headers: list[tuple[str, bytes]] = []
    context = SerializationContext("t", field, headers)
    in_header = header_schema_id_serializer(b"\x00\x00\x00\x00\x09x", context, SchemaId("AVRO", guid=GUID))
    in_front = prefix_schema_id_serializer(b"y", context, SchemaId("AVRO", schema_id=2**31 + 1))
    part = RecordPart.KEY if field == MessageField.KEY else RecordPart.VALUE
    unframed = unframe(batch([in_header, in_front], [list(headers), [("other", None)]]), part)
    assert groups(unframed) == {GUID: [(0, b"\x00\x00\x00\x00\x09x")], str(2**31 + 1): [(1, b"y")]}


def test_of_two_headers_the_first_counts_and_the_one_of_the_other_part_does_not() -> None:
    first, second = b"\x00" + (5).to_bytes(4, "big"), b"\x00" + (6).to_bytes(4, "big")
    headers = [[("__value_schema_id", first), ("__value_schema_id", second)], [("__key_schema_id", second)]]
    unframed = unframe(batch([b"d", framed(1, b"e")], headers), RecordPart.VALUE)
    assert groups(unframed) == {"5": [(0, b"d")], "1": [(1, b"e")]}


def test_a_guid_may_stand_in_front_of_the_payload() -> None:
    assert groups(unframe(batch([b"\x01" + UUID(GUID).bytes + b"z"]), RecordPart.VALUE)) == {GUID: [(0, b"z")]}


@pytest.mark.parametrize(
    ("value", "headers", "reason"),
    [
        (b"", None, "it is empty"),
        (b"\x00\x00\x01", None, "ends within the schema id: 00 00 01"),
        (b"\x01abc", None, "ends within the schema id"),
        (b'{"a": 1}', None, "its first byte is 123"),
        (b"data", [("__key_schema_id", b"\x00\x01")], "the header __key_schema_id holds no schema id: 00 01"),
        (b"data", [("__key_schema_id", b"\x00\x00\x00\x00\x01\x02")], "the header __key_schema_id holds no schema id"),
    ],
)
def test_a_bad_frame_is_an_error_of_its_record(
    value: bytes, headers: list[tuple[str, bytes | None]] | None, reason: str
) -> None:
    unframed = unframe(batch([framed(1, b"ok"), value], [None, headers]), RecordPart.KEY)
    assert groups(unframed) == {"1": [(0, b"ok")]}
    [bad] = unframed.errors
    assert (bad.index, bad.error) == (1, ErrorClass.KEY)
    assert reason in bad.reason


@given(st.lists(st.one_of(st.none(), st.binary(max_size=20), st.binary(max_size=9).map(lambda data: framed(1, data)))))
def test_every_record_is_in_one_place_and_slices_do_not_matter(values: list[bytes | None]) -> None:
    whole = batch([b"left out", *values, b"left out"])
    unframed = unframe(whole.slice(1, len(values)), RecordPart.VALUE)
    inside = [at for group in groups(unframed).values() for at, _ in group]
    assert sorted([*inside, *(bad.index for bad in unframed.errors), *unframed.missing.to_pylist()]) == list(
        range(len(values))
    )
    for writer, members in groups(unframed).items():
        for at, data in members:
            if writer.isdigit():
                assert values[at] == framed(int(writer), data)
