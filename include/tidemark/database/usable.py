"""Makes a new session of PostgreSQL usable, or says why it is not.

Results must not depend on what a server, a database or a role has as defaults. A pooler that gives sessions out by
transaction, as pgbouncer does with pool_mode = transaction, is of no use: the session lock of an attempt stays with a
session that other clients use, and so does every setting. Nor is a server that takes no changes.

Executors use this module too: of what is not ours it imports only psycopg.
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

ANSWER_S = 15.0  # pgbouncer lets a client wait 120 s for a session (query_wait_timeout), without a word
TRIES = 3  # with a pool of several idle sessions, a transaction need not get the one that this client has just had
QUERIES = named_queries("tidemark.database", "session.sql")

# What a server does not know is left out; idle_session_timeout came with PostgreSQL 14.
SETTINGS = {
    "client_encoding": "UTF8",  # else a database of another encoding takes our bytes for its own
    "default_transaction_isolation": "read committed", "default_transaction_deferrable": "off",
    "TimeZone": "UTC", "DateStyle": "ISO, YMD", "IntervalStyle": "postgres", "bytea_output": "hex",
    "extra_float_digits": "1", "array_nulls": "on", "standard_conforming_strings": "on",
    "quote_all_identifiers": "off",
    "idle_session_timeout": "0",
}  # fmt: skip


@dataclass(frozen=True)
class UnusableServer:
    """The reason why a session is of no use; ``passes``: it may end without another address, as a failover does."""

    what: str
    remedy: str
    passes: bool


_SHARED = UnusableServer(
    "it is reached through a pooler that gives sessions out by transaction or by statement (pgbouncer: pool_mode = "
    "transaction, or statement), where session locks and settings do not hold",
    "use the address of PostgreSQL itself, or a pool with pool_mode = session",
    passes=False,
)
_FULL = UnusableServer(
    f"it lets clients in, and gives one no session within {ANSWER_S:.0f} s: it is a pooler that has too few "
    "(pgbouncer: default_pool_size, max_db_connections), or a server that hangs",
    "let the pool have more sessions, at least two for each command and task that work at once, or use the address of "
    "PostgreSQL itself; then try again",
    passes=True,
)
_STANDBY = UnusableServer(
    "it is a standby server, which is read only",
    "give the address of the primary server, or those of all servers (host=a,b), of which the primary is taken",
    passes=True,
)
_READ_ONLY = UnusableServer(
    "it is read only: default_transaction_read_only is on, for the server, the database or the user",
    "on the primary server, find out who turned it on and why, and turn it off",
    passes=True,
)


def of_several(dsn: str) -> str:
    """The connection string; of several hosts the one that takes changes is wanted, unless it says otherwise."""
    parts = conninfo_to_dict(dsn)
    if "target_session_attrs" in parts or "," not in str(parts.get("host") or parts.get("hostaddr") or ""):
        return dsn
    return make_conninfo(dsn, target_session_attrs="read-write")


def make_usable(
    session: psycopg.Connection[Any], open_another: Callable[[], psycopg.Connection[Any]], settings: Mapping[str, str]
) -> UnusableServer | None:
    """Give the session our settings and these; the reason when it is of no use.

    Settings are not part of the handshake, which poolers refuse or ignore: they are made when it is known that they
    stay with this session.
    """
    try:
        if _shares_sessions(session, open_another):
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
    """Return the reason why each COMMIT would wait for ever: nobody of ``awaited`` is there to confirm it."""
    if not awaited or confirming:
        return None
    return UnusableServer(
        f'each COMMIT would wait: synchronous_standby_names is "{awaited}", and no such standby server is connected',
        "start the standby server, or take it out of synchronous_standby_names on the primary server",
        passes=True,
    )


class NoSession(Exception):
    """A pooler gives a client no session."""


def _shares_sessions(session: psycopg.Connection[Any], open_another: Callable[[], psycopg.Connection[Any]]) -> bool:
    """Return whether other clients get this session too while it is idle.

    The handshake names the process of the session. Only a pooler makes up another one; whether it keeps the session for
    its client is then tried with transactions of further clients. No setting is changed. Raises ``NoSession`` when it
    has none for this client, or for a second one.
    """
    with _answering(session):
        process = _process(session)
    if process == session.info.backend_pid:
        return False
    with ExitStack() as others:  # their transactions stay open, so that each takes another idle session
        for number in range(TRIES):
            other = others.enter_context(open_another())
            try:
                with _answering(other):
                    _process(other)  # a pool with pool_mode = session gives it a session for good
            except NoSession:
                if number == 0:
                    raise
                break
            try:
                with _answering(other):
                    others.enter_context(other.transaction())
                    if _process(other) == process:
                        return True
            except NoSession:  # it was given another session, or pool_mode = statement: no transaction at all
                return True
        try:
            with _answering(session):
                return _process(session) != process
        except NoSession:
            return True


@contextmanager
def _answering(session: psycopg.Connection[Any]) -> Iterator[None]:
    """Raise ``NoSession`` when a pooler says that it has none, or nothing is said within ``ANSWER_S``: the connection
    is then cut, as nobody can wait for an answer with a limit."""
    cut = threading.Event()

    def end() -> None:
        cut.set()
        with (
            suppress(OSError, psycopg.Error),  # it has just ended by itself
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
