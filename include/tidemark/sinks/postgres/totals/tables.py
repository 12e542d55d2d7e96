"""The two tables of totals: the totals that people read, and what each manifest has contributed to them."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, LiteralString, assert_never

import pyarrow as pa
from psycopg import sql

from tidemark.sinks.aggregates.value_columns import ROWS, WINDOW, Function, ValueColumn
from tidemark.sinks.postgres.columns import Column, names, type_of
from tidemark.sinks.postgres.session import translated
from tidemark.sinks.postgres.target import RIGHTS, Parts, PostgresTarget, TableSpec
from tidemark.sinks.postgres.totals.settings import Settings
from tidemark.text import named_queries

QUERIES = named_queries("tidemark.sinks.postgres.totals", "queries.sql")
MANIFEST, ATTEMPT = "_manifest_id", "_attempt"
_TEXTS = ("text", "character varying")
_TOUCHED: LiteralString = ", _revision = nextval('tidemark_target.revision')"
_OF_A_PLACE = {"_topic": "text", "_partition": "integer"}
_OVER_CONTRIBUTIONS = {
    Function.COUNT: sql.SQL("sum({0})"), Function.SUM: sql.SQL("sum({0})"), Function.MIN: sql.SQL("min({0})"),
    Function.MAX: sql.SQL("max({0})"),
}  # fmt: skip
_OF_TWO = {
    Function.COUNT: sql.SQL("coalesce({0} + {1}, {0}, {1})"), Function.SUM: sql.SQL("coalesce({0} + {1}, {0}, {1})"),
    Function.MIN: sql.SQL("least({0}, {1})"), Function.MAX: sql.SQL("greatest({0}, {1})"),
}  # fmt: skip


def tables_for(settings: Settings, data: pa.Schema) -> tuple[TableSpec, TableSpec]:
    """The tables for rows of ``data``: the totals and the contributions."""
    key, values = _key_columns(settings, data), _value_columns(settings, data)
    of_manifest = [Column(MANIFEST, "bigint", not_null=True), Column(ATTEMPT, "integer", not_null=True)]
    rights = (*RIGHTS, "DELETE")
    names_key = settings.aggregate.key
    return (
        TableSpec(settings.table, (*key, *values), names_key, rights=rights),
        TableSpec(
            settings.contributions, (*key, *of_manifest, *values), (*names_key, MANIFEST), rights=rights, index=MANIFEST
        ),
    )


def staged_columns(settings: Settings, data: pa.Schema) -> list[Column]:
    """The columns of a staging table for what rows of ``data`` come to."""
    return [*_key_columns(settings, data), *_value_columns(settings, data)]


def _key_columns(settings: Settings, data: pa.Schema) -> list[Column]:
    types = {field.name: type_of(field.type) for field in data} | _OF_A_PLACE | {WINDOW: "timestamp with time zone"}
    return [Column(name, types[name], not_null=True) for name in settings.aggregate.key]


def _value_columns(settings: Settings, data: pa.Schema) -> list[Column]:
    columns = [Column(ROWS, "bigint", not_null=True)]
    for column in settings.aggregate.value_columns:
        match column.function:
            case Function.COUNT:
                kind = "bigint"
            case Function.SUM:
                kind = "numeric"  # of any number of digits
            case Function.MIN | Function.MAX:
                kind = type_of(data.field(column.source).type)
            case other:
                assert_never(other)
        columns.append(Column(column.name, kind))
    return columns


class Totals(PostgresTarget):
    """Both tables as they are in the database."""

    queries: ClassVar[Mapping[str, LiteralString]] = {**PostgresTarget.queries, **QUERIES}
    config: Settings

    def exists(self) -> bool:
        """Whether both tables do."""
        return all(self.columns(table) for table in self.config.tables())

    def are_empty(self) -> bool:
        """Whether neither table has a row; one that does not exist has none."""
        return not any(self._has_rows(table) for table in self.config.tables() if self.columns(table))

    def _has_rows(self, table: str) -> bool:
        parts: Parts = {"table": sql.Identifier(*table.split("."))}
        with translated(**self.context(table=table)):
            return bool(self.execute(self.connected(), "has_rows", parts)[0]["there"])

    def ask(self, query: str, manifest_id: int | None = None) -> list[dict[str, Any]]:
        """A statement about the contributions and totals of one manifest, or of all."""
        return self.rows(query, self.parts, manifest=manifest_id)

    @cached_property
    def parts(self) -> Parts:
        """The identifiers of the statements over both tables, which exist."""
        value_columns, key = self.config.aggregate.value_columns, self.config.aggregate.key
        columns = [column.name for column in value_columns]
        return {
            "totals": self.identifier,
            "contributions": sql.Identifier(*self.config.contributions.split(".")),
            "key": names(key),
            "values": names(columns),
            "emptied": _listed("{0} = NULL", columns),
            "replaced": _listed("{0} = EXCLUDED.{0}", columns),
            "assigned": _listed("{0} = s.{0}", columns),
            "combined_values": _listed("s.{0}", columns),
            "excluded_values": _listed("EXCLUDED.{0}", columns),
            "total_values": sql.SQL(", ").join(self._value("t", column) for column in value_columns),
            "same_key": sql.SQL(" AND ").join(sql.SQL("t.{0} = s.{0}").format(sql.Identifier(name)) for name in key),
            "combined": sql.SQL(", ").join(
                sql.SQL("{} AS {}").format(
                    _OVER_CONTRIBUTIONS[column.function].format(self._value("c", column)), sql.Identifier(column.name)
                )
                for column in value_columns
            ),
            "adjusted": sql.SQL(", ").join(
                sql.SQL("{} = {}").format(
                    sql.Identifier(column.name),
                    _OF_TWO[column.function].format(self._value("t", column), self._value("excluded", column)),
                )
                for column in value_columns
            ),
            "hash": sql.SQL("hash_record_extended(ROW({}), 0)").format(
                _listed("c.{0}", [*key, ATTEMPT, ROWS, *columns])
            ),
            "t_values": _listed("t.{0}", columns),
            "touched": sql.SQL(_TOUCHED if self.config.dynamodb else ""),
            "unserved": sql.Identifier(f"{self.config.table.rpartition('.')[2][:50]}_unserved"),
            "too_long": sql.SQL(" OR ").join(
                [
                    sql.SQL("false"),
                    *(
                        sql.SQL("length(translate(trim_scale(abs(t.{}))::text, '.', '')) > 38").format(
                            sql.Identifier(column.name)
                        )
                        for column in self.columns()
                        if column.type.startswith("numeric") and column.name in columns
                    ),
                ]
            ),
        }

    @cached_property
    def _texts(self) -> set[str]:
        """Those columns of the totals that are text."""
        return {column.name for column in self.columns() if column.type.startswith(_TEXTS)}

    def _value(self, rows: str, column: ValueColumn) -> sql.Composable:
        """A column; text is compared by bytes, as executors do, whatever the database's language is."""
        identifier = sql.Identifier(rows, column.name)
        return sql.SQL('{} COLLATE "C"').format(identifier) if column.name in self._texts else identifier


def _listed(template: LiteralString, columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(sql.SQL(template).format(sql.Identifier(column)) for column in columns)
