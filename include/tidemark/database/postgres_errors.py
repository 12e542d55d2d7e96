"""Classifies PostgreSQL's errors by their SQLSTATE; the caller writes the message for the person who must act.

Executors use this module too: it imports only the standard library, psycopg and our errors.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

import psycopg

from tidemark.errors import TidemarkError

# Errors that callers catch themselves, by these names.
CANCELLED: Final = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)  # try it again
NO_TABLE: Final = psycopg.errors.UndefinedTable


class Cause(Enum):
    """The cause of an error; a retry helps for ``LOCKED`` and ``FAILED`` only."""

    DENIED = auto()  # the user lacks a right
    LOCKED = auto()  # lock_timeout has passed
    TABLE_MISSING = auto()  # or the whole schema
    VALUE = auto()  # a value or a constraint: SQLSTATE 22 and 23
    OURS = auto()  # raised by the functions of schema.sql: TM
    STATEMENT = auto()  # the statement does not fit the tables, or the server does not do it
    FAILED = auto()  # anything else: a server that stops, a connection that breaks, a deadlock


_STATES = {"42501": Cause.DENIED, "55P03": Cause.LOCKED, "3F000": Cause.TABLE_MISSING, "42P01": Cause.TABLE_MISSING,
           "25006": Cause.STATEMENT, "55000": Cause.STATEMENT}  # fmt: skip
_CLASSES = {"22": Cause.VALUE, "23": Cause.VALUE, "TM": Cause.OURS} | dict.fromkeys(
    ("0A", "21", "3D", "3F", "42", "54", "P0"), Cause.STATEMENT
)


@dataclass(frozen=True)
class PostgresError:
    """``state`` is the SQLSTATE, empty when the server did not answer. ``message`` is one line without the connection
    string; ``detail`` may hold values of a row."""

    cause: Cause
    state: str
    message: str
    detail: str | None
    constraint: str | None
    column: str | None


@contextmanager
def translated(translate: Callable[[PostgresError], TidemarkError]) -> Iterator[None]:
    """Replace each error of psycopg by the one that ``translate`` makes from it."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(_classified(error)) from error


def message_of(error: psycopg.Error) -> str:
    """The server's primary message, or the first line of the client's; its other lines guess at the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return error.diag.message_primary or (lines[0] if lines else type(error).__name__)


def _classified(error: psycopg.Error) -> PostgresError:
    state = error.sqlstate or ""
    cause = _STATES.get(state) or _CLASSES.get(state[:2], Cause.FAILED)
    diag = error.diag
    return PostgresError(cause, state, message_of(error), diag.message_detail, diag.constraint_name, diag.column_name)
