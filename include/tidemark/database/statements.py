"""Runs the statements of ``queries.sql`` by name; every transaction sets the actor for the history."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any

from tidemark.database.rights import OF_THE_LEDGER, Rights
from tidemark.database.session import Session, translated
from tidemark.text import named_queries

Row = dict[str, Any]

QUERIES = named_queries("tidemark.database", "queries.sql")


class _Ahead:
    """A cache that reads a statement about one pipeline for many pipelines at once, with one query to PostgreSQL."""

    def __init__(self, session: Session, pipelines: Iterable[str]) -> None:
        self._session = session
        self._pipelines = frozenset(pipelines)
        self._read: dict[tuple[str, object], dict[object, list[Row]]] = {}
        self._lock = Lock()

    def has(self, values: Mapping[str, object]) -> bool:
        """Return whether a statement with these values is about one of the pipelines alone, perhaps limited by
        ``newest``."""
        return values.keys() <= {"pipeline_name", "newest"} and values.get("pipeline_name") in self._pipelines

    def rows(self, name: str, *, pipeline_name: object, newest: object = None) -> list[Row]:
        with self._lock:
            if (name, newest) not in self._read:
                self._read[name, newest] = self._ask_for_each(name, newest)
        return [dict(row) for row in self._read[name, newest][pipeline_name]]

    def _ask_for_each(self, name: str, newest: object) -> dict[object, list[Row]]:
        of_one = QUERIES[name].rstrip(";").replace("%(pipeline_name)s", "ahead.of_pipeline")
        every = QUERIES["of_each"].replace("{}", of_one)
        rows: dict[object, list[Row]] = {pipeline_name: [] for pipeline_name in self._pipelines}
        with translated():
            values = {"names": list(self._pipelines), "newest": newest}
            for row in self._session.execute(every, values).fetchall():
                rows[row.pop("of_pipeline")].append(row)
        return rows


class NamedStatements:
    """One session with its transactions; the history names the ``actor`` (a user, an Airflow task)."""

    def __init__(self, session: Session, actor: str) -> None:
        self.actor = actor
        self.session = session  # a sink whose target is this database publishes in the same transaction
        self._why = ""
        self._ahead: _Ahead | None = None

    def close(self) -> None:
        self.session.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Open a transaction (READ COMMITTED) with the actor that the history needs."""
        with translated(), self.session.transaction():
            self.rows("set_actor", actor=self.actor, why=self._why)
            yield

    @contextmanager
    def because(self, why: str) -> Iterator[None]:
        """Open a transaction whose history entries have the reason ``why``."""
        self._why = why
        try:
            with self.transaction():
                yield
        finally:
            self._why = ""

    @contextmanager
    def reading_ahead(self, pipelines: Iterable[str]) -> Iterator[None]:
        """Read ahead inside the block: a query about one of these pipelines reads the rows of all of them, and later
        queries get their rows from that. Only for reading; several threads may ask."""
        self._ahead = _Ahead(self.session, pipelines)
        try:
            yield
        finally:
            self._ahead = None

    def rows(self, name: str, **values: object) -> list[Row]:
        ahead = self._ahead
        if ahead is not None and ahead.has(values):
            return ahead.rows(name, **values)
        rights = Rights(self.session, OF_THE_LEDGER, "; then try again")
        with translated(rights, pipeline=values.get("pipeline"), manifest=values.get("manifest")):
            cursor = self.session.execute(QUERIES[name], values)
            return cursor.fetchall() if cursor.description else []

    def row(self, name: str, **values: object) -> Row | None:
        """Return the first row; None if there are no rows."""
        rows = self.rows(name, **values)
        return rows[0] if rows else None

    def ids(self, name: str, **values: object) -> list[int]:
        """Return the column ``id`` of the rows."""
        return [row["id"] for row in self.rows(name, **values)]

    def changed(self, name: str, **values: object) -> Row | None:
        """Run one guarded statement in the open transaction, or else in one of its own; None if its guard refused."""
        with self.transaction():
            return self.row(name, **values)


class Part:
    """The statements about one subject; all parts of a database share one session."""

    def __init__(self, sql: NamedStatements) -> None:
        self._sql = sql
