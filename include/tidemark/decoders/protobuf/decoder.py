"""Opens the decoder of Protobuf messages, framed or with the message of one file."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tidemark.decoders.base import REASON_LIMIT, BadRecord, Decoded, Decoder, ErrorClass
from tidemark.decoders.framing import Part, unframe
from tidemark.decoders.joined import joined
from tidemark.decoders.protobuf.framed import message_at, placed
from tidemark.decoders.protobuf.reading import Messages
from tidemark.decoders.protobuf.registered import descriptor_set_of
from tidemark.decoders.registered_schema import RegisteredSchema
from tidemark.decoders.schemas import Schemas


class MessageDecoder:
    """One message per value, without a frame."""

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        self.schema = messages.schema

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        return self._messages.read(batch.column("value").cast(pa.binary()))


class FramedDecoder:
    """Values that name their writer's schema and their message in it, which must be the message that is read.

    All are read with the reader's message: that is how Protobuf resolves an older or a newer one.
    """

    def __init__(self, messages: Messages, message: str, reader: str, schemas: Schemas, part: Part) -> None:
        self._messages, self._message, self._reader = messages, message, reader
        self._schemas, self._part = schemas, part
        self._reasons: dict[tuple[str, tuple[int, ...]], str] = {}
        self.schema = messages.schema

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
            messages, without = placed(group.data)
            errors += [
                BadRecord(group.indices[at].as_py(), f"it does not say which message it is ({named})", schemas=named)
                for at in without
            ]
            for place in messages:
                indices = group.indices.take(place.positions)
                reason = self._why_not(group.writer, place.path)
                if reason:
                    reason = f"{reason} ({named})"[:REASON_LIMIT]
                    errors += [BadRecord(at, reason, ErrorClass.SCHEMA, named) for at in indices.to_pylist()]
                else:
                    decoded = self._messages.read(place.data)
                    bad = tuple(replace(record, schemas=named) for record in decoded.errors)
                    parts.append((replace(decoded, errors=bad), indices))
        return joined(self.schema, parts, errors)

    def _why_not(self, writer: str, path: tuple[int, ...]) -> str:
        """Why the message at a path of a writer's schema is not the one to read; empty when it is."""
        if (writer, path) not in self._reasons:
            self._reasons[writer, path] = self._compared(writer, path)
        return self._reasons[writer, path]

    def _compared(self, writer: str, path: tuple[int, ...]) -> str:
        registered = self._schemas.writer(writer)
        if registered is None:
            return f"the registry has no schema {writer}"
        if registered.kind != "PROTOBUF":
            return f"schema {writer} is {registered.kind}, not PROTOBUF"
        name = message_at(registered.text, path)
        if name is None:
            return f"schema {writer} has no message at {list(path)}"
        return "" if name == self._message else f"it is a {name[:60]}, and {self._message[:60]} is read"


def open_decoder(config: Mapping[str, Any]) -> Decoder:
    """A decoder for ``message`` of the reader's schema; ``ConfigurationError`` when they do not fit."""
    reader = RegisteredSchema.from_dict(config["reader"])
    messages = Messages(descriptor_set_of(reader), config["message"])
    if not config.get("registry"):
        return MessageDecoder(messages)
    schemas = Schemas(config["registry"], config.get("schemas", {}))
    named = str(reader.id) if reader.id >= 0 else "of the file"
    return FramedDecoder(messages, config["message"], named, schemas, Part(config.get("part", Part.VALUE)))
