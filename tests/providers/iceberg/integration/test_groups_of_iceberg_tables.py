"""A file with ``each_topic`` whose members write Iceberg tables: one client of the catalog, and a schema each."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, topic_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import SerializationContext
from deltalake import DeltaTable
from psycopg.rows import dict_row
from sqlalchemy import Engine, event

from sandbox.services.registry import SchemaRegistry
from tests.worlds.iceberg_world import IcebergWorld

Make = Callable[..., IcebergWorld]
Row = dict[str, Any]


def group_world(make: Make, prefix: str, **settings: Any) -> IcebergWorld:
    """A group with a lake and a table for each topic."""
    return make(
        iceberg={"table": "lake.{name}", "partition_by": []},
        has_lake=True,
        settings={
            "kafka": {"topics": [], "topics_regex": rf"{prefix}-(?P<name>.*)"},
            "each_topic": True,
            "event_time": {},
            **settings,
        },
    )


@contextmanager
def connections_to_catalogs() -> Iterator[list[object]]:
    """A list that grows with each connection that any client opens."""
    opened: list[object] = []

    def note(connection: object, record: object) -> None:
        del record
        opened.append(connection)

    event.listen(Engine, "connect", note)
    try:
        yield opened
    finally:
        event.remove(Engine, "connect", note)


def rows_of(world: IcebergWorld, table: str, *columns: str) -> list[Row]:
    with world.catalog() as catalog:
        rows: list[Row] = catalog.load_table(f"lake.{table}").scan(selected_fields=columns).to_arrow().to_pylist()
    return rows


def states(world: IcebergWorld) -> dict[str, str]:
    return {each["pipeline"]: each["state"] for each in world.status("demo")}


def test_the_plan_of_a_group_asks_the_catalog_over_one_connection(make_iceberg_world: Make, prefix: str) -> None:
    world = group_world(make_iceberg_world, prefix, decode={"format": "json", "schema": "id BIGINT NOT NULL"})
    for name in "abc":
        world.add_topic(f"{prefix}-{name}", b'{"id": 1}')
    with connections_to_catalogs() as first:
        world.ok("plan", "demo")
    world.ok("retry", "demo")
    with connections_to_catalogs() as again:
        world.ok("plan", "demo")
    with connections_to_catalogs() as alone:
        world.ok("plan", f"demo.{prefix}-a")
    assert [len(first), len(again), len(alone)] == [2, 2, 2], "one to open the client, one for all questions"
    assert [rows_of(world, name, "id") for name in "abc"] == [[{"id": 1}]] * 3
    assert world.ok("audit", "demo", "--deep") == ""


REGISTERED = {"format": "avro", "registry": {"connection": "registry"}}
SUBJECT = {"subject.name.strategy": topic_subject_name_strategy}
FIRST = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
SECOND = {**FIRST, "fields": [*FIRST["fields"], {"name": "note", "type": ["null", "string"], "default": None}]}


def registered_world(make: Make, prefix: str, registry: SchemaRegistry, **settings: Any) -> IcebergWorld:
    world = group_world(make, prefix, decode=REGISTERED, **settings)
    world.targets["registry"] = json.dumps({"conn_type": "http", "extra": {"url": registry.url}})
    return world


def send(world: IcebergWorld, registry: SchemaRegistry, topic: str, schema: Row, *values: Row) -> None:
    producer = world.broker.producer()
    with SchemaRegistryClient({"url": registry.url, "timeout": 30}) as client:
        write = AvroSerializer(client, json.dumps(schema), conf=SUBJECT)
        for value in values:
            producer.produce(topic, write(value, SerializationContext(topic, "value")))
    assert producer.flush(30) == 0


@pytest.mark.road
def test_members_get_the_columns_of_their_own_subjects_and_of_newer_versions(
    make_iceberg_world: Make, prefix: str, registry: SchemaRegistry
) -> None:
    """In each kind of table that ``auto_create`` extends; the file of the group stays as it is."""
    world = registered_world(make_iceberg_world, prefix, registry)
    delta = {"delta": {"location": str(world.folder / "delta" / "{name}"), "auto_create": True}}
    postgres = {"postgres": {"connection": "warehouse", "table": "{name}", "key": ["id"], "auto_create": True}}
    world.settings["sinks"] = [*world.sinks(), delta, postgres]
    world.write_pipeline()
    orders, items, bare = (f"{prefix}-{name}" for name in ("orders", "items", "bare"))
    for topic in (orders, items):
        world.add_topic(topic)
        send(world, registry, topic, FIRST, {"id": 1})
    world.add_topic(bare, b"no schema")
    run = world.here("run", "demo")
    assert run.exit_code == 1
    assert f"demo.{bare}: " in run.stderr
    assert f"has no subject {bare}-value" in run.stderr
    assert states(world) == {f"demo.{orders}": "ok", f"demo.{items}": "ok", f"demo.{bare}": "failed"}
    assert f"has no subject {bare}-value" in world.here("status", "demo").stdout
    # A newer version widens the tables of one member, and a schema ends the trouble of another.
    send(world, registry, orders, SECOND, {"id": 2, "note": "new"})
    send(world, registry, bare, FIRST, {"id": 3})
    world.settings["max_dead_letters"] = "100%"
    world.write_pipeline()
    world.ok("retry", "demo")
    world.ok("run", "demo")
    assert set(states(world).values()) == {"ok"}
    wide = [{"id": 1, "note": None}, {"id": 2, "note": "new"}]

    def by_id(rows: list[Row]) -> list[Row]:
        return sorted(rows, key=lambda row: int(row["id"]))

    assert by_id(rows_of(world, "orders", "id", "note")) == wide
    assert by_id(rows_of(world, "items", "*"))[0].keys().isdisjoint({"note"})
    assert rows_of(world, "bare", "id") == [{"id": 3}]
    in_delta = DeltaTable(world.folder / "delta" / "orders").to_pyarrow_table(columns=["id", "note"]).to_pylist()
    assert by_id(in_delta) == wide
    with psycopg.connect(world.targets["warehouse"], row_factory=dict_row) as connection:
        assert connection.execute("SELECT id, note FROM orders ORDER BY id").fetchall() == wide
    assert world.ok("audit", "demo", "--deep") == ""


def test_two_topics_that_give_one_table_leave_it_to_the_older_member(make_iceberg_world: Make, prefix: str) -> None:
    world = group_world(make_iceberg_world, prefix, decode={"format": "json", "schema": "id BIGINT NOT NULL"})
    older, later = f"{prefix}-dup_b", f"{prefix}-Dup.b"
    world.add_topic(older, b'{"id": 1}')
    world.ok("run", "demo")
    world.add_topic(later, b'{"id": 2}')
    run = world.here("run", "demo")
    assert run.exit_code == 1
    assert f"demo.{later}: sink iceberg would write to " in run.stderr
    assert f"lake.dup_b, as demo.{older} does" in run.stderr
    assert rows_of(world, "dup_b", "id") == [{"id": 1}]
    world.settings["each_topic"] = {later: {"sinks": [{"iceberg": {"table": "lake.other"}}]}}
    world.write_pipeline()
    world.ok("run", "demo")
    assert rows_of(world, "other", "id") == [{"id": 2}]
    assert world.ok("audit", "demo", "--deep") == ""
