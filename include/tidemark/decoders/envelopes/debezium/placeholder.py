"""Finds the placeholder that Debezium writes for a value which the database did not tell it.

PostgreSQL does not repeat a large value that an update left alone, unless the table has REPLICA IDENTITY FULL.
Debezium writes a text then; for bytes the bytes of that text, for a list a list of it, for a list of numbers or dates
its bytes, for a list of UUIDs the one that is named by it, for a map the text as name and as value, for a geometry a
point that is nowhere (source: ``unavailable.value.placeholder`` in Debezium's documentation, and its classes
``UnchangedToastedPlaceholder`` and ``UnchangedToastedReplicationMessageColumn``).
"""

import hashlib
from base64 import b64encode, urlsafe_b64encode
from functools import reduce
from struct import pack
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

_NOWHERE: Final = (-99_999_999.0, -99_999_999.0)
_WITH_SRID: Final = (0x2000_0001, 4326)  # a point of WKB that says its system of coordinates
_GEOMETRIES: Final = (  # of point, geometry and geography
    pack("<BIdd", 1, 1, *_NOWHERE),
    pack("<BIIdd", 1, *_WITH_SRID, *_NOWHERE),
    pack("<BIIdd", 1, *_WITH_SRID, 179.999_999, 89.999_999),
)


UNTOLD: Final = "the database did not tell its value; with REPLICA IDENTITY FULL it does"


class PlaceholderFinder:
    """``text`` is the placeholder; a column of text may also hold bytes, as base64 or in hexadecimal digits, so it is
    looked for in these forms."""

    def __init__(self, text: str) -> None:
        content = text.encode()
        self.texts = (text, b64encode(content).decode(), urlsafe_b64encode(content).decode(), content.hex())
        as_text = [b64encode(geometry).decode() for geometry in _GEOMETRIES]
        self._texts = pa.array([*self.texts, _uuid_named(content), *as_text], pa.string())
        self._bytes = pa.array([content, *_GEOMETRIES], pa.binary())
        self._numbers = [byte - 256 if byte > 127 else byte for byte in content]  # Java's bytes have a sign

    def within(self, column: pa.Array) -> pa.Array | None:
        """Which values are the placeholder, or hold it (``bool``); None for a type that cannot."""
        kind = column.type
        if pa.types.is_string(kind):
            return pc.is_in(column, value_set=self._texts)
        if pa.types.is_binary(kind):
            return pc.is_in(column, value_set=self._bytes)
        if pa.types.is_struct(kind):
            return _any([self.within(inner) for inner in column.flatten()])
        if pa.types.is_map(kind):
            column = column.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
            kind = column.type
        return self._in_lists(column) if pa.types.is_list(kind) else None

    def _in_lists(self, column: pa.Array) -> pa.Array | None:
        if pa.types.is_date32(column.type.value_type):
            column = column.cast(pa.list_(pa.int32()))
        inner = column.type.value_type
        if pa.types.is_integer(inner) or pa.types.is_floating(inner):
            lengths = pc.fill_null(pc.equal(pc.list_value_length(column), len(self._numbers)), False)
            if not pc.any(lengths).as_py():
                return None
            return pa.array([value == self._numbers for value in column.to_pylist()], pa.bool_())
        marked = self.within(column.flatten())
        if marked is None:
            return None
        owners = pc.unique(pc.list_parent_indices(column).filter(marked))
        return pc.is_in(pa.array(range(len(column)), owners.type), value_set=owners)


def _uuid_named(content: bytes) -> str:
    """What Java's ``UUID.nameUUIDFromBytes`` gives."""
    return str(UUID(bytes=hashlib.md5(content, usedforsecurity=False).digest(), version=3))


def _any(found_in: list[Any]) -> pa.Array | None:
    marks = [mark for mark in found_in if mark is not None]
    return reduce(pc.or_, marks) if marks else None
