"""Opens the decoder of Avro records, framed or with the schema of one file."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from tidemark.decoders.base import BadRecord, Decoded, Decoder, ErrorClass
from tidemark.decoders.envelopes.base import open_envelope
from tidemark.decoders.envelopes.enveloped import EnvelopeDecoder
from tidemark.errors import ConfigurationError
from tidemark.providers.avro.fast import FastReader
from tidemark.providers.avro.reading import read
from tidemark.providers.avro.resolution import mismatch
from tidemark.providers.avro.row_inside import row_inside
from tidemark.providers.avro.types import AvroSchema, parsed
from tidemark.providers.registry.framed_decoder import FramedDecoder, NotDecoded, OtherRecords
from tidemark.providers.registry.framing import RecordPart, WriterGroup
from tidemark.providers.registry.registered_schema import RegisteredSchema


class AvroDecoder(FramedDecoder):
    """With a registry each record names the schema it was written with, without it all are written with ``schema``, the
    reader's. The field ``unread`` is no column, whatever it holds. Records whose schema has a name that ``is_other``
    knows are filtered."""

    def __init__(
        self,
        schema: AvroSchema,
        config: Mapping[str, Any],
        is_other: Callable[[str], bool] | None = None,
        unread: str | None = None,
    ) -> None:
        self._reader_schema = schema if unread is None else schema.without(unread)
        super().__init__(self._reader_schema.arrow, config)
        self._is_other = is_other
        self._writers: dict[str, AvroSchema | NotDecoded | OtherRecords] = {}
        self._fast: dict[str, FastReader | None] = {}

    def _read(self, group: WriterGroup, named: str) -> Iterator[tuple[pa.Array, Decoded | NotDecoded | OtherRecords]]:
        writer = self._writer(group.writer)
        if not isinstance(writer, AvroSchema):
            yield group.indices, writer
            return
        decoded = self._decoded(group, writer)
        errors = (self._bad(bad.index, bad.reason, self._class(bad.reason), named) for bad in decoded.errors)
        yield group.indices, replace(decoded, errors=tuple(errors))

    def _decoded(self, group: WriterGroup, writer: AvroSchema) -> Decoded:
        if group.writer not in self._fast:
            self._fast[group.writer] = FastReader.of(writer, self._reader_schema)
        fast = self._fast[group.writer]
        return fast.read(group.data) if fast else read(group.data.to_pylist(), writer, self._reader_schema)

    def _writer(self, name: str) -> AvroSchema | NotDecoded | OtherRecords:
        """The schema of a writer, or why its records are not read with it."""
        if self._schemas is None:
            return self._reader_schema
        if name not in self._writers:
            self._writers[name] = self._resolved(name, self._written(name, "AVRO"))
        return self._writers[name]

    def _resolved(self, name: str, registered: RegisteredSchema | str) -> AvroSchema | NotDecoded | OtherRecords:
        if isinstance(registered, str):
            return NotDecoded(registered)
        try:
            writer = parsed(registered.text, registered.references)
        except ConfigurationError as problem:
            return NotDecoded(f"schema {name} cannot be used: {problem.what}")
        if self._is_other is not None and writer.is_record and self._is_other(writer.full["name"]):
            return OtherRecords()
        reason = mismatch(writer.full, self._reader_schema.full)
        return writer if reason is None else NotDecoded(f"schema {name} does not resolve: {reason}")

    def _class(self, reason: str) -> ErrorClass:
        return ErrorClass.SCHEMA if reason.startswith("does not resolve") else self._part.error

    def _missing(self, index: int) -> BadRecord:
        return BadRecord(index, f"it has no {self._part}", self._part.error)

    def _bad(self, index: int, reason: str, error: ErrorClass, named: str) -> BadRecord:
        if self._part is RecordPart.KEY:
            reason, error = f"the key: {reason}", ErrorClass.KEY
        return super()._bad(index, reason, error, named)


def open_decoder(config: Mapping[str, Any]) -> Decoder:
    """The decoder for ``decode`` of an order, in which the reader's schema is pinned.

    Raises ``ConfigurationError`` for a wrong schema; the registry is asked when a record names an id that is not
    pinned.
    """
    reader = RegisteredSchema.from_dict(config["reader"])
    schema = parsed(reader.text, reader.references)
    if "envelope" not in config:
        return AvroDecoder(schema, config)
    row = partial(row_inside, text=reader.text, references=reader.references, schema=schema)
    envelope = open_envelope(config["envelope"], row)
    return EnvelopeDecoder(AvroDecoder(schema, config, envelope.is_other_record, envelope.unread), envelope)
