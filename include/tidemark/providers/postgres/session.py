"""Connects to a PostgreSQL target by the id of a connection, and translates its errors.

Executors use it too, so it imports only the standard library and psycopg.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, assert_never

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from tidemark.connections.lookup import Lookup, Secret, variable_of
from tidemark.database import postgres_errors
from tidemark.database.postgres_errors import Cause, PostgresError, from_environment, message_of
from tidemark.database.rights import Rights
from tidemark.database.session import Session
from tidemark.database.usable import make_usable, of_several
from tidemark.errors import THEN_RETRY, AccessDenied, ConfigurationError, SinkRefused, TidemarkError, Unavailable

LOCK_TIMEOUT_S = 30
_EXTRA = {"sslmode", "sslrootcert", "sslcert", "sslkey", "connect_timeout", "target_session_attrs", "options"}


class Locked(Unavailable):
    """Another session held a lock for longer than the lock timeout."""


def conninfo(conn_id: str, lookup: Lookup) -> Secret:
    """Return the connection string of an Airflow connection. A ``ConfigurationError`` names keys but never their
    values."""
    stored = lookup(conn_id)
    if stored is None:
        raise ConfigurationError(
            f"the PostgreSQL connection {conn_id} does not exist",
            next_step=f"set {variable_of(conn_id)}=postgresql://USER:PASSWORD@HOST:PORT/DATABASE, or add it in Airflow "
            "under Admin, Connections",
            connection=conn_id,
        )
    extra: Mapping[str, Any] = stored.get("extra") or {}
    unknown = sorted(extra.keys() - _EXTRA)
    if unknown:
        raise ConfigurationError(
            f"the PostgreSQL connection {conn_id} has unknown keys in its extra: {', '.join(unknown)}",
            next_step=f"remove them; allowed in its extra: {', '.join(sorted(_EXTRA))}",
            connection=conn_id,
        )
    parts = {
        "host": stored.get("host"), "port": stored.get("port"), "user": stored.get("login"),
        "password": stored.get("password"), "dbname": stored.get("schema"), **extra,
    }  # fmt: skip
    return Secret(make_conninfo("", **{key: str(value) for key, value in parts.items() if value not in (None, "")}))


def describe(secret: Secret) -> str:
    """Return host, port and database, without user and password."""
    parts = psycopg.conninfo.conninfo_to_dict(secret.reveal())
    return f"postgresql://{parts.get('host', 'localhost')}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"


def connect(secret: Secret, conn_id: str, **context: object) -> Session:
    """Open a session with autocommit, a connect timeout of 5 s and a lock timeout of 30 s.

    Raises ``AccessDenied``; ``SinkRefused`` for a pooler in transaction mode; ``Unavailable`` for a server that does
    not answer or is read-only.
    """
    session = _open(secret, conn_id, context)
    try:
        with translated(**context):
            limits = {"lock_timeout": f"{LOCK_TIMEOUT_S}s"}
            unusable = make_usable(session, lambda: _open(secret, conn_id, context), limits)
        if unusable is not None:
            raise (Unavailable if unusable.passes else SinkRefused)(
                f"the database of connection {conn_id} cannot be used: {unusable.what}",
                next_step=f"{from_environment(secret.reveal())}{unusable.remedy} (connection {conn_id})" + THEN_RETRY,
                database=describe(secret),
                **context,
            )
    except BaseException:
        session.close()
        raise
    return session


def _open(secret: Secret, conn_id: str, context: Mapping[str, object]) -> Session:
    try:
        dsn = secret.reveal()
        timeout = {} if "connect_timeout" in psycopg.conninfo.conninfo_to_dict(dsn) else {"connect_timeout": "5"}
        return psycopg.connect(
            make_conninfo(of_several(dsn), **timeout),
            autocommit=True,
            row_factory=dict_row,
            application_name="tidemark sink",
        )
    except psycopg.OperationalError as refused:
        if postgres_errors.is_refused(refused, dsn):
            raise AccessDenied(
                f"the database of connection {conn_id} refuses this client: {message_of(refused)}",
                next_step=f"{from_environment(dsn)}correct user, password and database of the connection {conn_id}, "
                "or give the user the right to connect; what other sinks publish meanwhile stays" + THEN_RETRY,
                database=describe(secret),
                **context,
            ) from refused
        raise Unavailable(
            f"the database of connection {conn_id} cannot be reached: {message_of(refused)}",
            next_step=f"{from_environment(dsn)}check that it runs and has connections left, and host and port of the "
            f"connection {conn_id}; what other sinks publish meanwhile stays" + THEN_RETRY,
            database=describe(secret),
            **context,
        ) from refused


@contextmanager
def translated(rights: Rights | None = None, /, **context: object) -> Iterator[None]:
    """Translate errors of PostgreSQL; with ``rights`` an error about a missing right names its GRANT."""
    with postgres_errors.translated(lambda error: _translate(error, context), rights):
        yield


def _translate(error: PostgresError, context: dict[str, object]) -> TidemarkError:
    match error.cause:
        case Cause.DENIED:
            return AccessDenied(
                f"PostgreSQL says: {error.message}",
                next_step="grant the connection's user the right; where row level security refuses rows, let the owner "
                "of the table add a policy for the user" + THEN_RETRY,
                **context,
            )
        case Cause.LOCKED:
            return Locked(
                f"another session holds a lock for longer than lock_timeout ({LOCK_TIMEOUT_S} s at most)",
                next_step="nothing was applied; find it in pg_stat_activity" + THEN_RETRY,
                **context,
            )
        case Cause.VALUE | Cause.TABLE_MISSING | Cause.STATEMENT:
            return SinkRefused(
                f"the table does not take the rows: {error.message}",
                next_step="nothing was applied; change the table or the pipeline file (PostgreSQL's log says which row "
                "it was)" + THEN_RETRY,
                **context,
                constraint=error.constraint,
                column=error.column,
            )
        case Cause.OURS | Cause.FAILED:
            return Unavailable(
                f"PostgreSQL failed: {error.message} (SQLSTATE {error.state or 'none'})",
                next_step=f"{error.remedy}nothing was applied, unless a COMMIT was under way: its outcome is looked "
                "up" + THEN_RETRY,
                **context,
            )
        case other:
            assert_never(other)
