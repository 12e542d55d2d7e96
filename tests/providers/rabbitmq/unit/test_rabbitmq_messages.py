"""Chunks and messages of RabbitMQ become records, whatever they hold, and what is damaged is refused."""

import gzip
import struct
import time
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rstream import AMQPMessage, Properties

from sandbox.services.streams import CODECS, encoded, snappy_framed
from tidemark.providers.rabbitmq.chunk import HEAD, Chunk, Damaged
from tidemark.providers.rabbitmq.message import WHOLE, as_header, read_message


def chunk_of(entries: Sequence[bytes], *, records: int | None = None, crc: int | None = None) -> memoryview:
    """A chunk from offset 100 on whose entries are these bytes."""
    data = b"".join(entries)
    count = len(entries) if records is None else records
    code = zlib.crc32(data) if crc is None else crc
    return memoryview(HEAD.pack(0x50, 0, len(entries), count, 1_700_000_000_000, 3, 100, code, len(data), 0, 0) + data)


def entry(message: bytes) -> bytes:
    return struct.pack(">I", len(message)) + message


def sub_batch(messages: Sequence[bytes], codec: str, packed: bytes | None = None) -> bytes:
    plain = b"".join(map(entry, messages))
    body = plain if packed is None else packed
    return struct.pack(">BHII", 0x80 | CODECS[codec] << 4, len(messages), len(plain), len(body)) + body


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=20))
def test_the_bodies_of_plain_messages_are_the_values(bodies: list[bytes]) -> None:
    chunk = Chunk.of(chunk_of([entry(encoded(body)) for body in bodies]))
    values, headers, _ = chunk.columns()
    assert values.to_pylist() == bodies
    assert headers.null_count == len(bodies)
    assert [value for value, *_ in chunk.messages()] == bodies
    assert (chunk.first, chunk.end, chunk.timestamp_ms, chunk.epoch) == (100, 100 + len(bodies), 1_700_000_000_000, 3)


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=10))
def test_columns_and_messages_say_the_same_of_any_bytes(messages: list[bytes]) -> None:
    chunk = Chunk.of(chunk_of([entry(message) for message in messages]))
    values, headers, _ = chunk.columns()
    lists = [[(each["key"], each["value"]) for each in pairs or ()] for pairs in headers.to_pylist()]
    assert list(zip(values.to_pylist(), lists, strict=True)) == [
        (value, headers) for value, headers, _ in chunk.messages()
    ]


def test_messages_and_sub_batches_stand_in_one_chunk_in_order() -> None:
    entries = [entry(encoded(b"a")), sub_batch([encoded(b"b"), encoded(b"c")], "none"), entry(encoded(b"d" * 300))]
    values, _, _ = Chunk.of(chunk_of(entries, records=4)).columns()
    assert values.to_pylist() == [b"a", b"b", b"c", b"d" * 300]


