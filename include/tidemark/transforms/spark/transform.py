"""Takes the row that ``function(DataFrame) -> DataFrame`` made of each row: Spark has called it before the pass, on all
rows.

Tasks import only what this module imports: ``spark/frames.py`` calls the function in the driver.
"""

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import DELETED
from tidemark.errors import THEN_RETRY, ConfigurationError, WorkFailed
from tidemark.model.record_schema import PLACE
from tidemark.transforms.base import MADE, NO_ROWS, Transformed, others
from tidemark.transforms.code import Code

_OF_SPARK: Final = (
    pa.types.is_boolean, pa.types.is_signed_integer, pa.types.is_float32, pa.types.is_float64, pa.types.is_string,
    pa.types.is_binary, pa.types.is_date32, pa.types.is_decimal128,
)  # fmt: skip


class SparkTransform:
    """Takes the rows of ``module:function`` of ``code``. ``columns`` are the SQL types of its result; None if they do
    not change.

    ``given`` and ``made`` are the data columns that the function gets and returns.
    """

    def __init__(self, function: str, code: Mapping[str, str], columns: Mapping[str, str] | None) -> None:
        self.function = function
        self.code = Code(code)
        self.given = self.made = pa.schema([])
        self._columns = columns

    def schema(self, given: pa.Schema) -> pa.Schema:
        self.given = self.made = given
        if self._columns is not None:
            from tidemark.transforms.types import schema_of_sql_types  # needs DuckDB

            self.made = schema_of_sql_types(self._columns)
        for columns in (self.given, self.made):
            _refuse_unknown_to_spark(columns)
        return self.made

    def apply(self, rows: pa.RecordBatch) -> Transformed:
        if not rows.num_rows:
            return Transformed(pa.RecordBatch.from_pylist([], self.made), NO_ROWS, NO_ROWS, NO_ROWS)
        if MADE not in rows.schema.names:
            raise ConfigurationError(
                f"{self.function} works on DataFrames, and this command starts no Spark",
                next_step="look at what it makes after: tidemark run {pipeline}",
            )
        made = rows.column(MADE)
        self._refuse_deletions_that_went(rows, made)
        kept = pc.indices_nonzero(pc.is_valid(made)).cast(pa.int64())
        taken = made.take(kept)
        columns = [self._column(taken.field(field.name), field, rows.take(kept)) for field in self.made]
        return Transformed(
            pa.RecordBatch.from_arrays(columns, schema=self.made), kept, others(rows.num_rows, kept), NO_ROWS
        )

    def _column(self, column: pa.Array, field: pa.Field, rows: pa.RecordBatch) -> pa.Array:
        column = column.cast(field.type)  # the same type for Spark; names and nullability of nested fields may differ
        if column.null_count and not field.nullable:
            at = pc.index(column.is_null(), True).as_py()
            raise self.wrong(f"gave null back in column {field.name}, which has none", **_place(rows, at))
        return column

    def _refuse_deletions_that_went(self, rows: pa.RecordBatch, made: pa.Array) -> None:
        if DELETED.name not in rows.schema.names:
            return
        went = pc.and_(rows.column(DELETED.name), pc.is_null(made))
        if pc.any(went).as_py():
            raise self.wrong(
                f"took a deletion away: rows with {DELETED.name} must stay, as in "
                f'.where("{DELETED.name} OR amount > 0")',
                **_place(rows, pc.index(went, True).as_py()),
            )

    def wrong(self, what: str, **context: object) -> WorkFailed:
        return WorkFailed(
            f"{self.function} {what}",
            next_step="nothing is published; correct the code" + THEN_RETRY,
            **context,
        )


def _place(rows: pa.RecordBatch, at: int) -> dict[str, object]:
    return {name: rows.column(f"_{name}")[at].as_py() for name in PLACE}


def _refuse_unknown_to_spark(columns: pa.Schema) -> None:
    """Raise ``ConfigurationError`` for a column that a DataFrame cannot have."""
    names: dict[str, str] = {}
    for field in columns:
        other = names.setdefault(field.name.lower(), field.name)
        if other != field.name:
            raise ConfigurationError(
                f"Spark cannot tell columns {other} and {field.name} apart",
                next_step=f"rename one before: select: [* EXCLUDE ({field.name}), {field.name} AS ..]",
            )
        if not _known_to_spark(field.type):
            raise ConfigurationError(
                f"column {field.name} is {field.type}, which Spark does not have",
                next_step=f"cast it before: select: [* REPLACE (CAST({field.name} AS VARCHAR) AS {field.name})]",
            )


def _known_to_spark(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return bool(kind.unit == "us")
    if pa.types.is_list(kind) or pa.types.is_struct(kind) or pa.types.is_map(kind):
        return all(_known_to_spark(kind.field(at).type) for at in range(kind.num_fields))
    return any(test(kind) for test in _OF_SPARK)


def open_transform(options: Mapping[str, Any]) -> SparkTransform:
    return SparkTransform(options["function"], options["code"], options["columns"])
