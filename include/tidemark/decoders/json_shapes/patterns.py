"""Patterns of JSON texts that Python's and Arrow's JSON parsers read as the same value."""

import json
import re
from collections.abc import Mapping
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.json as pa_json

from tidemark.decoders.base import UnknownFields
from tidemark.decoders.json_shapes.shapes import (
    Boolean,
    Content,
    Day,
    Exact,
    Instant,
    Integer,
    Number,
    OneOf,
    Shape,
    Text,
)
from tidemark.decoders.one_by_one import Misfit

BYTES_LIMIT = 256 << 20  # largest batch; the parser needs about three times its size
# Escapes of surrogates do not match: a lone one is not a character, and pairs are rare.
_ESCAPE = r'\\["\\/bfnrt]|\\u(?:[0-9a-cA-CefEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2})'
TEXT = rf'"(?:[^"\\\x00-\x1f]|{_ESCAPE})*"'
_FRACTION = r"-?(?:0|[1-9][0-9]{0,14})\.[0-9]{1,17}"
_WHOLE = r"0|-?[1-9][0-9]{0,14}"  # -0 is 0 to Python's parser and -0.0 to Arrow's
_EXPONENT = r"[eE][+-]?[0-9]{1,2}"
NUMBER = rf"{_WHOLE}|(?:{_FRACTION}|-?[1-9][0-9]{{0,14}})(?:{_EXPONENT})?"
_DIGITS = {8: 1, 16: 3, 32: 8, 64: 17}  # digits after the first; a number with one more may be too large
_BASE64 = r'"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"'
_DATE = r"\d{4}-\d\d-\d\d"
_TIME = r"\d\d:\d\d:\d\d(?:\.\d{1,9})?"
_OFFSET = r"(?:Z|[+-]\d\d:\d\d)"
INSTANT = f'"{_DATE}[T ]{_TIME}{_OFFSET}?"'  # without an offset a setting gives the zone


class ColumnReader(Protocol):
    """Reads columns of many records at once, but only of records that Python's parser would read as the same values."""

    def learn(self, record: Mapping[str, Any], value: bytes) -> None:
        """Learn from a good record: ``record`` is its parsed form, ``value`` its bytes."""
        ...

    def fitting(self, values: pa.Array) -> pa.Array | None:
        """Return a ``bool`` for each value: true if this reader can read it. None if it can read none."""
        ...

    def columns(self, values: pa.Array) -> list[pa.Array]:
        """Return the columns of these values, which are those that the last ``fitting`` found; raises ``Misfit`` or
        ``ArrowInvalid``."""
        ...

    def unknown(self, values: pa.Array) -> UnknownFields | None:
        """Return the fields of these values that the schema does not have."""
        ...


def is_plain_name(name: str) -> bool:
    return json.dumps(name, ensure_ascii=False) == f'"{name}"' and name.isprintable()


def value_pattern(shape: Shape) -> str | None:
    """Return the pattern of a value, None if it has none. Both parsers read every matching text as the same value."""
    match shape:
        case Text():
            return TEXT
        case Content():
            return _BASE64
        case Boolean():
            return "true|false"
        case Integer():
            return rf"0|-?[1-9][0-9]{{0,{_DIGITS[shape.bits]}}}"
        case Number():
            return NUMBER if shape.bits == 64 else f"{_WHOLE}|{_FRACTION}"
        case Exact(precision=precision, scale=scale) if precision > scale:
            return exact_pattern(precision, scale)
        case Day():
            return f'"{_DATE}"'
        case Instant(zone=None):
            return f'"{_DATE}T{_TIME}{_OFFSET}"'
        case Instant():
            return INSTANT
        case OneOf(shape=Text(), allowed=allowed) if all(map(is_plain_name, allowed)):
            return "|".join(re.escape(f'"{value}"') for value in sorted(allowed))
        case _:
            return None


def exact_pattern(precision: int, scale: int) -> str:
    """Return the pattern of a decimal whose type has digits before the point. A point must have digits after it."""
    fraction = rf"(?:\.[0-9]{{1,{scale}}})?" if scale else ""
    return rf"-?(?:0|[1-9][0-9]{{0,{precision - scale - 1}}}){fraction}"


def read_as(shape: Shape) -> pa.DataType:
    match shape:
        case Day() | Instant() | Content():
            return pa.string()
        case Number():
            return pa.float64()
        case _:
            return shape.arrow


def parsed(values: pa.Array, schema: pa.Schema) -> pa.Table:
    """Parse JSON objects (binary), which lie one after the other in memory, into the fields of ``schema``.

    Raises ``Misfit`` or ``pa.ArrowInvalid`` if Arrow does not read one row for each object.
    """
    start, end = values.offset, values.offset + len(values)
    offsets = pa.Array.from_buffers(pa.int32(), end + 1, [None, values.buffers()[1]])
    first, last = offsets[start].as_py(), offsets[end].as_py()
    read = pa_json.read_json(
        pa.BufferReader(values.buffers()[2].slice(first, last - first)),
        read_options=pa_json.ReadOptions(use_threads=False, block_size=max(last - first, 1) + 1),
        parse_options=pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )
    if read.num_rows != len(values):
        raise Misfit
    return read


def shaped(shape: Shape, read: pa.Array) -> pa.Array:
    match shape:
        case Day() | Instant():
            return shape.parse_texts(read)
        case Number():
            return read.cast(shape.arrow)
        case Content():
            return shape.column(read.to_pylist())
        case _:
            return read
