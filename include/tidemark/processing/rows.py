"""Rows on their way from the decoder to the sinks; each knows its record.

A record has one row until a transform fans out. What happened to a record is counted once: it counts as taken away
when its last row goes, and with one row that cannot be used the whole record is a dead letter.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import DELETED, BadRecord, Decoded
from tidemark.model.positions import positions
from tidemark.transforms.base import MADE, OnFrames
from tidemark.transforms.sequence import TransformStep

# After the metadata, where a record may have several rows: 0, 1, ..
ROW: Final = pa.field("_row", pa.int32(), nullable=False)


@dataclass(frozen=True)
class Rows:
    """``records`` has the place in the batch of the record of each row, ascending; ``deleted`` is None where the
    decoder knows no tombstones, ``numbers`` where a record has one row."""

    metadata: pa.RecordBatch
    data: pa.RecordBatch
    records: pa.Array
    deleted: pa.Array | None
    numbers: pa.Array | None = None

    @classmethod
    def of(cls, decoded: Decoded, metadata: pa.RecordBatch) -> "Rows":
        """``metadata`` is that of all records of the batch."""
        return cls(metadata.take(decoded.good), decoded.rows, decoded.good, decoded.deleted)

    def batch(self) -> pa.RecordBatch:
        """As transforms and sinks get them: metadata, number and mark where they exist, data columns."""
        beside = [(ROW, self.numbers), (DELETED, self.deleted)]
        more = [(field, column) for field, column in beside if column is not None]
        columns = [*self.metadata.columns, *(column for _, column in more), *self.data.columns]
        schema = pa.schema([*self.metadata.schema, *(field for field, _ in more), *self.data.schema])
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def filter(self, stays: pa.Array) -> "Rows":
        marks = [None if column is None else column.filter(stays) for column in (self.deleted, self.numbers)]
        return Rows(self.metadata.filter(stays), self.data.filter(stays), self.records.filter(stays), *marks)

    def errors(self, bad: Iterable[BadRecord]) -> tuple[BadRecord, ...]:
        """The first error of each record; ``bad`` has the places of rows."""
        errors: dict[int, BadRecord] = {}
        for error in bad:
            record = self.records[error.index].as_py()
            errors.setdefault(record, error.at(record))
        return tuple(sorted(errors.values()))

    def without(self, errors: tuple[BadRecord, ...]) -> "Rows":
        """The rows of the records without an error."""
        return self.filter(self.stays(errors)) if errors else self

    def stays(self, errors: tuple[BadRecord, ...]) -> pa.Array:
        """For each row whether its record has no error."""
        return pc.invert(pc.is_in(self.records, value_set=_places(errors)))

    def through(self, step: TransformStep, beside: pa.Array | None = None) -> "Stepped":
        """Return what a transform makes of these rows; a row that it does not account for is in none of the results.

        ``beside``: what Spark made of each record of the batch, for a transform on DataFrames.
        """
        given = self.batch()
        if beside is not None and isinstance(step.transform, OnFrames):
            given = given.append_column(MADE, beside.take(self.records))
        made = step.transform.apply(given)
        errors = self.errors(replace(error, reason=step.reason(error)) for error in made.errors)
        deleted = None if self.deleted is None else self.deleted.take(made.kept)
        numbers = None if self.numbers is None else self.numbers.take(made.kept)
        if step.fans_out:
            numbers = _numbers(made.kept)
        rows = Rows(self.metadata.take(made.kept), made.rows, self.records.take(made.kept), deleted, numbers)
        if rows.numbers is not None:  # else the rows of such records are not among those kept
            rows = rows.without(errors)
        remaining = pa.concat_arrays([rows.records, _places(errors)])
        return Stepped(rows, errors, self._gone(made.filtered, remaining), self._gone(made.deduplicated, remaining))

    def _gone(self, taken: pa.Array, remaining: pa.Array) -> pa.RecordBatch:
        """The metadata of the records of which rows were ``taken`` and that are not ``left``, once each."""
        if self.numbers is None:
            return self.metadata.take(taken)
        records = pc.unique(self.records.take(taken))
        records = records.filter(pc.invert(pc.is_in(records, value_set=remaining)))
        return self.metadata.take(pc.index_in(records, value_set=self.records))

    def further(self) -> pa.RecordBatch:
        """The metadata of the rows that are not the first of their record."""
        if self.numbers is None or not len(self.records):
            return self.metadata.slice(0, 0)
        same = pc.equal(self.records[1:], self.records[:-1])
        return self.metadata.filter(pa.concat_arrays([pa.array([False]), same]))


@dataclass(frozen=True)
class Stepped:
    """The rows after a transform, the records that it could not work on, the metadata of those that it took away."""

    rows: Rows
    errors: tuple[BadRecord, ...]
    filtered: pa.RecordBatch
    deduplicated: pa.RecordBatch


def _places(errors: tuple[BadRecord, ...]) -> pa.Array:
    return pa.array([error.index for error in errors], pa.int64())


def _numbers(kept: pa.Array) -> pa.Array:
    """The number of each row among those of the same record, which stand side by side."""
    if not len(kept):
        return pa.array([], ROW.type)
    here = positions(len(kept))
    begins = pa.concat_arrays([pa.array([True]), pc.not_equal(kept[1:], kept[:-1])])
    first = pc.cumulative_max(pc.if_else(begins, here, 0))
    return pc.subtract(here, first).cast(ROW.type)
