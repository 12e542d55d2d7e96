"""Measures how many bytes the lists of a message take as columns, from its bytes, without building anything.

Unknown fields are skipped. A malformed message is counted as far as it can be read; its reader reports the error.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from tidemark.decoders.list_limit import element_width
from tidemark.providers.protobuf.schemas.shapes import ListOf, MapOf, MessageShape, Shape

OF_64_BITS: Final = (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_SFIXED64)
OF_32_BITS: Final = (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_FIXED32, FieldDescriptor.TYPE_SFIXED32)
_WITH_LENGTH: Final = (
    FieldDescriptor.TYPE_STRING,
    FieldDescriptor.TYPE_BYTES,
    FieldDescriptor.TYPE_MESSAGE,
    FieldDescriptor.TYPE_GROUP,
)
_NOT_LAST: Final = bytes(range(128, 256))  # all bytes of a varint except its last


@dataclass(frozen=True)
class ListField:
    """A field that is a list, or contains lists.

    ``width`` is the width of an element; 0 for a field that is not a list. ``packed`` is the bytes of a number in a
    packed list (0 for a varint); None for a type that is never packed.
    """

    width: int
    packed: int | None
    inner: "ListFields"


ListFields = Mapping[int, ListField]  # by field number; fields without lists are left out
_NONE: Final[ListFields] = {}
_UNKNOWN: Final = ListField(0, None, _NONE)


def fields_with_lists(descriptor: Descriptor, shape: MessageShape) -> ListFields:
    fields = {}
    for field in shape.fields:
        of = descriptor.fields_by_name[field.name]
        list_field = _list_field(of, field.shape)
        if list_field.width or list_field.inner:
            fields[of.number] = list_field
    return fields


def _list_field(of: FieldDescriptor, shape: Shape) -> ListField:
    match shape:
        case ListOf(element):
            return ListField(element_width(shape.arrow), _packed(of), _inner(of, element))
        case MapOf(_, item):
            value = of.message_type.fields_by_name["value"]
            inner = _inner(value, item)
            return ListField(
                element_width(shape.arrow), None, {value.number: ListField(0, None, inner)} if inner else _NONE
            )
        case _:
            return ListField(0, None, _inner(of, shape))


def _inner(of: FieldDescriptor, shape: Shape) -> ListFields:
    return fields_with_lists(of.message_type, shape) if isinstance(shape, MessageShape) else _NONE


def _packed(of: FieldDescriptor) -> int | None:
    if of.type in _WITH_LENGTH:
        return None
    return 8 if of.type in OF_64_BITS else 4 if of.type in OF_32_BITS else 0


def list_bytes(value: bytes, fields: ListFields, limit: int) -> int:
    """Return the bytes that the lists of a message take as columns. It stops counting above ``limit``."""
    total = 0
    waiting = [(0, len(value), fields)]
    while waiting and total <= limit:
        at, end, known = waiting.pop()
        outer: list[ListFields] = []  # the fields around each open group
        while at < end and total <= limit:
            tag, at = _varint(value, at)
            field = known.get(tag >> 3, _UNKNOWN)
            match tag & 7:
                case 0:
                    _, at = _varint(value, at)
                    total += field.width
                case 1 | 5 as kind:
                    at += 8 if kind == 1 else 4
                    total += field.width
                case 2:
                    size, at = _varint(value, at)
                    total += field.width * (
                        1 if field.packed is None else _numbers(value[at : at + size], field.packed)
                    )
                    if field.inner:
                        waiting.append((at, min(at + size, end), field.inner))
                    at += size
                case 3:
                    total += field.width
                    outer.append(known)
                    known = field.inner
                case 4 if outer:
                    known = outer.pop()
                case _:
                    break
    return total


def _numbers(packed: bytes, size: int) -> int:
    return len(packed) // size if size else len(packed.translate(None, _NOT_LAST))


def _varint(value: bytes, at: int) -> tuple[int, int]:
    """Return (the number, where it ends); (0, the end of the value) if the number is cut."""
    number = shift = 0
    for byte in value[at : at + 10]:
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7
    return 0, len(value)
