"""Turns tombstones, records without a value, into rows marked as deleted; their key, as JSON, names the row."""

import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import REASON_LIMIT, BadRecord, Decoded, ErrorClass
from tidemark.decoders.json.nested import Struct
from tidemark.decoders.json.strict import JsonDecoder


class TombstoneDecoder:
    """A JSON decoder that takes tombstones too: in their rows all columns but the named ``fields`` are null.

    The key is a JSON object with at least those fields. With a single field the key may also be its value alone, as
    JSON, or without quotes when the field is text.
    """

    def __init__(self, values: JsonDecoder, fields: Sequence[str]) -> None:
        self._values = values
        named = tuple(field for field in values.struct.fields if field.name in fields)
        self._keys = JsonDecoder(Struct(named))
        self._single = named[0] if len(named) == 1 else None
        self._schema = pa.schema(
            [column if column.name in fields else column.with_nullable(True) for column in values.schema]
        )

    @property
    def schema(self) -> pa.Schema:
        """One column per property; columns that a tombstone does not have are nullable."""
        return self._schema

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Decode values, and the keys of records that have none."""
        is_tombstone = pc.is_null(batch.column("value"))
        if not pc.any(is_tombstone).as_py():
            decoded = self._values.decode(batch)
            rows = pa.RecordBatch.from_arrays(decoded.rows.columns, schema=self._schema)
            return Decoded(rows, decoded.good, decoded.errors, pa.repeat(False, rows.num_rows))
        parts = [self._part(batch, is_tombstone, deleted=deleted) for deleted in (False, True)]
        table = pa.concat_tables([rows for rows, _, _ in parts])
        good = pa.concat_arrays([indices for _, indices, _ in parts])
        deleted = pa.array([False] * parts[0][0].num_rows + [True] * parts[1][0].num_rows, pa.bool_())
        order = pc.sort_indices(good)
        [rows] = table.take(order).combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], self._schema)]
        errors = tuple(sorted(error for _, _, errors in parts for error in errors))
        return Decoded(rows, good.take(order), errors, deleted.take(order))

    def _part(
        self, batch: pa.RecordBatch, is_tombstone: pa.Array, *, deleted: bool
    ) -> tuple[pa.Table, pa.Array, list[BadRecord]]:
        """(rows, their indices in the batch, errors) of the tombstones, or of all other records."""
        indices = pc.indices_nonzero(is_tombstone if deleted else pc.invert(is_tombstone)).cast(pa.int64())
        records = batch.take(indices)
        decoded = self._of_keys(records) if deleted else self._values.decode(records)
        names = decoded.rows.schema.names
        columns = [
            decoded.rows.column(field.name) if field.name in names else pa.nulls(decoded.rows.num_rows, field.type)
            for field in self._schema
        ]
        errors = [bad.at(indices[bad.index].as_py()) for bad in decoded.errors]
        return pa.Table.from_arrays(columns, schema=self._schema), indices.take(decoded.good), errors

    def _of_keys(self, batch: pa.RecordBatch) -> Decoded:
        keys = pa.array([self._as_object(key) for key in batch.column("key").to_pylist()], pa.binary())
        decoded = self._keys.decode(pa.RecordBatch.from_arrays([keys], names=["value"]))
        errors = tuple(
            BadRecord(bad.index, f"a tombstone with a wrong key: {bad.reason}"[:REASON_LIMIT], ErrorClass.KEY)
            for bad in decoded.errors
        )
        return Decoded(decoded.rows, decoded.good, errors)

    def _as_object(self, key: bytes | None) -> bytes | None:
        if self._single is None or key is None or key.lstrip()[:1] == b"{":
            return key
        if pa.types.is_string(self._single.type) and key.lstrip()[:1] != b'"':
            key = json.dumps(key.decode(errors="surrogateescape")).encode()
        return b"{%s: %s}" % (json.dumps(self._single.name).encode(), key)
