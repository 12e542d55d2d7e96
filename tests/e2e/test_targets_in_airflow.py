"""Targets filled through Airflow, over connections that are known to Airflow alone, also from a schema registry."""

import json
from collections.abc import Callable
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, topic_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from sandbox.services.registry import SchemaRegistry
from tests.worlds.airflow_world import DAG, AirflowWorld, postgres_connection
from tests.worlds.all_sinks_world import KINDS, AllSinksWorld
from tests.worlds.registry_proxy import RegistryProxy, basic
from tests.worlds.s3_world import CONNECTION, S3World
from tests.worlds.world import EPOCH, World

pytestmark = pytest.mark.timeout(600)  # Spark takes 20 s a manifest, ten times that on a busy machine

ONE_SLICE = {"retry_delay": "1s", "kafka": {"slice": {"max_records": 1000}}}


@pytest.mark.thorough
def test_a_sink_of_each_kind_is_filled_and_the_password_of_the_connection_is_seen_nowhere(
    airflow_world: AirflowWorld, make_all_sinks_world: Callable[..., AllSinksWorld]
) -> None:
    world = make_all_sinks_world(kinds=KINDS, settings=ONE_SLICE)
    world.produce(60, bad_every=20)
    connection = postgres_connection(world.targets["warehouse"])
    assert "read 60" in log_of_a_run(airflow_world, world, "warehouse", connection)
    world.assert_complete()


@pytest.mark.thorough
def test_a_bucket_is_filled_and_the_keys_of_the_connection_are_seen_nowhere(
    airflow_world: AirflowWorld, make_s3_world: Callable[..., S3World]
) -> None:
    world = make_s3_world(settings=ONE_SLICE)
    bucket = json.loads(world.targets[CONNECTION])
    connection = {**bucket, "host": "", "extra": json.dumps(bucket["extra"])}
    world.produce(60, bad_every=20)
    assert "read 60" in log_of_a_run(airflow_world, world, CONNECTION, connection)
    world.assert_complete()


@pytest.mark.thorough
def test_avro_of_a_registry_beside_json_is_read_and_the_password_of_the_registry_is_seen_nowhere(
    airflow_world: AirflowWorld, make_world: Callable[..., World], registry: SchemaRegistry
) -> None:
    world = make_world()
    of_avro = f"{world.topic}-avro"
    fields = "n BIGINT NOT NULL, at TIMESTAMP NOT NULL, name STRING"
    decode = [
        {"topics": [world.topic], "format": "json", "schema": fields},
        {"topics": [of_avro], "format": "avro", "registry": {"connection": "registry"}},
    ]
    world.settings = {**world.settings, **ONE_SLICE, "decode": decode}
    world.write_pipeline(topics=[world.topic, of_avro])
    world.broker.create_topic(of_avro, 2, {"retention.ms": "-1"})
    world.produce(20, bad_every=20)
    numbers = range(100, 140)
    produce_avro(world, of_avro, registry, numbers)
    with RegistryProxy(registry, basic("reader", "canary-secret")) as door:
        connection = {"conn_type": "http", "host": "", "login": "reader", "password": "canary-secret"}
        log = log_of_a_run(airflow_world, world, "registry", {**connection, "extra": json.dumps({"url": door.url})})
        assert door.requests, "the password was needed"
    assert "read 60" in log
    rows = [row for path in world.data_paths() for row in pq.read_table(path, partitioning=None).to_pylist()]
    assert {row["n"] for row in rows if row["_topic"] == of_avro} == {*numbers}
    assert world.ok("audit", "demo", "--deep") == ""
    world.broker.delete_topic(of_avro)


def produce_avro(world: World, topic: str, registry: SchemaRegistry, numbers: range) -> None:
    """Records as Confluent's own serializer writes them."""
    at = {"type": "long", "logicalType": "timestamp-millis"}
    fields = [{"name": "n", "type": "long"}, {"name": "at", "type": at}, {"name": "name", "type": ["null", "string"]}]
    schema = json.dumps({"type": "record", "name": "Reading", "fields": fields})
    context, producer = SerializationContext(topic, MessageField.VALUE), world.broker.producer()
    with SchemaRegistryClient({"url": registry.url, "timeout": 30}) as client:
        serialized = AvroSerializer(client, schema, conf={"subject.name.strategy": topic_subject_name_strategy})
        for n in numbers:
            producer.produce(topic, serialized({"n": n, "at": EPOCH, "name": f"r{n}"}, context))
    assert producer.flush(30) == 0


def log_of_a_run(demo: AirflowWorld, world: World, conn_id: str, connection: dict[str, Any]) -> str:
    """What Airflow shows of a run that publishes all records in one manifest, and never the connection's password."""
    world.dsn, demo.world = demo.world.dsn, world
    demo.airflow.create_connection(conn_id, **connection)
    try:
        demo.deploy()
        run_id = demo.trigger()
        demo.succeed(run_id)
        instances = demo.airflow.task_instances(DAG, run_id)
        seen = demo.logs(run_id, ("success", "failed")) + json.dumps(instances, default=str)
        assert "manifest 1 attempt 1: published" in seen
        assert connection["password"] not in seen
        return seen
    finally:
        demo.airflow.delete_connection(conn_id)
