"""Groups the rows of one Spark task by key.

A task keeps a bounded number of groups in memory; beyond it groups are staged. Publishing combines what tasks staged
for one key. The digest is that of the rows, so it does not depend on batches.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.providers.postgres.aggregates.value_columns import ROWS, WINDOW, Function, ValueColumn
from tidemark.sinks.staging.grouping import grouped
from tidemark.text import column_of_arrow

MOST_GROUPS = 200_000  # groups that wait in memory
DIGITS = 76  # digits of a sum: enough for 10^38 values of the widest decimal
_OWN = "\0"  # prefix of our own columns, which no column of a row can have
_PLACE = ("_topic", "_partition", "_offset")
_OVER_GROUPS = {Function.COUNT: "sum", Function.SUM: "sum", Function.MIN: "min", Function.MAX: "max"}


class Groups:
    """The groups of a task by key. About ``most`` of them wait in memory, beside those of one batch."""

    def __init__(
        self, group_by: list[str], window_s: int | None, value_columns: list[ValueColumn], most: int = MOST_GROUPS
    ) -> None:
        self._group_by = group_by
        self._window_s = window_s
        self._value_columns = value_columns
        self._key = [*group_by, WINDOW] if window_s else group_by
        self._sources = list(dict.fromkeys(column.source for column in value_columns if column.source is not None))
        self._most = most
        self._waiting: list[pa.Table] = []

    def inputs(self, rows: pa.RecordBatch, event_time: pa.Array) -> pa.RecordBatch:
        """Return the columns that decide the totals: the key, and a column ``of NAME`` for each source."""
        columns = {name: rows.column(name) for name in self._group_by}
        if self._window_s:
            naive = event_time.view(pa.timestamp("us"))  # UTC without a zone, so that Arrow looks up no time zone
            starts = pc.floor_temporal(naive, multiple=self._window_s, unit="second")
            columns[WINDOW] = starts.view(event_time.type)
        for name in self._sources:
            columns[self._input(name)] = _comparable(rows.column(name))
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    @staticmethod
    def measured(rows: pa.RecordBatch, inputs: pa.RecordBatch) -> Iterator[tuple[str, int, pa.Table]]:
        """Yield (topic, partition, inputs with offsets) for each partition. The digest covers all that decides the
        totals."""
        decisive = inputs.select([name for name in inputs.schema.names if name not in _PLACE])
        place = [rows.column(name) for name in _PLACE]
        measured = pa.RecordBatch.from_arrays([*place, *decisive.columns], names=[*_PLACE, *decisive.schema.names])
        for topic, partition, _, piece in grouped(measured):
            yield topic, partition, piece

    def take(self, inputs: pa.RecordBatch) -> pa.Table | None:
        """Group a batch. Return groups to stage now, if too many would wait; else None."""
        table = pa.Table.from_batches([inputs])
        wanted: list[Any] = [([], "count_all")]
        for column in self._value_columns:
            if column.source is None:
                continue
            name = self._input(column.source)
            if column.function is Function.SUM:
                values = table.column(name)
                scale = values.type.scale if pa.types.is_decimal(values.type) else 0
                name = f"{_OWN}sum {column.name}"
                table = table.append_column(name, values.cast(pa.decimal256(DIGITS, scale)))
            wanted.append((name, column.function.value))
        made = table.group_by([*map(column_of_arrow, self._key)], use_threads=False).aggregate(wanted).columns
        keys, rows, values_of = made[: len(self._key)], made[len(self._key)], iter(made[len(self._key) + 1 :])
        columns = [rows if column.source is None else next(values_of) for column in self._value_columns]
        names = _names(self._key, self._value_columns)
        self._waiting.append(pa.Table.from_arrays([*keys, rows, *columns], names=names))
        if sum(groups.num_rows for groups in self._waiting) <= self._most:
            return None
        combined = self._combined()
        self._waiting = [combined] if combined.num_rows <= self._most // 2 else []
        return None if self._waiting else combined

    def _input(self, source: str) -> str:
        """Return a name that no column of the key has.

        Digests include the name, so it differs from ``of NAME`` only if a column of the key has that name.
        """
        name = f"of {source}"
        return f"{_OWN}{name}" if name in self._key else name

    def rest(self) -> pa.Table | None:
        """Return the groups that still wait, to be staged; None if none wait."""
        return self._combined() if self._waiting else None

    def _combined(self) -> pa.Table:
        return combined(self._waiting, self._key, self._value_columns)


def combined(tables: Sequence[pa.Table], key: Sequence[str], value_columns: Sequence[ValueColumn]) -> pa.Table:
    """Combine the groups of several tables, so that each key occurs once."""
    wanted = [(ROWS, "sum"), *((column.name, _OVER_GROUPS[column.function]) for column in value_columns)]
    groups = pa.concat_tables(tables).group_by([*map(column_of_arrow, key)], use_threads=False).aggregate(wanted)
    return groups.rename_columns(_names(key, value_columns))


def _names(key: Sequence[str], value_columns: Sequence[ValueColumn]) -> list[str]:
    return [*key, ROWS, *(column.name for column in value_columns)]


def _comparable(column: pa.Array) -> pa.Array:
    """Return a column with NaN as null, and -0.0 as 0.0, because programs disagree on how these compare with other
    numbers."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), pc.add(column, pa.scalar(0.0, column.type)))
