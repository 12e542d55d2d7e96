"""Finds messages that are too long for a topic, or that have no key if the topic needs one."""

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import DELETED, BadRecord
from tidemark.providers.topic.message_limit import MessageLimit
from tidemark.sinks.encoding.json_text import json_object, json_texts

if TYPE_CHECKING:
    from tidemark.providers.topic.schema import Values

HEAD: Final = 512  # bytes of a batch with one message: the batch header, and the headers with the message's origin
MOST_IN_JSON: Final = 8  # most bytes of JSON for one byte of a row, such as for a control character


def bad_rows(rows: pa.RecordBatch, **options: Any) -> list[BadRecord]:
    """Return the rows whose message the topic does not accept, ascending, each with the reason. The options are those
    of a ``MessageLimit``."""
    limit = MessageLimit(**options)
    reasons: dict[int, str] = {}
    if limit.keyed and len(limit.key) < 2:  # several columns make a JSON object
        key = rows.column(limit.key[0] if limit.key else "_key")
        reason = f"its message has no key, which topic {limit.topic} needs: it is compacted"
        reasons = dict.fromkeys(pc.indices_nonzero(pc.is_null(key)).to_pylist(), reason)
    for row in _large_rows(rows, 0, limit.bytes):
        if _packed_bytes(rows.slice(row, 1), limit) > limit.bytes - HEAD:
            reasons.setdefault(row, f"its message has more bytes than the {limit.bytes} of topic {limit.topic}")
    return [BadRecord(row, reason) for row, reason in sorted(reasons.items())]


def _large_rows(rows: pa.RecordBatch, first: int, size: int) -> Iterator[int]:
    """Yield the rows that might have so many bytes as JSON. Halves the rows, so that few must be encoded."""
    names = sum(len(name) + 4 for name in rows.schema.names)
    if rows.num_rows and MOST_IN_JSON * rows.nbytes + names * rows.num_rows > size - HEAD:
        half = rows.num_rows // 2
        if half == 0:
            yield first
            return
        yield from _large_rows(rows.slice(0, half), first, size)
        yield from _large_rows(rows.slice(half), first + half, size)


def _message(rows: pa.RecordBatch, limit: MessageLimit) -> tuple[pa.Array, pa.Array]:
    """Return key and value of the messages. Key columns are written as JSON here, which is a little longer."""
    key = _json(rows.select(limit.key)) if limit.key else rows.column("_key")
    if DELETED.name in rows.schema.names and rows.column(DELETED.name)[0].as_py():
        return key, pa.nulls(rows.num_rows)
    names = [name for name in rows.schema.names if not name.startswith("_")]
    if limit.schema is not None:
        return key, _encoder(limit.schema).of(rows.select(names))
    return key, rows.column(limit.value) if limit.value else _json(rows.select(names))


@lru_cache(maxsize=16)
def _encoder(schema: str) -> "Values":
    from tidemark.providers.topic.schema import values_of  # it needs more libraries than the other formats

    return values_of(json.loads(schema))


def _json(rows: pa.RecordBatch) -> pa.Array:
    texts = {name: json_texts(column) for name, column in zip(rows.schema.names, rows.columns, strict=True)}
    return json_object(texts, rows.num_rows)


def _packed_bytes(row: pa.RecordBatch, limit: MessageLimit) -> int:
    """Return the bytes of one message as the producer compresses it."""
    content = b"".join(
        part if isinstance(part, bytes) else part.encode()
        for part in (column[0].as_py() for column in _message(row, limit))
        if part is not None
    )
    return len(content) if limit.compression == "none" else len(pa.compress(content, limit.compression, asbytes=True))
