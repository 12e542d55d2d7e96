"""Puts together what was decoded of parts of a batch: the records of several writers, or of several topics."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import BadRecord, Decoded, UnknownFields


def joined(
    schema: pa.Schema,
    parts: Sequence[tuple[pa.RecordBatch, pa.Array]],
    errors: Sequence[BadRecord],
    unknown: UnknownFields | None = None,
) -> Decoded:
    """One batch of parts: rows, and the indices (``int64``, ascending) of their records in it."""
    if len(parts) == 1:
        [(rows, good)] = parts
        return Decoded(rows, good, tuple(sorted(errors)), unknown=unknown)
    good = pa.concat_arrays([pa.array([], pa.int64()), *(indices for _, indices in parts)])
    order = pc.sort_indices(good)
    table = pa.Table.from_batches([rows for rows, _ in parts], schema).take(order).combine_chunks()
    [rows] = table.to_batches() or [pa.RecordBatch.from_pylist([], schema)]
    return Decoded(rows, good.take(order), tuple(sorted(errors)), unknown=unknown)
