"""The frame that AWS's serializers write in front of a key or a value.

03 <00 or 05> <UUID of a schema's version, 16 bytes> <data>     05: data is compressed with zlib

In Protobuf the number of the message comes first in the data.
"""

import zlib
from collections.abc import Iterator
from typing import Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import BadRecord
from tidemark.model.positions import positions
from tidemark.providers.registry.framing import RecordPart, Unframed, WriterGroup, split_by_value

VERSION: Final = 3
PLAIN, COMPRESSED = 0, 5
HEAD_BYTES: Final = 18
LARGEST: Final = 64 * 2**20  # bytes of a value after decompression; brokers take 1 MiB by default
_END = 2**31 - 1  # without an explicit end, Arrow 26 fails: "Negative buffer resize"


def unframe(batch: pa.RecordBatch, part: RecordPart) -> Unframed:
    """Remove the frames from the keys or values of a batch."""
    payloads = batch.column(part).cast(pa.binary())
    missing = pc.indices_nonzero(pc.is_null(payloads)).cast(pa.int64())
    present = pc.indices_nonzero(pc.is_valid(payloads)).cast(pa.int64()) if len(missing) else positions(len(payloads))
    groups: list[WriterGroup] = []
    errors: list[BadRecord] = []
    heads = pc.binary_slice(payloads.take(present), 0, HEAD_BYTES)
    for head, members in split_by_value(heads, present):
        if problem := _problem_with(head):
            reason = f"the {part} is not framed as AWS's serializers do it: {problem}"
            errors += [BadRecord(index, reason, part.error) for index in members.to_pylist()]
            continue
        writer, data = str(UUID(bytes=head[2:])), pc.binary_slice(payloads.take(members), HEAD_BYTES, _END)
        if head[1] == COMPRESSED:
            texts = [*_decompressed(data)]
            whole = pa.array([text is not None for text in texts], pa.bool_())
            reason = f"the {part} cannot be decompressed, or is larger than {LARGEST:,} bytes"
            errors += [BadRecord(at, reason, part.error) for at in members.filter(pc.invert(whole)).to_pylist()]
            members, data = members.filter(whole), pa.array([text for text in texts if text is not None], pa.binary())
        groups.append(WriterGroup(writer, members, data))
    return Unframed(tuple(groups), tuple(sorted(errors)), missing)


def _problem_with(head: bytes) -> str | None:
    if not head:
        return "it is empty"
    if head[0] != VERSION:
        return f"its first byte is {head[0]}, and must be {VERSION}"
    if len(head) < HEAD_BYTES:
        return f"it ends within the frame: {head.hex(' ')}"
    if head[1] not in (PLAIN, COMPRESSED):
        return f"its second byte is {head[1]}, and must be {PLAIN} (plain) or {COMPRESSED} (zlib)"
    return None


def _decompressed(data: pa.Array) -> Iterator[bytes | None]:
    """Yield the decompressed values; None for one that is damaged, cut or too large."""
    for value in data.to_pylist():
        stream = zlib.decompressobj()
        try:
            text = stream.decompress(value, LARGEST)
        except zlib.error:
            yield None
        else:
            yield text if stream.eof else None
