"""Reads messages with ``ptars``, 20 times as fast as the runtime, for the types of a tested list.

The list: files of proto3, without maps (it keeps equal keys), and without lists of numbers of a fixed width (it takes
lists that are cut). There its columns are those of the runtime, which a differential test holds it to, with these
exceptions, which are seen to here:

- It keeps both of two members of a ``oneof``, where the last one counts: such a record is refused.
- Of messages that it knows by name it does not join parts: it gets a copy of the schema with other names.
- It follows groups to any depth, until the stack of the process ends: values of ``LARGEST`` bytes are not for it.

It panics for some wrong lengths, which is no ``Exception``. A record whose unknown fields are wrong (a group that ends
as another one) it reads, and the runtime refuses it.
"""

from collections.abc import Iterator, Mapping
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from ptars import HandlerPool, PtarsConfig

from tidemark.decoders.one_by_one import Misfit
from tidemark.providers.protobuf.lists import OF_32_BITS, OF_64_BITS
from tidemark.providers.protobuf.schemas.descriptors import files_of, message_descriptor, pool_of
from tidemark.providers.protobuf.schemas.shapes import ListOf, MessageShape, parts_of

LARGEST = 16 * 1024  # one byte may begin a group, and 100,000 of them took less than 8 MiB of stack, 1,000,000 more
_PREFIX = "plain"  # before every package, so that no message has a name that ptars knows


class Fast:
    """Reads arrays of values as one message."""

    def __init__(self, descriptor_set: bytes, message: str, shape: MessageShape) -> None:
        pool = message_descriptor(descriptor_set, message).file.pool
        files = [_renamed(pool.FindFileByName(file.name)) for file in files_of(descriptor_set, message)]
        copy = pool_of(files).FindMessageTypeByName(f"{_PREFIX}.{message}")
        config = PtarsConfig(list_value_name="element", enum_repr="int32")
        self._handler = HandlerPool([copy.file], config=config).get_for_message(copy)
        self._shape = shape

    def columns(self, values: pa.Array) -> list[pa.Array]:
        """The columns of the values, none of which is null; raises ``Misfit`` when one cannot be read."""
        try:
            plain = parts_of(self._handler.array_to_record_batch(values).to_struct_array())
        except (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError):
            raise
        except BaseException as error:  # a panic is no Exception
            raise Misfit from error
        if any(_has_two_choices(self._shape, plain)):
            raise Misfit
        return self._shape.columns(plain)


def fast_reader(descriptor_set: bytes, message: str, shape: MessageShape) -> Fast | None:
    """None for a message that has a type outside the tested list."""
    return Fast(descriptor_set, message, shape) if _is_on_the_list(descriptor_set, message) else None


def _is_on_the_list(descriptor_set: bytes, name: str) -> bool:
    descriptor = message_descriptor(descriptor_set, name)
    syntax = {file.name: file.syntax for file in files_of(descriptor_set, name)}
    opened: set[str] = set()
    waiting = [descriptor]
    while waiting:
        message = waiting.pop()
        if message.full_name in opened:
            continue
        opened.add(message.full_name)
        enums = [field.enum_type for field in message.fields if field.enum_type is not None]
        cut_lists = any(field.is_repeated and field.type in (*OF_32_BITS, *OF_64_BITS) for field in message.fields)
        if (
            cut_lists
            or message.GetOptions().map_entry
            or any(syntax[each.file.name] != "proto3" for each in (message, *enums))
        ):
            return False
        waiting += [field.message_type for field in message.fields if field.message_type is not None]
    return True


def _renamed(described: FileDescriptor) -> FileDescriptorProto:
    """The file with ``_PREFIX`` before all names, and without what does not decide how bytes are read.

    A pool gives the full name of every type: a descriptor set may have names that count from their own package.
    """
    file = FileDescriptorProto()
    described.CopyToProto(file)
    file.package = f"{_PREFIX}.{file.package}".rstrip(".")
    for part in ("service", "extension", "options", "source_code_info"):
        file.ClearField(part)
    for message in file.message_type:
        _rename_types(message)
    for enum in file.enum_type:
        for value in enum.value:
            value.ClearField("options")
    return file


def _rename_types(message: DescriptorProto) -> None:
    message.ClearField("extension")
    for field in message.field:
        if field.type_name:
            field.type_name = f".{_PREFIX}{field.type_name}"
        packed = field.options.packed if field.options.HasField("packed") else None
        field.ClearField("options")
        if packed is not None:
            field.options.packed = packed
    for nested in message.nested_type:
        _rename_types(nested)


def _has_two_choices(shape: MessageShape, plain: Mapping[str, pa.Array]) -> Iterator[bool]:
    """For every ``oneof``, also of messages within, whether a record has two of its members."""
    for choice in shape.choices:
        members = [pc.cast(plain[name].is_valid(), pa.int16()) for name in choice]
        yield (pc.max(reduce(pc.add, members)).as_py() or 0) > 1
    for field in shape.fields:
        inner, values = field.shape, plain[field.name]
        if isinstance(inner, ListOf):
            inner, values = inner.element, values.values
        if isinstance(inner, MessageShape):
            yield from _has_two_choices(inner, parts_of(values))
