"""Finds positions in a batch: those of its records, and those of values with a certain content."""

from collections.abc import Callable
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc


def positions(count: int) -> pa.Array:
    """Return 0, 1, .. as ``int64``, in 0.02 us per number; ``pa.array(range(count))`` takes 0.9 us."""
    return pc.indices_nonzero(pa.repeat(True, count)).cast(pa.int64())


def rows_holding(column: pa.Array, test: Callable[[pa.Array], pa.Array | None]) -> list[int]:
    """Return the rows whose value passes ``test``, or contains such a value inside structs, lists and maps; ascending.

    ``test`` returns a ``bool`` for each value of an array, without looking at nested values, or None for a type that
    never passes.
    """
    marks = _holding(column, test)
    return [] if marks is None else pc.indices_nonzero(marks).to_pylist()


def _holding(column: pa.Array, test: Callable[[pa.Array], pa.Array | None]) -> pa.Array | None:
    """Return for each value whether it passes ``test`` or contains one that does; None if no type in the column can."""
    parts = [part for part in (test(column), _holding_inside(column, test)) if part is not None]
    return pc.fill_null(reduce(pc.or_, parts), False) if parts else None


def _holding_inside(column: pa.Array, test: Callable[[pa.Array], pa.Array | None]) -> pa.Array | None:
    kind = column.type
    if pa.types.is_struct(kind):
        parts = [part for inner in column.flatten() if (part := _holding(inner, test)) is not None]
        return reduce(pc.or_, parts) if parts else None
    if pa.types.is_map(kind):
        column = column.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
    elif not pa.types.is_list(kind):
        return None
    inside = _holding(column.flatten(), test)
    if inside is None:
        return None
    owners = pc.unique(pc.list_parent_indices(column).filter(inside))
    return pc.is_in(positions(len(column)), value_set=owners.cast(pa.int64()))
