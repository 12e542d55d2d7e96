"""Notices a pooler that gives PostgreSQL's sessions out by transaction, as pgbouncer does with pool_mode = transaction.

Behind one, the session lock of an attempt stays with a session that other clients use, and so does every setting.
Executors use this module too: of what is not ours it imports only psycopg.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import psycopg

from tidemark.text import named_queries

TRIES = 3  # with a pool of several idle sessions, a transaction need not get the one that this client has just had
QUERIES = named_queries("tidemark.database", "session.sql")
REFUSED = (
    "it is reached through a pooler that gives sessions out by transaction (pgbouncer: pool_mode = transaction), "
    "where session locks and settings do not hold"
)
REMEDY = "use the address of PostgreSQL itself, or a pool with pool_mode = session"


def shares_sessions(session: psycopg.Connection[Any], open_another: Callable[[], psycopg.Connection[Any]]) -> bool:
    """Whether other clients get this session too while it is idle.

    The handshake names the process of the session. Only a pooler makes up another one; whether it keeps the session for
    its client is then tried with transactions of further clients. No setting is changed.
    """
    process = _process(session)
    if process == session.info.backend_pid:
        return False
    try:
        with ExitStack() as others:  # their transactions stay open, so that each takes another idle session
            for _ in range(TRIES):
                other = others.enter_context(open_another())
                others.enter_context(other.transaction())
                if _process(other) == process or _process(session) != process:
                    return True
    except psycopg.errors.ProtocolViolation:  # pool_mode = statement: no transaction at all
        return True
    return False


def _process(session: psycopg.Connection[Any]) -> int:
    row = session.execute(QUERIES["process"]).fetchone()
    assert row is not None
    return int(row["process"])
