"""Finds keys that are too long for a sink, such as for a copy of totals in DynamoDB."""

import json
from base64 import b64encode
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import BadRecord
from tidemark.model.storable import KeyLimit

_OTHER_BYTES = 48  # most bytes of a column that is no text: a decimal of 38 digits, or a time, in quotes
_TOPIC_BYTES = 251  # most bytes of ``_topic``, which is no column of the rows: a name of 249 bytes, in quotes
_MOST_IN_JSON = 6  # most bytes of JSON for one byte of text, such as for a control character


def rows_with_long_key(rows: pa.RecordBatch, limit: KeyLimit) -> list[BadRecord]:
    """Return a ``BadRecord`` for each row whose key, written as JSON, has more bytes than the limit, in the order of
    the rows."""
    names = [name for name in limit.columns if name in rows.schema.names and _is_text(rows.schema.field(name).type)]
    if not names:
        return []
    others = sum(_TOPIC_BYTES if name == "_topic" else _OTHER_BYTES for name in limit.columns if name not in names)
    room = limit.bytes - others - 2 * len(limit.columns)  # a comma and a blank, or the brackets
    lengths = [pc.cast(pc.fill_null(pc.binary_length(rows.column(name)), 0), pa.int64()) for name in names]
    length = lengths[0]
    for more in lengths[1:]:
        length = pc.add(length, more)
    # Write only those rows as JSON that might be too long; they are few.
    suspects = pc.indices_nonzero(pc.greater(length, (room - 2 * len(names)) // _MOST_IN_JSON))
    columns = rows.select(names).take(suspects).to_pylist()
    reason = f"its key ({', '.join(limit.columns)}) has more bytes than the {limit.bytes} of sink {limit.sink}"
    return [
        BadRecord(at, reason)
        for at, row in zip(suspects.to_pylist(), columns, strict=True)
        if sum(map(_bytes_in_json, row.values())) > room
    ]


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _bytes_in_json(value: Any) -> int:
    text = b64encode(value).decode() if isinstance(value, bytes) else value
    return len(json.dumps(text, ensure_ascii=False).encode())
