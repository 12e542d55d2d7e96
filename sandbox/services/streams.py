"""Publishes to RabbitMQ's streams, for tests, with another client's code, so that our client does not test itself.

Frames and AMQP 1.0 messages come from `rstream`. Its connections need asyncio and do not count confirmations of
compressed entries, so the socket is our own: each call opens one, which does not survive a kill of the server.
"""

import gzip
import socket
import ssl
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count, islice
from typing import Self, TypeVar

import pyarrow as pa
from rstream import AMQPMessage, OffsetNotFound, OffsetType, RawMessage, ServerError, schema
from rstream.encoding import decode_frame, encode_frame, encode_publish

from sandbox.errors import SandboxFailed
from sandbox.services.processes import wait_until

Message = bytes | AMQPMessage | RawMessage
Answer = TypeVar("Answer", bound=schema.Frame)

# The codes of the protocol. Java's and Go's clients frame Snappy; a client with a codec of its own may write one block.
# 5 is the code of no codec.
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "snappy-block": 2, "lz4": 3, "zstd": 4, "unknown": 5}
FRAME = 1 << 20  # bytes
FRAME_ENTRIES, UNCONFIRMED_ENTRIES = 1_000, 10_000


@dataclass(frozen=True)
class Login:
    """Port and user of a login; an empty user logs in with the certificate of ``tls``."""

    port: int
    user: str
    password: str
    vhost: str = "/"
    tls: ssl.SSLContext | None = None


class StreamRefused(SandboxFailed):
    """RabbitMQ answered with an error; ``response_code`` is the protocol's."""

    def __init__(self, asked: str, code: int) -> None:
        self.response_code = code
        problem = ServerError.from_code(code).__name__
        super().__init__(f"RabbitMQ refused {asked}: {problem} ({code})", next_step="look at the stream and the rights")


class Connection:
    """One connection, logged in."""

    def __init__(self, login: Login) -> None:
        plain = socket.create_connection(("127.0.0.1", login.port), timeout=30)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # otherwise each request waits for 40 ms
        self._socket = login.tls.wrap_socket(plain, server_hostname="127.0.0.1") if login.tls else plain
        self._numbers = count(1)
        self._received = bytearray()
        try:
            self._log_in(login)
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _log_in(self, login: Login) -> None:
        self.ask(schema.PeerProperties(self.number(), [schema.Property("product", "tests")]))
        self.ask(schema.SaslHandshake(self.number()))
        secret = f"\0{login.user}\0{login.password}".encode()
        mechanism, data = ("PLAIN", secret) if login.user else ("EXTERNAL", b"")
        self.ask(schema.SaslAuthenticate(self.number(), mechanism, data))
        self.wait(schema.Tune)
        self.send(schema.Tune(FRAME, 0))  # no heartbeats
        self.ask(schema.Open(self.number(), login.vhost))

    def limit(self, seconds: float) -> None:
        """Set how long to wait for a frame."""
        self._socket.settimeout(seconds)

    def number(self) -> int:
        """Return a new correlation id."""
        return next(self._numbers)

    def send(self, frame: schema.Frame) -> None:
        """Send a frame that has no answer."""
        self.send_bytes(encode_frame(frame))

    def send_bytes(self, frame: bytes) -> None:
        """Send an encoded frame."""
        self._socket.sendall(frame)

    def ask(self, frame: schema.Frame) -> schema.Frame:
        """Send a request and return its answer. Raises ``StreamRefused`` if the answer is an error."""
        self.send(frame)
        while True:
            answer = self.receive()
            if answer.corr_id == frame.corr_id and answer.key == frame.key:
                code = getattr(answer, "response_code", 1)
                if code != 1:
                    raise StreamRefused(type(frame).__name__, code)
                return answer

    def wait(self, kind: type[Answer]) -> Answer:
        """Return the next frame of a kind."""
        while not isinstance(frame := self.receive(), kind):
            pass
        return frame

    def receive(self) -> schema.Frame:
        """Return the next frame. Raises ``ConnectionError`` if the server is gone, ``TimeoutError`` after 30 s."""
        size = int.from_bytes(self._read(4))
        frame = decode_frame(self._read(size))
        if isinstance(frame, schema.Close):
            raise ConnectionError(f"RabbitMQ closed the connection: {frame.reason}")
        return frame

    def _read(self, size: int) -> bytes:
        while len(self._received) < size:
            part = self._socket.recv(1 << 16)
            if not part:
                raise ConnectionError("RabbitMQ closed the connection")
            self._received += part
        data = bytes(self._received[:size])
        del self._received[:size]
        return data


