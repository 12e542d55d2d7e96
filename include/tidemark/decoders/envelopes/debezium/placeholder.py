"""Finds the placeholder that Debezium writes for a value which the database did not tell it.

PostgreSQL does not repeat a large value that an update left alone, unless the table has REPLICA IDENTITY FULL.
Debezium writes a text then; for bytes the bytes of that text, for a list a list of it, for a list of numbers its
characters, for a map the text as name and as value (source: ``unavailable.value.placeholder`` in Debezium's
documentation, and its class ``UnchangedToastedPlaceholder``).
"""

from base64 import b64encode
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


class PlaceholderFinder:
    """``text`` is the placeholder; a column of text may also hold bytes as base64, so it is looked for in this form."""

    def __init__(self, text: str) -> None:
        self.texts = (text, b64encode(text.encode()).decode())
        self._texts = pa.array(self.texts, pa.string())
        self._bytes = text.encode()
        self._numbers = [ord(character) for character in text]

    def within(self, column: pa.Array) -> pa.Array | None:
        """Which values are the placeholder, or hold it (``bool``); None for a type that cannot."""
        kind = column.type
        if pa.types.is_string(kind):
            return pc.is_in(column, value_set=self._texts)
        if pa.types.is_binary(kind):
            return pc.fill_null(pc.equal(column, self._bytes), False)
        if pa.types.is_struct(kind):
            return _any([self.within(inner) for inner in column.flatten()])
        if pa.types.is_map(kind):
            column = column.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
            kind = column.type
        return self._in_lists(column) if pa.types.is_list(kind) else None

    def _in_lists(self, column: pa.Array) -> pa.Array | None:
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


def _any(found_in: list[Any]) -> pa.Array | None:
    marks = [mark for mark in found_in if mark is not None]
    united = None
    for mark in marks:
        united = mark if united is None else pc.or_(united, mark)
    return united
