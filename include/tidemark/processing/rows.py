"""Rows on their way from the decoder to the sinks, each with the position of its record.

A record has one row until a transform fans out. Each record is counted once: it counts as removed when its last row is
removed, and if one of its rows cannot be used, the whole record is a dead letter.
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

# The number of a row, 0, 1, .., after the metadata, if a record may have several rows.
ROW: Final = pa.field("_row", pa.int32(), nullable=False)


@dataclass(frozen=True)
class Rows:
    """The rows of a batch. ``records`` has, for each row, the position of its record in the batch, ascending.

    ``deleted`` is None if the decoder knows no tombstones; ``numbers`` is None if each record has one row.
    """

    metadata: pa.RecordBatch
    data: pa.RecordBatch
    records: pa.Array
    deleted: pa.Array | None
    numbers: pa.Array | None = None

    @classmethod
    def of(cls, decoded: Decoded, metadata: pa.RecordBatch) -> "Rows":
        """Return the rows that were decoded; ``metadata`` is that of all records of the batch."""
        return cls(metadata.take(decoded.good), decoded.rows, decoded.good, decoded.deleted)

    def batch(self) -> pa.RecordBatch:
        """Return the rows as transforms and sinks get them: metadata, number and deletion mark if there are any, data
        columns."""
        beside = [(ROW, self.numbers), (DELETED, self.deleted)]
        more = [(field, column) for field, column in beside if column is not None]
        columns = [*self.metadata.columns, *(column for _, column in more), *self.data.columns]
        schema = pa.schema([*self.metadata.schema, *(field for field, _ in more), *self.data.schema])
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def filter(self, stays: pa.Array) -> "Rows":
        marks = [None if column is None else column.filter(stays) for column in (self.deleted, self.numbers)]
        return Rows(self.metadata.filter(stays), self.data.filter(stays), self.records.filter(stays), *marks)

    def errors(self, bad: Iterable[BadRecord]) -> tuple[BadRecord, ...]:
        """Return the first error of each record; the indices in ``bad`` are those of rows."""
        errors: dict[int, BadRecord] = {}
        for error in bad:
            record = self.records[error.index].as_py()
            errors.setdefault(record, error.at(record))
        return tuple(sorted(errors.values()))

    def without(self, errors: tuple[BadRecord, ...]) -> "Rows":
        """Return the rows of the records without an error."""
        return self.filter(self.stays(errors)) if errors else self

    def stays(self, errors: tuple[BadRecord, ...]) -> pa.Array:
        """Return for each row whether its record has no error."""
        return pc.invert(pc.is_in(self.records, value_set=_places(errors)))

    def through(self, step: TransformStep, beside: pa.Array | None = None) -> "Stepped":
        """Return the result of a transform on these rows; a row that it does not account for is missing in all results.

        ``beside``: for a transform on DataFrames, the row that Spark made of each record of the batch.
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
        if rows.numbers is not None:  # a record with an error may have kept other rows
            rows = rows.without(errors)
        remaining = pa.concat_arrays([rows.records, _places(errors)])
        filtered, deduplicated = (self._removed(part, remaining) for part in (made.filtered, made.deduplicated))
        return Stepped(rows, errors, filtered, deduplicated)

    def _removed(self, rows: pa.Array, remaining: pa.Array) -> pa.RecordBatch:
        """Return the metadata of the records of the removed ``rows`` that are not among the ``remaining`` records, once
        for each record."""
        if self.numbers is None:
            return self.metadata.take(rows)
        records = pc.unique(self.records.take(rows))
        records = records.filter(pc.invert(pc.is_in(records, value_set=remaining)))
        return self.metadata.take(pc.index_in(records, value_set=self.records))

    def further(self) -> pa.RecordBatch:
        """Return the metadata of the rows that are not the first of their record."""
        if self.numbers is None or not len(self.records):
            return self.metadata.slice(0, 0)
        same = pc.equal(self.records[1:], self.records[:-1])
        return self.metadata.filter(pa.concat_arrays([pa.array([False]), same]))


@dataclass(frozen=True)
class Stepped:
    """The result of a transform: its rows, the records that it could not work on, the metadata of those it removed."""

    rows: Rows
    errors: tuple[BadRecord, ...]
    filtered: pa.RecordBatch
    deduplicated: pa.RecordBatch


def _places(errors: tuple[BadRecord, ...]) -> pa.Array:
    return pa.array([error.index for error in errors], pa.int64())


def _numbers(kept: pa.Array) -> pa.Array:
    """Return the number of each row among those of its record; rows of a record are adjacent."""
    if not len(kept):
        return pa.array([], ROW.type)
    here = positions(len(kept))
    begins = pa.concat_arrays([pa.array([True]), pc.not_equal(kept[1:], kept[:-1])])
    first = pc.cumulative_max(pc.if_else(begins, here, 0))
    return pc.subtract(here, first).cast(ROW.type)
