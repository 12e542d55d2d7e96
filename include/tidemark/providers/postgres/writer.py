"""Writes the rows of one Spark task to the attempt's staging tables by COPY, in a transaction that ends with the task.

Each row has the name of the task that wrote it. If a task runs twice, its rows are staged twice; publishing reads only
the rows of the task that the receipt names.
"""

import json
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import BytesIO
from typing import Any

import pyarrow as pa
from psycopg import sql
from pyarrow import csv

from tidemark.connections.lookup import from_environment
from tidemark.database.postgres_errors import NO_TABLE
from tidemark.errors import WorkFailed
from tidemark.model.order import Order, SinkOrder
from tidemark.model.receipt import ObjectKind
from tidemark.providers.postgres.measures import Measures
from tidemark.providers.postgres.session import connect, conninfo, translated
from tidemark.providers.tables.column_names import IS_DELETED
from tidemark.sinks.staging.grouping import HASH_COLUMNS, grouped
from tidemark.sinks.writer import SinkWriter, StagedPart

SCHEMA = "tidemark_target"
DEAD = "_dead"  # the suffix of the staging table for dead letters
_CSV = csv.WriteOptions(include_header=False, quoting_style="all_valid")


class StagingTableWriter(SinkWriter):
    """The base of writers that copy into staging tables."""

    @classmethod
    def try_connection(cls, conn_id: str) -> None:
        connect(conninfo(conn_id, from_environment), conn_id).close()

    @classmethod
    def has_staged(cls, order: Order, sink: SinkOrder) -> bool:
        """Return whether a task of the attempt has committed rows."""
        del order
        conn_id = sink.options["connection"]
        statement = sql.SQL("SELECT 1 FROM {} LIMIT 1").format(sql.Identifier(SCHEMA, sink.options["staging"]))
        with connect(conninfo(conn_id, from_environment), conn_id) as session:
            try:
                return session.execute(statement).fetchone() is not None
            except NO_TABLE:
                return False


class Writer(StagingTableWriter):
    """Copies rows as they come; it keeps in memory only the counts of each partition."""

    def __init__(self, order: Order, sink: SinkOrder, task: str) -> None:
        super().__init__(order, sink, task)
        self._copies: dict[ObjectKind, tuple[Copy, Measures]] = {}

    def write(self, rows: pa.RecordBatch, event_time: pa.Array) -> None:
        del event_time
        if IS_DELETED not in rows.schema.names:
            rows = rows.append_column(IS_DELETED, pa.repeat(False, rows.num_rows))
        self._take(ObjectKind.DATA, rows.drop_columns(["_key"]))

    def write_dead_letters(self, rows: pa.RecordBatch) -> None:
        self._take(ObjectKind.DEAD_LETTER, rows)

    def close(self) -> list[StagedPart]:
        parts: list[StagedPart] = []
        for kind, (copy, measures) in self._copies.items():
            copy.close()
            parts += measures.parts(self._name, kind, self._options["table"], self._task)
        return parts

    def abort(self) -> None:
        for copy, _ in self._copies.values():
            copy.abort()

    def _take(self, kind: ObjectKind, rows: pa.RecordBatch) -> None:
        if kind not in self._copies:
            table = self._options["staging"] + (DEAD if kind is ObjectKind.DEAD_LETTER else "")
            copy = Copy(self._options["connection"], table, self._task, rows.schema.names, self._context)
            self._copies[kind] = copy, Measures()
        copy, measures = self._copies[kind]
        for topic, partition, _, piece in grouped(rows):
            measures.add(topic, partition, piece, copy.write(piece.drop_columns(HASH_COLUMNS.names)))


class Copy:
    """One COPY to one staging table, open until the task ends."""

    def __init__(self, conn_id: str, table: str, task: str, columns: Sequence[str], context: dict[str, Any]) -> None:
        self._task = task
        self._context = context
        self._sent = 0
        self._session = connect(conninfo(conn_id, from_environment), conn_id, **context)
        listed = sql.SQL(", ").join(map(sql.Identifier, ["_task", *columns]))
        statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(sql.Identifier(SCHEMA, table), listed)
        with translated(**context):
            self._session.autocommit = False
            self._cursor = self._session.cursor()
            self._copying = self._cursor.copy(statement)
            self._copy = self._copying.__enter__()

    def write(self, rows: pa.Table) -> int:
        """Send rows; return the number of bytes sent."""
        text = _as_csv(rows, self._task)
        with translated(**self._context):
            self._copy.write(text)
        self._sent += rows.num_rows
        return len(text)

    def close(self) -> None:
        """Commit all rows; raises ``WorkFailed`` if the server copied another number of rows."""
        with translated(**self._context):
            self._copying.__exit__(None, None, None)
            copied = self._cursor.rowcount
            self._session.commit()
            self._session.close()
        if self._sent != copied:
            raise WorkFailed(
                f"PostgreSQL copied {copied:,} rows of {self._sent:,}",
                next_step="nothing is published; report it if it happens again; now: tidemark retry {pipeline}",
                **self._context,
            )

    def abort(self) -> None:
        """Close the session, which rolls back the COPY."""
        aborted = WorkFailed("the task was aborted")
        with suppress(Exception):
            self._copying.__exit__(WorkFailed, aborted, None)
        self._session.close()


def _as_csv(rows: pa.Table, task: str) -> bytes:
    """Return rows for PostgreSQL's COPY: every value in quotes, NULL as an empty field."""
    columns = [pa.repeat(task, rows.num_rows), *(_as_text(column.combine_chunks()) for column in rows.columns)]
    out = BytesIO()
    csv.write_csv(pa.Table.from_arrays(columns, names=["_task", *rows.schema.names]), out, _CSV)
    return out.getvalue()


def _as_text(column: pa.Array) -> pa.Array:
    if pa.types.is_binary(column.type):
        return _each(column, lambda value: "\\x" + value.hex())
    if pa.types.is_nested(column.type):
        return _each(column, _json_text)
    return column.cast(pa.string()) if pa.types.is_decimal(column.type) else column


def _each(column: pa.Array, text: Callable[[Any], str]) -> pa.Array:
    values = column.to_pylist(maps_as_pydicts="strict") if pa.types.is_nested(column.type) else column.to_pylist()
    return pa.array([None if value is None else text(value) for value in values], pa.string())


def _json_text(value: Any) -> str:
    """Return JSON for PostgreSQL. NaN and the infinities, which JSON lacks, become texts, as in JSON lines."""
    try:
        return json.dumps(value, default=_json_value, allow_nan=False)
    except (ValueError, TypeError):  # a number that JSON lacks, or a map key that is neither text nor a number
        return json.dumps(_named(value), default=_json_value)


def _named(value: Any) -> Any:
    """Return the value with such numbers and keys as texts."""
    if isinstance(value, dict):
        return {_key_text(key): _named(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_named(member) for member in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _key_text(key: Any) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, bool | int | float):
        return str(_named(key)) if isinstance(key, float) else json.dumps(key)
    return _json_value(key)


def _json_value(value: Any) -> str:
    """Return bytes as hexadecimal digits, as in a column of bytes, and dates and numbers as text."""
    return "\\x" + value.hex() if isinstance(value, bytes) else str(value)
