"""Confluent's framing: which schema a record was written with, in front of its payload or in a header.

    payload:  00 <id, 4 bytes big-endian> <data>  |  01 <GUID, 16 bytes> <data>
    header:   ``__value_schema_id`` / ``__key_schema_id`` = 00 <id> or 01 <GUID>, and the payload is the data alone

In Protobuf the place of the message in the schema follows the id or the GUID, in the payload or in the header. This
module puts it in front of the data. If both exist, the header wins, as in Confluent's deserializers; of several headers
the first. A writer is named by its id (``7``) or its GUID, as text.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import BadRecord, ErrorClass
from tidemark.model.positions import positions

_ID_BYTES, _GUID_BYTES = 5, 17  # including the magic byte
_END = 2**31 - 1  # without an explicit end, Arrow 26 fails: "Negative buffer resize"


class RecordPart(StrEnum):
    """The part of a record that is framed."""

    KEY = "key"
    VALUE = "value"

    @property
    def header(self) -> str:
        return f"__{self}_schema_id"

    @property
    def error(self) -> ErrorClass:
        return ErrorClass.KEY if self is RecordPart.KEY else ErrorClass.VALUE


@dataclass(frozen=True)
class WriterGroup:
    """The records of one writer: their indices in the batch (ascending), and their data without a frame."""

    writer: str
    indices: pa.Array
    data: pa.Array


@dataclass(frozen=True)
class Unframed:
    """A batch, grouped by writer. ``missing`` are the indices of records without a key or value, which are in no
    group."""

    groups: tuple[WriterGroup, ...]
    errors: tuple[BadRecord, ...]
    missing: pa.Array


def unframe(batch: pa.RecordBatch, part: RecordPart, *, with_message: bool = False) -> Unframed:
    """Remove the frames from the keys or values of a batch. Only records with a bad frame are handled one by one.

    With ``with_message`` the place of a message follows the id.
    """
    payloads = batch.column(part).cast(pa.binary())
    missing = pc.indices_nonzero(pc.is_null(payloads)).cast(pa.int64())
    groups: list[WriterGroup] = []
    errors: list[BadRecord] = []
    named = _named_in_headers(batch.column("headers"), part.header)
    plain = pc.is_valid(payloads)
    if named is not None:
        within = pc.and_(plain, pc.is_valid(named))
        plain = pc.and_(plain, pc.is_null(named))
        indices = pc.indices_nonzero(within).cast(pa.int64())
        for head, members in split_by_value(named.take(indices), indices):
            writer = _writer(head)
            message = head[_length(head) :]
            if writer is None or bool(message) != with_message:
                what = "schema id" if writer is None or message else "place of a message after the schema id"
                reason = f"the header {part.header} holds no {what}: {_shown(head)}"
                errors += [BadRecord(index, reason, part.error) for index in members.to_pylist()]
            else:
                data = payloads.take(members)
                groups.append(WriterGroup(writer, members, _behind(message, data) if message else data))
    all_framed = named is None and not len(missing)
    indices = positions(len(payloads)) if all_framed else pc.indices_nonzero(plain).cast(pa.int64())
    framed = payloads if all_framed else payloads.take(indices)
    for head, members in split_by_value(_heads(framed), indices):
        writer = _writer(head)
        if writer is None:
            reason = f"the {part} is not framed: {_reason_of(head)}"
            errors += [BadRecord(index, reason, part.error) for index in members.to_pylist()]
        else:
            taken = framed if len(members) == len(framed) else payloads.take(members)
            groups.append(WriterGroup(writer, members, pc.binary_slice(taken, len(head), _END)))
    return Unframed(tuple(groups), tuple(sorted(errors)), missing)


def without_frames(batch: pa.RecordBatch, part: RecordPart) -> Unframed:
    """Return a batch whose keys or values have no frame: all in one group, whose writer has an empty name."""
    payloads = batch.column(part).cast(pa.binary())
    present = pc.indices_nonzero(payloads.is_valid()).cast(pa.int64())
    missing = pc.indices_nonzero(payloads.is_null()).cast(pa.int64())
    return Unframed((WriterGroup("", present, payloads.take(present) if len(missing) else payloads),), (), missing)


def _named_in_headers(headers: pa.Array, name: str) -> pa.Array | None:
    """Return the first header of that name of each record, null if it has none; None if no record has such a header."""
    flat = headers.flatten()
    at = pc.indices_nonzero(pc.equal(flat.field("key"), name))
    if not len(at):
        return None
    owners = pc.list_parent_indices(headers).take(at)
    firsts = pc.index_in(positions(len(headers)).cast(owners.type), value_set=owners)
    return flat.field("value").cast(pa.binary()).take(at).take(firsts)


def _behind(message: bytes, data: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(pa.scalar(message, pa.binary()), data, pa.scalar(b"", pa.binary()))


def _heads(payloads: pa.Array) -> pa.Array:
    heads = pc.binary_slice(payloads, 0, _ID_BYTES)
    with_guid = pc.equal(pc.binary_slice(payloads, 0, 1), pa.scalar(b"\x01", pa.binary()))
    if not pc.any(with_guid).as_py():
        return heads
    return pc.if_else(with_guid, pc.binary_slice(payloads, 0, _GUID_BYTES), heads)


def split_by_value(heads: pa.Array, indices: pa.Array) -> Iterator[tuple[bytes, pa.Array]]:
    """Yield (head, the indices that have it), each head once."""
    encoded = heads.dictionary_encode(null_encoding="encode")
    values = encoded.dictionary.to_pylist()
    if len(values) == 1:
        yield values[0] or b"", indices
        return
    order = pc.sort_indices(encoded.indices)
    ordered = indices.take(order)
    runs = pc.run_end_encode(encoded.indices.take(order))
    start = 0
    for end, code in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
        yield values[code] or b"", ordered.slice(start, end - start)
        start = end


def _length(head: bytes) -> int:
    return _GUID_BYTES if head[:1] == b"\x01" else _ID_BYTES


def _writer(head: bytes) -> str | None:
    if head[:1] == b"\x00" and len(head) >= _ID_BYTES:
        return str(int.from_bytes(head[1:_ID_BYTES], "big"))
    if head[:1] == b"\x01" and len(head) >= _GUID_BYTES:
        return str(UUID(bytes=head[1:_GUID_BYTES]))
    return None


def _reason_of(head: bytes) -> str:
    if not head:
        return "it is empty"
    if head[0] > 1:
        return f"its first byte is {head[0]}, and must be 0 (an id follows) or 1 (a GUID follows)"
    return f"it ends within the schema id: {_shown(head)}"


def _shown(head: bytes) -> str:
    return head[:20].hex(" ") or "nothing"