def test_a_sub_batch_may_be_several_gzip_members() -> None:
    members = gzip.compress(entry(encoded(b"a"))) + gzip.compress(entry(encoded(b"b")))
    values, _, _ = Chunk.of(chunk_of([sub_batch([encoded(b"a"), encoded(b"b")], "gzip", members)], records=2)).columns()
    assert values.to_pylist() == [b"a", b"b"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (chunk_of([entry(b"a")], crc=1), "its checksum is wrong"),
        (memoryview(bytes(chunk_of([entry(b"a")]))[:20]), "it is too short"),
        (memoryview(b"\x51" + bytes(chunk_of([entry(b"a")]))[1:]), "its format is 0x51"),
        (memoryview(b"\x50\x01" + bytes(chunk_of([entry(b"a")]))[2:]), "type 1"),
    ],
)
def test_a_chunk_that_is_not_as_the_server_stored_it_is_refused(content: memoryview, reason: str) -> None:
    with pytest.raises(Damaged, match=reason):
        Chunk.of(content)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (chunk_of([entry(b"a")], records=2), "it should hold 2 records and has 1"),
        (chunk_of([struct.pack(">I", 9) + b"short"]), "it ends within a message"),
        (chunk_of([b"\x00\x00"]), "it ends within a message"),
        (chunk_of([b"\x7f\xff\xff\xff"]), "it ends within a message"),
        (chunk_of([sub_batch([b"abcd"], "none", b"\xff" * 4 + b"abcd")]), "it ends within a message"),
        (chunk_of([sub_batch([b"a"], "none")[:-1]]), "it ends within a sub-batch"),
        (chunk_of([b"\x80\x00"]), "it ends within a sub-batch"),
        (chunk_of([sub_batch([b"a"], "gzip", b"no gzip")]), "by gzip, and cannot be unpacked"),
        (
            chunk_of([sub_batch([b"a"], "snappy", b"\xff\x06\0\0sNaPpY\x00\xff")]),
            "by snappy, and cannot be unpacked",
        ),
        (chunk_of([sub_batch([b"a"], "lz4", b"no lz4")]), "by lz4, and cannot be unpacked"),
        (chunk_of([sub_batch([b"a"], "zstd", b"no zstd")]), "by zstd, and cannot be unpacked"),
        (chunk_of([sub_batch([b"a"], "unknown")]), "packed by the unknown codec 5"),
        (chunk_of([sub_batch([b"a"], "none", entry(b"a") + entry(b"b"))]), "have 10 bytes, not 5"),
        (chunk_of([sub_batch([b"a"], "gzip", gzip.compress(bytes(10**7)))]), "have 6 bytes, not 5"),
        (chunk_of([sub_batch([b"a"], "gzip", gzip.compress(entry(b"a"))[:-9])]), "it ends within a member"),
        (chunk_of([sub_batch([b"a"], "snappy", snappy_framed(bytes(10**6)))]), "it has more bytes than it says"),
        (chunk_of([struct.pack(">BHII", 0x80, 1, 2**31, 0)]), "it claims 2,147,483,648 bytes"),
    ],
)
def test_what_a_producer_has_damaged_is_as_many_records_without_a_message(content: memoryview, reason: str) -> None:
    """Else one producer could stop a stream for all of its readers."""
    chunk = Chunk.of(content)
    values, headers, reasons = chunk.columns()
    assert len(values) == len(headers) == chunk.end - chunk.first
    assert all(reason in text for text in reasons.to_pylist())
    assert values[0].as_py() in bytes(content), "the packed bytes"
    assert values[1:].null_count == len(values) - 1
    assert [(value, text) for value, _, text in chunk.messages()] == [
        *zip(*map(list, (values.to_pylist(), reasons.to_pylist())), strict=True)
    ]


def test_messages_beside_a_sub_batch_that_cannot_be_read_are_there() -> None:
    broken = sub_batch([encoded(b"x")] * 3, "gzip", b"no gzip")
    content = chunk_of([entry(encoded(b"a")), broken, entry(encoded(b"b"))], records=5)
    values, _, reasons = Chunk.of(content).columns()
    assert values.to_pylist() == [b"a", broken, None, None, b"b"]
    assert reasons.is_valid().to_pylist() == [False, True, True, True, False]


def nested_arrays(levels: int, size: int) -> bytes:
    """A body of arrays of arrays of nulls, which have no bytes: each level tells of as many as there is room for."""
    body = struct.pack(">II", 5, size) + b"\x40"
    for _ in range(levels):
        count = max(1, size // len(body))
        body = struct.pack(">II", 5 + count * len(body), count) + b"\xf0" + body * count
    return b"\0Sw\xf0" + body


@pytest.mark.parametrize("levels", [0, 1, 2, 5])
def test_arrays_that_multiply_are_kept_whole_at_once(levels: int) -> None:
    content = nested_arrays(levels, 100_000)
    begin = time.monotonic()
    value, headers = read_message(content)
    assert time.monotonic() - begin < 2
    assert (value, [name for name, _ in headers]) == (content, [WHOLE])


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_and_never_an_error(content: bytes) -> None:
    value, headers = read_message(content)
    assert isinstance(value, bytes)
    assert all(isinstance(name, str) and isinstance(text, bytes) for name, text in headers)


def test_a_chunk_or_a_sub_batch_may_be_empty() -> None:
    assert len(Chunk.of(chunk_of([])).columns()[0]) == 0
    entries = [entry(encoded(b"a")), sub_batch([], "gzip", gzip.compress(b"")), entry(encoded(b"b"))]
    values, headers, _ = Chunk.of(chunk_of(entries, records=2)).columns()
    assert (values.to_pylist(), len(headers)) == ([b"a", b"b"], 2)


@pytest.mark.parametrize("data", [b"\x40", b"\xa1\x01a", b"\x45", b"\x52\x01"])
def test_a_data_section_that_is_no_binary_is_kept_whole(data: bytes) -> None:
    message = b"\0Su" + data
    assert read_message(message) == (message, [(WHOLE, b"the message is not encoded as AMQP 1.0")])


def test_a_time_beyond_every_calendar_is_its_number() -> None:
    """Some clients write the highest number as the expiry of what never expires."""
    never = b"\0Ss\xc0" + bytes([1 + 8 + 9, 9]) + b"\x40" * 8 + b"\x83" + struct.pack(">q", 2**63 - 1)
    headers = [("properties.absolute-expiry-time", b"9223372036854775807")]
    assert read_message(never + b"\0Su\xa0\x01v") == (b"v", headers)


NUMBERS = st.integers(min_value=-(2**63), max_value=2**63 - 1)
SIMPLE = st.one_of(st.booleans(), NUMBERS, st.text(max_size=300), st.binary(max_size=300))


@given(
    st.binary(min_size=1, max_size=300),
    st.dictionaries(st.text(min_size=1, max_size=20), SIMPLE, max_size=5),
    st.one_of(st.text(max_size=20), st.none()),
)
def test_what_another_client_writes_is_read(body: bytes, application: dict[str, object], subject: str | None) -> None:
    message = AMQPMessage(body=body, properties=Properties(subject=subject), application_properties=application)
    value, headers = read_message(bytes(message))
    assert value == body
    expected = {name: as_header(each) for name, each in application.items()}
    assert {name: text for name, text in headers if name != "properties.subject"} == expected
    assert dict(headers).get("properties.subject") == (None if subject is None else subject.encode())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"\x00\xff", b"\x00\xff"),
        (True, b"true"),
        (7, b"7"),
        ("ä", "ä".encode()),
        (datetime(2024, 3, 1, 12, tzinfo=UTC), b"2024-03-01T12:00:00.000Z"),
        ([1, "a", None], b'[1, "a", null]'),
        ({"at": datetime(2024, 3, 1, tzinfo=UTC)}, b'{"at": "2024-03-01T00:00:00.000Z"}'),
    ],
)
def test_a_header_is_text_that_a_reader_can_guess(value: object, text: bytes) -> None:
    assert as_header(value) == text


