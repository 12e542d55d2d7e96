"""Finds keys that are too long for a sink, such as for a copy of totals in DynamoDB."""

import json
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import BadRecord

_OTHER_BYTES = 48  # most bytes of a column that is no text: a decimal of 38 digits, or a time, in quotes
_TOPIC_BYTES = 251  # most bytes of ``_topic``, which is no column of the rows: a name of 249 bytes, in quotes
_MOST_IN_JSON = 6  # most bytes of JSON for one byte of text, such as for a control character


def bad_rows(rows: pa.RecordBatch, sink: str, columns: Sequence[str], most_bytes: int) -> list[BadRecord]:
    """Return the rows whose key has too many bytes, ascending. The key is the text of a JSON array of these columns."""
    names = [name for name in columns if name in rows.schema.names and _is_text(rows.schema.field(name).type)]
    if not names:
        return []
    others = sum(_TOPIC_BYTES if name == "_topic" else _OTHER_BYTES for name in columns if name not in names)
    room = most_bytes - others - 2 * len(columns)  # a comma and a blank, or the brackets
    lengths = [pc.cast(pc.fill_null(pc.binary_length(rows.column(name)), 0), pa.int64()) for name in names]
    length = lengths[0]
    for more in lengths[1:]:
        length = pc.add(length, more)
    # Write only those rows as JSON that might be too long; they are few.
    suspects = pc.indices_nonzero(pc.greater(length, (room - 2 * len(names)) // _MOST_IN_JSON))
    values = rows.select(names).take(suspects).to_pylist()
    reason = f"its key ({', '.join(columns)}) has more bytes than the {most_bytes} of sink {sink}"
    return [
        BadRecord(at, reason)
        for at, row in zip(suspects.to_pylist(), values, strict=True)
        if sum(map(_bytes_in_json, row.values())) > room
    ]


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _bytes_in_json(value: Any) -> int:
    text = b64encode(value).decode() if isinstance(value, bytes) else value
    return len(json.dumps(text, ensure_ascii=False).encode())
