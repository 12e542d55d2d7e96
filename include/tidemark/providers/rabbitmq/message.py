"""Reads a message as AMQP 1.0 encodes it: the body as a value, and the rest as headers.

The encoding is that of OASIS AMQP 1.0, part 1 (types) and part 3 (sections of a message). The headers of a record:

NAME                 an application property, by its own name
properties.NAME      a property of the message, such as properties.creation-time or properties.message-id
annotations.NAME     an annotation, such as annotations.x-routing-key
tidemark.body        the reason why the value is the whole encoded message: its body is not plain data

The value of a header is UTF-8 text; binary is kept as bytes; a time is in ISO 8601, in UTC; a list or map is JSON.
"""

import json
import struct
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

Headers = list[tuple[str, bytes | None]]

WHOLE: Final = "tidemark.body"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ANNOTATIONS, _PROPERTIES, _APPLICATION, _DATA, _SEQUENCE, _VALUE = 0x72, 0x73, 0x74, 0x75, 0x76, 0x77
_NAMES: Final = (
    "message-id", "user-id", "to", "subject", "reply-to", "correlation-id", "content-type", "content-encoding",
    "absolute-expiry-time", "creation-time", "group-id", "group-sequence", "reply-to-group-id",
)  # fmt: skip
_FIXED: Final = {
    0x50: ">B", 0x51: ">b", 0x52: ">B", 0x53: ">B", 0x54: ">b", 0x55: ">b", 0x56: ">?", 0x60: ">H", 0x61: ">h",
    0x70: ">I", 0x71: ">i", 0x72: ">f", 0x80: ">Q", 0x81: ">q", 0x82: ">d", 0x83: ">q",
}  # fmt: skip
_CONSTANTS: Final[dict[int, Any]] = {0x40: None, 0x41: True, 0x42: False, 0x43: 0, 0x44: 0}
_TIMESTAMP, _UUID, _CHAR = 0x83, 0x98, 0x73
_DECIMALS: Final = {0x74: 4, 0x84: 8, 0x94: 16}  # sizes in bytes; decimals are kept as bytes


def read_message(content: bytes) -> tuple[bytes, Headers]:
    """Return (value, headers) of a message. The value is the whole message if it is not AMQP 1.0, or its body is not
    data."""
    headers: Headers = []
    data: list[bytes] = []
    other = ""
    try:
        reader = _Values(content)
        while reader.at < len(content):
            section, value = reader.section()
            if section == _DATA:
                data.append(_binary(value))
            elif section == _PROPERTIES:
                headers += _headers("properties.", zip(_NAMES, value, strict=False))
            elif section == _APPLICATION:
                headers += _headers("", value.items())
            elif section == _ANNOTATIONS:
                headers += _headers("annotations.", value.items())
            elif section in (_SEQUENCE, _VALUE):
                other = "a sequence, not data" if section == _SEQUENCE else "an AMQP value, not data"
    except (IndexError, struct.error, ValueError, TypeError, AttributeError, RecursionError, OverflowError):
        return content, [(WHOLE, b"the message is not encoded as AMQP 1.0")]
    if other or not data:
        return content, [*headers, (WHOLE, f"the body is {other or 'missing'}".encode())]
    return b"".join(data), headers


def _binary(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a data section is no binary")
    return value


def _moment(milliseconds: int) -> datetime | int:
    """Return the time; the number itself if it is beyond the calendar: some clients write the highest number for
    "never"."""
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return milliseconds


def _headers(prefix: str, values: Any) -> Headers:
    return [(f"{prefix}{name}", as_header(value)) for name, value in values if value is not None]


def as_header(value: Any) -> bytes:
    """Return a value of AMQP as the bytes of a header."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z").encode()
    if isinstance(value, list | dict):
        return json.dumps(value, default=lambda inner: as_header(inner).decode(errors="replace")).encode()
    return str(value).encode()


class _Values:
    """Reads encoded values one after another."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.at = 0
        self._in_arrays = 0  # values of all arrays so far

    def section(self) -> tuple[int, Any]:
        """Return (code of the section, its value); ``ValueError`` if no section begins here."""
        if self._take(1) != b"\0":
            raise ValueError("no section begins here")
        code = self.value()
        if not isinstance(code, int) or not 0x70 <= code <= 0x78:
            raise ValueError("no section of a message")
        return code, self.value()

    def value(self) -> Any:
        kind = self._take(1)[0]
        return self._read_kind(kind)

    def _read_kind(self, kind: int) -> Any:
        if kind in _CONSTANTS:
            return _CONSTANTS[kind]
        if kind == _TIMESTAMP:
            return _moment(self._number(">q"))
        if kind in _FIXED:
            return self._number(_FIXED[kind])
        if kind == _UUID:
            return str(UUID(bytes=self._take(16)))
        if kind == _CHAR:
            return chr(self._number(">I"))
        if kind in _DECIMALS:
            return self._take(_DECIMALS[kind])
        if kind == 0x00:  # a described value: its descriptor is left out
            self.value()
            return self.value()
        return self._sized(kind)

    def _sized(self, kind: int) -> Any:
        family, wide = kind & 0x0F, kind >> 4
        match wide:
            case 0xA | 0xB:
                raw = self._take(self._number(">B" if wide == 0xA else ">I"))
                if family == 0:
                    return raw
                if family in (1, 3):
                    return raw.decode()
            case 0x4 if family == 5:
                return []
            case 0xC | 0xD if family in (0, 1):
                values = self._counted(">B" if wide == 0xC else ">I")
                return values if family == 0 else dict(zip(map(_name, values[::2]), values[1::2], strict=True))
            case 0xE | 0xF if family == 0:
                return self._array(">B" if wide == 0xE else ">I")
        raise ValueError(f"no type of AMQP: 0x{kind:02x}")

    def _counted(self, form: str) -> list[Any]:
        end = self._number(form)
        end += self.at
        values = [self.value() for _ in range(self._number(form))]
        if self.at != end:
            raise ValueError("the size is wrong")
        return values

    def _array(self, form: str) -> list[Any]:
        self._number(form)
        count = self._number(form)
        self._in_arrays += count
        if self._in_arrays > len(self.content):  # arrays of values without bytes, or of arrays, could be endless
            raise ValueError("more values than the message has bytes")
        kind = self._take(1)[0]
        return [self._read_kind(kind) for _ in range(count)]

    def _number(self, form: str) -> Any:
        [value] = struct.unpack_from(form, self.content, self.at)
        self.at += struct.calcsize(form)
        return value

    def _take(self, size: int) -> bytes:
        taken = self.content[self.at : self.at + size]
        if len(taken) != size:
            raise IndexError("the message ends within a value")
        self.at += size
        return taken


def _name(key: Any) -> str:
    return key if isinstance(key, str) else as_header(key).decode(errors="replace")
