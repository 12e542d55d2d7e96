"""Opens the decoder of Protobuf messages. Their schemas are in a registry, or all have the message of one file."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from tidemark.decoders.base import Decoded, Decoder, ErrorClass
from tidemark.decoders.envelopes.base import no_row_inside, open_envelope
from tidemark.decoders.envelopes.enveloped import EnvelopeDecoder
from tidemark.providers.protobuf.framed import message_at, split_by_message
from tidemark.providers.protobuf.reading import Messages
from tidemark.providers.protobuf.schemas.descriptors import message_descriptor
from tidemark.providers.protobuf.schemas.registered import descriptor_set_of
from tidemark.providers.protobuf.schemas.shapes import MessageShape, message_shape
from tidemark.providers.registry.framed_decoder import FramedDecoder, NotDecoded, OtherRecords
from tidemark.providers.registry.framing import WriterGroup
from tidemark.providers.registry.registered_schema import RegisteredSchema


class MessageDecoder(FramedDecoder):
    """Reads all values with the reader's message, because in this way Protobuf resolves older and newer schemas.

    With a registry, values name their writer's schema and a message in it. It must be the message that the reader
    wants.
    """

    with_message = True

    def __init__(
        self,
        messages: Messages,
        config: Mapping[str, Any],
        is_other: Callable[[str], bool] | None = None,
    ) -> None:
        super().__init__(messages.schema, config)
        self._messages, self._message, self._is_other = messages, config["message"], is_other
        self._unread: dict[tuple[str, tuple[int, ...]], NotDecoded | OtherRecords | None] = {}

    def _read(self, group: WriterGroup, named: str) -> Iterator[tuple[pa.Array, Decoded | NotDecoded | OtherRecords]]:
        if self._schemas is None:
            yield group.indices, self._messages.read(group.data)
            return
        messages, without = split_by_message(group.data, self._kind.message_place)
        yield (
            group.indices.take(pa.array(without, pa.int64())),
            NotDecoded("it does not say which message it is", ErrorClass.VALUE),
        )
        for message in messages:
            indices = group.indices.take(message.positions)
            unread = self._not_read(group.writer, message.path)
            if unread is not None:
                yield indices, unread
            else:
                decoded = self._messages.read(message.data)
                yield indices, replace(decoded, errors=tuple(replace(bad, schemas=named) for bad in decoded.errors))

    def _not_read(self, writer: str, path: tuple[int, ...]) -> NotDecoded | OtherRecords | None:
        """Return why the message at a path of a writer's schema is not read; None if it is."""
        if (writer, path) not in self._unread:
            self._unread[writer, path] = self._looked_up(writer, path)
        return self._unread[writer, path]

    def _looked_up(self, writer: str, path: tuple[int, ...]) -> NotDecoded | OtherRecords | None:
        registered = self._written(writer, "PROTOBUF")
        if isinstance(registered, str):
            return NotDecoded(registered)
        name = message_at(registered.text, path, self._kind.message_place)
        if name is None:
            return NotDecoded(f"schema {writer} has no message at {list(path)}")
        if name == self._message:
            return None
        if self._is_other is not None and self._is_other(name):
            return OtherRecords()
        return NotDecoded(f"it is a message {name[:60]}, and the reader needs {self._message[:60]}")


def open_decoder(config: Mapping[str, Any]) -> Decoder:
    """Open a decoder for ``message`` of the reader's schema; ``ConfigurationError`` if the schema does not fit it."""
    descriptors = descriptor_set_of(RegisteredSchema.from_dict(config["reader"]))
    messages = Messages(descriptors, config["message"], config.get("max_list_bytes"))
    if "envelope" not in config:
        return MessageDecoder(messages, config)
    message = message_shape(message_descriptor(descriptors, config["message"]))
    envelope = open_envelope(config["envelope"], partial(_row_inside, message))
    return EnvelopeDecoder(MessageDecoder(messages, config, envelope.is_other_record), envelope)


def _row_inside(envelope: MessageShape, part: str) -> pa.Schema:
    """Return the columns of the message in a part of the envelope."""
    for field in envelope.fields:
        if field.name == part and isinstance(field.shape, MessageShape):
            return field.shape.schema
    raise no_row_inside("the message", part)
