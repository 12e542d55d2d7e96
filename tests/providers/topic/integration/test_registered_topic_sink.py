"""Avro and Protobuf into a topic by a real registry, read back by libraries that are not ours."""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, topic_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict
from google.protobuf.message_factory import GetMessageClass

from sandbox.services.registry import SchemaRegistry
from tests.worlds.topic_world import TopicWorld, committed, topic_sink
from tests.worlds.world import happened

Make = Callable[..., TopicWorld]


def avro_sink(world: TopicWorld, registry: SchemaRegistry, **options: Any) -> None:
    """The world's sink writes Avro from now on."""
    avro = {"format": "avro", "registry": {"url": registry.url}, "key": ["k"], **options}
    world.settings["sinks"] = [topic_sink(world.servers, world.out, **avro)]
    world.write_pipeline()


def rows(world: TopicWorld, registry: SchemaRegistry) -> list[Any]:
    context = SerializationContext(world.out, MessageField.VALUE)
    # By default it would ask the registry for each record which subject its topic has.
    conf = {"subject.name.strategy": topic_subject_name_strategy}
    with SchemaRegistryClient({"url": registry.url, "timeout": 30}) as client:
        read = AvroDeserializer(client, conf=conf)
        return [read(message.value(), context) for message in world.sent() if message.topic() == world.out]


def versions(registry: SchemaRegistry, subject: str) -> list[int]:
    """The versions of a subject; none while there is no such subject."""
    with SchemaRegistryClient({"url": registry.url, "timeout": 30}) as client:
        return client.get_versions(subject) if subject in client.get_subjects() else []


def test_the_schema_of_the_columns_is_registered_and_a_replay_makes_the_same_bytes(
    make_topic_world: Make, registry: SchemaRegistry
) -> None:
    world = make_topic_world(settings={"kafka": {"slice": {"max_records": 1000}}})
    avro_sink(world, registry, auto_register=True)
    world.produce(40, bad_every=9)
    world.ok("doctor", "demo")
    subject = f"{world.out}-value"
    assert versions(registry, subject) == [], "the doctor registers nothing"
    world.ok("run", "demo")
    assert versions(registry, subject) == [1]
    sent = rows(world, registry)
    assert len(sent) + len(world.bad) == sum(world.everything().values())
    assert list(sent[0]) == ["n", "at", "name", "k"]
    world.ok("replay", "demo", "--manifest", "1")
    assert len(rows(world, registry)) == len(sent), "equal bytes are not sent again"
    assert world.ok("audit", "demo", "--deep") == ""


