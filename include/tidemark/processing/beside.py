"""Joins each record with the row that a function on DataFrames made of it, in the Spark task that works on both.

Spark sorts records and made rows together by place (topic, partition, offset), each record before its row. So a task
sees everything about a place, whatever the function did to partitions and order. It notices a row without a record, and
a second row.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.model.record_schema import PLACE
from tidemark.transforms.base import MADE, OnFrames

IS_MADE: Final = "_is_made"


def records_with_made(batches: Iterable[pa.RecordBatch], transform: OnFrames) -> Iterator[pa.RecordBatch]:
    """Yield the records of ``batches``, each with the row that the transform made of it in the column ``MADE`` (null if
    it made none).

    In ``batches`` a made row stands right behind its record and has ``IS_MADE`` true. Raises ``WorkFailed`` for a made
    row that follows no record of its place, or that has the place of another made row.
    """
    waiting: pa.RecordBatch | None = None  # the last record so far, whose row may be the first of the next batch
    for batch in filter(len, batches):
        both = batch if waiting is None else pa.concat_batches([waiting, batch])
        _check(both, transform)
        last = pc.max(pc.indices_nonzero(pc.invert(both.column(IS_MADE)))).as_py()
        waiting = both.slice(last)
        if last:
            yield _together(both.slice(0, last))
    if waiting is not None:
        yield _together(waiting)


def _check(both: pa.RecordBatch, transform: OnFrames) -> None:
    made = pc.indices_nonzero(both.column(IS_MADE)).cast(pa.int64())
    rows, before = both.take(made), both.take(pc.max_element_wise(pc.subtract(made, 1), 0))
    same = pa.repeat(pa.scalar(True), len(made))
    for name in PLACE:
        same = pc.and_(same, pc.fill_null(pc.equal(rows.column(name), before.column(name)), False))
    wrong = pc.or_(pc.invert(same), pc.or_(before.column(IS_MADE), pc.equal(made, 0)))
    at = pc.index(wrong, True).as_py()
    if at < 0:
        return
    place = {name: rows.column(name)[at].as_py() for name in PLACE}
    if None in place.values():
        null = ", ".join(f"_{name}" for name, value in place.items() if value is None)
        raise transform.wrong(f"gave a row back without its place: {null} is null", **place)
    if same[at].as_py() and made[at].as_py():
        raise transform.wrong("gave two rows back for one place: explode after it makes several", **place)
    raise transform.wrong("gave a row back at a place that was not read", **place)


def _together(both: pa.RecordBatch) -> pa.RecordBatch:
    """Return the records of ``both``, with the row that follows each one in the column ``MADE``; null if no row
    follows."""
    is_made = both.column(IS_MADE)
    records = pc.indices_nonzero(pc.invert(is_made)).cast(pa.int64())
    follows = pa.concat_arrays([is_made[1:], pa.array([False])]).take(records)
    rows = pc.if_else(follows, pc.add(records, 1), pa.scalar(None, pa.int64()))
    made = both.column(MADE).take(rows)
    kept = both.take(records).select([name for name in both.schema.names if name not in (IS_MADE, MADE)])
    return kept.append_column(pa.field(MADE, made.type), made)
