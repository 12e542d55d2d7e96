"""Framed messages: which message of which schema a record is, and what of them is read. No registry is asked."""

from base64 import b64decode, b64encode
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import header_schema_id_serializer
from confluent_kafka.schema_registry.serde import SchemaId
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import given
from hypothesis import strategies as st

from tests.protobuf_schemas import descriptor_set, message_class, proto
from tidemark.decoders.base import Decoded, ErrorClass
from tidemark.errors import ConfigurationError
from tidemark.model.record_schema import HEADERS
from tidemark.providers.protobuf.decoder import open_decoder
from tidemark.providers.protobuf.framed import message_at, split_by_message
from tidemark.providers.protobuf.schemas.registered import descriptor_set_of
from tidemark.providers.registry.registered_schema import RegisteredSchema

TEXT = """
syntax = "proto3"; // message InAComment {
package shop.v1;
import "other.proto";
option java_package = "message InText {";
/* message InABlock { } */
enum Color { RED = 0; BLUE = 1 [(shade) = { name: "message X {" }]; }
message Order {
  message Line { message Part { } int32 message = 1; }
  oneof way { int32 a = 1; group Grouped = 2 { int32 b = 3; } }
  map<string, Line> lines = 4;
  reserved 5 to 6;
}
service Shop { rpc Buy (Order) returns (Bill) { option (http) = { body: "}" }; } }
message Bill { optional group Total = 1 { } extensions 100 to 200; }
"""


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ((0,), "shop.v1.Order"),
        ((1,), "shop.v1.Bill"),
        ((0, 0), "shop.v1.Order.Line"),
        ((0, 0, 0), "shop.v1.Order.Line.Part"),
        ((0, 1), "shop.v1.Order.Grouped"),
        ((1, 0), "shop.v1.Bill.Total"),
        ((2,), None),
        ((0, 2), None),
        ((0, 0, 0, 0), None),
    ],
)
def test_a_path_names_a_message_in_the_text_of_a_schema(path: tuple[int, ...], name: str | None) -> None:
    assert message_at(TEXT, path) == name


def test_a_path_names_a_message_in_a_descriptor() -> None:
    text = b64encode(proto("p", {"A": ["int32 a = 1"], "B": ["map<string, A> m = 1"]}).SerializeToString()).decode()
    assert [message_at(text, path) for path in [(0,), (1,), (1, 0), (2,)]] == ["p.A", "p.B", "p.B.MEntry", None]
    assert message_at("message M { }", (0,)) == "M"


@given(st.text(max_size=60))
def test_no_text_of_a_schema_raises(text: str) -> None:
    message_at(text, (0, 0))


def test_values_are_taken_together_by_their_message() -> None:
    values = [b"\0abc", b"\0", b"\x02\x02xyz", b"\x04\0\x02q", b"", b"\x01", b"\xff\xff", b"\x02", b"\0d", b"\x02\x01"]
    groups, wrong = split_by_message(pa.array(values, pa.binary()))
    assert [(group.path, group.positions.to_pylist(), group.data.to_pylist()) for group in groups] == [
        ((0,), [0, 1, 8], [b"abc", b"", b"d"]),
        ((1,), [2], [b"xyz"]),
        ((0, 1), [3], [b"q"]),
    ]
    assert wrong == [4, 5, 6, 7, 9]


@given(st.lists(st.binary(max_size=6), max_size=20))
def test_each_value_is_in_one_message_or_in_none(values: list[bytes]) -> None:
    groups, wrong = split_by_message(pa.array(values, pa.binary()))
    assert sorted([*wrong, *(at for group in groups for at in group.positions.to_pylist())]) == [*range(len(values))]
    for group in groups:
        for at, data in zip(group.positions.to_pylist(), group.data.to_pylist(), strict=True):
            assert values[at].endswith(data)


def test_many_messages_in_one_batch_are_all_read() -> None:
    values = [bytes([2, 2 * number, 7]) for number in range(64)] + [b"\x02\x80\x02\x07"] * 3
    groups, wrong = split_by_message(pa.array(values * 2, pa.binary()))
    assert wrong == []
    assert sum(len(group.data) for group in groups) == 2 * len(values)
    assert {data for group in groups for data in group.data.to_pylist()} == {b"\x07"}


