"""Finds rows with null in a column or nested field that must not be null in the table of a sink."""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import BadRecord
from tidemark.model.positions import positions
from tidemark.model.storable import RowCheck, Storable


def with_required(declared: Storable, sink: str, paths: Sequence[Sequence[str]]) -> Storable:
    """Return the limits of a sink whose table does not allow null at these paths."""
    check = RowCheck(__name__, {"sink": sink, "paths": [list(path) for path in paths]})
    return replace(declared, checks=(*declared.checks, check)) if paths else declared


def bad_rows(rows: pa.RecordBatch, sink: str, paths: Sequence[Sequence[str]]) -> list[BadRecord]:
    """Return the rows with null where the table does not allow it, ascending, each with its first such field.

    The path ``("lines", "element", "sku")`` is a field of the structs in the list ``lines``.
    """
    reasons: dict[int, str] = {}
    for name, *within in paths:
        if name in rows.schema.names:
            place = ".".join((name, *within))
            reason = f"field {place}: is null, which the table of sink {sink} does not take"
            for row in _null_at(rows.column(name), within).to_pylist():
                reasons.setdefault(row, reason)
    return [BadRecord(row, reason) for row, reason in sorted(reasons.items())]


def _null_at(column: pa.Array, path: list[str]) -> pa.Array:
    """Return the positions of the values that are null at a path. If a value on the way to it is null, that does not
    count."""
    if not path:
        return pc.indices_nonzero(column.is_null()).cast(pa.int64())
    kind = column.type
    if pa.types.is_struct(kind):
        at = kind.get_field_index(path[0])
        if at < 0:
            return positions(0)
        owners = pc.indices_nonzero(column.is_valid())
        inside = column.field(at).take(owners)
    else:
        if pa.types.is_map(kind):
            column = column.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
        owners = pc.list_parent_indices(column)
        inside = column.flatten().field(1) if pa.types.is_map(kind) else column.flatten()
    return pc.unique(owners.take(_null_at(inside, path[1:]))).cast(pa.int64())
