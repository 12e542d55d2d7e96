"""Runs a checked statement on batches: DuckDB in the worker, with one thread."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import duckdb
import pyarrow as pa
from duckdb.sqltypes import DuckDBPyType

from tidemark.errors import THEN_RETRY, ConfigurationError, WorkFailed
from tidemark.model.positions import positions
from tidemark.model.reasons import without_values
from tidemark.transforms.base import Transformed
from tidemark.transforms.halving import Halving, LogicFailed
from tidemark.transforms.statement import METADATA, ORDINAL, VIEW, Statement, connect, prepared
from tidemark.transforms.types import refuse_altered, stored_type, stored_values

# Errors that the content of a row causes. Lack of memory counts too: half of a batch needs less.
OF_ROWS: Final = (duckdb.DataError, duckdb.InvalidInputException, duckdb.OutOfMemoryException)
_METADATA_TYPES: Final = {
    "_topic": pa.string(), "_partition": pa.int32(), "_offset": pa.int64(), "_timestamp": pa.timestamp("us", "UTC"),
    "_key": pa.binary(), "_is_deleted": pa.bool_(),
}  # fmt: skip


class Query:
    """``SELECT .. FROM batch WHERE ..`` as a transform; ``name`` is its name in messages.

    A column that is only named or renamed keeps its type. The rows of tombstones always stay: a condition on their
    data, which is null, would lose the deletion.
    """

    def __init__(self, text: str, name: str = "", connection: duckdb.DuckDBPyConnection | None = None) -> None:
        self._text = text
        self._name = f"{name}: " if name else ""
        self._connection = connection or connect()
        self._statement = Statement((), "")
        self._schema = pa.schema([])

    def schema(self, given: pa.Schema) -> pa.Schema:
        self._statement = prepared(self._connection, self._text, given)
        empty = pa.schema([pa.field(name, kind) for name, kind in _METADATA_TYPES.items()] + list(given)).empty_table()
        try:
            made, kinds = self._described(empty)
        except duckdb.Error as error:
            what = f"it does not fit the columns: {str(error).strip().splitlines()[0]}"
            raise ConfigurationError(what, next_step=f"the columns are: {', '.join(given.names)}") from None
        types = zip(made.types[1:], kinds[1:], strict=True)
        fields = []
        for output in self._statement.outputs:
            if output.source is not None:
                fields.append(given.field(output.source).with_name(output.name))
            else:
                arrow_type, duckdb_type = next(types)
                refuse_altered(duckdb_type, output.name)
                kind = stored_type(arrow_type, output.name)
                fields.append(pa.field(output.name, kind, nullable=not output.never_null))
        self._schema = pa.schema(fields)
        return self._schema

    def apply(self, rows: pa.RecordBatch) -> Transformed:
        halving = Halving(self._kept)
        halving.run(rows)
        kept = halving.kept
        computed = 0
        columns = []
        for output, field in zip(self._statement.outputs, self._schema, strict=True):
            if output.source is not None:
                column = rows.column(output.source)
                columns.append(column if len(kept) == rows.num_rows else column.take(kept))
            else:
                computed += 1
                columns.append(_joined([made.column(computed) for _, made in halving.results], field.type))
        return halving.transformed(rows, pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def _kept(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the ordinals and the computed columns of the rows that stay, in the types of the schema."""
        try:
            made = self._run(pa.Table.from_batches([rows])).combine_chunks()
        except OF_ROWS as error:
            raise LogicFailed(self._name + without_values(str(error))) from None
        except duckdb.Error as error:
            raise WorkFailed(
                f"DuckDB failed: {self._name}{without_values(str(error))}",
                next_step="nothing is published" + THEN_RETRY,
            ) from error
        kinds = [pa.int64(), *(self._schema.field(output.name).type for output in self._statement.computed)]
        columns = [_joined(made.column(at).chunks, kind) for at, kind in enumerate(kinds)]
        return pa.RecordBatch.from_arrays(columns, names=made.schema.names)

    def _described(self, rows: pa.Table) -> tuple[pa.Schema, list[DuckDBPyType]]:
        """Return the columns that ``_run`` returns, in Arrow's and in DuckDB's types."""
        with as_view(self._connection, rows):
            relation = self._connection.sql(self._statement.text)
            return relation.to_arrow_table().schema, list(relation.types)

    def _run(self, rows: pa.Table) -> pa.Table:
        with as_view(self._connection, rows):
            made: pa.Table = self._connection.sql(self._statement.text).to_arrow_table()
            return made


@contextmanager
def as_view(connection: duckdb.DuckDBPyConnection, rows: pa.Table) -> Iterator[None]:
    """Make rows, in the form in which sinks get them, the view that a checked statement reads, for the block."""
    if "_is_deleted" not in rows.schema.names:
        rows = rows.append_column("_is_deleted", pa.repeat(False, rows.num_rows))
    names = [*METADATA, *(name for name in rows.schema.names if not name.startswith("_"))]
    connection.register(VIEW, rows.select(names).append_column(ORDINAL, positions(rows.num_rows)))
    try:
        yield
    finally:
        connection.unregister(VIEW)


def _joined(parts: list[pa.Array], kind: pa.DataType) -> pa.Array:
    """Return arrays of DuckDB as one array of the type that sinks get."""
    return pa.concat_arrays([pa.array([], kind), *(stored_values(part, kind) for part in parts)])
