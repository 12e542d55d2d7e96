"""A TCP proxy in front of PostgreSQL. It loses one answer or one request, which the test chooses.

It reads the client's messages: the SQL of a transaction, and its COMMIT. A statement is a message that PostgreSQL
executes: a simple query, or the Execute of a prepared statement. Connections must not be encrypted; ``dsn`` sets that.
"""

import select
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urlsplit, urlunsplit

from tests.faults import counts
from tests.faults.tcp_proxy import Conversation, TcpProxy

COPY_BEGINS = b"G"  # the server now waits for rows, and takes the next query after them


class Fault(StrEnum):
    """The fault of the chosen statement."""

    ANSWER_LOST = "answer lost"  # the server has executed it, the client gets no answer
    CUT_BEFORE = "cut before"  # the server does not get it


@dataclass
class Armed:
    """A fault at the ``at``-th COMMIT of a transaction that contains a statement with the text ``having``.

    With ``every``, each such statement counts, not only the COMMIT.
    """

    fault: Fault
    at: int = 1
    having: str = ""
    every: bool = False
    met: int = 0
    struck: str = ""

    def strikes(self, sql: str, transaction: list[str]) -> bool:
        if self.struck or not (self.every or sql == "COMMIT"):
            return False
        self.met += any(self.having in statement for statement in [*transaction, sql])
        if self.met < self.at:
            return False
        self.struck = "; ".join([*transaction, sql])
        counts.REACHED[counts.HIT] += 1
        return True


@dataclass
class _Statements(Conversation):
    """The state of a connection, including the state of the client's messages."""

    begun: bool = False
    buffer: bytes = b""
    prepared: dict[bytes, str] = field(default_factory=dict)
    portals: dict[bytes, str] = field(default_factory=dict)
    transaction: list[str] = field(default_factory=list)

    def messages(self, received: bytes) -> list[tuple[bytes, str]]:
        """The complete messages of the client, each with the SQL that it executes ("" when it executes none)."""
        self.buffer += received
        complete: list[tuple[bytes, str]] = []
        while True:
            head = 1 if self.begun else 0  # the first message of a connection has no type
            if len(self.buffer) < head + 4:
                return complete
            size = head + int.from_bytes(self.buffer[head : head + 4])
            if len(self.buffer) < size:
                return complete
            message, self.buffer = self.buffer[:size], self.buffer[size:]
            complete.append((message, self._executed(message) if self.begun else ""))
            self.begun = True

    def _executed(self, message: bytes) -> str:
        body = message[5:]
        match message[:1]:
            case b"Q":
                return _text(body)
            case b"P":
                name, sql = body.split(b"\0", 2)[:2]
                self.prepared[name] = _text(sql)
            case b"B":
                portal, name = body.split(b"\0", 2)[:2]
                self.portals[portal] = self.prepared[name]
            case b"E":
                return self.portals[body.split(b"\0", 1)[0]]
        return ""


class Proxy(TcpProxy[_Statements]):
    """A proxy in front of PostgreSQL on ``port``."""

    conversation = _Statements

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.commits = 0
        self.statements = 0
        self._armed: Armed | None = None

    def dsn(self, direct: str) -> str:
        """The same database through this proxy."""
        parts = urlsplit(direct)
        host = f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{self.port}"
        return urlunsplit(parts._replace(netloc=host, query="sslmode=disable"))

    def arm(self, armed: Armed) -> Armed:
        """Let a fault happen once; the counts start at 0 again."""
        self.commits = self.statements = 0
        self._armed = armed
        return armed

    def disarm(self) -> None:
        self.commits = self.statements = 0
        self._armed = None

    def _exchange(self, statements: _Statements) -> bool:
        """Pass on data from either side; False when the connection has ended."""
        ready = select.select([statements.client, statements.server], [], [])[0]
        if statements.server in ready:
            answer = statements.server.recv(65536)
            statements.client.sendall(answer)
            if not answer:
                return False
        if statements.client in ready:
            received = statements.client.recv(65536)
            for message, sql in statements.messages(received):
                if sql and self._struck(statements, sql, message):
                    return False
                statements.server.sendall(message)
            return bool(received)
        return True

    def _struck(self, statements: _Statements, sql: str, message: bytes) -> bool:
        """Count a statement; true when its fault happens, and the connection must end."""
        self.statements += 1
        self.commits += sql == "COMMIT"
        strikes = self._armed is not None and self._armed.strikes(sql, statements.transaction)
        if sql in ("BEGIN", "COMMIT", "ROLLBACK"):
            statements.transaction = []
        else:
            statements.transaction.append(sql)
        if strikes and self._armed is not None and self._armed.fault is Fault.ANSWER_LOST:
            sync = b"" if message[:1] == b"Q" else b"S\0\0\0\4"  # else the server waits for more before it answers
            statements.server.sendall(message + sync)
            while (
                (answer := statements.server.recv(65536)) and b"Z\0\0\0\5" not in answer and answer[:1] != COPY_BEGINS
            ):
                pass
        return strikes


def _text(raw: bytes) -> str:
    return raw.rstrip(b"\0").decode().strip()
