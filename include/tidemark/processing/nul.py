"""The character NUL, which JSON text may hold and PostgreSQL cannot store."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import Decoded


def with_nul(decoded: Decoded) -> Decoded:
    """The same batch with every row whose text holds NUL, also inside lists and objects, among the errors."""
    found: dict[int, str] = {}
    for field, column in zip(decoded.rows.schema, decoded.rows.columns, strict=True):
        for at in _rows_with_nul(column):
            found.setdefault(at, f"field {field.name}: holds the character NUL, which PostgreSQL cannot store")
    if not found:
        return decoded
    kept = pa.array([at for at in range(decoded.rows.num_rows) if at not in found], pa.int64())
    errors = [*decoded.errors, *((decoded.good[at].as_py(), reason) for at, reason in found.items())]
    deleted = None if decoded.deleted is None else decoded.deleted.take(kept)
    return Decoded(decoded.rows.take(kept), decoded.good.take(kept), tuple(sorted(errors)), deleted)


def _rows_with_nul(column: pa.Array) -> list[int]:
    if pa.types.is_string(column.type):
        found: list[int] = pc.indices_nonzero(pc.match_substring(column, "\0")).to_pylist()
        return found
    if pa.types.is_nested(column.type):
        return [at for at, value in enumerate(column.to_pylist()) if _has_nul(value)]
    return []


def _has_nul(value: Any) -> bool:
    match value:
        case str():
            return "\0" in value
        case dict():
            return any(_has_nul(key) or _has_nul(one) for key, one in value.items())
        case list() | tuple():
            return any(map(_has_nul, value))
        case _:
            return False
