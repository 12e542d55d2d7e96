"""The character NUL, which JSON text may hold and PostgreSQL cannot store."""

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import BadRecord
from tidemark.model.positions import rows_holding


def rows_with_nul(rows: pa.RecordBatch) -> list[BadRecord]:
    """The rows whose text holds NUL, also inside lists and objects, ascending; each with the first such column."""
    reasons: dict[int, str] = {}
    for field, column in zip(rows.schema, rows.columns, strict=True):
        for row in rows_holding(column, _is_with_nul):
            reasons.setdefault(row, f"field {field.name}: holds the character NUL, which PostgreSQL cannot store")
    return [BadRecord(row, reason) for row, reason in sorted(reasons.items())]


def _is_with_nul(column: pa.Array) -> pa.Array | None:
    return pc.match_substring(column, "\0") if pa.types.is_string(column.type) else None
