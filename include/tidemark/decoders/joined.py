"""Puts together what was decoded of parts of a batch: the records of several writers, or of several topics."""

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import NONE, BadRecord, Decoded, together
from tidemark.decoders.deletions import in_order


def joined(
    schema: pa.Schema, parts: Sequence[Decoded], errors: Iterable[BadRecord] = (), filtered: pa.Array = NONE
) -> Decoded:
    """One batch of parts, whose records have their indices in it; with further ``errors`` and ``filtered`` records."""
    rows, good = (parts[0].rows, parts[0].good) if len(parts) == 1 else _rows_in_order(schema, parts)
    return Decoded(
        rows,
        good,
        tuple(sorted([*errors, *(bad for part in parts for bad in part.errors)])),
        unknown=together(part.unknown for part in parts),
        filtered=in_order(pa.concat_arrays([filtered, *(part.filtered for part in parts)])),
    )


def _rows_in_order(schema: pa.Schema, parts: Sequence[Decoded]) -> tuple[pa.RecordBatch, pa.Array]:
    good = pa.concat_arrays([NONE, *(part.good for part in parts)])
    order = pc.sort_indices(good)
    table = pa.Table.from_batches([part.rows for part in parts], schema).take(order).combine_chunks()
    [rows] = table.to_batches() or [pa.RecordBatch.from_pylist([], schema)]
    return rows, good.take(order)
