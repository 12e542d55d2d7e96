"""Finds the message of a framed record, whose place in the writer's schema is in front of its bytes.

<count> <index>, ..      PATH: zigzag varints, the path to the message from the top of the file; [0] is written as 00
<number>                 NUMBER: a varint, the place of its full name among those of all messages, in their order
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor_pb2 import DescriptorProto

from tidemark.model.positions import positions
from tidemark.providers.protobuf.schemas.proto_text import NotProto, parsed
from tidemark.providers.protobuf.schemas.registered import file_of
from tidemark.providers.registry.base import MessagePlace

MOST_INDEXES = 32  # nested messages, as deep as columns may be nested
MOST_PATHS = 64  # paths of one batch whose records are grouped; records with further paths are read one at a time
_FIRST = (0,)
_END = 2**31 - 1  # without an explicit end, Arrow 26 fails: "Negative buffer resize"


@dataclass(frozen=True)
class MessageValues:
    """The values of one message: its path or its number, their positions, and their bytes."""

    path: tuple[int, ...]
    positions: pa.Array
    data: pa.Array


def split_by_message(
    values: pa.Array, place: MessagePlace = MessagePlace.PATH
) -> tuple[list[MessageValues], list[int]]:
    """Return (the values by message, the positions of those that name no message)."""
    groups: list[MessageValues] = []
    wrong: list[int] = []
    unread = positions(len(values))
    while len(unread):
        beginning = pc.binary_slice(values.take(unread.slice(0, 1)), 0, 10 * (MOST_INDEXES + 1))[0].as_py()
        head = _path(beginning) if place is MessagePlace.PATH else _number(beginning)
        if head is None:
            wrong.append(unread[0].as_py())
            unread = unread.slice(1)
            continue
        path, length = head
        some = values.take(unread) if len(unread) < len(values) else values
        if len(groups) < MOST_PATHS:
            mine = pc.equal(pc.binary_slice(some, 0, length), some[0].as_py()[:length])
        else:
            mine = pa.array([True] + [False] * (len(unread) - 1))
        groups.append(MessageValues(path, unread.filter(mine), pc.binary_slice(some.filter(mine), length, _END)))
        unread = unread.filter(pc.invert(mine))
    return groups, wrong


def _path(value: bytes) -> tuple[tuple[int, ...], int] | None:
    """Return (the path at the beginning of a value, its length in bytes); None if no path begins there."""
    if value[:1] == b"\0":
        return _FIRST, 1
    numbers = _zigzags(value)
    count = next(numbers, None)
    if count is None or not 0 < count[0] <= MOST_INDEXES:
        return None
    path, end = [], 0
    for _ in range(count[0]):
        number = next(numbers, None)
        if number is None or number[0] < 0:
            return None
        path.append(number[0])
        end = number[1]
    return tuple(path), end


def _number(value: bytes) -> tuple[tuple[int, ...], int] | None:
    """Return ((the number at the beginning of a value,), its length in bytes); None if no number begins there."""
    first = next(_varints(value), None)
    return None if first is None else ((first[0],), first[1])


def _zigzags(value: bytes) -> Iterator[tuple[int, int]]:
    """Yield (number, where it ends) of the zigzag varints at the beginning of a value."""
    return (((number >> 1) ^ -(number & 1), end) for number, end in _varints(value))


def _varints(value: bytes) -> Iterator[tuple[int, int]]:
    """Yield (number, where it ends) of the varints at the beginning of a value. Stops at a cut or too long one."""
    number, shift = 0, 0
    for end, byte in enumerate(value, 1):
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            yield number, end
            number, shift = 0, 0
        elif shift >= 35:
            return


def message_at(text: str, path: tuple[int, ...], place: MessagePlace = MessagePlace.PATH) -> str | None:
    """Return the full name of the message at a path, or with a number, of a schema, given as base64 or as text; None if
    no message is there."""
    file = file_of(text)
    counts_entries = file is not None  # only in a descriptor the messages that protoc makes for maps have an index
    try:
        file = file or parsed(text)
    except NotProto:
        return None
    if place is MessagePlace.NUMBER:
        names = sorted(_full_names(file.package, file.message_type))
        return names[path[0]] if path[0] < len(names) else None
    names, messages = [file.package] if file.package else [], list(file.message_type)
    for index in path:
        if index >= len(messages):
            return None
        names.append(messages[index].name)
        inner = messages[index].nested_type
        messages = [message for message in inner if counts_entries or not message.options.map_entry]
    return ".".join(names)


def _full_names(above: str, messages: Iterable[DescriptorProto]) -> Iterator[str]:
    for message in messages:
        name = f"{above}.{message.name}" if above else message.name
        yield name
        yield from _full_names(name, message.nested_type)
