"""Imports that no registry lists are known, or are left out where no column needs them; entries of maps are maps."""

from base64 import b64encode
from importlib import import_module, resources
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from tests.protobuf_schemas import descriptor_set, message_class, proto
from tidemark.decoders.base import Decoded
from tidemark.errors import ConfigurationError
from tidemark.providers.protobuf.reading import Messages
from tidemark.providers.protobuf.schemas.known import known_files
from tidemark.providers.protobuf.schemas.registered import descriptor_set_of
from tidemark.providers.registry.registered_schema import RegisteredSchema

GOOGLE = [
    f"google.type.{file.name.removesuffix('.py')}"
    for file in resources.files("google.type").iterdir()
    if file.name.endswith("_pb2.py")
]
CONFLUENT = [
    f"confluent_kafka.schema_registry.confluent.{name}_pb2"
    for name in ("type.decimal", "type.variant", "types.decimal")
]


@pytest.mark.parametrize("module", [*GOOGLE, *CONFLUENT])
def test_a_known_file_is_as_protoc_has_made_it(module: str) -> None:
    expected = FileDescriptorProto()
    import_module(module).DESCRIPTOR.CopyToProto(expected)
    expected.ClearField("options")
    for message in expected.message_type:
        for field in message.field:
            field.ClearField("json_name")
        for nested in message.nested_type:
            for field in nested.field:
                field.ClearField("json_name")
    known = next(file for file in known_files([expected.name], ()) if file.name == expected.name)
    assert known == expected
    assert {*expected.dependency} <= {file.name for file in known_files([expected.name], ())}


def registered(text: str, *references: tuple[str, str]) -> RegisteredSchema:
    return RegisteredSchema(5, "PROTOBUF", text, references)


def read(schema: RegisteredSchema, message: str, *values: bytes) -> Decoded:
    return Messages(descriptor_set_of(schema), message).read(pa.array(values, pa.binary()))


HEAD = 'syntax = "proto3"; package shop; '
TAGS = '[(confluent.field_meta).tags = "PII", (buf.validate.field).int64 = {gt: 0}]'


@pytest.mark.parametrize(
    ("kind", "file"),
    [
        ("confluent.type.Decimal", "confluent/type/decimal.proto"),
        ("confluent.type.Decimal", "confluent/types/decimal.proto"),
        ("google.type.Date", "google/type/date.proto"),
        ("google.type.Interval", "google/type/interval.proto"),
        ("google.type.DateTime", "google/type/datetime.proto"),
        ("google.type.PhoneNumber", "google/type/phone_number.proto"),
        ("google.type.DayOfWeek", "google/type/dayofweek.proto"),
        ("google.type.Money", "google/type/money.proto"),
        ("google.type.Color", "google/type/color.proto"),
        ("google.protobuf.Duration", "google/protobuf/duration.proto"),
        ("google.protobuf.Any", "google/protobuf/any.proto"),
        ("google.protobuf.FieldMask", "google/protobuf/field_mask.proto"),
    ],
)
@pytest.mark.parametrize("options", ["", TAGS])
def test_a_type_of_a_known_import_is_a_column(kind: str, file: str, options: str) -> None:
    imports = f'import "{file}"; import "confluent/meta.proto"; import "buf/validate/validate.proto"; '
    text = HEAD + imports + f"message Value {{ int64 id = 1 {options}; {kind} f = 2; repeated {kind} many = 3; }}"
    decoded = read(registered(text), "shop.Value", b"\x08\x05")
    assert decoded.errors == ()
    assert decoded.rows.column("id").to_pylist() == [5]
    assert decoded.rows.schema.names == ["id", "f", "many"]


def test_values_of_known_types_are_read() -> None:
    text = HEAD + (
        'import "confluent/type/decimal.proto"; import "google/type/date.proto"; import "google/type/interval.proto"; '
        "message Value { confluent.type.Decimal amount = 1; google.type.Date day = 2; google.type.Interval at = 3; }"
    )
    message = message_class(descriptor_set_of(registered(text)), "shop.Value")
    value = message(
        amount={"value": b"\x04\xd2", "precision": 10, "scale": 2}, day={"year": 2024, "month": 2, "day": 29}
    )
    value.at.start_time.seconds = 1
    [row] = read(registered(text), "shop.Value", value.SerializeToString()).rows.to_pylist()
    assert row["amount"] == {"value": b"\x04\xd2", "precision": 10, "scale": 2}
    assert row["day"] == {"year": 2024, "month": 2, "day": 29}
    assert row["at"]["start_time"].timestamp() == 1


