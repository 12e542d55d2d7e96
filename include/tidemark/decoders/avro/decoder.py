"""Opens the decoder of Avro records, framed or with the schema of one file."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.avro.fast import FastReader
from tidemark.decoders.avro.reading import Reading, read
from tidemark.decoders.avro.resolution import mismatch
from tidemark.decoders.avro.row_inside import row_inside
from tidemark.decoders.avro.types import AvroSchema, parsed
from tidemark.decoders.base import NONE, REASON_LIMIT, BadRecord, Decoded, Decoder, ErrorClass
from tidemark.decoders.deletions import in_order
from tidemark.decoders.envelopes.base import open_envelope
from tidemark.decoders.envelopes.enveloped import EnvelopeDecoder
from tidemark.decoders.joined import joined
from tidemark.decoders.schema_registry.framing import RecordPart, WriterGroup, unframe
from tidemark.decoders.schema_registry.registered_schema import RegisteredSchema
from tidemark.decoders.schema_registry.schemas import Schemas
from tidemark.errors import ConfigurationError


class AvroDecoder:
    """``reader`` decides the columns. With ``schemas`` each record names the schema it was written with, without them
    all are written with the reader's. The field ``unread`` is no column, whatever it holds. Records whose schema has a
    name that ``is_other`` knows are filtered."""

    def __init__(
        self,
        reader: RegisteredSchema,
        schemas: Schemas | None = None,
        part: RecordPart = RecordPart.VALUE,
        is_other: Callable[[str], bool] | None = None,
        unread: str | None = None,
    ) -> None:
        self._is_other = is_other
        schema = parsed(reader.text, reader.references)
        self._reader = schema if unread is None else schema.without(unread)
        self._reader_name = reader.name
        self._schemas = schemas
        self._part = part
        self._writers: dict[str, AvroSchema | str | None] = {}
        self._fast: dict[str, FastReader | None] = {}

    @cached_property
    def schema(self) -> pa.Schema:
        return self._reader.arrow

    @property
    def schemas_used(self) -> Mapping[str, Any]:
        return self._schemas.used if self._schemas is not None else {}

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Decode the values, or the keys, of a batch. Raises only when the registry does not answer."""
        errors: list[BadRecord] = []
        parts: list[tuple[pa.RecordBatch, pa.Array]] = []
        filtered: list[pa.Array] = [NONE]
        if self._schemas is None:
            payloads = batch.column(self._part).cast(pa.binary())
            missing = pc.indices_nonzero(pc.is_null(payloads)).cast(pa.int64())
            present = pc.indices_nonzero(pc.is_valid(payloads)).cast(pa.int64())
            groups: tuple[WriterGroup, ...] = (WriterGroup("", present, payloads.take(present)),)
        else:
            unframed = unframe(batch, self._part)
            groups, missing = unframed.groups, unframed.missing
            errors += unframed.errors
        errors += [BadRecord(at, f"it has no {self._part}", self._part.error) for at in missing.to_pylist()]
        for group in groups:
            writer = self._writer(group.writer)
            if writer is None:
                filtered.append(group.indices)
                continue
            if isinstance(writer, str):
                named = self._named(group.writer)
                errors += [self._bad(at, writer, ErrorClass.SCHEMA, named) for at in group.indices.to_pylist()]
                continue
            reading = self._read(group, writer)
            indices = group.indices.take(pa.array(reading.good, pa.int64()))
            parts.append((reading.rows, indices))
            if reading.bad:
                named, owners = self._named(group.writer), group.indices.to_pylist()
                errors += [self._bad(owners[at], reason, self._class(reason), named) for at, reason in reading.bad]
        return replace(joined(self.schema, parts, errors), filtered=in_order(pa.concat_arrays(filtered)))

    def _read(self, group: WriterGroup, writer: AvroSchema) -> Reading:
        if group.writer not in self._fast:
            self._fast[group.writer] = FastReader.of(writer, self._reader)
        fast = self._fast[group.writer]
        return fast.read(group.data) if fast else read(group.data.to_pylist(), writer, self._reader)

    def _writer(self, name: str) -> AvroSchema | str | None:
        """The schema of a writer, or why none of its records can be read; None when they are filtered."""
        if self._schemas is None:
            return self._reader
        if name not in self._writers:
            self._writers[name] = self._resolved(name, self._schemas.writer_of(name, "AVRO"))
        return self._writers[name]

    def _resolved(self, name: str, registered: RegisteredSchema | str) -> AvroSchema | str | None:
        if isinstance(registered, str):
            return registered
        try:
            writer = parsed(registered.text, registered.references)
        except ConfigurationError as problem:
            return f"schema {name} cannot be used: {problem.what}"
        if self._is_other is not None and writer.is_record and self._is_other(writer.full["name"]):
            return None
        reason = mismatch(writer.full, self._reader.full)
        return writer if reason is None else f"schema {name} does not resolve: {reason}"

    def _named(self, writer: str) -> str:
        return f"writer {writer}, reader {self._reader_name}" if writer else ""

    def _class(self, reason: str) -> ErrorClass:
        return ErrorClass.SCHEMA if reason.startswith("does not resolve") else self._part.error

    def _bad(self, index: int, reason: str, error: ErrorClass, schemas: str) -> BadRecord:
        reason = f"{reason} ({schemas})" if schemas else reason
        if self._part is RecordPart.KEY:
            reason, error = f"the key: {reason}", ErrorClass.KEY
        return BadRecord(index, _short(reason), error, schemas)


def _short(reason: str) -> str:
    return reason.encode("utf-8", "replace").decode()[:REASON_LIMIT]


def open_decoder(config: Mapping[str, Any]) -> Decoder:
    """The decoder for ``decode`` of an order, in which the reader's schema is pinned.

    Raises ``ConfigurationError`` for a wrong schema; the registry is asked when a record names an id that is not
    pinned.
    """
    reader = RegisteredSchema.from_dict(config["reader"])
    registry = config.get("registry")
    schemas = Schemas(registry, config.get("schemas", {})) if registry else None
    part = RecordPart(config.get("part", RecordPart.VALUE))
    if "envelope" not in config:
        return AvroDecoder(reader, schemas, part)
    row = row_inside(reader.text, reader.references, parsed(reader.text, reader.references))
    envelope = open_envelope(config["envelope"], row)
    return EnvelopeDecoder(AvroDecoder(reader, schemas, part, envelope.is_other_record, envelope.unread), envelope)