def test_without_auto_register_the_newest_schema_of_the_subject_must_fit(
    make_topic_world: Make, registry: SchemaRegistry
) -> None:
    world = make_topic_world(settings={"kafka": {"slice": {"max_records": 1000}}})
    avro_sink(world, registry)
    subject = f"{world.out}-value"
    world.produce(20)
    refused = world.here("run", "demo")
    assert refused.exit_code == 2
    assert f"the schema registry has no subject {subject}" in refused.stderr
    fields = [
        {"name": "k", "type": ["null", "long"]},
        {"name": "n", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ]
    first = {"type": "record", "name": "Order", "namespace": "shop", "fields": fields}
    registry.register(subject, first)
    assert "it has no field for column name" in world.here("doctor", "demo").stdout
    name = {"name": "name", "type": ["null", "string"], "default": None}
    number = registry.register(subject, {**first, "fields": [*fields, name]})
    world.ok("retry", "demo")
    assert {row["k"] for row in rows(world, registry)}
    values = [message.value() or b"" for message in world.sent()]
    assert {int.from_bytes(value[1:5], "big") for value in values} == {number}
    more = {"name": "more", "type": ["null", "string"], "default": None}
    registry.register(subject, {**first, "fields": [*fields, name, more]})
    world.ok("replay", "demo", "--manifest", "1")
    assert len(world.sent()) == len(values), "a replay uses the schema of its manifest"


def message_by_hand() -> Any:
    """The message that the columns make, without the text of the registry. (Confluent's deserializer asks a registry
    for a descriptor, which this registry does not have.)"""
    time = FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(time)
    row = FileDescriptorProto(name="row.proto", syntax="proto3", dependency=[time.name])
    fields: list[dict[str, Any]] = [
        {"name": "n", "type": "TYPE_INT64"},
        {"name": "at", "type": "TYPE_MESSAGE", "type_name": ".google.protobuf.Timestamp"},
        {"name": "name", "type": "TYPE_STRING"},
        {"name": "k", "type": "TYPE_INT64"},
    ]
    message = row.message_type.add(name="Row")
    for number, field in enumerate(fields, 1):
        message.field.add(number=number, label="LABEL_OPTIONAL", **field)
    pool = DescriptorPool()
    pool.Add(time)
    pool.Add(row)
    return GetMessageClass(pool.FindMessageTypeByName("Row"))


def protobuf_rows(world: TopicWorld, registry: SchemaRegistry) -> list[dict[str, Any]]:
    with SchemaRegistryClient({"url": registry.url, "timeout": 30}) as client:
        [version] = client.get_versions(f"{world.out}-value")
        number = client.get_version(f"{world.out}-value", version).schema_id
    values = [message.value() or b"" for message in world.sent() if message.topic() == world.out]
    assert {value[:6] for value in values} == {b"\0" + number.to_bytes(4, "big") + b"\0"}
    message = message_by_hand()
    return [MessageToDict(message.FromString(value[6:])) for value in values]


def test_protobuf_messages_are_registered_read_by_others_and_replayed_with_the_same_bytes(
    make_topic_world: Make, registry: SchemaRegistry
) -> None:
    world = make_topic_world(settings={"kafka": {"slice": {"max_records": 1000}}})
    avro_sink(world, registry, format="protobuf", auto_register=True)
    world.produce(40, bad_every=9)
    world.ok("doctor", "demo")
    world.ok("run", "demo")
    sent = protobuf_rows(world, registry)
    assert len(sent) + len(world.bad) == sum(world.everything().values())
    read = {int(row.get("n", 0)): row for row in sent}
    assert set(read) == set(range(40)) - world.bad
    assert read[7]["name"] == "r7"
    assert read[7]["at"] == f"{happened(7):%Y-%m-%dT%H:%M:%SZ}"
    world.ok("replay", "demo", "--manifest", "1")
    assert len(protobuf_rows(world, registry)) == len(sent), "equal bytes are not sent again"
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_protobuf_schema_that_does_not_fit_is_named_with_one_that_does(
    make_topic_world: Make, registry: SchemaRegistry
) -> None:
    world = make_topic_world()
    avro_sink(world, registry, format="protobuf")
    subject = f"{world.out}-value"
    registry.register(subject, 'syntax = "proto3"; message Order { int64 n = 1; }', schemaType="PROTOBUF")
    world.produce(4)
    refused = world.here("run", "demo")
    assert refused.exit_code == 2
    assert f"of {subject} does not fit the columns: it has no field for column at" in refused.stderr
    assert "google.protobuf.Timestamp at = 2;" in refused.stderr


@pytest.mark.parametrize("form", ["avro", "protobuf"])
def test_a_value_that_is_too_long_for_the_topic_costs_its_record_in_all_sinks(
    make_topic_world: Make, registry: SchemaRegistry, form: str
) -> None:
    world = make_topic_world(has_lake=True, settings={"kafka": {"slice": {"max_records": 1000}}})
    world.broker.configure_topic(world.out, "max.message.bytes", "4000")
    sink = {"format": form, "registry": {"url": registry.url}, "key": ["k"], "auto_register": True}
    world.settings["sinks"] = [topic_sink(world.servers, world.out, **sink), world.lake_entry()]
    world.write_pipeline()
    world.produce(40)
    large = {"n": 1, "at": "2024-03-01T00:00:00Z", "name": random.Random(1).randbytes(40_000).hex(), "k": 1}
    world.send(json.dumps(large), json.dumps({"n": 2, "at": "2024-03-01T00:00:00Z", "name": "x" * 40_000, "k": 1}))
    world.ok("run", "demo")
    for name in ("topic", "files"):
        [letter] = world.json("dead-letters", "demo", "--sink", name, "--show")["records"]
        assert letter["offset"] == 20
        assert letter["reason"] == f"its message has more bytes than the 4000 of topic {world.out}"
    assert len(committed(world.broker.bootstrap_servers, world.out)) == 41, "what is short after compression is sent"
    assert world.ok("audit", "demo", "--deep") == ""
