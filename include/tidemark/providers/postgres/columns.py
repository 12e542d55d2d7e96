"""The columns of rows in PostgreSQL: in the table that users read, and in an attempt's staging table.

Beside the data a table has the columns of ``ORIGIN_COLUMNS``: the origin and version of each row. ``_is_deleted`` marks
a row whose key was deleted. The row is kept, so that a replay of an older manifest does not insert it again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from psycopg import sql

from tidemark.errors import SinkRefused
from tidemark.providers.tables.column_names import IS_DELETED, LOG_GENERATION, NUMBER

STAGED = {
    "_topic": "text", "_partition": "integer", "_offset": "bigint", "_timestamp": "timestamp with time zone",
    "_manifest_id": "bigint", IS_DELETED: "boolean",
}  # fmt: skip
ORIGIN_COLUMNS = {**STAGED, LOG_GENERATION: "integer", "_attempt": "integer"}
FORMER_NAMES = {IS_DELETED: "_deleted", LOG_GENERATION: "_incarnation"}  # names in tables of release 0.2.0
_WIDER = {  # for each needed type, other types that the table's column may have
    "smallint": {"integer", "bigint", "numeric"},
    "integer": {"bigint", "numeric"},
    "bigint": {"numeric"},
    "real": {"double precision"},
    "text": {"character varying"},
    "jsonb": {"json"},
}


@dataclass(frozen=True)
class Column:
    """One column of a table; ``filled`` is true if it has a default or an identity."""

    name: str
    type: str
    not_null: bool = False
    filled: bool = False


def type_of(kind: pa.DataType) -> str:
    """Return the PostgreSQL type for an Arrow type, as ``format_type`` writes it."""
    simple = {
        pa.bool_(): "boolean", pa.int8(): "smallint", pa.int16(): "smallint", pa.int32(): "integer",
        pa.int64(): "bigint", pa.float32(): "real", pa.float64(): "double precision", pa.string(): "text",
        pa.binary(): "bytea", pa.date32(): "date",
    }  # fmt: skip
    if kind in simple:
        return simple[kind]
    if pa.types.is_timestamp(kind):
        return "timestamp with time zone" if kind.tz else "timestamp without time zone"
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    return "jsonb"


def problem_with_maps(columns: pa.Schema) -> str | None:
    """Return why a column cannot be JSON; None if all can. The text goes on after the name of a key of the pipeline
    file."""
    for field in columns:
        if _has_nested_key(field.type):
            return (
                f"may not have a column {field.name}: it holds a map whose keys have parts, and JSON has text for keys"
            )
    return None


def _has_nested_key(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind) and pa.types.is_nested(kind.key_type):
        return True
    return any(_has_nested_key(kind.field(at).type) for at in range(kind.num_fields))


def columns_for(data: pa.Schema, key: Sequence[str]) -> list[Column]:
    """Return the columns that a table needs for rows of ``data``, in the order in which they are created."""
    columns = [Column(field.name, type_of(field.type), not_null=field.name in key) for field in data]
    return columns + [
        Column(name, kind, not_null=name in key) for name, kind in {**ORIGIN_COLUMNS, **numbers(key)}.items()
    ]


def numbers(key: Sequence[str]) -> dict[str, str]:
    """Return the column that numbers the rows of a record, with its type, if it is part of the key."""
    return {NUMBER: "integer"} if NUMBER in key else {}


def staged_columns(data: pa.Schema, key: Sequence[str]) -> list[Column]:
    """Return the columns of a staging table for rows of ``data``."""
    staged = [Column(name, kind) for name, kind in {**STAGED, **numbers(key)}.items()]
    return [*staged, *(Column(field.name, type_of(field.type)) for field in data)]


def ddl_create(
    table: sql.Identifier, columns: Sequence[Column], key: Sequence[str], *, schema: str | None, index: str | None
) -> sql.Composed:
    """Return the statements that create the table, and, if they are named, its schema and an index over a column."""
    lines = [_definition(column) for column in columns]
    lines.append(sql.SQL("PRIMARY KEY ({})").format(names(key)))
    statements = [sql.SQL("CREATE TABLE {} ({})").format(table, sql.SQL(", ").join(lines))]
    if schema is not None:
        statements.insert(0, sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
    if index is not None:
        statements.append(sql.SQL("CREATE INDEX ON {} ({})").format(table, sql.Identifier(index)))
    return sql.SQL("; ").join(statements)


def ddl_complete(table: sql.Identifier, actual: Sequence[Column], missing: Sequence[Column]) -> sql.Composed:
    """Return the statements that give columns with a former name their current one, and add the columns that the table
    lacks."""
    existing = {column.name for column in actual}
    renamed = {
        column.name: FORMER_NAMES[column.name] for column in missing if FORMER_NAMES.get(column.name) in existing
    }
    statements = [
        sql.SQL("ALTER TABLE {} RENAME COLUMN {} TO {}").format(table, *map(sql.Identifier, (former, name)))
        for name, former in renamed.items()
    ]
    added = [sql.SQL("ADD COLUMN {}").format(_definition(column)) for column in missing if column.name not in renamed]
    if added:
        statements.append(sql.SQL("ALTER TABLE {} {}").format(table, sql.SQL(", ").join(added)))
    return sql.SQL("; ").join(statements)


def select_list(wanted: Sequence[str], actual: Sequence[Column]) -> sql.Composed:
    """Return a SQL select list that gives these columns their current names. A table that no run has upgraded yet may
    still have a former name (``FORMER_NAMES``); that column gets an alias."""
    existing = {column.name for column in actual}
    stored = {name: name if name in existing else FORMER_NAMES.get(name, name) for name in wanted}
    return sql.SQL(", ").join(sql.SQL("{} AS {}").format(*map(sql.Identifier, (stored[name], name))) for name in wanted)


def _definition(column: Column) -> sql.Composed:
    kind = sql.SQL(column.type)  # safe to insert: always one of the types above, never text from a configuration
    return sql.SQL("{} {}{}").format(sql.Identifier(column.name), kind, sql.SQL(" NOT NULL" if column.not_null else ""))


def headers_of(stored: Any) -> list[dict[str, Any]] | None:
    """Return headers from the column ``_headers``, in which bytes are hexadecimal digits."""
    if stored is None:
        return None
    return [
        {**header, "value": None if header["value"] is None else bytes.fromhex(header["value"].removeprefix("\\x"))}
        for header in stored
    ]


def names(columns: Sequence[str]) -> sql.Composed:
    """Return quoted column names, separated by commas."""
    return sql.SQL(", ").join(map(sql.Identifier, columns))


def refuse_misfits(
    wanted: Sequence[Column], actual: Sequence[Column], emptied: Sequence[str], context: Mapping[str, Any]
) -> None:
    """Raise ``SinkRefused`` for a column of another type, or a NOT NULL column for which rows may have no value.

    ``emptied`` are the columns that are null in the row of a tombstone.
    """
    types = {column.name: column.type for column in wanted}
    for column in actual:
        expected = types.get(column.name)
        if expected is not None and column.type != expected and column.type not in _WIDER.get(expected, ()):
            what = f"column {column.name} is {column.type}, the rows have {expected}"
            raise _refused(what, f"ALTER COLUMN {column.name} TYPE {expected}", context)
        drop = f"ALTER COLUMN {column.name} DROP NOT NULL"
        if expected is None and column.not_null and not column.filled:
            what = f"column {column.name} is NOT NULL without a default, and the rows have no such column"
            raise _refused(what, drop, context)
        if column.name in emptied and column.not_null:
            raise _refused(f"column {column.name} is NOT NULL, and a tombstone has no value for it", drop, context)


def _refused(what: str, change: str, context: Mapping[str, Any]) -> SinkRefused:
    ddl = f"ALTER TABLE {context['table']} {change}"
    return SinkRefused(
        what, next_step=f"run in its database: {ddl}; then: tidemark retry {context['pipeline']}", **context
    )
