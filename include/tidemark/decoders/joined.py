"""Puts together what was decoded of the records of several writers."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import BadRecord, Decoded


def joined(schema: pa.Schema, parts: Sequence[tuple[Decoded, pa.Array]], errors: Sequence[BadRecord]) -> Decoded:
    """One batch of parts with their indices in it; ``errors`` are those of records in no part."""
    bad = [*errors, *(each.at(indices[each.index].as_py()) for part, indices in parts for each in part.errors)]
    if len(parts) == 1:
        part, indices = parts[0]
        return Decoded(part.rows, indices.take(part.good), tuple(sorted(bad)))
    good = pa.concat_arrays([pa.array([], pa.int64()), *(indices.take(part.good) for part, indices in parts)])
    order = pc.sort_indices(good)
    table = pa.Table.from_batches([part.rows for part, _ in parts], schema).take(order).combine_chunks()
    [rows] = table.to_batches() or [pa.RecordBatch.from_pylist([], schema)]
    return Decoded(rows, good.take(order), tuple(sorted(bad)))
