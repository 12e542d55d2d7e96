"""Reads a chunk, the unit in which RabbitMQ stores and sends a stream, into Arrow arrays.

A chunk begins with 48 bytes (version 0 of magic 5 in osiris, the server's log)::

magic and version: uint8   type: uint8   entries: uint16   records: uint32   timestamp: int64 (ms)   epoch: uint64
first offset: uint64   crc: uint32   size of the data: uint32   size of the trailer: uint32   reserved: uint32

Then come the entries. If the highest bit is 0, the entry is a message: ``size: uint32`` and its bytes. Any other entry
is a sub-batch, which contains messages that the producer has compressed: ``1 | codec (3 bits) | 0000``, ``records:
uint16``, ``size before packing: uint32``, ``size: uint32`` and the packed messages. The records of a chunk have
consecutive offsets. All have the timestamp of the chunk, which is the clock of the server that received it.
"""

import struct
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from tidemark.model.record_schema import HEADERS
from tidemark.providers.rabbitmq.message import Headers, read_message

HEAD: Final = struct.Struct(">BBHIqQQIIII")
MAGIC: Final = 0x50
LARGEST: Final = (
    256 * 1024 * 1024
)  # bytes of an unpacked sub-batch; its packed form is below the 1 MiB that a server accepts in a frame
LONGEST_REASON: Final = 200  # characters
_SIZE: Final = struct.Struct(">I")
_SUB_BATCH: Final = struct.Struct(">BHII")
_IS_SUB_BATCH: Final = 0x80000000
_SMALL_DATA, _LARGE_DATA = b"\0Su\xa0", b"\0Su\xb0"  # the beginning of a message with one data section
_CODECS: Final = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_SNAPPY_BEGIN: Final = b"\xff\x06\0\0sNaPpY"


class Damaged(Exception):
    """A chunk, or a part of it, that cannot be read; the text says why."""


@dataclass(frozen=True)
class Chunk:
    """The head of a chunk, and its data. It contains the offsets ``[first, end)``."""

    first: int
    end: int
    timestamp_ms: int
    epoch: int
    data: memoryview

    @classmethod
    def of(cls, content: memoryview) -> "Chunk":
        """Parse a chunk; raises ``Damaged`` unless the head is known and the checksum is right."""
        try:
            magic, kind, _, records, timestamp, epoch, first, crc, size, _, _ = HEAD.unpack_from(content)
        except struct.error:
            raise Damaged("it is too short") from None
        data = content[HEAD.size : HEAD.size + size]
        if magic != MAGIC or kind != 0:
            raise Damaged(f"its format is 0x{magic:02x}, type {kind}, which this version does not know")
        if len(data) != size or zlib.crc32(data) != crc:
            raise Damaged("its checksum is wrong")
        return cls(first, first + records, timestamp, epoch, data)

    def messages(self) -> Iterator[tuple[bytes | None, Headers, str | None]]:
        """Yield, for each record, its value, its headers, and the reason why it cannot be read (None if it can)."""
        for part in self._parts():
            if isinstance(part, _Unreadable):
                yield from ((value, [], part.reason) for value in part.values())
            else:
                for start, end in zip(part.starts, part.ends, strict=True):
                    yield (*read_message(part.content[start:end]), None)

    def columns(self) -> tuple[pa.BinaryArray, pa.ListArray, pa.StringArray]:
        """Return three columns with an entry for each record: its value, its headers (null if it has none), and the
        reason why it cannot be read (null if it can)."""
        parts = [_columns(part) for part in self._parts()]
        empty = (pa.array([], pa.binary()), pa.array([], HEADERS), pa.array([], pa.string()))
        values, headers, reasons = (pa.concat_arrays(column) for column in zip(empty, *parts, strict=True))
        return values, headers, reasons

    def _parts(self) -> "list[_Packed | _Unreadable]":
        """Return the parts of the data; together they have as many records as the head says.

        If the data has another number of records, the whole chunk is unreadable: a producer sends the number, and the
        server does not check it.
        """
        count = self.end - self.first
        try:
            parts = list(_packed(self.data))
            held = sum(map(len, parts))
            if held == count:
                return parts
            reason = f"it should hold {count} records and has {held}"
        except Damaged as damaged:
            reason = str(damaged)
        return [_Unreadable(f"its chunk cannot be read: {reason}"[:LONGEST_REASON], bytes(self.data), count)]


