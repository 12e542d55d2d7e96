"""Reads messages with ``ptars``, 20 times as fast as the runtime, but only for a tested list of types.

The list: files of proto3, without maps (ptars keeps equal keys), and without lists of numbers of a fixed width (ptars
accepts truncated lists). For these a differential test shows the same columns as the runtime, with exceptions that this
module handles:

- ptars keeps two members of a ``oneof``, of which only the last one counts: such a record is refused.
- For messages that it knows by name it does not join parts: it gets a copy of the schema with other names.
- It follows groups to any depth, until the process runs out of stack: it does not get values above ``LARGEST`` bytes.

For some wrong lengths it panics, which is no ``Exception``. It reads a record with wrong unknown fields (a group that
ends as another one), which the runtime refuses.
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

LARGEST = 16 * 1024  # a byte may open a group: 100,000 nested ones fit 8 MiB of stack, 1,000,000 did not
_PREFIX = "plain"  # prefix of every package, so that no message has a name that ptars treats specially


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
        """Return the columns of the values, of which none is null; raises ``Misfit`` if one cannot be read."""
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
    """Return a reader; None for a message with a type outside the tested list."""
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
    """Return the file with ``_PREFIX`` before all names, and without parts that do not affect how bytes are read.

    ``described`` comes from a pool, which gives the full name of every type; in a descriptor set names may be relative.
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
    """Yield, for every ``oneof`` of the message and of messages inside it, whether a record has two of its members."""
    for choice in shape.choices:
        members = [pc.cast(plain[name].is_valid(), pa.int16()) for name in choice]
        yield (pc.max(reduce(pc.add, members)).as_py() or 0) > 1
    for field in shape.fields:
        inner, values = field.shape, plain[field.name]
        if isinstance(inner, ListOf):
            inner, values = inner.element, values.values
        if isinstance(inner, MessageShape):
            yield from _has_two_choices(inner, parts_of(values))
