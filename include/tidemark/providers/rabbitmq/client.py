"""One connection to one node of RabbitMQ over its stream protocol: requests, and chunks of one subscription at a time.

ADR 0041 says why this is not a library. It publishes and creates nothing; it can only store an offset under a name.
"""

import select
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from struct import pack

from tidemark.connections.lookup import Secret
from tidemark.errors import AccessDenied, TidemarkError, Unavailable
from tidemark.providers.rabbitmq import wire
from tidemark.providers.rabbitmq.wire import AnswerCode, Command, Reader, Start
from tidemark.version import VERSION

TIMEOUT_S = 10.0
QUIET_S = 0.02  # extra wait for a chunk after an answer; normally a server delivers chunks before it answers
CREDIT = 20  # chunks that the server may send ahead; a chunk has up to some thousand records
_BUFFER = 256 * 1024


@dataclass(frozen=True)
class Login:
    """The login of a client. ``mechanism`` is PLAIN, or EXTERNAL, with which the client's certificate identifies the
    user."""

    user: str
    password: Secret
    virtual_host: str
    mechanism: str
    tls: ssl.SSLContext | None


@dataclass(frozen=True)
class Node:
    """The address of one node for clients."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Gone(Exception):
    """The connection has ended, or the server does not answer; the text is the reason."""


class NoStream(Exception):
    """The stream does not exist; or it exists (``exists``), but has no leader now."""

    def __init__(self, stream: str, *, exists: bool) -> None:
        self.stream, self.exists = stream, exists
        super().__init__(stream)


class StreamClient:
    """A connection that is logged in. Raises ``Gone`` if it ends, ``AccessDenied`` if the server refuses it.

    It must not be used by several threads at once.
    """

    def __init__(self, node: Node, login: Login) -> None:
        self.node = node
        self._correlation = 0
        self._subscription = 0  # the number of the last subscription, which is active if ``_subscribed``
        self._subscribed = False
        self._stream = ""
        self._buffer = bytearray()
        self._delivered: deque[memoryview] = deque()
        self._lost: set[str] = set()  # streams that the server reported as no longer available
        self._socket = self._connected(login)
        try:
            self._open(login)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        with suppress(OSError):
            self._socket.close()

    def __del__(self) -> None:
        if hasattr(self, "_socket"):
            self.close()

    def _connected(self, login: Login) -> socket.socket:
        try:
            opened = socket.create_connection((self.node.host, self.node.port), TIMEOUT_S)
        except OSError as problem:
            raise Gone(f"{self.node}: {problem.strerror or problem}") from None
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if login.tls is None:
            return opened
        try:
            return login.tls.wrap_socket(opened, server_hostname=self.node.host)
        except ssl.SSLError as problem:
            opened.close()
            raise AccessDenied(
                f"no TLS connection to RabbitMQ: {getattr(problem, 'verify_message', '') or problem.reason}",
                next_step="check that this port is that of stream.listeners.ssl, that ca of the connection has the "
                "authority of the server's certificate, and that the certificate is valid and names this host",
                server=str(self.node),
            ) from None
        except OSError as problem:
            opened.close()
            raise Gone(f"{self.node}: {problem.strerror or problem}") from None

    def _open(self, login: Login) -> None:
        """Log in, and choose the virtual host."""
        self._ask(Command.PEER_PROPERTIES, wire.mapping({"product": "Tidemark", "version": VERSION}))
        mechanisms = self._ask(Command.SASL_HANDSHAKE, b"").texts()
        if login.mechanism not in mechanisms:
            raise self._denied(f"it does not offer {login.mechanism}, but {', '.join(mechanisms)}")
        secret = b"" if login.mechanism == "EXTERNAL" else f"\0{login.user}\0{login.password.reveal()}".encode()
        try:
            self._ask(Command.SASL_AUTHENTICATE, wire.text(login.mechanism) + wire.blob(secret))
        except Gone as gone:
            if login.mechanism == "PLAIN":
                raise
            # The server closes if it does not accept the certificate; a server of version 3 accepts none.
            raise self._denied(f"it ended the connection at the login ({gone})") from None
        tune = self._command(Command.TUNE, time.monotonic() + TIMEOUT_S)
        # No heartbeats, because a job may work for minutes on what it has read. Every wait here has a timeout.
        self._send(wire.frame(Command.TUNE | wire.ANSWER, pack(">II", tune.number("I"), 0)))
        self._ask(Command.OPEN, wire.text(login.virtual_host))

    def _denied(self, detail: str) -> AccessDenied:
        return AccessDenied(
            f"RabbitMQ refuses this client: {detail}",
            next_step="check login, password, schema (the virtual host) and mechanism of the RabbitMQ connection, and "
            "the rights of its user: rabbitmqctl list_user_permissions USER",
            server=str(self.node),
        )

    def members(self, super_stream: str) -> list[str]:
        """Return the streams of a super stream, in its order; raises ``NoStream`` if it does not exist."""
        try:
            return self._ask(Command.PARTITIONS, wire.text(super_stream)).texts()
        except NoStream:
            raise NoStream(super_stream, exists=False) from None

    def leaders(self, streams: Sequence[str]) -> dict[str, Node | None]:
        """Return the node of each stream's leader; None if a stream has no leader now. Streams that do not exist are
        left out."""
        answer = self._ask(Command.METADATA, wire.texts(streams), has_code=False)
        nodes: dict[int, Node] = {}
        for _ in range(answer.number("i")):
            reference = answer.number("H")
            nodes[reference] = Node(answer.text(), answer.number("I"))
        leaders: dict[str, Node | None] = {}
        for _ in range(answer.number("i")):
            stream, code, leader = answer.text(), answer.number("H"), answer.number("H")
            for _ in range(answer.number("i")):
                answer.number("H")
            if code == AnswerCode.OK:
                leaders[stream] = nodes.get(leader)
            elif code == AnswerCode.STREAM_NOT_AVAILABLE:
                leaders[stream] = None
            elif code != AnswerCode.NO_STREAM:
                raise self._refusal(code, stream)
        return leaders

    def stored_offset(self, stream: str, name: str) -> int | None:
        """Return the offset that was stored under a name; None if none was stored."""
        try:
            return self._ask(Command.QUERY_OFFSET, wire.text(name) + wire.text(stream), about=stream).number("Q")
        except _NoOffset:
            return None

    def store_offset(self, stream: str, name: str, offset: int) -> None:
        """Store an offset under a name. The server does not answer, even if it refuses: read the offset to find out."""
        self._send(wire.frame(Command.STORE_OFFSET, wire.text(name) + wire.text(stream) + pack(">Q", offset)))

    def subscribe(self, stream: str, start: Start, value: int = 0, *, credit: int = 1) -> None:
        """Subscribe to the chunks of a stream, in place of any earlier subscription; read them with ``next_chunk``.

        ``value`` is an offset or a time in ms. The server begins with the chunk that contains it; if it has no such
        chunk, it silently begins with another one.
        """
        self.unsubscribe()
        self._subscription = self._subscription % 255 + 1
        at = b"" if start in (Start.FIRST, Start.LAST) else pack(">q", value)
        body = pack(">B", self._subscription) + wire.text(stream) + pack(">H", start) + at
        self._stream = stream
        self._ask(Command.SUBSCRIBE, body + pack(">H", credit) + wire.mapping({}), about=stream)
        self._subscribed = True

    def unsubscribe(self) -> None:
        if self._subscribed:
            self._subscribed = False
            with suppress(NoStream):  # the stream was deleted meanwhile
                self._ask(Command.UNSUBSCRIBE, pack(">B", self._subscription))
            self._delivered.clear()

    def next_chunk(self, *, credit: int = 0) -> memoryview | None:
        """Return the next chunk of the subscription; None if there is none now. Let the server send ``credit`` more
        chunks.

        The server delivers the chunks that it has before it answers another request (seen on 3.10 and 4.0). So if no
        chunk comes before that answer, or a moment later, the server has none.
        """
        for wait in (False, True):
            if self._delivered:
                break
            if wait:
                self._ask(Command.QUERY_OFFSET, wire.text("tidemark") + wire.text(self._stream), about=self._stream,
                          may_lack=True)  # fmt: skip
            deadline = time.monotonic() + (QUIET_S if wait else QUIET_S / 4)
            while not self._delivered and self._comes(deadline):
                self._dispatch(*self._frame(time.monotonic() + TIMEOUT_S))
        if self._stream in self._lost:
            raise NoStream(self._stream, exists=False)
        if not self._delivered:
            return None
        if credit:
            self._send(wire.frame(Command.CREDIT, pack(">BH", self._subscription, credit)))
        return self._delivered.popleft()

    def chunks(self, stream: str, start: Start, value: int = 0, *, ahead: int = 1) -> Iterator[memoryview]:
        """Yield the chunks from a place on, up to the current end of the stream. The server may send ``ahead`` chunks
        at once."""
        self.subscribe(stream, start, value, credit=ahead)
        while (chunk := self.next_chunk(credit=1)) is not None:
            yield chunk

    def _ask(
        self, key: Command, body: bytes, *, about: str = "", has_code: bool = True, may_lack: bool = False
    ) -> Reader:
        """Send a request; return its answer, from after the code. Raises for any code except OK."""
        self._correlation += 1
        self._send(wire.frame(key, body, self._correlation))
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            got, reader = self._frame(deadline)
            # 3.10 answers PARTITIONS without the bit of an answer.
            if got & ~wire.ANSWER == key and (got & wire.ANSWER or key is Command.PARTITIONS):
                if reader.number("I") != self._correlation:
                    continue
                code = reader.number("H") if has_code else AnswerCode.OK
                if code == AnswerCode.OK or (may_lack and code == AnswerCode.NO_OFFSET):
                    return reader
                raise self._refusal(code, about)
            self._dispatch(got, reader)

    def _command(self, key: Command, deadline: float) -> Reader:
        while True:
            got, reader = self._frame(deadline)
            if got == key:
                return reader
            self._dispatch(got, reader)

    def _dispatch(self, key: int, reader: Reader) -> None:
        """Handle what the server sends without a request."""
        if key == Command.DELIVER:
            if reader.number("B") == self._subscription:  # a chunk may come before the answer to the subscription
                self._delivered.append(reader.content[reader.at :])
        elif key == Command.HEARTBEAT:
            self._send(wire.frame(Command.HEARTBEAT, b""))
        elif key == Command.METADATA_UPDATE:
            reader.number("H")
            self._lost.add(reader.text())
        elif key == Command.CLOSE:
            reader.number("I")
            reader.number("H")
            raise Gone(f"{self.node} ended the connection: {reader.text()}")

    def _refusal(self, code: int, stream: str) -> Exception:
        match code:
            case AnswerCode.NO_STREAM | AnswerCode.STREAM_NOT_AVAILABLE:
                return NoStream(stream, exists=code == AnswerCode.STREAM_NOT_AVAILABLE)
            case AnswerCode.NO_OFFSET:
                return _NoOffset()
            case AnswerCode.AUTHENTICATION_FAILED | AnswerCode.SASL_ERROR:
                return self._denied("wrong user or password")
            case AnswerCode.LOOPBACK_ONLY:
                return self._denied("this user may connect from the server's own machine only (loopback_users)")
            case AnswerCode.NO_ACCESS_TO_VHOST:
                return self._denied("the virtual host does not exist, or this user may not use it")
            case AnswerCode.ACCESS_REFUSED:
                return self._denied(f"its user lacks the right read on {stream}" if stream else "a right is missing")
            case _:
                return Gone(f"{self.node} answers with code 0x{code:02x}")

    def _send(self, content: bytes) -> None:
        try:
            self._socket.settimeout(TIMEOUT_S)
            self._socket.sendall(content)
        except OSError as problem:
            raise Gone(f"{self.node}: {problem.strerror or problem}") from None

    def _comes(self, deadline: float) -> bool:
        """Return whether a byte arrives before the deadline."""
        if self._buffer or (isinstance(self._socket, ssl.SSLSocket) and self._socket.pending()):
            return True
        poll = select.poll()  # select() cannot handle file descriptors from 1,024 on
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))

    def _frame(self, deadline: float) -> tuple[int, Reader]:
        """Return key and content of the next frame."""
        size = int.from_bytes(self._bytes(4, deadline), "big")
        reader = Reader(memoryview(self._bytes(size, deadline)))
        try:
            key = reader.number("H")
            reader.number("H")
        except struct.error:
            raise Gone(f"{self.node} sends what is not RabbitMQ's stream protocol") from None
        return key, reader

    def _bytes(self, size: int, deadline: float) -> bytearray:
        """Return the next bytes; raises ``Gone`` if they do not arrive in time."""
        content = self._buffer[:size]
        del self._buffer[:size]
        try:
            while len(content) < size:
                self._socket.settimeout(max(0.001, deadline - time.monotonic()))
                more = self._socket.recv(max(_BUFFER, size - len(content)))
                if not more:
                    raise Gone(f"{self.node} ended the connection")
                lacking = size - len(content)
                content += more[:lacking]
                self._buffer += more[lacking:]
        except TimeoutError:
            raise Gone(f"{self.node} does not answer within {TIMEOUT_S:.0f} s") from None
        except OSError as problem:
            raise Gone(f"{self.node}: {problem.strerror or problem}") from None
        return content


class _NoOffset(Exception):
    """No offset is stored under the name."""


def unavailable(gone: Gone, **context: object) -> TidemarkError:
    """Return the error for a connection that has ended."""
    return Unavailable(
        f"{gone}, so RabbitMQ does not answer",
        next_step="check that the server runs with its plugin rabbitmq_stream, that the RabbitMQ connection names the "
        "port of its stream listener (5552, with TLS 5551), and that stream.advertised_host is reachable",
        **context,
    )
