"""Reads simple records with Arrow's JSON parser, a column at a time.

That parser is four times as fast as Python's, but accepts too much: content after the object, duplicate names, missing
fields. So it reads only records that match a pattern: one object, its names in a known order, each once, each value of
the right type, nothing before or after. A record that does not match need not be wrong: Python's parser reads it. Only
flat schemas have a pattern.
"""

import json
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import UnknownFields, unknown_at
from tidemark.decoders.json_shapes.nested import Field, Struct
from tidemark.decoders.json_shapes.patterns import (
    BYTES_LIMIT,
    NUMBER,
    TEXT,
    is_plain_name,
    parsed,
    read_as,
    shaped,
    value_pattern,
)
from tidemark.decoders.names import label

ORDERS = 4  # orders of names that it learns; Python's parser reads records with another order
NAMES_LIMIT = 500  # most names of a record; each makes the pattern longer


class PlainReader:
    """Learns the orders of names from records that Python's parser has read. Picklable; each task has its own."""

    def __init__(self, struct: Struct) -> None:
        self._fields = {field.name: field for field in struct.fields}
        self._required = {field.name for field in struct.fields if field.required}
        self._values = {name: _nullable(field) for name, field in self._fields.items()}
        self._orders: list[tuple[str, ...]] = []
        self._unknown: dict[str, None] = {}  # names in these orders that the schema does not have
        self._pattern = ""
        self._read_as = pa.schema([(field.name, read_as(field.shape)) for field in struct.fields])

    @classmethod
    def of(cls, struct: Struct) -> Self | None:
        """Return a reader; None for a schema that has no pattern."""
        return cls(struct) if not struct.rules and all(value_pattern(field.shape) for field in struct.fields) else None

    def learn(self, record: Mapping[str, Any], value: bytes) -> None:
        """Learn the names of a good record: add them to an order that is known, or as a new order."""
        del value
        names = tuple(record)
        if not 0 < len(names) <= NAMES_LIMIT or not all(map(is_plain_name, names)):
            return
        for index, known in enumerate(self._orders):
            joined = _joined(known, names)
            if joined is not None:
                self._orders[index] = joined
                break
        else:
            if len(self._orders) == ORDERS:
                return
            self._orders.append(names)
        self._unknown |= dict.fromkeys(name for name in names if name not in self._fields)
        self._pattern = f"^(?:{'|'.join(map(self._object, self._orders))})$"

    def fitting(self, values: pa.Array) -> pa.Array | None:
        """Return a ``bool`` for each value (binary): true if it matches the pattern. None if the pattern cannot be
        applied."""
        if not self._pattern or not pa.types.is_binary(values.type) or values.nbytes > BYTES_LIMIT:
            return None
        try:
            matched = pc.match_substring_regex(values.cast(pa.string()), self._pattern)
        except pa.ArrowInvalid:  # bytes that are not UTF-8, or a pattern that is too large
            return None
        return pc.fill_null(matched, False)

    def columns(self, values: pa.Array) -> list[pa.Array]:
        """Return the columns of these values, which must all match.

        Raises ``Misfit`` or ``pa.ArrowInvalid`` for a date or time that does not exist.
        """
        read = parsed(values, self._read_as)
        return [shaped(field.shape, read.column(name).combine_chunks()) for name, field in self._fields.items()]

    def unknown(self, values: pa.Array) -> UnknownFields | None:
        """Return the fields of these values that the schema does not have. All values must match.

        Returns at once if no learned order has an unknown field.
        """
        having: dict[str, pa.Array] = {}
        for name in self._unknown:
            # Only a name stands right before a colon. A quote inside a text has a backslash before it.
            has_name = pc.match_substring(values, f'"{name}":')
            having[label(name)] = pc.or_(having[label(name)], has_name) if label(name) in having else has_name
        places = {path: pc.indices_nonzero(has_name).cast(pa.int64()) for path, has_name in having.items()}
        return unknown_at({path: records for path, records in places.items() if len(records)})

    def _object(self, order: tuple[str, ...]) -> str:
        first, *others = (self._member(name) for name in order)
        members = [
            f"(?:, ?{member})" if name in self._required else f"(?:, ?{member})?"
            for name, member in zip(order[1:], others, strict=True)
        ]
        return rf"\{{{first}{''.join(members)}\}}"

    def _member(self, name: str) -> str:
        value = self._values.get(name, rf"{TEXT}|{NUMBER}|true|false|null")
        return rf"{re.escape(json.dumps(name, ensure_ascii=False))}: ?(?:{value})"


def _joined(known: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return ``known`` with the new names of ``names`` inserted at their places; None if the two orders contradict each
    other.

    Both must have the same first name, because the pattern has a comma before every other name.
    """
    shared = [name for name in known if name in names]
    if known[:1] != names[:1] or shared != [name for name in names if name in known]:
        return None
    joined = list(known)
    for before, name in pairwise(names):
        if name not in known:
            joined.insert(joined.index(before) + 1, name)
    return tuple(joined)


def _nullable(field: Field) -> str:
    value = value_pattern(field.shape) or ""
    return f"{value}|null" if field.nullable else value
