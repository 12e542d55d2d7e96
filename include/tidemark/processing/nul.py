"""The character NUL, which JSON text may hold and PostgreSQL cannot store."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import BadRecord


def rows_with_nul(rows: pa.RecordBatch) -> list[BadRecord]:
    """The rows whose text holds NUL, also inside lists and objects, ascending; each with the first such column."""
    reasons: dict[int, str] = {}
    for field, column in zip(rows.schema, rows.columns, strict=True):
        for row in _rows_with_nul(column):
            reasons.setdefault(row, f"field {field.name}: holds the character NUL, which PostgreSQL cannot store")
    return [BadRecord(row, reason) for row, reason in sorted(reasons.items())]


def _rows_with_nul(column: pa.Array) -> list[int]:
    if pa.types.is_string(column.type):
        rows: list[int] = pc.indices_nonzero(pc.match_substring(column, "\0")).to_pylist()
        return rows
    if pa.types.is_nested(column.type):
        return [row for row, value in enumerate(column.to_pylist()) if _has_nul(value)]
    return []


def _has_nul(value: Any) -> bool:
    match value:
        case str():
            return "\0" in value
        case dict():
            return any(_has_nul(key) or _has_nul(item) for key, item in value.items())
        case list() | tuple():
            return any(map(_has_nul, value))
        case _:
            return False
