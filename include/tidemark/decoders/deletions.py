"""Separates the records of a batch that delete a row from those that have one."""

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import NONE, Decoded, Decoder


def values_and_deletions(values: Decoder, batch: pa.RecordBatch) -> tuple[Decoded, pa.Array]:
    """(what ``values`` makes of the records that have a value; the indices, ascending, of those that delete a row)

    A record deletes a row when it has no value, or when its envelope says so.
    """
    is_tombstone = pc.is_null(batch.column("value"))
    if not pc.any(is_tombstone).as_py():
        decoded = values.decode(batch)
        return replace(decoded, deletions=NONE), decoded.deletions
    others = pc.indices_nonzero(pc.invert(is_tombstone)).cast(pa.int64())
    decoded = values.decode(batch.take(others)).at(others)
    deletions = pa.concat_arrays([pc.indices_nonzero(is_tombstone).cast(pa.int64()), decoded.deletions])
    return replace(decoded, deletions=NONE), in_order(deletions)


def in_order(indices: pa.Array) -> pa.Array:
    return indices.take(pc.sort_indices(indices))
