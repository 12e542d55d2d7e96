"""Texts of .proto files, compared with what protoc has made of them."""

from importlib import import_module, resources
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto

from tests.protobuf_schemas import message_class
from tidemark.errors import ConfigurationError
from tidemark.providers.protobuf.schemas.proto_text import NotProto, parsed, resolve
from tidemark.providers.protobuf.schemas.registered import descriptor_set_of
from tidemark.providers.registry.registered_schema import RegisteredSchema

# The package googleapis-common-protos, which Airflow needs, has .proto files beside what protoc made of them.
FOLDERS = ("api", "rpc", "rpc.context", "type", "longrunning", "logging.type", "cloud", "cloud.location")
COMMON = [
    (f"google.{folder}.{file.name.removesuffix('.proto')}_pb2", file.read_text())
    for folder in FOLDERS
    for file in resources.files(f"google.{folder}").iterdir()
    if file.name.endswith(".proto")
]


def test_texts_become_what_protoc_makes_of_them() -> None:
    compared = 0
    for module, text in COMMON:
        expected = FileDescriptorProto()
        descriptor = import_module(module).DESCRIPTOR
        descriptor.CopyToProto(expected)
        file = parsed(text)
        file.name = expected.name
        resolve(file, _imports(descriptor))
        assert file == _bare(expected), module
        compared += 1
    assert compared > 50


def _imports(descriptor: Any) -> list[FileDescriptorProto]:
    files = []
    for each in descriptor.dependencies:
        copy = FileDescriptorProto()
        each.CopyToProto(copy)
        files += [copy, *_imports(each)]
    return files


def _bare(file: FileDescriptorProto) -> FileDescriptorProto:
    for name in ("service", "extension", "options"):
        file.ClearField(name)
    for message in file.message_type:
        _bare_message(message)
    for enum in file.enum_type:
        _bare_enum(enum)
    return file


def _bare_message(message: DescriptorProto) -> None:
    is_entry = message.options.map_entry
    for name in ("options", "reserved_range", "reserved_name", "extension_range", "extension"):
        message.ClearField(name)
    if is_entry:
        message.options.map_entry = True
    for field in message.field:
        packed = field.options.packed if field.options.HasField("packed") else None
        for name in ("json_name", "options", "default_value"):
            field.ClearField(name)
        if packed is not None:
            field.options.packed = packed
    for nested in message.nested_type:
        _bare_message(nested)
    for enum in message.enum_type:
        _bare_enum(enum)


def _bare_enum(enum: EnumDescriptorProto) -> None:
    alias = enum.options.allow_alias
    for name in ("options", "reserved_range", "reserved_name"):
        enum.ClearField(name)
    if alias:
        enum.options.allow_alias = True
    for value in enum.value:
        value.ClearField("options")


ORDER = """
syntax = "proto3"; // message InAComment {
package shop.v1;
import "geo.proto"; import public 'google/protobuf/timestamp.proto';
option java_package = "message InText {";
/* message InABlock { } */
enum Color { option allow_alias = true; RED = 0; SCARLET = 0x0; BLUE = 2 [(s) = { name: "message X {" }]; NEG = -1; }
message Order {
  message Line { int32 message = 1; repeated Color colors = 2 [packed = false, deprecated = true]; Color option = 3; }
  oneof way { option (x) = true; int32 a = 1; Line b = 2; }
  map<string, Line> the_lines = 4;
  reserved 5 to 6, 9; reserved "gone";
  optional string note = 7 [json_name = "[note]"];
  geo.Point at = 8; .google.protobuf.Timestamp when = 011; int64 reserved = 12; string _note = 13;
}
service Shop { rpc Buy (Order) returns (Bill) { option (http) = { body: "}" }; } }
message Bill { Order.Line line = 1; };
"""
GEO = (
    'syntax = "proto3"; package geo; message Point { double x = 1; Line line = 2; message Line { bool straight = 1; } }'
)
OLD = "message M { required int32 a = 1 [default = 7]; optional group Part = 2 { repeated int32 n = 1 [packed=true]; } extensions 100 to max; }"  # noqa: E501


def schema(text: str, *references: tuple[str, str]) -> RegisteredSchema:
    return RegisteredSchema(5, "PROTOBUF", text, references)


def test_a_text_with_references_gives_messages_that_can_be_read() -> None:
    order = message_class(descriptor_set_of(schema(ORDER, ("geo.proto", GEO))), "shop.v1.Order")
    value = order(
        b={"message": 3, "colors": [2, -1]}, the_lines={"x": {"option": "BLUE"}}, note="n",
        at={"line": {"straight": True}}, when={"seconds": 4}, reserved=9,
    )  # fmt: skip
    assert {field.name: field.number for field in order.DESCRIPTOR.fields} == {
        "a": 1, "b": 2, "the_lines": 4, "note": 7, "at": 8, "when": 9, "reserved": 12, "_note": 13,
    }  # fmt: skip
    again = order.FromString(value.SerializeToString())
    assert again == value
    assert [oneof.name for oneof in order.DESCRIPTOR.oneofs] == ["way", "X_note"]
    assert value.b.SerializeToString() == b"\x08\x03\x10\x02\x10" + b"\xff" * 9 + b"\x01"


def test_a_text_of_proto2_has_groups_and_required_fields() -> None:
    message = message_class(descriptor_set_of(schema(OLD)), "M")
    value = message(a=1, part={"n": [1, 2]})
    assert value.SerializeToString() == b"\x08\x01\x13\x0a\x02\x01\x02\x14"
    assert not message().IsInitialized()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("message M { Gone g = 1; }", "there is no type Gone"),
        ("message M { int32 a 1; }", "it cannot be read at 1, after message M { int32 a"),
        ("message M { int32 a = x; }", "it cannot be read at x"),
        ("message M { int32 a = 1;", "it ends within a statement"),
        ("message M { int32 a = 1 [", "it ends within a statement"),
        ('edition = "2023"; message M { }', "it cannot be read at edition, its first word"),
        ('syntax = "proto4"; message M { int32 a = 1; }', "its syntax is proto4"),
        ("{}", "it cannot be read at {"),
        ("", "there is no message M in"),
        (
            'import "gone.proto"; message M { gone.T a = 1; }',
            "imports gone.proto, which is missing in the descriptor set, so the type gone.T is unknown",
        ),
        ("message M { int32 a = 1; int32 b = 1; }", "is wrong: "),
    ],
)
def test_a_text_that_cannot_be_used_is_said(text: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        message_class(descriptor_set_of(schema(text)), "M")
    assert words in refused.value.what


@pytest.mark.parametrize("text", ["{" * 10_000, "message M " * 1000, "[" * 9, "message M {" * 400, "/*", '"', "."])
def test_any_text_ends_in_a_message(text: str) -> None:
    with pytest.raises(NotProto):
        parsed(text)
