"""Turns deletions into rows that are marked as deleted. The key of the record, as JSON, names the row.

A record without a value (a tombstone) is a deletion, and so is a record whose envelope says so. If an envelope
describes the row before the deletion, the key must agree with it: a key of another converter would mark another row as
deleted.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import REASON_LIMIT, BadRecord, Decoded, Decoder, ErrorClass, NamedRows
from tidemark.decoders.batch_parts import joined, leave_out, values_and_deletions
from tidemark.decoders.json.strict import JsonDecoder

_OF_STRING_CONVERTER: Final = b"Struct{"  # so begins a key with fields that Connect's StringConverter wrote
_NULL_KEYS: Final = (b"null", b'{"schema":null,"payload":null}')
_NO_KEY: Final = "it has no key: without one its order among other changes of the row is not known"


class TombstoneDecoder:
    """Decodes deletions too: in their rows all columns except the named ``fields`` are null.

    The key is a JSON object with at least those fields. With a single field the key may also be its bare value, as
    JSON, or without quotes if the field is text. ``rows`` knows the shapes of all fields. With ``needs_keys`` a row
    without a key is an error too.
    """

    def __init__(self, values: Decoder, rows: JsonDecoder, fields: Sequence[str], *, needs_keys: bool = False) -> None:
        self._values, self._needs_keys = values, needs_keys
        self._keys = rows.only(fields)
        named = self._keys.struct.fields
        self._single = named[0] if len(named) == 1 else None
        self.schema = pa.schema(
            [column if column.name in fields else column.with_nullable(True) for column in values.schema]
        )

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Decode values, and the keys of deletions."""
        values, deletions = values_and_deletions(self._values, batch)
        values = replace(values, rows=pa.RecordBatch.from_arrays(values.rows.columns, schema=self.schema))
        if self._needs_keys:
            values = _with_keys(values, batch.column("key"))
        if not len(deletions):
            return replace(values, deleted=pa.repeat(False, values.rows.num_rows))
        keys = self._decode_keys(batch.take(deletions))
        if values.named is not None:
            keys = _agreeing(keys, values.named.at(pc.index_in(values.named.records, value_set=deletions)))
        columns = [
            keys.rows.column(field.name)
            if field.name in keys.rows.schema.names
            else pa.nulls(keys.rows.num_rows, field.type)
            for field in self.schema
        ]
        deleted_rows = replace(keys, rows=pa.RecordBatch.from_arrays(columns, schema=self.schema)).at(deletions)
        decoded = joined(self.schema, [values, deleted_rows])
        return replace(decoded, deleted=pc.is_in(decoded.good, value_set=deletions))

    def _decode_keys(self, batch: pa.RecordBatch) -> Decoded:
        given = batch.column("key").to_pylist()
        objects = [self._as_object(key) for key in given]
        keys = pa.array(objects, pa.binary())
        decoded = self._keys.decode(pa.RecordBatch.from_arrays([keys], names=["value"]))
        # ``_as_object`` wrapped a bare key in an object. An unknown field there means that the key was not one value.
        with_unknown = decoded.unknown.records.to_pylist() if decoded.unknown else []
        several = {at for at in with_unknown if objects[at] != given[at]}
        alone = pa.array([at not in several for at in decoded.good.to_pylist()], pa.bool_())
        errors = [
            BadRecord(at, "a deletion with a wrong key: not JSON: more content after the first value", ErrorClass.KEY)
            for at in several
        ]
        for bad in decoded.errors:
            reason = bad.reason if keys[bad.index].is_valid else "there is none"
            wrong = f"a deletion with a wrong key: {reason}"[:REASON_LIMIT]
            errors.append(BadRecord(bad.index, wrong, ErrorClass.KEY))
        return Decoded(decoded.rows.filter(alone), decoded.good.filter(alone), tuple(errors))

    def _as_object(self, key: bytes | None) -> bytes | None:
        if self._single is None or key is None or key.lstrip()[:1] == b"{":
            return key
        if key.startswith(_OF_STRING_CONVERTER):
            return key
        if pa.types.is_string(self._single.shape.arrow) and key.lstrip()[:1] != b'"':
            key = json.dumps(key.decode(errors="surrogateescape")).encode()
        return b"{%s: %s}" % (json.dumps(self._single.name).encode(), key)


def _with_keys(values: Decoded, keys: pa.Array) -> Decoded:
    """Return the values of records that have a key; the others become errors. In JSON null, or null beside a schema, is
    no key."""
    absent = pc.or_(pc.is_null(keys), pc.is_in(keys, value_set=pa.array(_NULL_KEYS, pa.binary())))
    keyless = values.good.filter(absent.take(values.good))
    if not len(keyless):
        return values
    stays = pc.invert(pc.is_in(values.good, value_set=keyless))
    errors = [BadRecord(at, _NO_KEY, ErrorClass.KEY) for at in keyless.to_pylist()]
    good = values.good.filter(stays)
    return replace(
        values,
        rows=values.rows.filter(stays),
        good=good,
        errors=tuple(sorted((*values.errors, *errors))),
        unknown=values.unknown and values.unknown.of(good),
    )


def _agreeing(keys: Decoded, named: NamedRows) -> Decoded:
    """Return the keys that agree with the row in ``named``; the others become errors. Fields that are null there match
    any key."""
    at = pc.index_in(keys.good, value_set=named.records)
    differs = pa.repeat(False, len(at))
    for name in named.rows.schema.names:
        before, key = named.rows.column(name).take(at), keys.rows.column(name)
        if not pa.types.is_nested(key.type):
            differs = pc.or_(differs, pc.fill_null(pc.not_equal(before, key), False))
    others = keys.good.filter(differs)
    good = leave_out(keys.good, others)
    reason = "a deletion with a wrong key: the row before it has another key"
    errors = [BadRecord(index, reason, ErrorClass.KEY) for index in others.to_pylist()]
    return replace(
        keys, rows=keys.rows.filter(pc.invert(differs)), good=good, errors=tuple(sorted((*keys.errors, *errors)))
    )
