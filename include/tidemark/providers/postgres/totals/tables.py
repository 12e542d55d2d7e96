"""The two tables of totals: the totals that users read, and what each manifest contributed to them."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, LiteralString, assert_never

import pyarrow as pa
from psycopg import sql

from tidemark.providers.postgres.aggregates.value_columns import ROWS, WINDOW, Function, ValueColumn
from tidemark.providers.postgres.columns import Column, names, type_of
from tidemark.providers.postgres.target import RIGHTS, Parts, PostgresTarget, TableSpec
from tidemark.providers.postgres.totals.copies import Total
from tidemark.providers.postgres.totals.settings import Settings
from tidemark.text import named_queries

QUERIES = named_queries("tidemark.providers.postgres.totals", "queries.sql")
COPIES = named_queries("tidemark.providers.postgres.totals", "copies.sql")
MANIFEST, ATTEMPT = "_manifest_id", "_attempt"
PAGE = 1_000  # totals that are read, or put into a copy, at once
_TEXTS = ("text", "character varying")
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
    """Return the tables for rows of ``data``: the totals and the contributions."""
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
    """Return the columns of a staging table for the groups of rows of ``data``."""
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
                kind = "numeric"  # without a limit of digits
            case Function.MIN | Function.MAX:
                kind = type_of(data.field(column.source).type)
            case other:
                assert_never(other)
        columns.append(Column(column.name, kind))
    return columns


class Totals(PostgresTarget):
    """Both tables in the database."""

    queries: ClassVar[Mapping[str, LiteralString]] = {**PostgresTarget.queries, **QUERIES, **COPIES}
    config: Settings

    def tables(self) -> tuple[str, ...]:
        return tuple(sorted(self.config.tables()))

    def are_empty(self) -> bool:
        """Return whether neither table has a row. A table that does not exist counts as empty."""
        return not any(self._has_rows(table) for table in self.tables() if self.columns(table))

    def ask(self, query: str, manifest_id: int | None = None) -> list[dict[str, Any]]:
        """Run a statement about the contributions and totals of one manifest, or of all; return its rows."""
        return self.rows(query, self.parts, manifest=manifest_id)

    # for totals that have a copy elsewhere

    def are_numbered(self) -> bool:
        """Return whether each change of a total gets a revision."""
        return bool(self.rows("are_numbered")[0]["numbered"])

    def make_copies_support(self) -> None:
        """Create what Tidemark needs to note about copies; may be repeated, even by several processes at once."""
        if not self._has_copies_support():
            with self.translated(), self.connected().transaction():
                self.execute(self.connected(), "lock_support")
                self.run_ddl(sql.SQL(COPIES["support_copies"]).format(), "tidemark_target.copy")

    def _has_copies_support(self) -> bool:
        return bool(self.rows("have_support")[0]["there"])

    def registered_copy(self) -> str | None:
        """Return the identity of the place with the copy; None if the totals never had a copy."""
        rows = self.rows("copy") if self._has_copies_support() else []
        return rows[0]["identity"] if rows else None

    def number(self, highest: int) -> None:
        """Make PostgreSQL give each changed total a revision. Afterwards no total counts as served.

        ``highest`` is the highest revision in the copy. May be repeated, even by several processes at once.
        """
        with self.translated(), self.connected().transaction():
            if self.make_numbered():
                self.lift_revisions(highest)
                self.rows("renumber", self.parts)

    def make_numbered(self) -> bool:
        """Create the triggers that number totals, in the open transaction; return false if they exist already."""
        self.execute(self.connected(), "lock_support")  # all slices of a first run may do this at the same time
        if self.are_numbered():
            return False
        self.run_ddl(sql.SQL(COPIES["number_totals"]).format(**self.parts), self.table)
        return True

    def lift_revisions(self, highest: int) -> int:
        """Make every later revision higher than any earlier one; return the highest revision used so far."""
        with self.translated(), self.connected().transaction():
            self.execute(self.connected(), "lock_support")
            return int(self.rows("lift_revisions", highest=highest)[0]["revision"])

    def total_of(self, row: Mapping[str, Any]) -> Total:
        aggregate = self.config.aggregate
        values = {column.name: row[column.name] for column in aggregate.value_columns}
        return Total({name: row[name] for name in aggregate.key}, values, row[ROWS], row["_revision"])

    def each_total(self, *, served: bool = False, manifest_id: int | None = None) -> Iterator[Total]:
        """Yield all totals, or those to which a manifest contributes; with ``served`` only those that the copy has."""
        for row in self._each("each_total", manifest=manifest_id):
            if not served or row["_served"] == row["_revision"]:
                yield self.total_of(row)

    def near_a_limit(self, **limits: int) -> Iterator[Total]:
        """Yield the totals, not yet served, that may be near a limit of the copy; in the open transaction."""
        return map(self.total_of, self._each("near_a_limit", **limits))

    def _each(self, query: str, **values: object) -> Iterator[dict[str, Any]]:
        """Yield the rows of a statement, with one page of them in memory at a time."""
        session = self.connected()
        with self.translated(), session.transaction(), session.cursor(query) as cursor:
            cursor.itersize = PAGE
            yield from cursor.execute(sql.SQL(self.queries[query]).format(**self.parts), {**self.names, **values})

    @cached_property
    def parts(self) -> Parts:
        """The identifiers of the statements over both tables, which must exist."""
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
            "unserved": sql.Identifier(f"{self.config.table.rpartition('.')[2]}_unserved"),
            "s_key": _listed("s.{0}", key),
            "has_many_digits": sql.SQL(" OR ").join([sql.SQL("false"), *map(_has_many_digits, self._numbers)]),
        }

    @cached_property
    def _numbers(self) -> list[str]:
        """The value columns of type ``numeric``, whose values may have more digits than a copy can hold."""
        numeric = {column.name for column in self.columns() if column.type.startswith("numeric")}
        return [column.name for column in self.config.aggregate.value_columns if column.name in numeric]

    @cached_property
    def _texts(self) -> set[str]:
        """The columns of the totals that are text."""
        return {column.name for column in self.columns() if column.type.startswith(_TEXTS)}

    def _value(self, rows: str, column: ValueColumn) -> sql.Composable:
        """Return a column. Text is compared by bytes, as executors do, whatever the database's collation is."""
        identifier = sql.Identifier(rows, column.name)
        return sql.SQL('{} COLLATE "C"').format(identifier) if column.name in self._texts else identifier


def _listed(template: LiteralString, columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(sql.SQL(template).format(sql.Identifier(column)) for column in columns)


def _has_many_digits(column: str) -> sql.Composable:
    return sql.SQL("length(t.{}::text) > %(most_digits)s").format(sql.Identifier(column))
