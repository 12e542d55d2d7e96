"""Decodes whole records: value, key and headers as columns of one row, and deletions with the fields of their key.

Columns of the key begin with ``key_``; a key that is one value is the column ``key``. A record whose key cannot be
decoded is an error of class ``key``, even if its value is bad too. A record without a key is one only if its value is
good.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import NONE, BadRecord, Decoded, Decoder, ErrorClass, UnknownFields, schemas_of, together
from tidemark.decoders.batch_parts import sorted_indices, values_and_deletions
from tidemark.decoders.names import HEADERS_COLUMN, key_column
from tidemark.model.record_schema import HEADERS


class RecordDecoder:
    """Joins a decoder of values and one of keys. With ``tombstones`` a deletion is a row marked as deleted.

    A record without a value is a deletion, and so is a record whose envelope says so. In its row the columns of the
    value are null, except those in ``tombstones``, which get the fields of the key.
    """

    def __init__(self, values: Decoder, keys: Decoder | None, *, headers: bool, tombstones: Sequence[str] = ()) -> None:
        self._values, self._keys, self._headers = values, keys, headers
        self._tombstones = frozenset(tombstones)
        data = list(values.schema)
        if tombstones:
            data = [field if field.name in self._tombstones else field.with_nullable(True) for field in data]
        named = [field.with_name(key_column(field.name)) for field in keys.schema] if keys else []
        self.schema = pa.schema([*named, *data, *([pa.field(HEADERS_COLUMN, HEADERS)] if headers else [])])

    @property
    def schemas_used(self) -> Mapping[str, Any]:
        return {**schemas_of(self._values), **schemas_of(self._keys)}

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        if self._tombstones:
            values, deletions = values_and_deletions(self._values, batch)
        else:
            values, deletions = self._values.decode(batch), NONE
        keys = self._keys.decode(_keys_of(batch)) if self._keys else None
        good = sorted_indices(pa.concat_arrays([values.good, deletions])) if len(deletions) else values.good
        if keys is not None and keys.errors:
            good = good.filter(pc.is_in(good, value_set=keys.good))
        at = None if good.equals(values.good) else pc.index_in(good, value_set=values.good)
        columns = list(values.rows.columns if at is None else values.rows.take(at).columns)
        deleted = values.deleted if at is None or values.deleted is None else values.deleted.take(at)
        if self._tombstones:
            deleted = pa.repeat(False, len(good)) if at is None else pc.is_null(at)
        of_keys = self._key_columns(keys, good)
        if len(deletions):
            columns = self._filled(columns, of_keys, deleted)
        headers = [batch.column("headers").take(good).cast(HEADERS)] if self._headers else []
        rows = pa.RecordBatch.from_arrays([*of_keys.values(), *columns, *headers], schema=self.schema)
        return Decoded(
            rows,
            good,
            _errors(values, keys, batch.column("key")),
            deleted,
            _unknown(values, keys, good),
            filtered=values.filtered,
        )

    def _key_columns(self, keys: Decoded | None, good: pa.Array) -> dict[str, pa.Array]:
        if keys is None:
            return {}
        rows = keys.rows
        if not good.equals(keys.good):
            rows = rows.take(pc.index_in(good, value_set=keys.good))
        return dict(zip(map(key_column, rows.schema.names), rows.columns, strict=True))

    def _filled(self, columns: list[pa.Array], keys: Mapping[str, pa.Array], deleted: pa.Array) -> list[pa.Array]:
        """Return the columns of the value; in deletions those in ``tombstones`` get the fields of the key."""
        filled = []
        for field, column in zip(self._values.schema, columns, strict=True):
            source = keys.get(key_column(field.name)) if field.name in self._tombstones else None
            filled.append(column if source is None else pc.if_else(deleted, source.cast(field.type), column))
        return filled


def _keys_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with its keys as values, because a decoder decodes values."""
    return batch.set_column(batch.schema.get_field_index("value"), "value", batch.column("key"))


def _errors(values: Decoded, keys: Decoded | None, raw_keys: pa.Array) -> tuple[BadRecord, ...]:
    if keys is None:
        return values.errors
    errors = {bad.index: bad for bad in values.errors}
    filtered = set(values.filtered.to_pylist())  # a heartbeat has a key of its own
    for bad in keys.errors:
        if bad.index in filtered:
            continue
        if raw_keys[bad.index].is_valid:
            errors[bad.index] = replace(bad, error=ErrorClass.KEY)
        else:  # an error of the value says more, such as that of a truncated table
            errors.setdefault(bad.index, replace(bad, reason="it has no key", error=ErrorClass.KEY))
    return tuple(errors[index] for index in sorted(errors))


def _unknown(values: Decoded, keys: Decoded | None, good: pa.Array) -> UnknownFields | None:
    of_keys = keys.unknown.of_keys() if keys is not None and keys.unknown else None
    unknown = together([values.unknown, of_keys])
    return unknown and unknown.of(good)