UNKNOWN = ("other/a.proto", "other/b.proto")


@pytest.mark.parametrize("form", ["text", "base64", "set"])
def test_an_import_that_only_options_use_decides_nothing(form: str) -> None:
    text = HEAD + (
        'import public "other/a.proto"; import "geo.proto"; import weak "other/b.proto"; option (other.x) = true; '
        "message Value { option (other.m) = {a: 1}; int64 id = 1 [(other.f) = 3]; geo.Point at = 2; }"
    )
    geo = 'syntax = "proto3"; package geo; import "other/b.proto"; message Point { double x = 1; }'
    file = proto(
        "shop", {"Value": ["int64 id = 1", "geo.Point at = 2"]}, name="v.proto", imports=(*UNKNOWN, "geo.proto")
    )
    file.public_dependency.extend([len(file.dependency) - 3, len(file.dependency) - 1])
    point = proto("geo", {"Point": ["double x = 1"]}, name="geo.proto", imports=UNKNOWN)
    if form == "text":
        schema = registered(text, ("geo.proto", geo))
    elif form == "base64":
        encoded = [b64encode(each.SerializeToString()).decode() for each in (file, point)]
        schema = registered(encoded[0], ("geo.proto", encoded[1]))
    else:
        schema = RegisteredSchema(-1, "PROTOBUF", b64encode(descriptor_set(point, file)).decode())
    assert read(schema, "shop.Value", b"\x08\x05").rows.to_pylist() == [{"id": 5, "at": None}]


@pytest.mark.parametrize("is_text", [True, False])
def test_an_import_that_a_column_needs_is_named_and_one_of_another_message_is_not_needed(is_text: bool) -> None:
    fields = {"Value": ["int64 id = 1", "Inner f = 2"], "Inner": ["other.T f = 1"], "Other": ["int64 id = 1"]}
    text = (
        HEAD
        + 'import "other/a.proto"; import "other/b.proto"; '
        + "".join(f"message {name} {{ {'; '.join(lines)}; }} " for name, lines in fields.items())
    )
    lines = {name: [line.replace("Inner f", "shop.Inner f") for line in of] for name, of in fields.items()}
    encoded = proto("shop", lines, name="schema.proto", imports=UNKNOWN).SerializeToString()
    schema = registered(text if is_text else b64encode(encoded).decode())
    message = r"imports other/a\.proto, other/b\.proto, which is missing in .*, so the type other\.T is unknown"
    with pytest.raises(ConfigurationError, match=message):
        read(schema, "shop.Value", b"")
    assert read(schema, "shop.Other", b"\x08\x05").rows.to_pylist() == [{"id": 5}]


ENTRIES = """
message Value {
  repeated CountsByNameEntry counts_by_name = 1;
  repeated PointsEntry points = 2;
  message CountsByNameEntry { option map_entry = true; string key = 1; int64 value = 2; }
  message PointsEntry { option deprecated = true; option map_entry = true; int32 key = 1; Point value = 2; }
  message Point { double x = 1; }
}
"""
MAPS = """
message Value { map<string, int64> counts_by_name = 1; map<int32, Point> points = 2; message Point { double x = 1; } }
"""


def test_entries_of_a_map_that_are_written_out_are_a_map() -> None:
    value: Any = message_class(descriptor_set_of(registered(HEAD + MAPS)), "shop.Value")(
        counts_by_name={"b": 2, "a": 1}, points={3: {"x": 0.5}}
    )
    data = value.SerializeToString()
    expected = read(registered(HEAD + MAPS), "shop.Value", data)
    assert expected.rows.to_pylist() == [{"counts_by_name": [("a", 1), ("b", 2)], "points": [("3", {"x": 0.5})]}]
    decoded = read(registered(HEAD + ENTRIES), "shop.Value", data)
    assert decoded.rows.schema == expected.rows.schema
    assert decoded.rows.to_pylist() == expected.rows.to_pylist()