class Publisher:
    """Publishes over one connection. With a name, the server drops entries whose ids it already has from that name.

    Ids count up from ``first_id``; by default from 1, or after the last stored id of the name. An entry is a message,
    or several messages in a sub-batch.
    """

    def __init__(self, connection: Connection, stream: str, name: str = "", first_id: int | None = None) -> None:
        self._connection = connection
        connection.ask(schema.DeclarePublisher(connection.number(), 1, name, stream))
        self._ids = count(_last_id(connection, stream, name) + 1 if first_id is None else first_id)
        self._sent = 0
        self._unconfirmed: set[int] = set()

    @property
    def confirmed(self) -> int:
        """Return the number of entries that the server has confirmed."""
        return self._sent - len(self._unconfirmed)

    def send(self, messages: Iterable[Message], codec: str | None = None, per_entry: int = 1) -> None:
        """Send messages, and return when all are confirmed.

        ``bytes`` become the data section of a message. With a codec, ``per_entry`` messages make one sub-batch.
        """
        if codec is None:
            for part in _frames(map(encoded, messages)):
                self._send_messages(part)
        else:
            rest = iter(messages)
            while batch := list(islice(rest, per_entry)):
                self._send_sub_batch(list(map(encoded, batch)), codec)
        self._wait_confirmed(0)

    def _send_messages(self, messages: Sequence[bytes]) -> None:
        ids = self._new_ids(len(messages))
        entries = [schema.Message(number, None, data) for number, data in zip(ids, messages, strict=True)]
        self._connection.send_bytes(encode_publish(schema.Publish(1, entries)))
        self._wait_confirmed(UNCONFIRMED_ENTRIES)

    def _send_sub_batch(self, messages: Sequence[bytes], codec: str) -> None:
        plain = b"".join(len(data).to_bytes(4) + data for data in messages)
        packed = compressed(plain, codec)
        (number,) = self._new_ids(1)
        kind = 0x80 | CODECS[codec] << 4
        sizes = (len(messages), len(plain), len(packed))
        self._connection.send(schema.PublishSubBatching(1, 1, number, kind, *sizes, packed))
        self._wait_confirmed(UNCONFIRMED_ENTRIES)

    def _new_ids(self, size: int) -> list[int]:
        ids = list(islice(self._ids, size))
        self._unconfirmed.update(ids)
        self._sent += size
        return ids

    def _wait_confirmed(self, most: int) -> None:
        """Read answers until at most ``most`` entries are unconfirmed: otherwise both sides would wait for the other to
        read.
        """
        while len(self._unconfirmed) > most:
            frame = self._connection.receive()
            if isinstance(frame, schema.PublishConfirm):
                self._unconfirmed.difference_update(frame.publishing_ids)
            elif isinstance(frame, schema.PublishError):
                raise StreamRefused("a message", frame.errors[0].response_code)


class Streams:
    """The streams of one virtual host, for one user."""

    def __init__(self, login: Login) -> None:
        self.login = login

    def create_stream(
        self, name: str, *, max_bytes: int | None = None, segment_bytes: int | None = None, max_age: str = ""
    ) -> None:
        """Create a stream. The server drops only whole segments, when it begins another one.

        ``segment_bytes``: the size of a segment, by default 500 MB. ``max_age``: such as ``1h``.
        """
        arguments = {"max-length-bytes": max_bytes, "stream-max-segment-size-bytes": segment_bytes, "max-age": max_age}
        given = [schema.Property(key, str(value)) for key, value in arguments.items() if value]
        with Connection(self.login) as connection:
            connection.ask(schema.Create(connection.number(), name, given))

    def delete_stream(self, name: str) -> None:
        """Delete a stream, or a member of a super stream."""
        with Connection(self.login) as connection:
            connection.ask(schema.Delete(connection.number(), name))

    @contextmanager
    def publisher(self, stream: str, name: str = "", first_id: int | None = None) -> Iterator[Publisher]:
        """Open a publisher with a connection of its own."""
        with Connection(self.login) as connection:
            yield Publisher(connection, stream, name, first_id)

    def publish(self, stream: str, messages: Iterable[Message], codec: str | None = None, per_entry: int = 1) -> None:
        """Publish as ``Publisher.send`` does, and return when all messages are confirmed."""
        with self.publisher(stream) as publisher:
            publisher.send(messages, codec, per_entry)

    def publish_until_dropped(self, stream: str, body: bytes = bytes(1000), *, most: int = 1_000_000) -> int:
        """Publish until the server drops the first segment; return how many messages that took."""
        before = self.first_offset(stream) or 0
        for sent in range(0, most, 1_000):
            self.publish(stream, [body] * 1_000)
            time.sleep(0.05)  # the server looks a moment after it has begun another segment
            if self.first_offset(stream) != before:
                return sent + 1_000
        raise SandboxFailed(f"{most} messages, and {stream} has all", next_step="give it max_bytes and segment_bytes")

    def first_offset(self, stream: str) -> int | None:
        """Return the offset of the first chunk; None if the stream delivers none within a second."""
        first = schema.OffsetSpec(OffsetType.FIRST)
        with Connection(self.login) as connection:
            connection.ask(schema.Subscribe(connection.number(), 1, stream, first, 1, []))
            connection.limit(1)
            try:
                return connection.wait(schema.Deliver).chunk_first_offset
            except TimeoutError:
                return None

    def store_offset(self, stream: str, name: str, offset: int) -> None:
        """Store the offset of a named consumer, and wait until the server reports it, because the frame has no
        answer.
        """
        with Connection(self.login) as connection:
            connection.send(schema.StoreOffset(name, stream, offset))
            wait_until(lambda: _stored_offset(connection, stream, name) == offset, f"the offset of {name}", timeout=30)

    def last_id(self, stream: str, name: str) -> int:
        """Return the last stored id of a named publisher, or 0."""
        with Connection(self.login) as connection:
            return _last_id(connection, stream, name)

    def query_offset(self, stream: str, name: str) -> int | None:
        """Return the stored offset of a named consumer, or None."""
        with Connection(self.login) as connection:
            return _stored_offset(connection, stream, name)


