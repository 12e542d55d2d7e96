"""Takes a batch apart, and joins the decoded parts again. A part has the records of one writer, or of one topic."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import NONE, BadRecord, Decoded, Decoder, WithNullText, together


def values_and_deletions(values: Decoder, batch: pa.RecordBatch) -> tuple[Decoded, pa.Array]:
    """Return what ``values`` decodes of the records that have a value, and the indices of those that delete a row,
    ascending.

    A record deletes a row if it has no value, or if its envelope says so. In JSON the text null may mean no value.
    """
    is_tombstone = pc.is_null(batch.column("value"))
    if isinstance(values, WithNullText) and values.null_text is not None:
        is_tombstone = pc.or_(is_tombstone, pc.fill_null(pc.equal(batch.column("value"), values.null_text), False))
    if not pc.any(is_tombstone).as_py():
        decoded = values.decode(batch)
        return replace(decoded, deletions=NONE), decoded.deletions
    others = pc.indices_nonzero(pc.invert(is_tombstone)).cast(pa.int64())
    decoded = values.decode(batch.take(others)).at(others)
    deletions = pa.concat_arrays([pc.indices_nonzero(is_tombstone).cast(pa.int64()), decoded.deletions])
    return replace(decoded, deletions=NONE), sorted_indices(deletions)


def joined(
    schema: pa.Schema, parts: Sequence[Decoded], errors: Iterable[BadRecord] = (), filtered: pa.Array = NONE
) -> Decoded:
    """Join the decoded parts of a batch; add further ``errors`` and ``filtered`` records. All indices are those of the
    batch."""
    rows, good = (parts[0].rows, parts[0].good) if len(parts) == 1 else _rows_in_order(schema, parts)
    return Decoded(
        rows,
        good,
        tuple(sorted([*errors, *(bad for part in parts for bad in part.errors)])),
        unknown=together(part.unknown for part in parts),
        filtered=sorted_indices(pa.concat_arrays([filtered, *(part.filtered for part in parts)])),
    )


def _rows_in_order(schema: pa.Schema, parts: Sequence[Decoded]) -> tuple[pa.RecordBatch, pa.Array]:
    good = pa.concat_arrays([NONE, *(part.good for part in parts)])
    order = pc.sort_indices(good)
    table = pa.Table.from_batches([part.rows for part in parts], schema).take(order).combine_chunks()
    [rows] = table.to_batches() or [pa.RecordBatch.from_pylist([], schema)]
    return rows, good.take(order)


def leave_out(indices: pa.Array, others: pa.Array) -> pa.Array:
    return indices.filter(pc.invert(pc.is_in(indices, value_set=others)))


def sorted_indices(indices: pa.Array) -> pa.Array:
    return indices.take(pc.sort_indices(indices))
