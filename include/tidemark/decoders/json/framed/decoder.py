"""``json_schema``: framed JSON, as Confluent's serializers write it, read with one JSON Schema.

JSON names its fields, so what a record was written with does not decide how it is read: the reader's schema says which
fields become columns, and a record that does not have them is a dead letter that names both schemas.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tidemark.decoders.base import REASON_LIMIT, BadRecord, Decoded, Decoder, ErrorClass
from tidemark.decoders.framing import Part, unframe
from tidemark.decoders.joined import joined
from tidemark.decoders.json.json_schema import struct_of
from tidemark.decoders.json.strict import JsonDecoder
from tidemark.decoders.registered_schema import RegisteredSchema
from tidemark.decoders.schemas import Schemas
from tidemark.errors import ConfigurationError


class FramedJsonDecoder:
    """``values`` reads the JSON of every writer."""

    def __init__(self, values: JsonDecoder, reader: str, schemas: Schemas, part: Part) -> None:
        self._values, self._reader, self._schemas, self._part = values, reader, schemas, part
        self.schema = values.schema

    @property
    def schemas_used(self) -> Mapping[str, Any]:
        return self._schemas.used

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Raises only when the registry does not answer."""
        unframed = unframe(batch, self._part)
        errors = [*unframed.errors]
        errors += [BadRecord(index, "no value (a tombstone)") for index in unframed.missing.to_pylist()]
        parts: list[tuple[Decoded, pa.Array]] = []
        for group in unframed.groups:
            named = f"writer {group.writer}, reader {self._reader}"
            reason = self._why_not(group.writer)
            if reason:
                reason = f"{reason} ({named})"
                errors += [BadRecord(at, reason, ErrorClass.SCHEMA, named) for at in group.indices.to_pylist()]
                continue
            decoded = self._values.decode(pa.RecordBatch.from_arrays([group.data], names=["value"]))
            bad = tuple(_of(record, named) for record in decoded.errors)
            parts.append((replace(decoded, errors=bad), group.indices))
        return joined(self.schema, parts, errors)

    def _why_not(self, writer: str) -> str:
        registered = self._schemas.writer(writer)
        if registered is None:
            return f"the registry has no schema {writer}"
        return "" if registered.kind == "JSON" else f"schema {writer} is {registered.kind}, not JSON"


def _of(record: BadRecord, schemas: str) -> BadRecord:
    """An error with the schemas; a field that does not fit the reader's schema is an error of the schema."""
    error = ErrorClass.SCHEMA if record.reason.startswith("field ") else record.error
    suffix = f" ({schemas})"
    return replace(record, reason=record.reason[: REASON_LIMIT - len(suffix)] + suffix, error=error, schemas=schemas)


def decoder_of(reader: RegisteredSchema) -> JsonDecoder:
    """Reads JSON with a JSON Schema; ``ConfigurationError`` for one that is wrong or has unsupported words."""
    try:
        schema = json.loads(reader.text)
    except (ValueError, RecursionError):
        raise ConfigurationError(
            f"schema {reader.id} of the registry is not JSON", next_step="look at it in the registry"
        ) from None
    return JsonDecoder(struct_of(schema))


def open_decoder(config: Mapping[str, Any]) -> Decoder:
    """The decoder for ``decode`` of an order, in which the reader's schema is pinned."""
    reader = RegisteredSchema.from_dict(config["reader"])
    schemas = Schemas(config["registry"], config.get("schemas", {}))
    named = str(reader.id) if reader.id >= 0 else "of the file"
    return FramedJsonDecoder(decoder_of(reader), named, schemas, Part(config.get("part", Part.VALUE)))
