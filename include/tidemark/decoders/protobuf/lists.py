"""What the lists of a message take as columns, counted in its bytes: nothing is built, and unknown fields are skipped.

A message of which a part is wrong is counted as far as it can be read; what is wrong with it is for the readers to say.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from tidemark.decoders.lists import element_width
from tidemark.decoders.proto_shapes import ListOf, MapOf, Message, Shape

_OF_64_BITS: Final = (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_SFIXED64)
_OF_32_BITS: Final = (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_FIXED32, FieldDescriptor.TYPE_SFIXED32)
_WITH_LENGTH: Final = (
    FieldDescriptor.TYPE_STRING,
    FieldDescriptor.TYPE_BYTES,
    FieldDescriptor.TYPE_MESSAGE,
    FieldDescriptor.TYPE_GROUP,
)
_NOT_LAST: Final = bytes(range(128, 256))  # the bytes of a varint but its last


@dataclass(frozen=True)
class Part:
    """A field: ``width`` is that of an element, 0 for a field that is no list; ``packed`` the bytes of a number in a
    packed list (0: a varint), None for what is never packed."""

    width: int
    packed: int | None
    inner: "Parts"


Parts = Mapping[int, Part]  # by the number of the field; those without lists are left out
_NONE: Final[Parts] = {}
_UNKNOWN: Final = Part(0, None, _NONE)


def parts_with_lists(descriptor: Descriptor, shape: Message) -> Parts:
    parts = {}
    for field in shape.fields:
        of = descriptor.fields_by_name[field.name]
        part = _part(of, field.shape)
        if part.width or part.inner:
            parts[of.number] = part
    return parts


def _part(of: FieldDescriptor, shape: Shape) -> Part:
    match shape:
        case ListOf(element):
            return Part(element_width(shape.arrow), _packed(of), _inner(of, element))
        case MapOf(_, item):
            value = of.message_type.fields_by_name["value"]
            inner = _inner(value, item)
            return Part(element_width(shape.arrow), None, {value.number: Part(0, None, inner)} if inner else _NONE)
        case _:
            return Part(0, None, _inner(of, shape))


def _inner(of: FieldDescriptor, shape: Shape) -> Parts:
    return parts_with_lists(of.message_type, shape) if isinstance(shape, Message) else _NONE


def _packed(of: FieldDescriptor) -> int | None:
    if of.type in _WITH_LENGTH:
        return None
    return 8 if of.type in _OF_64_BITS else 4 if of.type in _OF_32_BITS else 0


def list_bytes(value: bytes, parts: Parts, limit: int) -> int:
    """What the lists of a message take; it stops above ``limit``."""
    total = 0
    waiting = [(0, len(value), parts)]
    while waiting and total <= limit:
        at, end, known = waiting.pop()
        outer: list[Parts] = []  # of the groups that are open
        while at < end and total <= limit:
            tag, at = _varint(value, at)
            part = known.get(tag >> 3, _UNKNOWN)
            match tag & 7:
                case 0:
                    _, at = _varint(value, at)
                    total += part.width
                case 1 | 5 as kind:
                    at += 8 if kind == 1 else 4
                    total += part.width
                case 2:
                    size, at = _varint(value, at)
                    total += part.width * (1 if part.packed is None else _numbers(value[at : at + size], part.packed))
                    if part.inner:
                        waiting.append((at, min(at + size, end), part.inner))
                    at += size
                case 3:
                    total += part.width
                    outer.append(known)
                    known = part.inner
                case 4 if outer:
                    known = outer.pop()
                case _:
                    break
    return total


def _numbers(packed: bytes, size: int) -> int:
    return len(packed) // size if size else len(packed.translate(None, _NOT_LAST))


def _varint(value: bytes, at: int) -> tuple[int, int]:
    """(the number, where it ends); at the end of the value, 0."""
    number = shift = 0
    for byte in value[at : at + 10]:
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7
    return 0, len(value)
