"""Reads messages with the ``protobuf`` runtime, which defines what a record means. Any type, about 10 us for a
record."""

from collections.abc import Sequence
from functools import partial
from itertools import accumulate, chain
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as RuntimeMessage
from google.protobuf.message_factory import GetMessageClass

from tidemark.decoders.base import Decoded
from tidemark.decoders.one_by_one import Misfit, Undecodable, decode_each, misfits
from tidemark.providers.protobuf.schemas.shapes import ListOf, MapOf, MessageShape, Nothing, Shape, Time, Wrapped


class Runtime:
    """Reads values as one message."""

    def __init__(self, descriptor: Descriptor, shape: MessageShape) -> None:
        self._class: type[RuntimeMessage] = GetMessageClass(descriptor)
        self._shape = shape
        self._schema = shape.schema

    def problem_with(self, value: bytes) -> str | None:
        """Return why the bytes are not such a message; None if they are."""
        try:
            self._parsed(value)
        except Undecodable as problem:
            return str(problem)
        return None

    def read(self, values: Sequence[bytes]) -> Decoded:
        """Decode each of the values."""
        return decode_each(values, self._schema, self._parsed, self._columns, partial(misfits, self._columns))[0]

    def _parsed(self, value: bytes) -> RuntimeMessage:
        try:
            message = self._class.FromString(value)
        except DecodeError as error:
            detail = str(error).rpartition(": ")[2]
            raise Undecodable(f"not a {self._class.DESCRIPTOR.full_name}: {detail[:1].lower()}{detail[1:]}") from error
        if not message.IsInitialized():
            raise Undecodable(f"required fields are absent: {', '.join(message.FindInitializationErrors())}")
        return message

    def _columns(self, messages: list[RuntimeMessage]) -> list[pa.Array]:
        try:
            return self._shape.columns(_parts(self._shape, messages))
        except Misfit as misfit:
            raise Misfit(f"field {misfit}") from misfit
        except pa.ArrowInvalid as error:  # the runtime does not check text fields of proto2
            raise Misfit("a text field is not UTF-8") from error


def _parts(shape: MessageShape, messages: Sequence[Any]) -> dict[str, pa.Array]:
    """Return the plain array of each field; a message may be None."""
    parts = {}
    for field in shape.fields:
        name = field.name
        if field.presence:
            values = [
                getattr(message, name) if message is not None and type(message).HasField(message, name) else None
                for message in messages
            ]
        else:
            values = [None if message is None else getattr(message, name) for message in messages]
        parts[name] = _plain(field.shape, values)
    return parts


def _plain(shape: Shape, values: list[Any]) -> pa.Array:
    match shape:
        case ListOf(element):
            flat = list(chain.from_iterable(value for value in values if value is not None))
            return _listed(_plain(element, flat), values, shape.plain)
        case MapOf(_, item):
            entries = [None if value is None else _sorted(value) for value in values]
            flat = list(chain.from_iterable(entry for entry in entries if entry is not None))
            keys, items = [key for key, _ in flat], [item for _, item in flat]
            pairs = pa.StructArray.from_arrays(
                [pa.array(keys, pa.string()), _plain(item, items)], fields=list(shape.plain.value_type)
            )
            return _listed(pairs, entries, shape.plain)
        case MessageShape():
            return _struct(list(_parts(shape, values).values()), values, shape.plain)
        case Wrapped(inner):
            return _struct(
                [_plain(inner, [None if value is None else value.value for value in values])], values, shape.plain
            )
        case Time():
            pairs_of = [None if value is None else {"seconds": value.seconds, "nanos": value.nanos} for value in values]
            return pa.array(pairs_of, shape.plain)
        case Nothing():
            return pa.array([None if value is None else {} for value in values], shape.plain)
        case _:
            return pa.array(values, shape.plain)


def _listed(elements: pa.Array, values: list[Any], kind: pa.DataType) -> pa.Array:
    offsets = pa.array(accumulate((0 if value is None else len(value) for value in values), initial=0), pa.int32())
    mask = pa.array([value is None for value in values], pa.bool_())
    return pa.ListArray.from_arrays(offsets, elements, type=kind, mask=mask)


def _struct(parts: list[pa.Array], values: list[Any], kind: pa.DataType) -> pa.Array:
    mask = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)


def _sorted(entries: Any) -> list[tuple[str, Any]]:
    """Return the entries sorted by key as text, because the runtime returns them in no defined order."""
    return sorted(((_key(key), entries[key]) for key in entries), key=lambda entry: entry[0])


def _key(key: object) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)
