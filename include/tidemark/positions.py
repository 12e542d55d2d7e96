"""The positions of the records of a batch, and of the values that hold something."""

from collections.abc import Callable
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc


def positions(count: int) -> pa.Array:
    """0, 1, .. as ``int64``; ``pa.array(range(count))`` takes 0.9 us for each, this 0.02."""
    return pc.indices_nonzero(pa.repeat(True, count)).cast(pa.int64())


def holding(column: pa.Array, test: Callable[[pa.Array], pa.Array | None]) -> pa.Array | None:
    """Which values (``bool``) are what ``test`` looks for, or hold it inside of structs, lists and maps.

    ``test`` says it of an array without looking inside, or gives None for a type that it has nothing to say of. None
    when that is so of all types in the column.
    """
    marks = test(column)
    if marks is not None:
        return pc.fill_null(marks, False)
    kind = column.type
    if pa.types.is_struct(kind):
        parts = [part for inner in column.flatten() if (part := holding(inner, test)) is not None]
        return reduce(pc.or_, parts) if parts else None
    if pa.types.is_map(kind):
        column = column.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
    elif not pa.types.is_list(kind):
        return None
    inside = holding(column.flatten(), test)
    if inside is None:
        return None
    owners = pc.unique(pc.list_parent_indices(column).filter(inside))
    return pc.is_in(positions(len(column)), value_set=owners.cast(pa.int64()))
