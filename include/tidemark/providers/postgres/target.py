"""The tables in the target database: the table itself, Tidemark's own tables, and the staging tables of attempts."""

import re
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, ClassVar, LiteralString

import pyarrow as pa
from psycopg import sql

from tidemark.connections.lookup import Lookup
from tidemark.database.rights import Needs, Rights, missing_grants
from tidemark.database.session import Session
from tidemark.errors import THEN_RETRY, AccessDenied, SinkRefused
from tidemark.providers.postgres.columns import Column, ddl_complete, ddl_create, names, refuse_misfits, select_list
from tidemark.providers.postgres.session import Locked, connect, conninfo, translated
from tidemark.providers.postgres.table_settings import TableSettings
from tidemark.providers.postgres.writer import DEAD, SCHEMA
from tidemark.providers.tables.column_names import IS_DELETED
from tidemark.providers.tables.columns import ATTEMPT
from tidemark.sinks.dead_letters import PAGE, PAGE_OF_VALUES, columns_of
from tidemark.sinks.storable_names import refuse_clash
from tidemark.text import named_queries

QUERIES = named_queries("tidemark.providers.postgres", "queries.sql")
DROP_TIMEOUT_S = 2  # if a task still writes to a staging table for so long, the next sweep drops it
_STAGING = re.compile(r"staging_(?P<manifest>\d{10,})_(?P<attempt>\d{4,})_(?P<tag>[0-9a-f]{12})")

Parts = dict[str, sql.Composable]
RIGHTS = ("SELECT", "INSERT", "UPDATE")
_TABLES = ("r", "p")  # pg_class.relkind: a table, or a partitioned table
_NO_TABLES = {"v": "view", "m": "materialized view", "f": "foreign table", "S": "sequence", "i": "index",
              "c": "composite type"}  # fmt: skip


@dataclass(frozen=True)
class TableSpec:
    """A table that a sink writes: its columns, its unique key, and the rights that it needs.

    ``emptied`` are the columns that are null in some rows. ``index`` is a column by which rows are looked up; the index
    is created together with the table.
    """

    table: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    emptied: tuple[str, ...] = ()
    rights: tuple[str, ...] = RIGHTS
    index: str | None = None

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier(*self.table.split("."))


