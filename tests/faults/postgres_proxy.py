"""A TCP proxy in front of PostgreSQL that loses one answer, or one question, at a moment of the test's choice.

It reads the client's side of the wire protocol: which SQL a transaction has run, and where its COMMIT is. A statement
is a message that PostgreSQL executes: a simple query, or an Execute of a prepared one. Connections must not be
encrypted (``dsn`` sees to that).
"""

import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self
from urllib.parse import urlsplit, urlunsplit

from tests.faults import counts

COPY_BEGINS = b"G"  # the server waits for rows now, and is ready for a query only after them


class Fault(StrEnum):
    """What happens to the chosen statement."""

    ANSWER_LOST = "answer lost"  # the server has done it, the client never hears of it
    CUT_BEFORE = "cut before"  # the server never hears of it


@dataclass
class Armed:
    """One fault: at the ``at``-th COMMIT whose transaction ran a statement that contains ``having``.

    With ``every`` all statements count, not only COMMITs.
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
        self.met += any(self.having in one for one in [*transaction, sql])
        if self.met < self.at:
            return False
        self.struck = "; ".join([*transaction, sql])
        counts.REACHED[counts.HIT] += 1
        return True


@dataclass
class _Conversation:
    """The two sides of one connection, and what the client's side has said."""

    client: socket.socket
    server: socket.socket
    begun: bool = False
    buffer: bytes = b""
    prepared: dict[bytes, str] = field(default_factory=dict)
    portals: dict[bytes, str] = field(default_factory=dict)
    transaction: list[str] = field(default_factory=list)

    def hang_up(self) -> None:
        """End both sides from another thread: whoever reads them wakes up with nothing, and closes them itself."""
        for one in (self.client, self.server):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.hang_up()
        self.client.close()
        self.server.close()

    def messages(self, received: bytes) -> list[tuple[bytes, str]]:
        """Whole messages of the client, each with the SQL it executes ("" when it executes none)."""
        self.buffer += received
        found: list[tuple[bytes, str]] = []
        while True:
            head = 1 if self.begun else 0  # the first message of a connection has no type
            if len(self.buffer) < head + 4:
                return found
            size = head + int.from_bytes(self.buffer[head : head + 4])
            if len(self.buffer) < size:
                return found
            message, self.buffer = self.buffer[:size], self.buffer[size:]
            found.append((message, self._executed(message) if self.begun else ""))
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


class Proxy:
    """Listens on a free port of 127.0.0.1 and hands on to ``port``; use it with ``with``."""

    def __init__(self, port: int) -> None:
        self.commits = 0
        self.statements = 0
        self._target = port
        self._armed: Armed | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[_Conversation] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._open:
            one.hang_up()
        for thread in self._threads:
            thread.join()

    def dsn(self, direct: str) -> str:
        """The same database through this proxy."""
        parts = urlsplit(direct)
        host = f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{self._listener.getsockname()[1]}"
        return urlunsplit(parts._replace(netloc=host, query="sslmode=disable"))

    def arm(self, armed: Armed) -> Armed:
        """Let one fault happen, once; what was counted begins at 0 again."""
        self.commits = self.statements = 0
        self._armed = armed
        return armed

    def disarm(self) -> None:
        self.commits = self.statements = 0
        self._armed = None

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        self._threads.append(threading.Thread(target=work, args=arguments, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # the listener is closed
                return
            conversation = _Conversation(client, socket.create_connection(("127.0.0.1", self._target)))
            for side in (conversation.client, conversation.server):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else each statement waits 40 ms
            self._open.append(conversation)
            self._start(self._talk, conversation)

    def _talk(self, one: _Conversation) -> None:
        with suppress(OSError):
            while self._exchange(one):
                pass
        one.close()

    def _exchange(self, one: _Conversation) -> bool:
        """Hand on what has come from either side; False when the connection is over."""
        ready = select.select([one.client, one.server], [], [])[0]
        if one.server in ready:
            answer = one.server.recv(65536)
            one.client.sendall(answer)
            if not answer:
                return False
        if one.client in ready:
            received = one.client.recv(65536)
            for message, sql in one.messages(received):
                if sql and self._struck(one, sql, message):
                    return False
                one.server.sendall(message)
            return bool(received)
        return True

    def _struck(self, one: _Conversation, sql: str, message: bytes) -> bool:
        """Count a statement, and break the connection around it if a fault is armed for it."""
        self.statements += 1
        self.commits += sql == "COMMIT"
        strikes = self._armed is not None and self._armed.strikes(sql, one.transaction)
        if sql in ("BEGIN", "COMMIT", "ROLLBACK"):
            one.transaction = []
        else:
            one.transaction.append(sql)
        if strikes and self._armed is not None and self._armed.fault is Fault.ANSWER_LOST:
            sync = b"" if message[:1] == b"Q" else b"S\0\0\0\4"  # else the server waits with its answer for more
            one.server.sendall(message + sync)
            while (answer := one.server.recv(65536)) and b"Z\0\0\0\5" not in answer and answer[:1] != COPY_BEGINS:
                pass
        return strikes


def _text(raw: bytes) -> str:
    return raw.rstrip(b"\0").decode().strip()
