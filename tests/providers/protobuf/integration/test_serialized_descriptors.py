"""Apicurio cannot be asked for descriptors, so proto_text.py reads the text of a .proto file. Should one of these fail
with a newer registry, look whether that module is still needed."""

import uuid
from base64 import b64decode, b64encode
from binascii import Error as NotBase64

import httpx
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from sandbox.services.registry import SchemaRegistry

MONEY = """
syntax = "proto3";
package shop;
message Money { int64 units = 1; string currency = 2; }
"""
ORDER = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "money.proto";
message Order {
  int64 id = 1;
  google.protobuf.Timestamp at = 2;
  Money total = 3;
  map<string, int32> counts = 4;
}
"""
GROUP = 'syntax = "proto2"; message Old { optional group Part = 1 { optional int32 x = 1; } }'
DESCRIPTOR = FileDescriptorProto(name="b.proto", syntax="proto3")
DESCRIPTOR.message_type.add(name="B").field.add(name="x", number=1, type=3, label=1)


def serialized(registry: SchemaRegistry, number: int) -> httpx.Response:
    return httpx.get(f"{registry.url}/schemas/ids/{number}", params={"format": "serialized"}, timeout=60)


@pytest.fixture
def subject() -> str:
    return f"s{uuid.uuid4().hex[:8]}"


def test_a_text_comes_as_bytes_in_a_text_that_lost_some_of_them(registry: SchemaRegistry, subject: str) -> None:
    registry.register(f"{subject}-money", MONEY, schemaType="PROTOBUF")
    references = [{"name": "money.proto", "subject": f"{subject}-money", "version": 1}]
    answer = serialized(registry, registry.register(subject, ORDER, schemaType="PROTOBUF", references=references))
    assert answer.status_code == 200, answer.text
    text = answer.json()["schema"]
    assert "\N{REPLACEMENT CHARACTER}" in text, "a length of 128 bytes or more"
    assert "shop/money.proto" in text, "the reference has the name money.proto"
    with pytest.raises((NotBase64, ValueError)):
        b64decode(text, validate=True)


@pytest.mark.parametrize(
    "schema", [b64encode(DESCRIPTOR.SerializeToString()).decode(), GROUP], ids=["base64", "a group of proto2"]
)
def test_what_serializers_of_descriptors_register_and_groups_are_no_question_for_it(
    registry: SchemaRegistry, subject: str, schema: str
) -> None:
    number = registry.register(subject, schema, schemaType="PROTOBUF")
    assert httpx.get(f"{registry.url}/schemas/ids/{number}", timeout=60).json()["schema"] == schema
    assert serialized(registry, number).status_code == 500
