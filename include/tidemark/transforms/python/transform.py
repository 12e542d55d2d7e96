"""Calls ``function(pa.RecordBatch) -> pa.RecordBatch`` on each batch, and checks its result.

The function gets the metadata columns, the data columns and ``_ordinal``, the number of each row in the batch. Its
result either still has ``_ordinal``, as after ``batch.filter``, or has as many rows as the batch: so it is known which
records were removed. Its printed output goes to standard error.
"""

import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.errors import THEN_RETRY, WorkFailed
from tidemark.model.positions import positions
from tidemark.model.reasons import without_values
from tidemark.transforms.base import NO_ROWS, Transformed
from tidemark.transforms.code import Code
from tidemark.transforms.halving import Halving, LogicFailed
from tidemark.transforms.python.limit import TimedOut, time_limit

ORDINAL = "_ordinal"
Function = Callable[[pa.RecordBatch], pa.RecordBatch]


class PythonTransform:
    """Calls ``module:function`` of ``code``. ``columns`` are the SQL types of its result; None if they do not change.

    ``limit_s``: seconds that it may work on a batch; ``max_bytes``: bytes that it may return for one. The module is
    imported with the first batch: no code of a user runs when a pipeline file is read.
    """

    def __init__(
        self, function: str, code: Mapping[str, str], columns: Mapping[str, str] | None, limit_s: float, max_bytes: int
    ) -> None:
        self._name = function
        self._code = Code(code)
        self._columns = columns
        self._limit_s, self._max_bytes = limit_s, max_bytes
        self._schema = pa.schema([])
        self._function: Function | None = None

    def schema(self, given: pa.Schema) -> pa.Schema:
        if self._columns is None:
            self._schema = given
        else:
            from tidemark.transforms.types import schema_of_sql_types  # needs DuckDB

            self._schema = schema_of_sql_types(self._columns)
        return self._schema

    def apply(self, rows: pa.RecordBatch) -> Transformed:
        if not rows.num_rows:
            return Transformed(pa.RecordBatch.from_pylist([], self._schema), NO_ROWS, NO_ROWS, NO_ROWS)
        halving = Halving(self._called)
        try:
            with time_limit(self._limit_s):
                halving.run(rows)
        except TimedOut as late:
            raise self._timed_out(rows, late) from None
        parts = [made.select(self._schema.names) for _, made in halving.results]
        columns = [
            pa.concat_arrays([pa.array([], field.type), *(part.column(field.name) for part in parts)])
            for field in self._schema
        ]
        return halving.transformed(rows, pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def _called(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Call the function; return the ordinals of the rows that stay, and the columns that it made."""
        ordinals = positions(rows.num_rows)
        with self._code.importable(), redirect_stdout(sys.stderr):
            function = self._function = self._function or self._imported()
            try:
                made = function(rows.append_column(ORDINAL, ordinals))
            except (Exception, SystemExit) as error:
                raise LogicFailed(self._reason_of(error)) from error
        checked = self._checked(made, ordinals)
        if checked.nbytes > self._max_bytes:
            raise self._too_large(rows, checked.nbytes)
        return checked

    def _imported(self) -> Function:
        module, _, name = self._name.partition(":")
        try:
            __import__(module)
            function: Function = getattr(sys.modules[module], name)
        except (Exception, SystemExit) as error:
            raise self._wrong(f"cannot be imported: {self._reason_of(error)}") from error
        return function

    def _reason_of(self, error: BaseException) -> str:
        place = self._code.line_of(error)
        kind = f"{type(error).__name__}: {without_values(str(error))}"
        return f"{place}: {kind}" if place else f"{self._name}: {kind}"

    def _checked(self, made: object, ordinals: pa.Array) -> pa.RecordBatch:
        if not isinstance(made, pa.RecordBatch):
            raise self._wrong(f"gave {type(made).__name__} back, and not a pyarrow.RecordBatch")
        if ORDINAL in made.schema.names:
            kept = made.column(ORDINAL)
            if not _ascends(kept, len(ordinals)):
                raise self._wrong(
                    f"gave rows back with other numbers in {ORDINAL} than they had, or in another order: each record "
                    "stays once or goes, in its order"
                )
        elif made.num_rows != len(ordinals):
            raise self._wrong(
                f"gave {made.num_rows:,} rows back for {len(ordinals):,}, without the column {ORDINAL} that tells "
                "which: take rows away with batch.filter(..), which keeps it"
            )
        else:
            kept = ordinals
        names = [name for name in made.schema.names if not name.startswith("_")]
        if sorted(names) != sorted(self._schema.names):
            raise self._wrong(
                f"gave the columns {', '.join(names) or 'none'} back, and not {', '.join(self._schema.names)}; write "
                "columns in the pipeline file when it changes them"
            )
        columns = [self._column(made.column(field.name), field) for field in self._schema]
        return pa.RecordBatch.from_arrays([kept, *columns], names=[ORDINAL, *self._schema.names])

    def _column(self, column: pa.Array, field: pa.Field) -> pa.Array:
        if column.type != field.type:
            if not pa.types.is_nested(field.type):
                raise self._wrong(f"gave column {field.name} back as {column.type}, and not as {field.type}")
            try:
                column = column.cast(field.type)  # names and nullability of nested fields may differ
            except pa.ArrowException:
                raise self._wrong(f"gave column {field.name} back as {column.type}, and not as {field.type}") from None
        if column.null_count and not field.nullable:
            raise self._wrong(f"gave null back in column {field.name}, which has none")
        return column

    def _timed_out(self, rows: pa.RecordBatch, late: TimedOut) -> WorkFailed:
        place = self._code.line_in(late.frame) or self._name
        return self._wrong(
            f"has not ended after {self._limit_s:g} s with a batch of {rows.num_rows:,} rows; it was at {place}",
            **_place_of(rows),
        )

    def _too_large(self, rows: pa.RecordBatch, size: int) -> WorkFailed:
        return self._wrong(
            f"gave {size:,} bytes back for a batch of {rows.num_rows:,} rows, and max_bytes is {self._max_bytes:,}",
            **_place_of(rows),
        )

    def _wrong(self, what: str, **context: object) -> WorkFailed:
        return WorkFailed(
            f"{self._name} {what}",
            next_step="nothing is published; correct the code, try it with: tidemark peek {pipeline}" + THEN_RETRY,
            **context,
        )


def _place_of(rows: pa.RecordBatch) -> dict[str, object]:
    offsets = pc.min_max(rows.column("_offset")).as_py()
    return {
        "topic": rows.column("_topic")[0].as_py(),
        "partition": rows.column("_partition")[0].as_py(),
        "offsets": f"[{offsets['min']},{offsets['max'] + 1})",
    }


def _ascends(kept: pa.Array, count: int) -> bool:
    if kept.type != pa.int64() or kept.null_count:
        return False
    if not len(kept):
        return True
    steps = pc.subtract(kept[1:], kept[:-1])
    inside = kept[0].as_py() >= 0 and kept[-1].as_py() < count
    return inside and pc.all(pc.greater(steps, 0)).as_py() is not False


def open_transform(options: Mapping[str, Any]) -> PythonTransform:
    limits = options["limit_s"], options["max_bytes"]
    return PythonTransform(options["function"], options["code"], options["columns"], *limits)