def test_several_data_sections_are_one_value_and_every_type_of_amqp_is_read() -> None:
    data = b"\0Su\xa0\x01a\0Su\xb0\0\0\0\x01b"
    assert read_message(data) == (b"ab", [])
    typed = {
        "null": b"\x40", "true": b"\x41", "byte": b"\x51\xff", "ushort": b"\x60\x01\x00", "uint": b"\x70\0\0\1\0",
        "smalluint": b"\x52\x07", "uint0": b"\x43", "ulong": b"\x80" + bytes(7) + b"\x09",
        "long": b"\x81" + b"\xff" * 8,
        "double": b"\x82" + struct.pack(">d", 1.5), "float": b"\x72" + struct.pack(">f", 0.5),
        "char": b"\x73\0\0\0A", "time": b"\x83" + struct.pack(">q", 0), "uuid": b"\x98" + bytes(16),
        "symbol": b"\xa3\x01s", "list0": b"\x45", "list": b"\xc0\x04\x02\x52\x01\x40",
        "array": b"\xe0\x04\x02\x50\x01\x02",
        "described": b"\0\xa3\x01d\x52\x05", "decimal": b"\x74\0\0\0\1",
    }  # fmt: skip
    pairs = b"".join(b"\xa1" + bytes([len(name)]) + name.encode() + value for name, value in typed.items())
    body = struct.pack(">I", 2 * len(typed)) + pairs
    value, headers = read_message(b"\0St\xd1" + struct.pack(">I", len(body)) + body + b"\0Su\xa0\x01v")
    assert value == b"v"
    assert dict(headers) == {
        "true": b"true", "byte": b"-1", "ushort": b"256", "uint": b"256", "smalluint": b"7", "uint0": b"0",
        "ulong": b"9", "long": b"-1", "double": b"1.5", "float": b"0.5", "char": b"A",
        "time": b"1970-01-01T00:00:00.000Z", "uuid": b"00000000-0000-0000-0000-000000000000", "symbol": b"s",
        "list0": b"[]", "list": b"[1, null]", "array": b"[1, 2]", "described": b"5", "decimal": b"\0\0\0\1",
    }  # fmt: skip


def test_a_short_message_that_promises_millions_of_values_is_no_amqp() -> None:
    bomb = b"\0Sw\xf0\0\0\0\x09\xff\xff\xff\xff\x40"
    assert read_message(bomb) == (bomb, [(WHOLE, b"the message is not encoded as AMQP 1.0")])
    nested = b"\0Sw" + b"\xc0\xff\x01" * 50_000
    assert read_message(nested)[1] == [(WHOLE, b"the message is not encoded as AMQP 1.0")]


def test_a_message_without_a_body_is_kept_whole() -> None:
    properties_only = b"\0Ss\xc0\x05\x01\xa1\x02m1"
    value, headers = read_message(properties_only)
    assert value == properties_only
    assert dict(headers)[WHOLE] == b"the body is missing"
