"""Builds and reads the frames of RabbitMQ's stream protocol, version 1 of each command.

The server's repository describes the protocol: deps/rabbitmq_stream/docs/PROTOCOL.adoc. Numbers are big-endian. A frame
is ``size: uint32, key: uint16, version: uint16``, then ``correlation id: uint32`` if an answer is expected. The highest
bit of the key is set in an answer.
"""

import struct
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final

VERSION: Final = 1
ANSWER: Final = 0x8000
NO_LENGTH: Final = -1  # the length of a text that is null


class Command(IntEnum):
    """The commands that this client sends or reads."""

    SUBSCRIBE = 0x07
    DELIVER = 0x08
    CREDIT = 0x09
    STORE_OFFSET = 0x0A
    QUERY_OFFSET = 0x0B
    UNSUBSCRIBE = 0x0C
    METADATA = 0x0F
    METADATA_UPDATE = 0x10
    PEER_PROPERTIES = 0x11
    SASL_HANDSHAKE = 0x12
    SASL_AUTHENTICATE = 0x13
    TUNE = 0x14
    OPEN = 0x15
    CLOSE = 0x16
    HEARTBEAT = 0x17
    PARTITIONS = 0x19


class AnswerCode(IntEnum):
    """Codes of answers."""

    OK = 0x01
    NO_STREAM = 0x02
    STREAM_NOT_AVAILABLE = 0x06
    AUTHENTICATION_FAILED = 0x08
    SASL_ERROR = 0x09
    LOOPBACK_ONLY = 0x0B
    NO_ACCESS_TO_VHOST = 0x0C
    ACCESS_REFUSED = 0x10
    NO_OFFSET = 0x13


class Start(IntEnum):
    """The place where a subscription begins."""

    FIRST = 1
    LAST = 2
    OFFSET = 4
    TIMESTAMP = 5


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack(">h", len(raw)) + raw


def blob(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def texts(values: Iterable[str]) -> bytes:
    listed = list(values)
    return struct.pack(">i", len(listed)) + b"".join(map(text, listed))


def mapping(values: Mapping[str, str]) -> bytes:
    return struct.pack(">i", len(values)) + b"".join(text(key) + text(value) for key, value in values.items())


def frame(key: Command | int, body: bytes, correlation: int | None = None) -> bytes:
    head = struct.pack(">HH", key, VERSION)
    if correlation is not None:
        head += struct.pack(">I", correlation)
    return struct.pack(">I", len(head) + len(body)) + head + body


class Reader:
    """Reads the values of one frame in order; ``struct.error`` or ``IndexError`` if the frame is too short."""

    def __init__(self, content: memoryview, at: int = 0) -> None:
        self.content = content
        self.at = at

    def number(self, form: str) -> int:
        """Read a number; ``form`` is one letter of ``struct``: B, H, I, Q, h, i, q."""
        [value] = struct.unpack_from(f">{form}", self.content, self.at)
        self.at += struct.calcsize(f">{form}")
        return int(value)

    def text(self) -> str:
        size = self.number("h")
        if size == NO_LENGTH:
            return ""
        value = bytes(self.content[self.at : self.at + size])
        if len(value) != size:
            raise IndexError("the frame ends within a value")
        self.at += size
        return value.decode()

    def texts(self) -> list[str]:
        return [self.text() for _ in range(self.number("i"))]
