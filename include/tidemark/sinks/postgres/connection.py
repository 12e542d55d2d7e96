"""The door to a PostgreSQL target: connecting by a connection's id, and translating what it refuses.

Executors come in here too, so this imports the standard library and psycopg, nothing else.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from tidemark.connections import Lookup, Secret, variable_of
from tidemark.database.said import said
from tidemark.errors import AccessDenied, ConfigurationError, SinkRefused, TidemarkError, Unavailable

Connection = psycopg.Connection[dict[str, Any]]
LOCK_TIMEOUT_S = 30
_EXTRA = {"sslmode", "sslrootcert", "sslcert", "sslkey", "connect_timeout", "target_session_attrs", "options"}


class Locked(Unavailable):
    """Another session holds a lock for longer than we wait."""


def conninfo(conn_id: str, lookup: Lookup) -> Secret:
    """The connection string of an Airflow connection; ``ConfigurationError`` names keys, never values."""
    found = lookup(conn_id)
    if found is None:
        raise ConfigurationError(
            f"the PostgreSQL connection {conn_id} does not exist",
            next_step=f"set {variable_of(conn_id)}=postgresql://USER:PASSWORD@HOST:PORT/DATABASE, or add it in Airflow "
            "under Admin, Connections",
            connection=conn_id,
        )
    extra: Mapping[str, Any] = found.get("extra") or {}
    unknown = sorted(extra.keys() - _EXTRA)
    if unknown:
        raise ConfigurationError(
            f"the PostgreSQL connection {conn_id} sets {', '.join(unknown)}, which is not known here",
            next_step=f"remove it; allowed in its extra: {', '.join(sorted(_EXTRA))}",
            connection=conn_id,
        )
    named = {
        "host": found.get("host"), "port": found.get("port"), "user": found.get("login"),
        "password": found.get("password"), "dbname": found.get("schema"), **extra,
    }  # fmt: skip
    given = {key: str(value) for key, value in named.items() if value not in (None, "")}
    return Secret(make_conninfo("", **given))


def describe(secret: Secret) -> str:
    """Host, port and database, without user and password."""
    parts = psycopg.conninfo.conninfo_to_dict(secret.reveal())
    return f"postgresql://{parts.get('host', 'localhost')}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"


def connect(secret: Secret, conn_id: str, **context: object) -> Connection:
    """An autocommitting connection that answers within 5 s and waits 30 s for a lock, or ``Unavailable``."""
    try:
        given = secret.reveal()
        patience = {} if "connect_timeout" in psycopg.conninfo.conninfo_to_dict(given) else {"connect_timeout": "5"}
        connection = psycopg.connect(
            make_conninfo(given, **patience), autocommit=True, row_factory=dict_row, application_name="tidemark sink"
        )
    except psycopg.OperationalError as refused:
        raise Unavailable(
            f"the database of connection {conn_id} cannot be reached: {str(refused).splitlines()[0]}",
            next_step="check that it runs, and host, port, user, password and database of the connection; "
            "what other sinks publish meanwhile stays. Then: tidemark retry {pipeline}",
            database=describe(secret),
            **context,
        ) from refused
    with translated(**context):
        connection.execute("SELECT set_config('lock_timeout', %s, false)", [f"{LOCK_TIMEOUT_S}s"])
    return connection


@contextmanager
def translated(**context: object) -> Iterator[None]:
    """Turn what PostgreSQL refuses into our errors, by SQLSTATE."""
    try:
        yield
    except psycopg.Error as error:
        raise _translate(error, context) from error


def _translate(error: psycopg.Error, context: dict[str, object]) -> TidemarkError:
    state, message = error.sqlstate or "", said(error)
    if state == "42501":
        return AccessDenied(
            f"PostgreSQL says: {message}",
            next_step="grant the connection's user the right, then: tidemark retry {pipeline}",
            **context,
        )
    if state == "55P03":
        return Locked(
            f"waited in vain for a lock that another session holds (lock_timeout, {LOCK_TIMEOUT_S} s at most)",
            next_step="nothing was applied; find it in pg_stat_activity and pg_locks, then: tidemark retry {pipeline}",
            **context,
        )
    if state.startswith(("21", "22", "23", "3D", "3F", "42", "54", "0A", "P0")) or state in ("25006", "55000"):
        detail = error.diag.message_detail
        where = {"constraint": error.diag.constraint_name, "column": error.diag.column_name}
        return SinkRefused(
            f"the table does not take the rows: {message}" + (f" ({detail})" if detail else ""),
            next_step="nothing was applied; change the table or the pipeline file, then: tidemark retry {pipeline}",
            **context,
            **where,
        )
    return Unavailable(
        f"PostgreSQL failed: {message} (SQLSTATE {state or 'none'})",
        next_step="nothing was applied, unless a COMMIT was under way: its outcome is looked up. "
        "Then: tidemark retry {pipeline}",
        **context,
    )
