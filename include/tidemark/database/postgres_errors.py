"""Classifies PostgreSQL's errors by their SQLSTATE; the caller writes the message for the user.

Executors use this module too: it imports only the standard library, psycopg and our errors.
"""

import os
import re
import selectors
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict

from tidemark.errors import TidemarkError

if TYPE_CHECKING:
    from tidemark.database.rights import Rights

# Errors that callers catch themselves, by these names.
CANCELLED: Final = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)  # trying again helps
NO_TABLE: Final = psycopg.errors.UndefinedTable


class Cause(Enum):
    """The cause of an error; a retry helps for ``LOCKED`` and ``FAILED`` only."""

    DENIED = auto()  # user, password or certificate is refused, or the user lacks a right
    LOCKED = auto()  # lock_timeout has passed
    TABLE_MISSING = auto()  # a table or the whole schema is missing
    VALUE = auto()  # a value or a constraint: SQLSTATE classes 22 and 23
    OURS = auto()  # raised by the functions of schema.sql: class TM
    STATEMENT = auto()  # the statement does not fit the tables, or the server does not support it
    FAILED = auto()  # anything else: a server that stops, a connection that breaks, a deadlock


_STATES = {"42501": Cause.DENIED, "55P03": Cause.LOCKED, "3F000": Cause.TABLE_MISSING, "42P01": Cause.TABLE_MISSING,
           "25006": Cause.STATEMENT, "55000": Cause.STATEMENT}  # fmt: skip
_CLASSES = {"22": Cause.VALUE, "23": Cause.VALUE, "28": Cause.DENIED, "TM": Cause.OURS} | dict.fromkeys(
    ("0A", "21", "3D", "3F", "42", "54", "P0"), Cause.STATEMENT
)
_BYTES: Final = r"\b0x[0-9a-fA-F]+(?: 0x[0-9a-fA-F]+)*"
_VALUES: Final = re.compile(rf'(?<=").*(?=")|{_BYTES}', re.DOTALL)
_OF_ENCODINGS: Final = ("22021", "22P05")  # their messages quote names of encodings, and the bytes of a value
_RAISED: Final = "exec_stmt_raise"  # the place in PostgreSQL's sources where RAISE is done
_PLACE: Final = re.compile(r"PL/pgSQL function .+? line \d+")
_NO_DATABASE: Final = "3D000"
LIMITS: Final = {"57014": "statement_timeout", "25P03": "idle_in_transaction_session_timeout",
                 "25P04": "transaction_timeout", "57P05": "idle_session_timeout"}  # fmt: skip
_ANSWER_S: Final = 5.0
# A refusal in libpq's trace. The fields before the code are the severity, in the server's language and in English.
_REFUSAL: Final = re.compile(rb'^[^\t]+\tB\t\d+\tErrorResponse\t S "[^"]*" V "[A-Z]+" C "([0-9A-Z]{5})"', re.MULTILINE)


@dataclass(frozen=True)
class PostgresError:
    """A classified error of PostgreSQL; ``state`` is the SQLSTATE, empty if the server did not answer.

    ``message`` is one line without the connection string and without values of rows, because errors are stored, and
    shown to users who may not see rows.
    """

    cause: Cause
    state: str
    message: str
    constraint: str | None
    column: str | None

    @property
    def remedy(self) -> str:
        """Return the begin of a next step: which time limit of server, database or user to raise. Empty if no limit
        caused the error."""
        limit = LIMITS.get(self.state)
        return f"a longer {limit} for the user, or for the database, if this comes back; " if limit else ""


@contextmanager
def translated(translate: Callable[[PostgresError], TidemarkError], rights: "Rights | None" = None) -> Iterator[None]:
    """Replace each error of psycopg with the one that ``translate`` makes of it. With ``rights``, the next step of a
    refused statement lists the missing GRANT statements.

    A traceback does not show the error of psycopg, because its text contains the row that was refused.
    """
    try:
        yield
    except psycopg.Error as error:
        translation = translate(_classified(error))
        raise (rights.with_missing_grants(translation) if rights else translation) from None


