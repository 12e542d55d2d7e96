"""Avro into a topic by a real registry, read back by confluent-kafka's own deserializer."""

from collections.abc import Callable
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from sandbox.services.registry import SchemaRegistry
from tests.worlds.topic_world import TopicWorld, topic_sink

Make = Callable[..., TopicWorld]


def avro_sink(world: TopicWorld, registry: SchemaRegistry, **options: Any) -> None:
    """The world's sink writes Avro from now on."""
    avro = {"format": "avro", "registry": {"url": registry.url}, "key": ["k"], **options}
    world.settings["sinks"] = [topic_sink(world.servers, world.out, **avro)]
    world.write_pipeline()


def rows(world: TopicWorld, registry: SchemaRegistry) -> list[Any]:
    context = SerializationContext(world.out, MessageField.VALUE)
    with SchemaRegistryClient({"url": registry.url}) as client:
        read = AvroDeserializer(client)
        return [read(message.value(), context) for message in world.sent() if message.topic() == world.out]


def versions(registry: SchemaRegistry, subject: str) -> list[int]:
    """The versions of a subject; none while there is no such subject."""
    with SchemaRegistryClient({"url": registry.url}) as client:
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