def _last_id(connection: Connection, stream: str, name: str) -> int:
    if not name:
        return 0
    answer = connection.ask(schema.QueryPublisherSequence(connection.number(), name, stream))
    assert isinstance(answer, schema.QueryPublisherSequenceResponse)
    return answer.sequence


def _stored_offset(connection: Connection, stream: str, name: str) -> int | None:
    try:
        answer = connection.ask(schema.QueryOffset(connection.number(), name, stream))
    except StreamRefused as refused:
        if refused.response_code == OffsetNotFound.code:
            return None
        raise
    assert isinstance(answer, schema.QueryOffsetResponse)
    return answer.offset


def encoded(message: Message) -> bytes:
    """Return the bytes of a message. ``bytes``, also empty ones, become its only section, data."""
    if not isinstance(message, bytes):
        return bytes(message)
    size = bytes([0xA0, len(message)]) if len(message) < 256 else b"\xb0" + len(message).to_bytes(4)
    return b"\x00\x53\x75" + size + message


def compressed(data: bytes, codec: str) -> bytes:
    """Return the compressed data of a sub-batch; `none` and `unknown` leave it unchanged."""
    match codec:
        case "gzip":
            return gzip.compress(data)
        case "snappy":
            return snappy_framed(data)
        case "snappy-block":
            return bytes(pa.Codec("snappy").compress(data, asbytes=True))
        case "lz4" | "zstd":
            # As streams, as clients do: the frame does not contain the length of the data.
            buffer = pa.BufferOutputStream()
            with pa.CompressedOutputStream(buffer, codec) as stream:
                stream.write(data)
            return bytes(buffer.getvalue())
    return data


def snappy_framed(data: bytes) -> bytes:
    """Return data in Snappy's framing format: a mark, then blocks of at most 64 KiB, each with a masked CRC-32C."""
    blocks = [b"\xff\x06\x00\x00sNaPpY"]
    for start in range(0, len(data), 1 << 16):
        block = data[start : start + (1 << 16)]
        code = crc32c(block)
        masked = ((code >> 15 | code << 17) + 0xA282EAD8) & 0xFFFFFFFF
        body = struct.pack("<I", masked) + pa.Codec("snappy").compress(block, asbytes=True)
        blocks += [b"\x00", len(body).to_bytes(3, "little"), body]
    return b"".join(blocks)


def crc32c(data: bytes) -> int:
    """Return Castagnoli's checksum. This is slow, but sufficient for sub-batches of tests."""
    table = _codes_of_bytes()
    code = 0xFFFFFFFF
    for byte in data:
        code = table[(code ^ byte) & 0xFF] ^ code >> 8
    return code ^ 0xFFFFFFFF


@cache
def _codes_of_bytes() -> list[int]:
    codes = list(range(256))
    for _ in range(8):
        codes = [code >> 1 ^ (0x82F63B78 if code & 1 else 0) for code in codes]
    return codes


def _frames(messages: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield parts that fit into a frame."""
    part: list[bytes] = []
    size = 0
    for data in messages:
        if part and (len(part) == FRAME_ENTRIES or size + len(data) > FRAME // 2):
            yield part
            part, size = [], 0
        part.append(data)
        size += len(data) + 12
    if part:
        yield part