@dataclass
class _Unreadable:
    """Records whose messages cannot be read. The first one gets all the bytes as its value, the others get null."""

    reason: str
    content: bytes
    count: int

    def __len__(self) -> int:
        return self.count

    def values(self) -> list[bytes | None]:
        return [self.content if number == 0 else None for number in range(self.count)]


@dataclass
class _Packed:
    """Messages in one piece of memory; the i-th has the bytes ``[starts[i], ends[i])``."""

    content: bytes
    starts: "array[int]"
    ends: "array[int]"
    all_plain: bool = True  # each message is one data section, and starts and ends are those of the data

    def __len__(self) -> int:
        return len(self.starts)


def _packed(data: memoryview) -> Iterator[_Packed | _Unreadable]:
    """Yield the messages of a chunk in order: one piece for each run of plain entries, and one for each sub-batch.

    Raises ``Damaged`` if it is unknown where the next entry begins.
    """
    content = bytes(data)
    at = 0
    while at < len(content):
        if content[at] & 0x80:
            at, packed = _sub_batch(content, at)
            yield packed
        else:
            at, packed = _run(content, at, None)
            yield packed


def _run(content: bytes, at: int, count: int | None) -> tuple[int, _Packed]:
    """Return (the position after them, the messages from a position on), up to a sub-batch, the end, or ``count``
    messages.

    If all are plain, starts and ends are those of their data. The loop takes 0.3 us for a message; each call in it
    would add a third of that.
    """
    starts, ends = array("i"), array("i")
    bodies, body_ends = array("i"), array("i")
    unpack, size = _SIZE.unpack_from, len(content)
    try:
        while at < size and count != 0:
            [length] = unpack(content, at)
            if length >= _IS_SUB_BATCH and count is None:
                break
            at += 4
            end = at + length
            if end > size:
                raise Damaged("it ends within a message")
            starts.append(at)
            ends.append(end)
            if content[at : at + 4] == _SMALL_DATA and length > 4 and content[at + 4] == length - 5:
                bodies.append(at + 5)
                body_ends.append(end)
            elif content[at : at + 4] == _LARGE_DATA and length > 7 and unpack(content, at + 4)[0] == length - 8:
                bodies.append(at + 8)
                body_ends.append(end)
            at = end
            if count is not None:
                count -= 1
    except struct.error:
        raise Damaged("it ends within a message") from None
    if count:
        raise Damaged("it ends within a message")
    if len(bodies) == len(starts):
        return at, _Packed(content, bodies, body_ends)
    return at, _Packed(content, starts, ends, all_plain=False)


def _sub_batch(content: bytes, at: int) -> tuple[int, _Packed | _Unreadable]:
    try:
        head, count, size, packed_size = _SUB_BATCH.unpack_from(content, at)
    except struct.error:
        raise Damaged("it ends within a sub-batch") from None
    end = at + _SUB_BATCH.size + packed_size
    packed = content[at + _SUB_BATCH.size : end]
    if len(packed) != packed_size:
        raise Damaged("it ends within a sub-batch")
    try:
        return end, _unpacked_messages(head >> 4 & 0x07, packed, count, size)
    except Damaged as damaged:
        return end, _Unreadable(f"its sub-batch cannot be read: {damaged}"[:LONGEST_REASON], content[at:end], count)


