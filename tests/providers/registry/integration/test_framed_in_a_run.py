"""Protobuf and JSON from confluent-kafka's own serializers, through a real registry, into a lake."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, topic_subject_name_strategy
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import SerializationContext

from sandbox.services.registry import SchemaRegistry
from tests.protobuf_schemas import descriptor_set, message_class, proto
from tests.worlds.world import World

MakeWorld = Callable[..., World]
SUBJECT = {"subject.name.strategy": topic_subject_name_strategy}
POINT = proto("geo", {"Point": ["double x = 1", "double y = 2"]}, name="geo.proto")
FIRST = proto("shop", {"Bill": ["int32 a = 1"], "Order": ["int64 id = 1", "google.protobuf.Timestamp at = 2"]})
SECOND = proto(
    "shop",
    {
        "Order": [
            "int64 id = 1", "google.protobuf.Timestamp at = 2", "optional string note = 3", "geo.Point place = 4",
        ]
    },
    imports=("geo.proto",),
)  # fmt: skip
AT = datetime(2024, 3, 1, 11, tzinfo=UTC)


def rows(world: World, *words: str) -> list[dict[str, Any]]:
    published = [row for path in world.data_paths(*words) for row in pq.read_table(path).to_pylist()]
    return sorted(published, key=lambda row: row["_offset"])


def send_message(world: World, registry: SchemaRegistry, kind: type, **fields: Any) -> None:
    conf = {"use.deprecated.format": False, **SUBJECT}
    message = kind(**fields)
    message.at.FromDatetime(AT)
    with SchemaRegistryClient({"url": registry.url, "timeout": 30}) as client:
        world.send(ProtobufSerializer(kind, client, conf)(message, SerializationContext(world.topic, "value")))


@pytest.mark.parametrize("reader", ["file", "registry"])
def test_messages_of_two_schemas_become_rows_of_the_reader_s(
    make_world: MakeWorld, registry: SchemaRegistry, reader: str
) -> None:
    decode = {"format": "protobuf", "message": "shop.Order", "registry": {"url": registry.url}}
    if reader == "file":
        decode["descriptor_set"] = "order.desc"
    world = make_world(partitions=1, settings={"decode": decode, "event_time": {"field": "at"}})
    (world.pipelines / "order.desc").write_bytes(descriptor_set(POINT, SECOND))
    send_message(world, registry, message_class(descriptor_set(FIRST), "shop.Order"), id=1)
    newer = message_class(descriptor_set(POINT, SECOND), "shop.Order")
    send_message(world, registry, newer, id=2, note="n", place={"x": 1.5})
    world.send(b"\0\0\x0f\x42\x3f\0", b"no message")
    world.ok("run", "demo")
    assert [(row["id"], row["note"], row["at"], row["place"]) for row in rows(world)] == [
        (1, None, AT, None),
        (2, "n", AT, {"x": 1.5, "y": 0.0}),
    ]
    reasons = [row["_reason"] for row in rows(world, "--dead-letters")]
    assert "the registry has no schema 999999" in reasons[0]
    assert "the value is not framed: its first byte is 110" in reasons[1]
    assert world.ok("audit", "demo", "--deep") == ""


def test_json_of_two_schemas_becomes_rows_of_the_newest(make_world: MakeWorld, registry: SchemaRegistry) -> None:
    decode = {"format": "json_schema", "registry": {"url": registry.url}}
    world = make_world(partitions=1, settings={"decode": decode, "event_time": {"field": "at"}})
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Order",
        "type": "object",
        "properties": {"id": {"type": "integer"}, "at": {"type": "string", "format": "date-time"}},
        "required": ["id", "at"],
        "additionalProperties": False,
    }
    newer = {**schema, "properties": {**schema["properties"], "note": {"type": "string"}}}  # type: ignore[dict-item]
    with SchemaRegistryClient({"url": registry.url, "timeout": 30}) as client:
        for made, value in [(schema, {"id": 1}), (newer, {"id": 2, "note": "n"})]:
            write = JSONSerializer(json.dumps(made), client, conf=SUBJECT)
            world.send(write({**value, "at": AT.isoformat()}, SerializationContext(world.topic, "value")))
    world.send(b"\0\0\x0f\x42\x3f{}", b"{}")
    world.ok("run", "demo")
    assert [(row["id"], row["note"], row["at"]) for row in rows(world)] == [(1, None, AT), (2, "n", AT)]
    reasons = [row["_reason"] for row in rows(world, "--dead-letters")]
    assert "the registry has no schema 999999" in reasons[0]
    assert "the value is not framed: its first byte is 123" in reasons[1]
    assert world.ok("audit", "demo", "--deep") == ""
