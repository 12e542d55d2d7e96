"""``json_schema``: framed JSON, as Confluent's serializers write it, read with one JSON Schema.

JSON names its fields, so the writer's schema does not decide how a record is read. The reader's schema says which
fields become columns. A record that does not have them is a dead letter that names both schemas.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tidemark.decoders.base import REASON_LIMIT, BadRecord, Decoded, Decoder, ErrorClass
from tidemark.decoders.json.on_unknown import on_unknown
from tidemark.decoders.json.strict import JsonDecoder
from tidemark.providers.registry.framed_decoder import FramedDecoder, NotDecoded
from tidemark.providers.registry.framing import WriterGroup
from tidemark.providers.registry.json_schema.registered import struct_of_registered
from tidemark.providers.registry.registered_schema import RegisteredSchema


class FramedJsonDecoder(FramedDecoder):
    """Reads the JSON of every writer in the same way."""

    def __init__(self, values: JsonDecoder, config: Mapping[str, Any]) -> None:
        super().__init__(values.schema, config)
        self._values = values

    def _read(self, group: WriterGroup, named: str) -> Iterator[tuple[pa.Array, Decoded | NotDecoded]]:
        writer = self._written(group.writer, "JSON")
        if isinstance(writer, str):
            yield group.indices, NotDecoded(writer)
            return
        decoded = self._values.decode(pa.RecordBatch.from_arrays([group.data], names=["value"]))
        yield group.indices, replace(decoded, errors=tuple(_of(record, named) for record in decoded.errors))


def _of(record: BadRecord, schemas: str) -> BadRecord:
    """Return an error with the names of the schemas. A field that does not fit the reader's schema is an error of the
    schema."""
    error = ErrorClass.SCHEMA if record.reason.startswith("field ") else record.error
    suffix = f" ({schemas})"
    return replace(record, reason=record.reason[: REASON_LIMIT - len(suffix)] + suffix, error=error, schemas=schemas)


def decoder_of(reader: RegisteredSchema, config: Mapping[str, Any]) -> JsonDecoder:
    """Return a decoder for a JSON Schema; ``ConfigurationError`` if it is wrong or has unsupported words."""
    return JsonDecoder(struct_of_registered(reader), config.get("max_list_bytes"), on_unknown(config))


def open_decoder(config: Mapping[str, Any]) -> Decoder:
    """Open the decoder for ``decode`` of an order, in which the reader's schema is pinned."""
    return FramedJsonDecoder(decoder_of(RegisteredSchema.from_dict(config["reader"]), config), config)
