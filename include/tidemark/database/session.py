"""Connects to the manifest database, and translates PostgreSQL's errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, assert_never

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row

from tidemark.database import postgres_errors
from tidemark.database.postgres_errors import Cause, PostgresError, from_environment, message_of
from tidemark.database.rights import Rights
from tidemark.database.usable import make_usable, of_several
from tidemark.errors import AccessDenied, ConfigurationError, IllegalTransition, PlanRefused, TidemarkError, Unavailable

Session = psycopg.Connection[dict[str, Any]]

# A host that dies does not close its session. With keepalives the server releases its locks after 2 minutes instead of
# 2 hours. A process that is stopped inside a transaction still answers keepalives, so transactions have a time limit of
# their own (except for decisions, see set_actor).
DEAD_CLIENTS = {
    "tcp_keepalives_idle": "60", "tcp_keepalives_interval": "15", "tcp_keepalives_count": "4",
    "idle_in_transaction_session_timeout": "5min",
}  # fmt: skip
SETTINGS = {"search_path": "tidemark", "lock_timeout": "60s", **DEAD_CLIENTS}

_OF_ANOTHER_PLANNER: Final = ("range_", "run_pipeline_run_key", "chain_pipeline_topic")  # constraints of schema.sql


def connect(dsn: str, *, to_look: bool = False) -> Session:
    """Open a session with autocommit to the manifest database; raises ``Unavailable`` if it does not answer in 5 s.

    Raises ``AccessDenied`` if the server refuses user, password or database, ``ConfigurationError`` for a pooler in
    transaction mode, and ``Unavailable`` for a server that is read-only; with ``to_look`` not for the last, because the
    caller only looks at the server.
    """
    session = _open(dsn)
    try:
        with translated(database=describe(dsn)):
            unusable = make_usable(session, lambda: _open(dsn), SETTINGS)
        if unusable is not None and not (to_look and unusable.passes):
            raise (Unavailable if unusable.passes else ConfigurationError)(
                f"the manifest database cannot be used: {unusable.what}",
                next_step=f"{from_environment(dsn)}{unusable.remedy} (TIDEMARK_DB has the address); "
                "nothing was changed",
                database=describe(dsn),
            )
    except BaseException:
        session.close()
        raise
    return session


def _open(dsn: str) -> Session:
    try:
        return psycopg.connect(
            of_several(dsn), autocommit=True, row_factory=dict_row, connect_timeout=5, application_name="tidemark",
            keepalives_idle=60, keepalives_interval=15, keepalives_count=4,
        )  # fmt: skip
    except psycopg.ProgrammingError as wrong:
        raise ConfigurationError(
            "TIDEMARK_DB is not a PostgreSQL connection string",
            next_step="write it as postgresql://user:password@host:port/database",
        ) from wrong
    except psycopg.OperationalError as refused:
        raise _not_opened(refused, dsn) from refused


def _not_opened(refused: psycopg.OperationalError, dsn: str) -> TidemarkError:
    if postgres_errors.is_refused(refused, dsn):
        return AccessDenied(
            f"the manifest database refuses this client: {message_of(refused)}",
            next_step=f"{from_environment(dsn)}correct user, password and database of TIDEMARK_DB, or give the user "
            "the right to connect; nothing was changed",
            database=describe(dsn),
        )
    return Unavailable(
        f"the manifest database cannot be reached: {message_of(refused)}",
        next_step=f"{from_environment(dsn)}check that it runs and has connections left, and host and port of "
        "TIDEMARK_DB; nothing was changed",
        database=describe(dsn),
    )


def describe(dsn: str) -> str:
    """Return host, port and database of a DSN, without user and password."""
    parts = conninfo_to_dict(dsn)
    return f"{parts.get('host', 'localhost')}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"


@contextmanager
def translated(rights: Rights | None = None, /, **context: object) -> Iterator[None]:
    """Turn PostgreSQL's errors into ours, with this ``context``. ``rights`` names missing rights."""
    with postgres_errors.translated(lambda error: _translate(error, context), rights):
        yield


def _translate(error: PostgresError, context: dict[str, object]) -> TidemarkError:
    if "migration" in context and error.cause not in (Cause.DENIED, Cause.LOCKED, Cause.FAILED):
        return ConfigurationError(
            f"{context['migration']} cannot make the tables: {error.message} (SQLSTATE {error.state})",
            next_step="nothing of this file was stored; use the Tidemark version that you had before, and report this",
            **context,
        )
    if (error.constraint or "").startswith(_OF_ANOTHER_PLANNER):
        return PlanRefused(
            f"another planner was faster: the database refused a range ({error.constraint})",
            next_step="plan again; the chain is intact and nothing of this plan was stored",
            **context,
        )
    if error.state == "TM003":
        return IllegalTransition(error.message, next_step=f"look at it with: {_look(context)}", **context)
    match error.cause:
        case Cause.TABLE_MISSING:
            return ConfigurationError(
                "this database has no Tidemark tables", next_step="create them with: tidemark db migrate", **context
            )
        case Cause.VALUE | Cause.OURS:
            return IllegalTransition(
                f"the manifest database refused a change: {error.message}",
                next_step=f"nothing was stored; look at what was before with: {_look(context)}",
                **context,
            )
        case Cause.DENIED:
            return AccessDenied(
                f"the manifest database refused access: {error.message}",
                next_step="grant the user of TIDEMARK_DB the right, or use another user",
                **context,
            )
        case Cause.LOCKED:
            return Unavailable(
                "waited 60 s for a lock in the manifest database",
                next_step="another planner or a session that hangs holds it; look into pg_stat_activity, "
                "then try again",
                **context,
            )
        case Cause.STATEMENT | Cause.FAILED:
            return Unavailable(
                f"the manifest database failed: {error.message} (SQLSTATE {error.state or 'none'})",
                next_step=f"{error.remedy}try again; if a COMMIT was running, the next try finds out whether it "
                "succeeded",
                **context,
            )
        case other:
            assert_never(other)


def _look(context: dict[str, object]) -> str:
    return "tidemark show {manifest}" if context.get("manifest") else "tidemark manifests {pipeline}"