READER = proto("shop", {"Order": ["int64 id = 1", "string note = 2", "google.protobuf.Timestamp at = 3"]})
OLDER = proto("shop", {"Bill": ["int32 a = 1"], "Order": ["int32 id = 1", "bytes more = 9"]})
SCHEMAS = {
    "7": ("PROTOBUF", b64encode(READER.SerializeToString()).decode()),
    "8": ("PROTOBUF", b64encode(OLDER.SerializeToString()).decode()),
    "9": ("AVRO", '"int"'),
}


def framed(number: int, path: bytes, data: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + path + data


def config(**reader: Any) -> dict[str, Any]:
    local = RegisteredSchema(-1, "PROTOBUF", b64encode(descriptor_set(READER)).decode())
    pinned = {
        f"http://none: writer {writer}": RegisteredSchema(int(writer), kind, text).as_dict()
        for writer, (kind, text) in SCHEMAS.items()
    }
    return {
        "format": "protobuf",
        "message": "shop.Order",
        "reader": local.as_dict(),
        "registry": {"url": "http://none"},
        "schemas": pinned,
        **reader,
    }


def decoded(*values: bytes | None, **reader: Any) -> Decoded:
    columns = {
        "value": pa.array(values, pa.binary()),
        "headers": pa.array([[]] * len(values), HEADERS),
    }
    return open_decoder(config(**reader)).decode(pa.record_batch(columns))


def test_records_of_several_writers_are_read_with_the_reader_s_message() -> None:
    order = message_class(descriptor_set(READER), "shop.Order")
    older = message_class(descriptor_set(OLDER), "shop.Order")
    result = decoded(
        framed(8, b"\x02\x02", older(id=1, more=b"x").SerializeToString()),
        framed(7, b"\0", order(id=2**40, note="n").SerializeToString()),
        framed(8, b"\x02\x02", older(id=3).SerializeToString()),
        framed(7, b"\x02\0", order(id=4).SerializeToString()),
        framed(7, b"\0", b""),
    )
    assert result.errors == ()
    assert [(row["id"], row["note"]) for row in result.rows.to_pylist()] == [
        (1, ""),
        (2**40, "n"),
        (3, ""),
        (4, ""),
        (0, ""),
    ]
    assert result.good.to_pylist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("indexes", [[0], [1], [1, 0], [0, 2, 1]])
def test_schema_and_message_may_stand_in_a_header_as_confluent_s_serializer_writes_them(indexes: list[int]) -> None:
    guid = "89791762-2336-4186-9674-299b90a802e2"
    messages = {name: ["int64 id = 1"] for name in ("A", "B")}
    file = proto("shop", messages)
    for message in file.message_type:
        for inner in ("C", "D", "E"):
            message.nested_type.add(name=inner).field.add(name="id", number=1, type=3, label=1)
            message.nested_type[-1].nested_type.add(name="F")
            message.nested_type[-1].nested_type.add(name="G").field.add(name="id", number=1, type=3, label=1)
    text = b64encode(file.SerializeToString()).decode()
    headers: list[tuple[str, bytes]] = []
    context = SerializationContext("t", MessageField.VALUE, headers)
    schema_id = SchemaId("PROTOBUF", guid=guid, message_indexes=indexes)
    values = [header_schema_id_serializer(data, context, schema_id) for data in (b"\x08\x05", b"")]
    schema = RegisteredSchema(7, "PROTOBUF", text).as_dict()
    opened = open_decoder(
        {
            "format": "protobuf", "message": message_at(text, tuple(indexes)), "registry": {"url": "http://none"},
            "reader": RegisteredSchema(-1, "PROTOBUF", b64encode(descriptor_set(file)).decode()).as_dict(),
            "schemas": {f"http://none: writer {guid}": schema},
        }
    )  # fmt: skip
    [header, _] = headers
    columns = {"value": pa.array(values, pa.binary()), "headers": pa.array([[header]] * 2, HEADERS)}
    result = opened.decode(pa.record_batch(columns))
    assert (result.rows.to_pylist(), result.errors) == ([{"id": 5}, {"id": 0}], ())
    without = pa.array([[("__value_schema_id", header[1][:17])]] * 2, HEADERS)
    reasons = [bad.reason for bad in opened.decode(pa.record_batch({**columns, "headers": without})).errors]
    expected = (
        f"the header __value_schema_id holds no place of a message after the schema id: {header[1][:17].hex(' ')}"
    )
    assert reasons == [expected] * 2


def test_what_is_wrong_names_both_schemas() -> None:
    result = decoded(
        None,
        b"",
        b"\0\0\0",
        framed(8, b"\0", b""),
        framed(8, b"\x02\x08", b""),
        framed(9, b"\0", b""),
        framed(7, b"", b""),
        framed(7, b"\0", b"\x08"),
        framed(7, b"\0", b"\x08\x05"),
    )
    assert result.good.to_pylist() == [8]
    assert [(bad.index, bad.reason, bad.error, bad.schemas) for bad in result.errors[3:]] == [
        (
            3,
            "it is a message shop.Bill, and the reader needs shop.Order (writer 8, reader of the file)",
            ErrorClass.SCHEMA,
            W8,
        ),
        (4, "schema 8 has no message at [4] (writer 8, reader of the file)", ErrorClass.SCHEMA, W8),
        (5, "schema 9 is AVRO, not PROTOBUF (writer 9, reader of the file)", ErrorClass.SCHEMA, W8.replace("8", "9")),
        (6, "it does not say which message it is (writer 7, reader of the file)", ErrorClass.VALUE, W7),
        (7, "not a shop.Order: wire format was corrupt", ErrorClass.VALUE, W7),
    ]
    assert [bad.reason for bad in result.errors[:1]] == ["no value (a tombstone)"]


W7, W8 = "writer 7, reader of the file", "writer 8, reader of the file"


def test_a_schema_that_the_registry_holds_as_base64_can_be_the_reader_s() -> None:
    imported = proto("geo", {"Point": ["double x = 1"]}, name="geo.proto")
    user = proto("shop", {"Order": ["int64 id = 1", "geo.Point at = 2"]}, imports=("geo/v1.proto",))
    text, reference = (b64encode(file.SerializeToString()).decode() for file in (user, imported))
    reader = RegisteredSchema(5, "PROTOBUF", text, (("geo/v1.proto", reference),)).as_dict()
    content = message_class(descriptor_set_of(RegisteredSchema.from_dict(reader)), "shop.Order")(id=1, at={"x": 2.5})
    result = decoded(framed(7, b"\0", content.SerializeToString()), reader=reader)
    assert result.rows.to_pylist() == [{"id": 1, "at": {"x": 2.5}}]


def test_a_schema_that_the_registry_holds_as_text_can_be_it_too() -> None:
    text = 'syntax = "proto3"; package shop; import "geo.proto"; message Order { int64 id = 1; geo.Point at = 2; }'
    geo = 'syntax = "proto3"; package geo; message Point { double x = 1; }'
    reader = RegisteredSchema(5, "PROTOBUF", text, (("geo.proto", geo),)).as_dict()
    content = message_class(descriptor_set_of(RegisteredSchema.from_dict(reader)), "shop.Order")(id=1, at={"x": 2.5})
    result = decoded(framed(7, b"\0", content.SerializeToString()), reader=reader)
    assert result.rows.to_pylist() == [{"id": 1, "at": {"x": 2.5}}]


def test_a_text_that_cannot_be_the_reader_s_schema_names_the_other_way() -> None:
    with pytest.raises(ConfigurationError, match=r"as the text of a \.proto file that cannot be used") as caught:
        decoded(reader=RegisteredSchema(5, "PROTOBUF", "message M { int32 a 1; }").as_dict())
    assert "decode.descriptor_set" in caught.value.next_step
    assert FileDescriptorProto.FromString(b64decode(SCHEMAS["7"][1])).package == "shop"