class PostgresTarget:
    """The table of one sink of one pipeline. Only its own staging tables have its tag in their names.

    It opens a session when needed, and a new one if the session was lost.
    """

    queries: ClassVar[Mapping[str, LiteralString]] = QUERIES

    def __init__(self, pipeline_name: str, config: TableSettings, lookup: Lookup) -> None:
        self.pipeline_name = pipeline_name
        self.config = config
        self.table = config.table
        self.identifier = sql.Identifier(*config.table.split("."))
        self.names = {"target": config.table, "pipeline": pipeline_name, "sink": config.name}
        self._tag = sha256(f"{pipeline_name}/{config.name}/{config.table}".encode()).hexdigest()[:12]
        self._lookup = lookup
        self._session: Session | None = None

    def by_name(self, pipeline_name: str, sink_name: str) -> "PostgresTarget":
        """Return the same table as a sink of another name sees it: with its own markers and staging."""
        return type(self)(pipeline_name, self.config.model_copy(update={"name": sink_name}), self._lookup)

    def context(self, **more: object) -> dict[str, Any]:
        """Return the context of every error about this table."""
        return {"pipeline": self.pipeline_name, "sink": self.config.name, "table": self.table, **more}

    def connected(self) -> Session:
        if self._session is None or self._session.closed:
            secret = conninfo(self.config.connection, self._lookup)
            self._session = connect(secret, self.config.connection, **self.context())
            weakref.finalize(self, self._session.close)
        return self._session

    def forget_session(self) -> None:
        """Close the session; the next statement opens a new one."""
        if self._session is not None:
            self._session.close()

    @contextmanager
    def translated(self, **more: object) -> Iterator[None]:
        """Translate errors of PostgreSQL into errors about this table; a missing right names its GRANT."""
        tables = [(schema, name) for schema, _, name in (table.partition(".") for table in self.tables())]
        needs = Needs(
            schemas={SCHEMA: ("USAGE", "CREATE"), **{schema: ("USAGE",) for schema, _ in tables}},
            tables={(SCHEMA, ""): (*RIGHTS, "DELETE"), **dict.fromkeys(tables, RIGHTS)},
        )
        with translated(Rights(self.connected(), needs, THEN_RETRY), **self.context(**more)):
            yield

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Roll back everything inside the block at its end, including Tidemark's own tables if the block created
        them."""
        with self.translated(), self.connected().transaction(force_rollback=True):
            if not self.has_support():
                self.make_support()
            yield

    def execute(
        self, session: Session, query: str, parts: Parts | None = None, **values: object
    ) -> list[dict[str, Any]]:
        """Run a named statement with its identifiers and values, to which the names of the table are added; return its
        rows."""
        statement = sql.SQL(self.queries[query]).format(**parts) if parts else self.queries[query]
        cursor = session.execute(statement, {**self.names, **values})
        return cursor.fetchall() if cursor.description else []

    def rows(self, query: str, parts: Parts | None = None, **values: object) -> list[dict[str, Any]]:
        """Run a named statement in the session of the table, in the open transaction if there is one; return its
        rows."""
        with self.translated():
            return self.execute(self.connected(), query, parts, **values)

    def kept(self, query: str, **values: object) -> list[dict[str, Any]]:
        """Run a statement about Tidemark's own tables; return no rows if those do not exist."""
        return self.rows(query, None, **values) if self.has_support() else []

    def has_support(self) -> bool:
        """Return whether Tidemark's own tables exist."""
        return bool(self.rows("has_support")[0]["there"])

    def make_support(self) -> None:
        """Create Tidemark's own tables; may be repeated, even by several processes at once."""
        try:
            with self.translated(), self.connected().transaction():
                self.execute(self.connected(), "lock_support")
                if not self.execute(self.connected(), "has_schema", schema=SCHEMA)[0]["there"]:
                    self.execute(self.connected(), "create_schema")
                self.connected().execute(QUERIES["support"])
        except AccessDenied as denied:
            if self.rows("has_schema", schema=SCHEMA)[0]["there"]:
                raise
            raise AccessDenied(
                f"the schema {SCHEMA} cannot be created: {denied.what}",
                next_step=f"have an owner of the database run: CREATE SCHEMA {SCHEMA} AUTHORIZATION USER, with the "
                "user of the connection; then try again",
                **self.context(),
            ) from denied

    def marker(self, manifest_id: int) -> dict[str, Any] | None:
        """Return the marker of a manifest: the attempt that was merged last, and its record."""
        rows = self.kept("marker", manifest=manifest_id)
        return rows[0] if rows else None

    def columns(self, table: str | None = None) -> list[Column]:
        """Return the columns of a table (by default the sink's own) in their order; none if the table does not
        exist."""
        rows = self.rows("columns", table=table or self.table)
        return [Column(row["name"], row["type"], row["not_null"], row["filled"]) for row in rows]

    def column_ids(self) -> dict[str, str]:
        """Return the number of each column of the tables. A later column of the same table never gets it."""
        return {
            self._column_key(table, row["name"]): str(row["number"])
            for table in self.tables()
            for row in self.rows("columns", table=table)
        }

    def column_keys(self, spec: TableSpec) -> set[str]:
        """Return the keys that the columns of ``spec`` have in ``column_ids``."""
        return {self._column_key(spec.table, column.name) for column in spec.columns}

    def _column_key(self, table: str, column: str) -> str:
        return column if table == self.table else f"{table}.{column}"

    def check(self, spec: TableSpec) -> None:
        """Raise ``SinkRefused`` or ``AccessDenied`` unless rows with the wanted columns can be written to the table.

        With ``auto_create`` it creates the table or its missing columns.
        """
        context = self.context(table=spec.table)
        self._ids([spec.table])
        actual = self.columns(spec.table)
        missing = _missing(spec.columns, actual)
        for column in missing:
            beside = [pa.field(other.name, pa.null()) for other in actual]
            refuse_clash(pa.field(column.name, pa.null()), beside, (), context)
        if missing:
            self._complete(spec)
        refuse_misfits(spec.columns, self.columns(spec.table), spec.emptied, context)
        if not self.rows("has_unique_key", table=spec.table, key=sorted(spec.key)):
            key = ", ".join(spec.key)
            for divided in self.rows("partition_key", table=spec.table, key=[*spec.key]):
                raise SinkRefused(
                    f"the table has no unique key over just ({key}), and cannot have one: it is partitioned by "
                    f"{divided['divided_by']}, and PostgreSQL wants these columns in each unique key",
                    next_step="partition it by columns of the key, or add its columns to the key in the pipeline file "
                    "of a new sink with a table of its own" + THEN_RETRY,
                    **context,
                )
            raise SinkRefused(
                f"the table has no unique key over just ({key}), so there may be several rows of a key",
                next_step=f"correct the key, or run in its database: ALTER TABLE {spec.table} ADD UNIQUE ({key})",
                **context,
            )
        for folded in self.rows("folded_keys", table=spec.table, key=sorted(spec.key)):
            raise SinkRefused(
                f"column {folded['name']} has a collation in which different texts are equal, so keys would be mixed",
                next_step=f"run in its database: ALTER TABLE {spec.table} ALTER COLUMN {folded['name']} TYPE text "
                'COLLATE "C";',
                **context,
            )
        right = self.rows("may_write", table=spec.table, rights=list(spec.rights))[0]
        if not right["allowed"]:
            schema, _, name = spec.table.partition(".")
            asked = missing_grants(self.connected(), Needs(tables={(schema, name): spec.rights}))
            grants = asked or [f"GRANT {', '.join(spec.rights)} ON {spec.table} TO {right['user']}"]
            raise AccessDenied(
                f"user {right['user']} may not read and write the table",
                next_step=f"run in its database: {'; '.join(grants)}",
                **context,
            )

    def _complete(self, spec: TableSpec) -> None:
        """Create the table or its missing columns, under a lock, because all slices of a first run do so at once."""
        with self.translated(table=spec.table), self.connected().transaction():
            self.execute(self.connected(), "lock_support")
            columns = self.columns(spec.table)
            missing = _missing(spec.columns, columns)
            if not missing:
                return
            ddl = ddl_complete(spec.identifier, columns, missing) if columns else self._ddl_create(spec)
            if self.config.auto_create:
                self.run_ddl(ddl, spec.table)
                return
            listed = ", ".join(column.name for column in missing)
            raise SinkRefused(
                f"the table has no column {listed}" if columns else "the table does not exist",
                next_step=f"write auto_create: true, or run in its database: {ddl.as_string(self.connected())};",
                **self.context(table=spec.table),
            )

    def run_ddl(self, ddl: sql.Composed, table: str) -> None:
        """Run statements that only the owner of the table or schema may run; for other users ``AccessDenied`` names
        them."""
        context = self.context(table=table)
        try:
            with self.translated(table=table):
                self.connected().execute(ddl)
        except AccessDenied as denied:
            raise AccessDenied(
                denied.what,
                next_step=f"have its owner run in its database: {ddl.as_string(self.connected())}" + THEN_RETRY,
                **context,
            ) from denied

    def _ddl_create(self, spec: TableSpec) -> sql.Composed:
        """Return the statements that create the table, and its schema if that does not exist."""
        schema = spec.table.rpartition(".")[0]
        schema_exists = self.execute(self.connected(), "has_schema", schema=schema)[0]["there"]
        missing = None if schema_exists else schema
        return ddl_create(spec.identifier, spec.columns, spec.key, schema=missing, index=spec.index)

    # reading

    def tables(self) -> tuple[str, ...]:
        """Return the tables that hold the rows."""
        return (self.table,)

    def table_id(self) -> str:
        """Return the ids of these tables, after the id of their database; empty if a table is missing. TRUNCATE keeps
        the ids."""
        if not self.exists():
            return ""
        return f"{self.rows('database_id')[0]['id']}/{' '.join(self._ids(self.tables()))}"

    def _ids(self, tables: Sequence[str]) -> list[str]:
        """Return the id of each table; empty for a missing one. Raises ``SinkRefused`` for a relation that is not a
        table."""
        rows = self.rows("table_ids", tables=[*tables])
        for row in rows:
            if row["id"] and row["kind"] not in _TABLES:
                kind = _NO_TABLES.get(row["kind"], "relation that is not a table")
                raise SinkRefused(
                    f"{row['name']} is a {kind}, and the sink writes to a table",
                    next_step=f"rename or drop the {kind}, and give the table that it replaced its name back: ALTER "
                    f"TABLE .. RENAME TO {row['name'].rpartition('.')[2]}; or give the sink another table and another "
                    "name" + THEN_RETRY,
                    **self.context(table=row["name"]),
                )
        return [row["id"] or "" for row in rows]

    def exists(self) -> bool:
        return all(self._ids(self.tables()))

    def empty_tables(self) -> list[str]:
        """Return the tables that exist and have no row."""
        return [table for table in self.tables() if self.columns(table) and not self._has_rows(table)]

    def _has_rows(self, table: str) -> bool:
        parts: Parts = {"table": sql.Identifier(*table.split("."))}
        with self.translated(table=table):
            [rows] = self.execute(self.connected(), "has_rows", parts, name=table)
        if not rows["there"] and rows["is_filtered"]:
            raise AccessDenied(
                f"row level security is active on {table}, and user {rows['user']} sees no row of it",
                next_step=f"let the owner of the table add a policy for {rows['user']}, or a superuser run: ALTER ROLE "
                f"{rows['user']} BYPASSRLS; then: tidemark audit {{pipeline}}",
                **self.context(table=table),
            )
        return bool(rows["there"])

    def rows_at(
        self, key: Sequence[str], manifest_id: int, topic: str, partition: int, offset: int
    ) -> list[dict[str, Any]]:
        """Return key, attempt and deletion mark of the row of a record; empty if a newer row of its key replaced it."""
        parts: Parts = {"table": self.identifier, "columns": select_list([*key, ATTEMPT, IS_DELETED], self.columns())}
        place: dict[str, Any] = {"manifest": manifest_id, "topic": topic, "partition": partition, "offset": offset}
        return self.rows("row_at", parts, **place)

    def dead_letter_at(self, manifest_id: int, topic: str, partition: int, offset: int) -> str | None:
        """Return the reason why a record is a dead letter; None if it is not one."""
        place: dict[str, Any] = {"manifest": manifest_id, "topic": topic, "partition": partition, "offset": offset}
        rows = self.rows("dead_letter_at", **place)
        return rows[0]["reason"] if rows else None

    def each_dead_letter(self, manifest_id: int, *, values: bool) -> Iterator[dict[str, Any]]:
        """Yield the dead letters of a manifest by topic, partition and offset, with one page in memory at a time."""
        parts: Parts = {"columns": names(columns_of(values=values))}
        statement = sql.SQL(QUERIES["each_dead_letter"]).format(**parts)
        given = {**self.names, "manifest": manifest_id}
        session = self.connected()
        with (
            self.translated(manifest=manifest_id),
            session.transaction(),
            session.cursor("dead_letters") as cursor,
        ):
            cursor.itersize = PAGE_OF_VALUES if values else PAGE
            yield from cursor.execute(statement, given)

    def dead_letters(self, manifest_id: int) -> int:
        """Return the number of dead letters of a manifest."""
        return int(self.rows("count_dead_letters", manifest=manifest_id)[0]["rows"])

    def dead_letters_by_manifest(self) -> dict[int, int]:
        """Return the number of dead letters for this table by manifest, of all pipelines."""
        return {row["manifest"]: row["rows"] for row in self.kept("dead_letters_by_manifest")}

    def superseded(self) -> dict[int, int]:
        """Return, for each manifest of this pipeline, the number of its rows that a newer row of the same manifest
        replaced."""
        return {row["manifest"]: row["superseded"] for row in self.kept("superseded")}

    def rows_by_manifest(self) -> dict[int, list[dict[str, Any]]]:
        """Return, for each manifest with rows in the table: first and last offset and number, by partition and
        attempt."""
        by_manifest: dict[int, list[dict[str, Any]]] = {}
        for row in self.rows("rows_by_manifest", {"table": self.identifier}):
            by_manifest.setdefault(row["manifest"], []).append(row)
        return by_manifest

    # staging

    def staging(self, manifest_id: int, attempt: int) -> str:
        """Return the name of an attempt's staging table; the table for dead letters has the suffix ``_dead``."""
        return f"staging_{manifest_id:010d}_{attempt:04d}_{self._tag}"

    def staging_parts(self, manifest_id: int, attempt: int) -> Parts:
        """Return both staging tables as identifiers."""
        name = self.staging(manifest_id, attempt)
        return {"staging": sql.Identifier(SCHEMA, name), "staging_dead": sql.Identifier(SCHEMA, name + DEAD)}

    def create_staging(self, manifest_id: int, attempt: int, columns: Sequence[Column]) -> None:
        """Create two empty staging tables: for rows with these columns and the name of the task that staged them, and
        for dead letters."""
        listed = sql.SQL(", ").join(
            sql.SQL("{} {}").format(sql.Identifier(column.name), sql.SQL(column.type)) for column in columns
        )
        parts = self.staging_parts(manifest_id, attempt)
        with self.translated(manifest=manifest_id), self.connected().transaction():
            self.connected().execute(sql.SQL(QUERIES["create_staging"]).format(**parts, columns=listed))

    def staged(self) -> Iterator[tuple[int, int]]:
        """Yield (manifest, attempt) of every staging table of this sink."""
        for row in self.rows("staging_tables"):
            match = _STAGING.fullmatch(row["name"])
            if match and match["tag"] == self._tag:
                yield int(match["manifest"]), int(match["attempt"])

    def drop_staging(self, manifest_id: int, attempt: int) -> None:
        """Drop the staging tables, unless a session, such as a paused task, uses them; then a later sweep drops
        them."""
        statement = sql.SQL(QUERIES["drop_staging"]).format(**self.staging_parts(manifest_id, attempt))
        with suppress(Locked), self.translated(), self.connected().transaction():
            self.execute(self.connected(), "set_local", name="lock_timeout", value=f"{DROP_TIMEOUT_S}s")
            self.connected().execute(statement)


def _missing(wanted: Sequence[Column], actual: Sequence[Column]) -> list[Column]:
    names_ = {column.name for column in actual}
    return [column for column in wanted if column.name not in names_]
