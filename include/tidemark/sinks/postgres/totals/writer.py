"""Groups the rows of one Spark task by key, and copies what they come to into the attempt's staging table.

A task keeps the groups of its last batches in memory, a bounded number; beyond it they are staged, and publishing
combines what tasks staged of one key. The digest is that of the rows, so it does not depend on batches.
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.order import Order, SinkOrder
from tidemark.receipt import ObjectKind
from tidemark.sinks.grouping import grouped
from tidemark.sinks.postgres.totals.parts import ROWS, WINDOW, Function, Part, parts_from
from tidemark.sinks.postgres.writer import Copy, Measures, PostgresWriter, has_staged, try_connection
from tidemark.sinks.writer import StagedPart

__all__ = ["has_staged", "open_writer", "try_connection"]

MOST_GROUPS = 200_000  # that wait in memory
DIGITS = 76  # of a sum: 10^38 values of the widest decimal have room
_PLACE = ("_topic", "_partition", "_offset")
_OVER_GROUPS = {Function.COUNT: "sum", Function.SUM: "sum", Function.MIN: "min", Function.MAX: "max"}


class TotalsWriter:
    """Stages groups of data rows; dead letters go where those of other tables go."""

    def __init__(self, order: Order, sink: SinkOrder, task: str) -> None:
        self._name = sink.name
        self._task = task
        self._options = sink.options
        self._groups = Groups(sink.options["group_by"], sink.options["window_s"], parts_from(sink.options["parts"]))
        self._context = {"pipeline": order.pipeline, "manifest": order.manifest_id, "sink": sink.name}
        self._measures = Measures()
        self._copy: Copy | None = None
        self._dead_letters = PostgresWriter(order, sink, task)

    def write(self, rows: pa.RecordBatch, event_time: pa.Array) -> None:
        inputs = self._groups.inputs(rows, event_time)
        decisive = inputs.select([name for name in inputs.schema.names if name not in _PLACE])
        place = [rows.column(name) for name in _PLACE]
        measured = pa.RecordBatch.from_arrays([*place, *decisive.columns], names=[*_PLACE, *decisive.schema.names])
        for topic, partition, _, piece in grouped(measured, pa.nulls(rows.num_rows, event_time.type)):
            self._measures.add(topic, partition, piece, piece.nbytes)
        self._stage(self._groups.take(inputs))

    def write_dead_letters(self, rows: pa.RecordBatch) -> None:
        self._dead_letters.write_dead_letters(rows)

    def close(self) -> list[StagedPart]:
        self._stage(self._groups.rest())
        if self._copy is not None:
            self._copy.close()
        parts = self._measures.parts(self._name, ObjectKind.DATA, self._options["table"], self._task)
        return [*parts, *self._dead_letters.close()]

    def abort(self) -> None:
        if self._copy is not None:
            self._copy.abort()
        self._dead_letters.abort()

    def _stage(self, groups: pa.Table | None) -> None:
        if groups is None:
            return
        if self._copy is None:
            connection, table = self._options["connection"], self._options["staging"]
            self._copy = Copy(connection, table, self._task, groups.schema.names, self._context)
        self._copy.write(groups)


class Groups:
    """The groups of a task by key; at most about ``most`` wait in memory, beside those of one batch."""

    def __init__(self, group_by: list[str], window_s: int | None, parts: list[Part], most: int = MOST_GROUPS) -> None:
        self._group_by = group_by
        self._window_s = window_s
        self._parts = parts
        self._key = [*group_by, WINDOW] if window_s else group_by
        self._sources = list(dict.fromkeys(part.source for part in parts if part.source is not None))
        self._most = most
        self._waiting: list[pa.Table] = []

    def inputs(self, rows: pa.RecordBatch, event_time: pa.Array) -> pa.RecordBatch:
        """The columns that decide the totals: the key, and a column ``of NAME`` of each source."""
        columns = {name: rows.column(name) for name in self._group_by}
        if self._window_s:
            naive = event_time.view(pa.timestamp("us"))  # in UTC, so that no time zone is looked up
            starts = pc.floor_temporal(naive, multiple=self._window_s, unit="second")
            columns[WINDOW] = starts.view(event_time.type)
        for name in self._sources:
            columns[_input(name)] = _comparable(rows.column(name))
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def take(self, inputs: pa.RecordBatch) -> pa.Table | None:
        """Group a batch; what has to be staged now, because too much would wait."""
        table = pa.Table.from_batches([inputs])
        wanted: list[Any] = [([], "count_all")]
        for part in self._parts:
            if part.source is None:
                continue
            column = _input(part.source)
            if part.function is Function.SUM:
                values = table.column(column)
                scale = values.type.scale if pa.types.is_decimal(values.type) else 0
                column = f"sum {part.column}"
                table = table.append_column(column, values.cast(pa.decimal256(DIGITS, scale)))
            wanted.append((column, part.function.value))
        made = table.group_by(self._key, use_threads=False).aggregate(wanted).columns
        keys, rows, values_of = made[: len(self._key)], made[len(self._key)], iter(made[len(self._key) + 1 :])
        columns = [rows if part.source is None else next(values_of) for part in self._parts]
        self._waiting.append(pa.Table.from_arrays([*keys, rows, *columns], names=self._names))
        if sum(groups.num_rows for groups in self._waiting) <= self._most:
            return None
        combined = self._combined()
        self._waiting = [combined] if combined.num_rows <= self._most // 2 else []
        return None if self._waiting else combined

    def rest(self) -> pa.Table | None:
        """What still waits, to be staged."""
        return self._combined() if self._waiting else None

    @property
    def _names(self) -> list[str]:
        return [*self._key, ROWS, *(part.column for part in self._parts)]

    def _combined(self) -> pa.Table:
        wanted = [(ROWS, "sum"), *((part.column, _OVER_GROUPS[part.function]) for part in self._parts)]
        together = pa.concat_tables(self._waiting)
        return together.group_by(self._key, use_threads=False).aggregate(wanted).rename_columns(self._names)


def _input(source: str) -> str:
    return f"of {source}"


def _comparable(column: pa.Array) -> pa.Array:
    """NaN is no value, and -0.0 is 0.0: neither is less or greater than others in every program alike."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), pc.add(column, pa.scalar(0.0, column.type)))


def open_writer(order: Order, sink: SinkOrder, task: str) -> TotalsWriter:
    return TotalsWriter(order, sink, task)
