"""A pooler in front of a real PostgreSQL, like pgbouncer: a client gets a session for one transaction, or until it
ends.

It answers the handshake itself, without a password, and ignores the client's settings in it (as pgbouncer does with
``ignore_startup_parameters = options``). The session that was returned last is given out first.
"""

import os
import select
import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

import psycopg

from sandbox.services.processes import wait_until

REPORTED = ("server_version", "client_encoding", "standard_conforming_strings", "DateStyle", "TimeZone")
NO_TRANSACTION = b"SFATAL\0C08P01\0Mtransaction blocks not allowed in statement pooling mode\0\0"  # pgbouncer's words
IDLE = b"I"  # the status of a session outside a transaction


@dataclass
class Pooler:
    """A listening pooler. ``by_transaction`` is pgbouncer's pool_mode = transaction; without it, pool_mode is session.

    With ``by_statement`` too, pool_mode is statement, which allows no transaction.
    """

    target: str
    by_transaction: bool
    by_statement: bool = False
    most: int | None = None  # sessions; a client that gets none waits
    sessions: list[psycopg.Connection] = field(default_factory=list)  # those that no client has
    _opened: list[psycopg.Connection] = field(default_factory=list)
    _clients: list[socket.socket] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)
    _lock: threading.Condition = field(default_factory=threading.Condition)
    _ended: bool = False

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._ended = True
            self._lock.notify_all()
        connections = (self._listener, *self._clients)
        for connection in connections:  # wakes the thread that waits for it; closed, it could not be waited for
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for connection in connections:
            connection.close()
        for session in self._opened:
            session.close()

    @property
    def dsn(self) -> str:
        """The address for clients."""
        database = psycopg.conninfo.conninfo_to_dict(self.target)["dbname"]
        return f"postgresql://anybody@127.0.0.1:{self._listener.getsockname()[1]}/{database}?sslmode=disable"

    def settings(self, name: str) -> set[str]:
        """The values that a setting has in the sessions, when all clients have given them back."""
        wait_until(lambda: len(self.sessions) == len(self._opened), "clients to leave", timeout=60, interval=0.01)
        return {str(session.execute(f"SHOW {name}").fetchone()) for session in self.sessions}

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._clients.append(client)
                self._threads.append(threading.Thread(target=self._serve, args=(client,), daemon=True))
                self._threads[-1].start()

    def _take(self) -> psycopg.Connection:
        with self._lock:
            self._lock.wait_for(lambda: self._ended or self.sessions or len(self._opened) != self.most)
            if self._ended:
                raise OSError("the pooler ends")
            if not self.sessions:
                self.sessions.append(psycopg.connect(self.target, autocommit=True, sslmode="disable"))
                self._opened.append(self.sessions[-1])
            return self.sessions.pop()

    def _give_back(self, session: psycopg.Connection) -> None:
        with self._lock:
            self.sessions.append(session)
            self._lock.notify_all()

    def _greeter(self) -> psycopg.Connection:
        """A session whose settings a client is told before it gets one, as pgbouncer keeps them from the first."""
        with self._lock:
            if self._opened:
                return self._opened[0]
        session = self._take()
        self._give_back(session)
        return session

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client:
            [length] = struct.unpack("!i", _exactly(client, 4))
            _exactly(client, length - 4)
            client.sendall(_greeting(self._greeter()))
            held = None
            while asked := client.recv(65536):
                if asked.startswith(b"X") or (self.by_statement and b"BEGIN" in asked):
                    if not asked.startswith(b"X"):
                        client.sendall(_message(b"E", NO_TRANSACTION))
                    break
                held = held or self._take()
                if _answered(client, held, asked) == IDLE and self.by_transaction:
                    self._give_back(held)
                    held = None
            if held is not None:
                held.execute("ROLLBACK")
                held.execute("DISCARD ALL")
                self._give_back(held)


def _greeting(session: psycopg.Connection) -> bytes:
    """What a server says to a client that may enter; the number of its process is not that of any session."""
    known = session.pgconn.parameter_status
    pairs = [(name.encode(), known(name.encode()) or b"") for name in REPORTED]
    reports = b"".join(_message(b"S", name + b"\0" + value + b"\0") for name, value in pairs)
    key = struct.pack("!ii", 1_000_000_000, 1)
    return _message(b"R", struct.pack("!i", 0)) + reports + _message(b"K", key) + _message(b"Z", IDLE)


def _message(kind: bytes, content: bytes) -> bytes:
    return kind + struct.pack("!i", len(content) + 4) + content


def _answered(client: socket.socket, session: psycopg.Connection, asked: bytes) -> bytes:
    """Pass messages between both until the session is ready for the next query; its status then."""
    with socket.socket(fileno=os.dup(session.pgconn.socket)) as server:
        server.setblocking(True)
        server.sendall(asked)
        answer = b""
        while True:
            for ready in select.select([client, server], [], [])[0]:
                piece = ready.recv(65536)
                if not piece:
                    return b""
                (server if ready is client else client).sendall(piece)
                answer += piece if ready is server else b""
            status, answer = _status(answer)
            if status:
                return status


def _status(answer: bytes) -> tuple[bytes, bytes]:
    """The status in a whole ReadyForQuery that ends what the server said, and what is not a whole message yet."""
    status = b""
    while len(answer) >= 5 and len(answer) >= (end := 1 + struct.unpack("!i", answer[1:5])[0]):
        status = answer[5:6] if answer[:1] == b"Z" else b""
        answer = answer[end:]
    return status, answer


def _exactly(client: socket.socket, count: int) -> bytes:
    content = b""
    while len(content) < count:
        piece = client.recv(count - len(content))
        if not piece:
            raise OSError("the client is gone")
        content += piece
    return content
