"""Descriptor sets as protoc writes them, made without protoc: it is not among the tools of this checkout."""

import re

from google.protobuf import any_pb2, duration_pb2, empty_pb2, struct_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

from tidemark.providers.protobuf.schemas.descriptors import message_descriptor

_KNOWN = (any_pb2, duration_pb2, empty_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
_FIELD = re.compile(
    r"(?:(?P<label>optional|required|repeated|oneof (?P<oneof>\w+)) )?"
    r"(?P<type>map<(?P<key>\w+), ?(?P<item>[\w.]+)>|[\w.]+) (?P<name>\w+) = (?P<number>\d+)"
)


def proto(
    package: str,
    messages: dict[str, list[str]],
    enums: dict[str, dict[str, int]] | None = None,
    *,
    name: str = "schema.proto",
    syntax: str = "proto3",
    imports: tuple[str, ...] = (),
) -> FileDescriptorProto:
    """One file. A field is written as in a .proto file, a member of a oneof as ``oneof NAME type name = 1``."""
    known = [each.DESCRIPTOR.name for each in _KNOWN]
    file = FileDescriptorProto(name=name, package=package, syntax=syntax, dependency=[*known, *imports])
    for enum, values in (enums or {}).items():
        described = file.enum_type.add(name=enum)
        if len(set(values.values())) < len(values):
            described.options.allow_alias = True
        for value, number in values.items():
            described.value.add(name=value, number=number)
    for message, fields in messages.items():
        described_message = file.message_type.add(name=message)
        for text in fields:
            _add(described_message, text, package, set(enums or {}))
        # The oneofs that protoc makes for optional fields come after all others.
        for field in described_message.field:
            if field.proto3_optional:
                field.oneof_index = len(described_message.oneof_decl)
                described_message.oneof_decl.add(name=f"_{field.name}")
    return file


def descriptor_set(*files: FileDescriptorProto) -> bytes:
    """The files with all that Protobuf itself brings, as ``--include_imports`` would write them."""
    known = []
    for each in _KNOWN:
        copy = FileDescriptorProto()
        each.DESCRIPTOR.CopyToProto(copy)
        known.append(copy)
    return FileDescriptorSet(file=[*known, *files]).SerializeToString()


def message_class(content: bytes, name: str) -> type:
    """The class of a message, with which tests write records."""
    from google.protobuf.message_factory import GetMessageClass

    made: type = GetMessageClass(message_descriptor(content, name))
    return made


def _add(message: DescriptorProto, text: str, package: str, enums: set[str]) -> None:
    match = _FIELD.fullmatch(text)
    assert match, text
    field = message.field.add(name=match["name"], number=int(match["number"]))
    field.label = FieldDescriptorProto.LABEL_OPTIONAL
    if match["key"]:
        entry = message.nested_type.add(name=f"{match['name'].title().replace('_', '')}Entry")
        entry.options.map_entry = True
        _add(entry, f"{match['key']} key = 1", package, enums)
        _add(entry, f"{match['item']} value = 2", package, enums)
        field.label = FieldDescriptorProto.LABEL_REPEATED
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{package}.{message.name}.{entry.name}"
        return
    match match["label"]:
        case "repeated":
            field.label = FieldDescriptorProto.LABEL_REPEATED
        case "required":
            field.label = FieldDescriptorProto.LABEL_REQUIRED
        case "optional":
            field.proto3_optional = True
    if match["oneof"]:
        names = [oneof.name for oneof in message.oneof_decl]
        if match["oneof"] not in names:
            message.oneof_decl.add(name=match["oneof"])
            names.append(match["oneof"])
        field.oneof_index = names.index(match["oneof"])
    scalar = f"TYPE_{match['type'].upper()}"
    if scalar in dict(FieldDescriptorProto.Type.items()):
        field.type = FieldDescriptorProto.Type.Value(scalar)
        return
    field.type = FieldDescriptorProto.TYPE_ENUM if match["type"] in enums else FieldDescriptorProto.TYPE_MESSAGE
    field.type_name = f".{match['type']}" if "." in match["type"] else f".{package}.{match['type']}"
