"""Makes a new session of PostgreSQL usable, or returns the reason why it is not.

Results must not depend on the defaults of a server, a database or a role. A pooler in transaction mode (pgbouncer:
pool_mode = transaction) cannot be used: the session lock of an attempt, and every setting, would stay with a session
that other clients use. A read-only server cannot be used either.

Executors use this module too: its only import beyond the standard library and our own code is psycopg.
"""

import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tidemark.text import named_queries

ANSWER_S = 15.0  # pgbouncer lets a client wait silently for a session, for 120 s (query_wait_timeout)
TRIES = 3  # if a pool has several idle sessions, a transaction may get another one than this client has just used
QUERIES = named_queries("tidemark.database", "session.sql")

# A setting that the server does not know is left out: idle_session_timeout came with PostgreSQL 14.
SETTINGS = {
    "client_encoding": "UTF8",  # otherwise a database of another encoding would misread our bytes
    "default_transaction_isolation": "read committed", "default_transaction_deferrable": "off",
    "TimeZone": "UTC", "DateStyle": "ISO, YMD", "IntervalStyle": "postgres", "bytea_output": "hex",
    "extra_float_digits": "1", "array_nulls": "on", "standard_conforming_strings": "on",
    "quote_all_identifiers": "off",
    "idle_session_timeout": "0",
}  # fmt: skip


@dataclass(frozen=True)
class UnusableServer:
    """The reason why a session cannot be used; ``passes``: this may end by itself, such as a failover."""

    what: str
    remedy: str
    passes: bool


_SHARED = UnusableServer(
    "it is reached through a pooler in transaction or statement mode (pgbouncer: pool_mode = transaction, or "
    "statement), which does not keep session locks and settings",
    "use the address of PostgreSQL itself, or a pool with pool_mode = session",
    passes=False,
)
_FULL = UnusableServer(
    f"it accepted the connection, but gave no session within {ANSWER_S:.0f} s: it is a pooler with too few sessions "
    "(pgbouncer: default_pool_size, max_db_connections), or a server that hangs",
    "let the pool have more sessions, at least two for each command and task that work at once, or use the address of "
    "PostgreSQL itself; then try again",
    passes=True,
)
_STANDBY = UnusableServer(
    "it is a standby server, which is read-only",
    "give the address of the primary server, or those of all servers (host=a,b), of which the primary is taken",
    passes=True,
)
_READ_ONLY = UnusableServer(
    "it is read-only: default_transaction_read_only is on, for the server, the database or the user",
    "on the primary server, find out who turned it on and why, and turn it off",
    passes=True,
)


def of_several(dsn: str) -> str:
    """Return the connection string. If it has several hosts, add that the writable one is wanted, unless it says
    otherwise."""
    parts = conninfo_to_dict(dsn)
    if "target_session_attrs" in parts or "," not in str(parts.get("host") or parts.get("hostaddr") or ""):
        return dsn
    return make_conninfo(dsn, target_session_attrs="read-write")


def make_usable(
    session: psycopg.Connection[Any], open_another: Callable[[], psycopg.Connection[Any]], settings: Mapping[str, str]
) -> UnusableServer | None:
    """Give the session our settings and these. Return the reason if it cannot be used, else None.

    Settings are not sent in the handshake, where poolers refuse or ignore them. They are set once it is known that the
    session belongs to this client.
    """
    try:
        with _answering(session):
            process = _process(session)
        # PostgreSQL names its process in the handshake; only a pooler names a process that is not the server's.
        if process != session.info.backend_pid and _shares_sessions(session, process, open_another):
            return _SHARED
    except NoSession:
        return _FULL
    made = {**SETTINGS, **settings}
    session.execute(QUERIES["settings"], {"names": list(made), "values": list(made.values())})
    server = session.execute(QUERIES["server"]).fetchone()
    assert server is not None
    if server["is_standby"]:
        return _STANDBY
    if server["is_read_only"]:
        return _READ_ONLY
    if not server["awaited"]:
        return None
    standbys = session.execute(QUERIES["standbys"]).fetchone()
    assert standbys is not None
    return without_standby(server["awaited"], standbys["confirming"])


def without_standby(awaited: str, confirming: int) -> UnusableServer | None:
    """Return the reason why each COMMIT would wait for ever: none of the ``awaited`` standby servers is connected. None
    if it would not."""
    if not awaited or confirming:
        return None
    return UnusableServer(
        f'each COMMIT would wait: synchronous_standby_names is "{awaited}", and no such standby server is connected',
        "start the standby server, or take it out of synchronous_standby_names on the primary server",
        passes=True,
    )


class NoSession(Exception):
    """A pooler gives no session to a client."""


def _shares_sessions(
    session: psycopg.Connection[Any], process: int, open_another: Callable[[], psycopg.Connection[Any]]
) -> bool:
    """Return whether a pooler gives this session, of this server process, to other clients while it is idle.

    Further clients open transactions: the session is shared if one of them meets our server process, or if we meet
    another. Changes no setting. Raises ``NoSession`` if the pooler has no session for a second client.
    """
    with ExitStack() as others:  # their transactions stay open, so that each takes another idle session
        for number in range(TRIES):
            other = others.enter_context(open_another())
            try:
                with _answering(other):
                    _process(other)  # with pool_mode = session, the client keeps the session that it gets here
            except NoSession:
                if number == 0:
                    raise
                break
            try:
                with _answering(other):
                    others.enter_context(other.transaction())
                    if _process(other) == process:
                        return True
            except NoSession:  # it got another session; or pool_mode = statement, which allows no transaction
                return True
        try:
            with _answering(session):
                return _process(session) != process
        except NoSession:
            return True


@contextmanager
def _answering(session: psycopg.Connection[Any]) -> Iterator[None]:
    """Raise ``NoSession`` if a pooler refuses, or does not answer within ``ANSWER_S``. In the second case cut the
    connection, because psycopg cannot wait for an answer with a limit."""
    cut = threading.Event()

    def end() -> None:
        cut.set()
        with (
            suppress(OSError, psycopg.Error),  # the connection may have just ended by itself
            socket.socket(fileno=os.dup(session.fileno())) as connection,
        ):
            connection.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(ANSWER_S, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except psycopg.errors.ProtocolViolation:
        raise NoSession from None
    except psycopg.OperationalError:
        if cut.is_set():
            raise NoSession from None
        raise
    finally:
        timer.cancel()


def _process(session: psycopg.Connection[Any]) -> int:
    row = session.execute(QUERIES["process"]).fetchone()
    assert row is not None
    return int(row["process"])
