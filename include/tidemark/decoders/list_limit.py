"""Limits the memory that the lists of a record take as columns.

An element of a list takes space for all fields of its type, set or not: an element of two bytes whose type has 1,000
number fields takes 8,000 bytes. So a list of 100 kB may need the memory of a whole worker. The sizes here are those of
Arrow's fixed parts; texts are not counted, because they are no larger than in the record.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import BadRecord, Decoded
from tidemark.decoders.batch_parts import leave_out
from tidemark.model.positions import positions

_OFFSET = 4  # bytes that Arrow needs for each text and each list


class ListLimit:
    """Refuses records whose lists would take more than ``limit`` bytes in Arrow columns. Without a limit (None) it
    refuses nothing.

    ``counted`` returns the bytes that the lists of a value take; 0 for a value that cannot be read. It may stop
    counting above the limit. It is called only for values that are long enough to exceed the limit.
    """

    def __init__(self, schema: pa.Schema, limit: int | None, counted: Callable[[bytes], int]) -> None:
        widest = max((widest_element(field.type) for field in schema), default=0)
        self._limit = limit
        self._harmless = None if limit is None or widest == 0 else limit // widest  # an element is a byte or more
        self._counted = counted

    def read(self, values: pa.Array, read: Callable[[pa.Array], Decoded]) -> Decoded:
        """Return the result of ``read`` for the values, with an error for each value whose lists are too large."""
        large = self._too_large(values)
        if not large:
            return read(values)
        others = leave_out(positions(len(values)), pa.array(large, pa.int64()))
        decoded = read(values.take(others)).at(others)
        reason = f"its lists take more than {self._limit:,} bytes as columns (max_list_bytes)"
        errors = [*decoded.errors, *(BadRecord(index, reason) for index in large)]
        return replace(decoded, errors=tuple(sorted(errors)))

    def _too_large(self, values: pa.Array) -> list[int]:
        if self._limit is None or self._harmless is None:
            return []
        lengths = pc.binary_length(values)
        if (pc.max(lengths).as_py() or 0) <= self._harmless:
            return []
        suspects = pc.indices_nonzero(pc.greater(lengths, self._harmless)).to_pylist()
        return [index for index in suspects if self._counted(values[index].as_py()) > self._limit]


def width(kind: pa.DataType) -> int:
    """Return the bytes that a value takes in columns if nothing in it is set."""
    if pa.types.is_struct(kind):
        return sum(width(field.type) for field in kind)
    return (kind.bit_width + 7) // 8 if pa.types.is_primitive(kind) or pa.types.is_decimal(kind) else _OFFSET


def element_width(kind: pa.DataType) -> int:
    """Return the bytes that an element of a list or a map takes."""
    return _OFFSET + width(kind.item_type) if pa.types.is_map(kind) else width(kind.value_type)


def widest_element(kind: pa.DataType) -> int:
    """Return the bytes of the widest element of all lists and maps in a value; 0 if it has none."""
    if pa.types.is_struct(kind):
        return max((widest_element(field.type) for field in kind), default=0)
    if not (pa.types.is_list(kind) or pa.types.is_map(kind)):
        return 0
    inner = kind.item_type if pa.types.is_map(kind) else kind.value_type
    return max(element_width(kind), widest_element(inner))


Count = Callable[[Any], int]


def count_of_lists(kind: pa.DataType) -> Count | None:
    """Return a function that counts the bytes which the lists and maps of a parsed JSON value take; None if the type
    has none.

    A value of another type counts as 0.
    """
    if pa.types.is_struct(kind):
        fields = [(field.name, count) for field in kind if (count := count_of_lists(field.type))]
        return partial(_count_in_object, fields) if fields else None
    if pa.types.is_map(kind):
        return partial(_count_in_map, element_width(kind), count_of_lists(kind.item_type))
    if pa.types.is_list(kind):
        return partial(_count_in_list, element_width(kind), count_of_lists(kind.value_type))
    return None


def _count_in_object(fields: Sequence[tuple[str, Count]], value: Any) -> int:
    return sum(count(value.get(name)) for name, count in fields) if isinstance(value, dict) else 0


def _count_in_list(width: int, inner: Count | None, value: Any) -> int:
    if not isinstance(value, list):
        return 0
    return len(value) * width + (sum(map(inner, value)) if inner else 0)


def _count_in_map(width: int, inner: Count | None, value: Any) -> int:
    return _count_in_list(width, inner, [*value.values()]) if isinstance(value, dict) else 0