def _unpacked_messages(codec: int, packed: bytes, count: int, size: int) -> _Packed:
    if size > LARGEST:
        raise Damaged(f"it claims {size:,} bytes, more than the {LARGEST:,} that Tidemark unpacks")
    if codec not in _CODECS:
        raise Damaged(f"its messages are packed by the unknown codec {codec}")
    try:
        unpacked = _unpacked(_CODECS[codec], packed, size)
    except (zlib.error, pa.ArrowException, OSError, IndexError, EOFError) as problem:
        raise Damaged(f"its messages are packed by {_CODECS[codec]}, and cannot be unpacked: {problem}") from None
    if len(unpacked) != size:
        raise Damaged(f"its messages are packed by {_CODECS[codec]}, and have {len(unpacked)} bytes, not {size}")
    end, messages = _run(unpacked, 0, count)
    if end != len(unpacked):
        raise Damaged("it holds more than its messages")
    return messages


def _unpacked(codec: str, packed: bytes, size: int) -> bytes:
    match codec:
        case "none":
            return packed
        case "gzip":
            return _unzipped(packed, size)
        case "snappy" if packed.startswith(_SNAPPY_BEGIN):
            return _unframed_snappy(packed, size)
        case _:
            content: bytes = pa.decompress(packed, size, codec=codec, asbytes=True)
            return content


def _unzipped(packed: bytes, size: int) -> bytes:
    """Return the content of all members of a gzip file, up to one byte more than ``size``."""
    content = b""
    while packed and len(content) <= size:
        member = zlib.decompressobj(wbits=31)
        content += member.decompress(packed, size + 1 - len(content))
        if not member.eof and len(content) <= size:
            raise EOFError("it ends within a member")
        packed = member.unused_data
    return content


def _unframed_snappy(packed: bytes, size: int) -> bytes:
    """Return the content of Snappy's framing format, which some clients of RabbitMQ write; at most ``size`` bytes.

    A piece is ``type: uint8, size: 3 bytes little-endian, crc: uint32`` and at most 64 KiB of content. Type 0 is
    compressed, type 1 is not, types from 128 on are skipped.
    """
    pieces: list[bytes] = []
    at, remaining = 0, size
    while at < len(packed):
        kind, size = packed[at], int.from_bytes(packed[at + 1 : at + 4], "little")
        piece = packed[at + 4 : at + 4 + size]
        if len(piece) != size:
            raise EOFError("it ends within a piece")
        at += 4 + size
        if kind == 0:
            unpacked = _snappy_size(piece[4:])
            remaining -= unpacked
            if remaining < 0:
                raise EOFError("it has more bytes than it says")
            pieces.append(pa.decompress(piece[4:], unpacked, codec="snappy", asbytes=True))
        elif kind == 1:
            pieces.append(piece[4:])
        elif kind < 0x80:
            raise EOFError(f"a piece has the unknown type {kind}")
    return b"".join(pieces)


def _snappy_size(packed: bytes) -> int:
    """Return the size at the beginning of the compressed bytes: 7 bits in a byte, the lowest first."""
    size = shift = 0
    for byte in packed[:5]:
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return size


def _columns(part: _Packed | _Unreadable) -> tuple[pa.BinaryArray, pa.ListArray, pa.StringArray]:
    count = len(part)
    if isinstance(part, _Unreadable):
        return pa.array(part.values(), pa.binary()), pa.nulls(count, HEADERS), pa.repeat(part.reason, count)
    readable = pa.nulls(count, pa.string())
    if part.all_plain and part.starts:
        return _plain_values(part), pa.nulls(count, HEADERS), readable
    messages = [read_message(part.content[start:end]) for start, end in zip(part.starts, part.ends, strict=True)]
    headers = [[{"key": key, "value": value} for key, value in pairs] or None for _, pairs in messages]
    return pa.array([value for value, _ in messages], pa.binary()), pa.array(headers, HEADERS), readable


def _plain_values(packed: _Packed) -> pa.BinaryArray:
    """Return all values at once.

    Starts and ends in turn become the offsets of an array in which values and gaps alternate; every second element is a
    value.
    """
    bounds = array("i", bytes(8 * len(packed.starts)))
    bounds[0::2], bounds[1::2] = packed.starts, packed.ends
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(packed.content)]
    with_gaps = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, buffers)
    return with_gaps.take(pa.array(range(0, len(bounds) - 1, 2), pa.int32()))
