"""Finds the placeholder that Debezium writes for a value which the database did not send.

PostgreSQL does not repeat a large value that an update did not change, unless the table has REPLICA IDENTITY FULL.
Debezium then writes a placeholder text. Its form depends on the type: for bytes the bytes of that text; for a list a
list of it; for a list of numbers or times its bytes; for a list of UUIDs the UUID of that name; for a map the text as
name and as value (an hstore is such a map, or its JSON as a text); for a geometry a point outside the world. Source:
``unavailable.value.placeholder`` in Debezium's documentation, and its classes ``UnchangedToastedPlaceholder`` and
``UnchangedToastedReplicationMessageColumn``.
"""

import hashlib
import json
from base64 import b64encode, urlsafe_b64encode
from struct import pack
from typing import Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.model.positions import rows_holding

_NOWHERE: Final = (-99_999_999.0, -99_999_999.0)
_WITH_SRID: Final = (0x2000_0001, 4326)  # in WKB: a point with the id of its coordinate system
_GEOMETRIES: Final = (  # the placeholders of point, geometry and geography
    pack("<BIdd", 1, 1, *_NOWHERE),
    pack("<BIIdd", 1, *_WITH_SRID, *_NOWHERE),
    pack("<BIIdd", 1, *_WITH_SRID, 179.999_999, 89.999_999),
)


UNTOLD: Final = "the database did not send its value; with REPLICA IDENTITY FULL it sends it"


class PlaceholderFinder:
    """Finds the placeholder ``text`` in columns.

    A column of text may also hold bytes, as base64 or as hexadecimal digits, so these forms are searched for too.
    """

    def __init__(self, text: str) -> None:
        content = text.encode()
        encoded = (
            b64encode(content).decode(),
            urlsafe_b64encode(content).decode(),
            content.hex(),
            content.hex().upper(),
        )
        documents = [
            form for quoted in (json.dumps(text), json.dumps(text, ensure_ascii=False)) for form in _documents(quoted)
        ]
        self.texts = (text, *encoded, *dict.fromkeys(documents))
        as_text = [b64encode(geometry).decode() for geometry in _GEOMETRIES]
        self._texts = pa.array([*self.texts, _uuid_named(content), *as_text], pa.string())
        self._bytes = pa.array([content, *_GEOMETRIES], pa.binary())
        self._numbers = [byte - 256 if byte > 127 else byte for byte in content]  # Java's bytes have a sign

    def rows_with_it(self, column: pa.Array) -> list[int]:
        """Return the rows whose value is the placeholder, or contains it."""
        return rows_holding(column, self._is_placeholder)

    def _is_placeholder(self, column: pa.Array) -> pa.Array | None:
        kind = column.type
        if pa.types.is_string(kind):
            return pc.is_in(column, value_set=self._texts)
        if pa.types.is_binary(kind):
            return pc.is_in(column, value_set=self._bytes)
        if not pa.types.is_list(kind):
            return None
        part = kind.value_type
        if pa.types.is_date32(part):
            return self._is_placeholder(column.cast(pa.list_(pa.int32())))
        if pa.types.is_timestamp(part):  # microseconds, whatever the unit of the numbers was
            numbers = column.cast(pa.list_(pa.int64()))
            return self._is_one_of(numbers, [self._numbers, [number * 1_000 for number in self._numbers]])
        if pa.types.is_integer(part) or pa.types.is_floating(part) or pa.types.is_decimal(part):
            return self._is_one_of(column, [self._numbers])
        return None

    def _is_one_of(self, lists: pa.Array, known: list[list[int]]) -> pa.Array:
        """Return which lists are among those known, which are all as long as the placeholder."""
        lengths = pc.fill_null(pc.equal(pc.list_value_length(lists), len(self._numbers)), False)
        if not pc.any(lengths).as_py():
            return pa.repeat(False, len(lists))
        return pa.array([value in known for value in lists.to_pylist()], pa.bool_())


def _documents(quoted: str) -> list[str]:
    """Return the JSON of a map or a list that stands for a value, without spaces and with them."""
    return [f"{{{quoted}:{quoted}}}", f"{{{quoted}: {quoted}}}", f"[{quoted}]", quoted]


def _uuid_named(content: bytes) -> str:
    """Return the result of Java's ``UUID.nameUUIDFromBytes``."""
    return str(UUID(bytes=hashlib.md5(content, usedforsecurity=False).digest(), version=3))