def is_refused(error: BaseException | None, dsn: str) -> bool:
    """Return whether the server answered and refused user, password, certificate or database, so that a retry does not
    help. False if nothing answers, and for a server that is full, starts or stops.

    A failed connect has no SQLSTATE, and its text is in the server's language. So this connects once more, only to
    learn the code.
    """
    if not isinstance(error, psycopg.OperationalError) or isinstance(error, psycopg.errors.ConnectionTimeout):
        return False
    if error.pgconn is not None and error.pgconn.needs_password:
        return True
    state = error.sqlstate or _state_of_refusal(dsn, str(error))
    return state == _NO_DATABASE or _cause(state) is Cause.DENIED


@lru_cache(maxsize=100)
def _state_of_refusal(dsn: str, _words: str) -> str:
    """Return the SQLSTATE with which a server refuses a connection; empty if it does not refuse, or libpq does not
    show it.

    libpq shows it only in its trace of all messages; before version 18 the trace lacks those of the handshake. The
    trace may contain the password, so it stays in memory. Each trace leaks 5 kB, so the same refusal is not asked for
    twice.
    """
    if not hasattr(os, "memfd_create"):
        return ""
    with os.fdopen(os.memfd_create("tidemark-refusal"), "rb") as trace:
        connection = pq.PGconn.connect_start(dsn.encode())
        try:
            connection.trace(trace.fileno())
            _finish_handshake(connection)
            connection.untrace()
        finally:
            connection.finish()
        trace.seek(0)
        return next((code.decode() for code in reversed(_REFUSAL.findall(trace.read()))), "")


def _finish_handshake(connection: pq.abc.PGconn) -> None:
    deadline = time.monotonic() + _ANSWER_S
    while (wanted := connection.connect_poll()) in (pq.PollingStatus.READING, pq.PollingStatus.WRITING):
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return
        event = selectors.EVENT_READ if wanted is pq.PollingStatus.READING else selectors.EVENT_WRITE
        with selectors.DefaultSelector() as selector:  # a new one each time: the next host has another socket
            selector.register(connection.socket, event)
            selector.select(remaining)


def from_environment(dsn: str) -> str:
    """Return the begin of a next step: the environment variables that libpq uses besides the connection string, which
    its messages do not name. Empty if there are none."""
    given = conninfo_to_dict(dsn)
    names = sorted(
        option.envvar.decode()
        for option in pq.Conninfo.get_defaults()
        if option.envvar and option.envvar.decode() in os.environ and option.keyword.decode() not in given
    )
    if not names:
        return ""
    return f"libpq also takes {', '.join(names)} from the environment: correct or unset what does not belong here; "


def message_of(error: psycopg.Error) -> str:
    """Return the server's primary message, or the first line of the client's; its other lines only guess the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return error.diag.message_primary or (lines[0] if lines else type(error).__name__)


def _classified(error: psycopg.Error) -> PostgresError:
    state, diag = error.sqlstate or "", error.diag
    return PostgresError(_cause(state), state, _without_values(error), diag.constraint_name, diag.column_name)


def _without_values(error: psycopg.Error) -> str:
    """Return the message without values of rows. Messages of data exceptions (class 22) quote values; those of other
    errors quote names of tables, columns and constraints. The text that a trigger or function raises is left out."""
    state, diag = error.sqlstate or "", error.diag
    if diag.source_function == _RAISED and _cause(state) is not Cause.OURS:
        place = _PLACE.search(diag.context or "")
        return f"{place[0] if place else 'a function'} raised an error; PostgreSQL's log has its message"
    if state in _OF_ENCODINGS:
        return re.sub(_BYTES, "..", message_of(error))
    return _VALUES.sub("..", message_of(error)) if state[:2] == "22" else message_of(error)


def _cause(state: str) -> Cause:
    return _STATES.get(state) or _CLASSES.get(state[:2], Cause.FAILED)
