"""Records without a value as rows that say "deleted": their key, as JSON, holds the fields that name the row."""

import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import Decoded
from tidemark.decoders.json.nested import Record
from tidemark.decoders.json.strict import JsonDecoder


class TombstoneDecoder:
    """A JSON decoder whose records may lack a value; all columns but the named ``fields`` are null then.

    The key is a JSON object with at least those fields. When only one is named it may also be that value itself,
    as JSON, or for a field of text as bare text.
    """

    def __init__(self, values: JsonDecoder, fields: Sequence[str]) -> None:
        self._values = values
        named = tuple(field for field in values.record.fields if field.name in fields)
        self._keys = JsonDecoder.of(Record(named))
        self._bare = named[0] if len(named) == 1 else None
        self._schema = pa.schema([one if one.name in fields else one.with_nullable(True) for one in values.schema])

    @property
    def schema(self) -> pa.Schema:
        """One column per property; those a tombstone lacks can hold null."""
        return self._schema

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Decode values, and the keys of records that have none."""
        gone = pc.is_null(batch.column("value"))
        if not pc.any(gone).as_py():
            decoded = self._values.decode(batch)
            rows = pa.RecordBatch.from_arrays(decoded.rows.columns, schema=self._schema)
            return Decoded(rows, decoded.good, decoded.errors, pa.repeat(False, rows.num_rows))
        parts = [self._part(batch, gone, deleted=deleted) for deleted in (False, True)]
        table = pa.concat_tables([rows for rows, _, _ in parts])
        good = pa.concat_arrays([at for _, at, _ in parts])
        deleted = pa.array([False] * parts[0][0].num_rows + [True] * parts[1][0].num_rows, pa.bool_())
        order = pc.sort_indices(good)
        [rows] = table.take(order).combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], self._schema)]
        errors = tuple(sorted(error for _, _, found in parts for error in found))
        return Decoded(rows, good.take(order), errors, deleted.take(order))

    def _part(
        self, batch: pa.RecordBatch, gone: pa.Array, *, deleted: bool
    ) -> tuple[pa.Table, pa.Array, list[tuple[int, str]]]:
        """Rows of one kind, and where in the batch they and the errors are."""
        places = pc.indices_nonzero(gone if deleted else pc.invert(gone)).cast(pa.int64())
        chosen = batch.take(places)
        decoded = self._of_keys(chosen) if deleted else self._values.decode(chosen)
        names = decoded.rows.schema.names
        columns = [
            decoded.rows.column(one.name) if one.name in names else pa.nulls(decoded.rows.num_rows, one.type)
            for one in self._schema
        ]
        errors = [(places[at].as_py(), reason) for at, reason in decoded.errors]
        return pa.Table.from_arrays(columns, schema=self._schema), places.take(decoded.good), errors

    def _of_keys(self, batch: pa.RecordBatch) -> Decoded:
        keys = pa.array([self._as_object(key) for key in batch.column("key").to_pylist()], pa.binary())
        decoded = self._keys.decode(pa.RecordBatch.from_arrays([keys], names=["value"]))
        errors = tuple((at, f"a tombstone, and its key is no use: {reason}"[:200]) for at, reason in decoded.errors)
        return Decoded(decoded.rows, decoded.good, errors)

    def _as_object(self, key: bytes | None) -> bytes | None:
        if self._bare is None or key is None or key.lstrip()[:1] == b"{":
            return key
        if pa.types.is_string(self._bare.type) and key.lstrip()[:1] != b'"':
            key = json.dumps(key.decode(errors="surrogateescape")).encode()
        return b"{%s: %s}" % (json.dumps(self._bare.name).encode(), key)
