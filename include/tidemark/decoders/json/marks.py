"""Reads the fields that a connector adds to a flattened row: their names begin with ``__``, which columns must not.

The column of ``__op`` is ``op``. With ``tombstones`` the field ``__deleted`` (true, or the text "true") is not a
column: it makes its record a deletion. If a connector writes the schema of a record beside it, the record is the
payload.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import Decoded, Decoder, WithNullText
from tidemark.decoders.json_shapes.nested import Struct
from tidemark.decoders.names import column_of_field

MARK: Final = "__deleted"
WRAPPER: Final = frozenset({"schema", "payload"})


def payload_of(record: dict[str, Any]) -> dict[str, Any]:
    """Return the record itself, without the schema beside it."""
    if record.keys() != WRAPPER or type(record["payload"]) is not dict:
        return record
    payload: dict[str, Any] = record["payload"]
    return payload


def has_marks(struct: Struct) -> bool:
    return any(column_of_field(name) != name for name in struct.names)


def columns_of(fields: Mapping[str, tuple[str, bool]], *, deletes: bool) -> dict[str, tuple[str, bool]]:
    """Return the fields by the names of their columns, without the mark of deletions if ``deletes``."""
    return {column_of_field(name): kind for name, kind in fields.items() if not (deletes and name == MARK)}


class MarkedDecoder:
    """Renames the columns of fields that begin with ``__``.

    With ``deletes`` the mark makes a record a deletion; without it the mark is a column like others.
    """

    def __init__(self, values: Decoder, *, deletes: bool) -> None:
        self._values = values
        self._marks = deletes and MARK in values.schema.names
        kept = [field for field in values.schema if not (self._marks and field.name == MARK)]
        self._kept = [field.name for field in kept]
        self.schema = pa.schema([field.with_name(column_of_field(field.name)) for field in kept])

    @property
    def null_text(self) -> bytes | None:
        return self._values.null_text if isinstance(self._values, WithNullText) else None

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        read = self._values.decode(batch)
        columns = read.rows.select(self._kept).columns
        decoded = replace(read, rows=pa.RecordBatch.from_arrays(columns, schema=self.schema))
        if not self._marks:
            return decoded
        mark = read.rows.column(MARK)
        deleted = pc.fill_null(
            mark if pa.types.is_boolean(mark.type) else pc.equal(mark.cast(pa.string()), "true"), False
        )
        if not pc.any(deleted).as_py():
            return decoded
        stays = pc.invert(deleted)
        unknown = read.unknown and read.unknown.of(read.good.filter(stays))
        deletions = read.good.filter(deleted)
        return replace(decoded, rows=decoded.rows.filter(stays), good=read.good.filter(stays), deletions=deletions,
                       unknown=unknown)  # fmt: skip
