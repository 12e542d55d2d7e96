"""Opens the decoder of Avro records. Their schemas are in a registry, or all records have the schema of one file."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from tidemark.decoders.base import BadRecord, Decoded, Decoder, ErrorClass
from tidemark.decoders.envelopes.base import open_envelope
from tidemark.decoders.envelopes.enveloped import EnvelopeDecoder
from tidemark.errors import ConfigurationError
from tidemark.providers.avro.columns import NestedReader
from tidemark.providers.avro.fast import FastReader
from tidemark.providers.avro.reading import RecordReader
from tidemark.providers.avro.resolution import NotResolved
from tidemark.providers.avro.row_inside import row_inside
from tidemark.providers.avro.schema import kind_of, parsed
from tidemark.providers.avro.types import AvroRows, rows_of
from tidemark.providers.registry.framed_decoder import FramedDecoder, NotDecoded, OtherRecords
from tidemark.providers.registry.framing import RecordPart, WriterGroup
from tidemark.providers.registry.registered_schema import RegisteredSchema


class AvroDecoder(FramedDecoder):
    """Decodes Avro records into rows of the reader's schema.

    With a registry each record names the schema that it was written with; without one all were written with ``schema``,
    the reader's. Records whose schema has a name for which ``is_other`` is true are filtered.
    """

    def __init__(
        self,
        rows: AvroRows,
        schema: Any,
        config: Mapping[str, Any],
        is_other: Callable[[str], bool] | None = None,
    ) -> None:
        super().__init__(rows.arrow, config)
        self._rows, self._readers_schema, self._is_other = rows, schema, is_other
        self._any_name = config.get("any_record_name", False)
        self._readers: dict[str, RecordReader | FastReader | NestedReader | NotDecoded | OtherRecords] = {}

    def _read(self, group: WriterGroup, named: str) -> Iterator[tuple[pa.Array, Decoded | NotDecoded | OtherRecords]]:
        if group.writer not in self._readers:
            self._readers[group.writer] = self._reader_of(group.writer)
        match self._readers[group.writer]:
            case FastReader() | NestedReader() as fast:
                decoded = fast.read(group.data)
            case RecordReader() as slow:
                decoded = slow.read(group.data.to_pylist())
            case not_read:
                yield group.indices, not_read
                return
        errors = (self._bad(bad.index, bad.reason, self._class(bad.reason), named) for bad in decoded.errors)
        yield group.indices, replace(decoded, errors=tuple(errors))

    def _reader_of(self, name: str) -> RecordReader | FastReader | NestedReader | NotDecoded | OtherRecords:
        """Return the reader for records of a writer, or the reason why they cannot be read."""
        try:
            writer = self._readers_schema if self._schemas is None else self._writer(name)
        except ConfigurationError as problem:
            return NotDecoded(f"schema {name} cannot be used: {problem.what}")
        if isinstance(writer, NotDecoded):
            return writer
        if self._is_other is not None and kind_of(writer) == "record" and self._is_other(writer["name"]):
            return OtherRecords()
        try:
            slow = RecordReader(writer, self._rows, any_name=self._any_name)
        except NotResolved as problem:
            return NotDecoded(f"{f'schema {name}' if name else 'the schema'} does not resolve: {problem}")
        return FastReader.of(writer, self._rows, slow) or NestedReader.of(writer, self._rows, slow) or slow

    def _writer(self, name: str) -> Any:
        registered = self._written(name, "AVRO")
        return NotDecoded(registered) if isinstance(registered, str) else parsed(registered.text, registered.references)

    def _class(self, reason: str) -> ErrorClass:
        return ErrorClass.SCHEMA if reason.startswith("does not resolve") else self._part.error

    def _missing(self, index: int) -> BadRecord:
        return BadRecord(index, f"it has no {self._part}", self._part.error)

    def _bad(self, index: int, reason: str, error: ErrorClass, named: str) -> BadRecord:
        if self._part is RecordPart.KEY:
            reason, error = f"the key: {reason}", ErrorClass.KEY
        return super()._bad(index, reason, error, named)


def open_decoder(config: Mapping[str, Any]) -> Decoder:
    """Open the decoder for ``decode`` of an order, in which the reader's schema is pinned.

    Raises ``ConfigurationError`` for a wrong schema. If a record names an id that is not pinned, the decoder asks the
    registry.
    """
    reader = RegisteredSchema.from_dict(config["reader"])
    schema = parsed(reader.text, reader.references)
    if "envelope" not in config:
        return AvroDecoder(rows_of(schema), schema, config)
    envelope = open_envelope(config["envelope"], partial(row_inside, schema))
    return EnvelopeDecoder(
        AvroDecoder(rows_of(schema, envelope.unread), schema, config, envelope.is_other_record), envelope
    )
