"""The topics of a connector, one for each table, as current rows by the keys that a schema registry has of them."""

import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, topic_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import SerializationContext
from deltalake import DeltaTable
from psycopg.rows import dict_row

from sandbox.services.registry import SchemaRegistry
from tests.worlds.iceberg_world import IcebergWorld

Row = dict[str, Any]
IDS = {"orders": ("id",), "items": ("order_id", "place"), "heap": ()}
KINDS = ("iceberg", "delta", "postgres")


def record(name: str, *fields: str) -> Row:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": "long"} for field in fields]}


def value_schema(table: str) -> Row:
    row = record("Value", *IDS[table], "n")
    parts = [("before", ["null", row]), ("after", ["null", "Value"])]
    fields = [{"name": name, "type": kind, "default": None} for name, kind in parts]
    return {"type": "record", "name": "Envelope", "fields": [*fields, {"name": "op", "type": "string"}]}


class Tables:
    """Tables ``orders`` and ``items``, whose key is of two columns, and ``heap`` without one, through a registry."""

    def __init__(self, world: IcebergWorld, prefix: str, registry: SchemaRegistry) -> None:
        self.world, self.prefix, self.registry = world, prefix, registry
        address = {"conn_type": "http", "extra": {"url": registry.url}}
        world.targets["registry"] = json.dumps(address)
        for table in IDS:
            world.add_topic(self.topic(table))

    def topic(self, table: str) -> str:
        return f"{self.prefix}-{table}"

    def member(self, table: str) -> str:
        return f"demo.{self.topic(table)}"

    def send(self, table: str, *changes: Row, key: tuple[str, ...] | None = None) -> None:
        """Each change is a row; one with ``gone`` is deleted."""
        names = IDS[table] if key is None else key
        producer, topic = self.world.broker.producer(), self.topic(table)
        conf = {"subject.name.strategy": topic_subject_name_strategy}
        with SchemaRegistryClient({"url": self.registry.url, "timeout": 30}) as client:
            keys = AvroSerializer(client, json.dumps(record("Key", *names)), conf=conf) if names else None
            values = AvroSerializer(client, json.dumps(value_schema(table)), conf=conf)
            for change in changes:
                row = {name: value for name, value in change.items() if name in (*IDS[table], "n")}
                gone = change.get("gone", False)
                envelope = {"before": row, "op": "d"} if gone else {"after": row, "op": "c"}
                key_of_row = {name: change[name] for name in names}
                producer.produce(
                    topic,
                    values(envelope, SerializationContext(topic, "value")),
                    keys(key_of_row, SerializationContext(topic, "key")) if keys else None,
                )
        assert producer.flush(30) == 0

    def seen(self, table: str) -> list[Row]:
        """The rows that readers see, the same in each kind of table."""
        columns = (*IDS[table], "n", "_is_deleted", "_offset")
        with self.world.catalog() as catalog:
            read = {"iceberg": catalog.load_table(f"lake.{table}").scan(selected_fields=columns).to_arrow().to_pylist()}
        location = self.world.folder / "delta" / table
        read["delta"] = DeltaTable(location).to_pyarrow_table(columns=list(columns)).to_pylist()
        with psycopg.connect(self.world.targets["warehouse"], row_factory=dict_row) as connection:
            read["postgres"] = connection.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()
        rows = [
            sorted(tuple(row[name] for name in (*IDS[table], "n")) for row in read[kind]
                    if row["_offset"] is not None and not row["_is_deleted"])
            for kind in KINDS
        ]  # fmt: skip
        assert rows[1:] == rows[:-1], read
        return [dict(zip((*IDS[table], "n"), row, strict=True)) for row in rows[0]]


@pytest.fixture
def tables(make_iceberg_world: Callable[..., IcebergWorld], prefix: str, registry: SchemaRegistry) -> Tables:
    of_registry = {"format": "avro", "registry": {"connection": "registry"}}
    settings = {
        "kafka": {"topics": [], "topics_regex": rf"{prefix}-(?P<name>.*)"},
        "each_topic": True,
        "event_time": {},
        "decode": {**of_registry, "envelope": "debezium", "key": of_registry, "tombstones": "record_key"},
    }
    world = make_iceberg_world(
        iceberg={"table": "lake.{name}", "partition_by": [], "key": "record_key"}, settings=settings
    )
    delta = {"location": str(world.folder / "delta" / "{name}"), "key": "record_key", "auto_create": True}
    postgres = {"connection": "warehouse", "table": "{name}", "key": "record_key", "auto_create": True}
    world.settings["sinks"] = [*world.sinks(), {"delta": delta}, {"postgres": postgres}]
    world.write_pipeline()
    return Tables(world, prefix, registry)


@pytest.mark.road
def test_each_table_has_its_current_rows_by_the_key_that_the_registry_has_of_its_topic(tables: Tables) -> None:
    world = tables.world
    tables.send("orders", {"id": 1, "n": 1}, {"id": 2, "n": 2}, {"id": 1, "n": 3})
    items = [{"order_id": 1, "place": place, "n": place} for place in (1, 2)]
    tables.send("items", *items)
    tables.send("heap", {"n": 1})
    run = world.here("run", "demo")
    assert run.exit_code == 1, run.stderr
    assert f"{tables.member('heap')}: " in run.stderr
    assert f"has no subject {tables.topic('heap')}-key" in run.stderr
    shown = world.here("status", "demo").stdout
    assert "leave their topic out, in a group by false below each_topic" in shown
    world.settings["each_topic"] = {tables.topic("heap"): False}
    world.write_pipeline()
    tables.send("orders", {"id": 2, "gone": True, "n": 2}, {"id": 3, "n": 4})
    tables.send("items", {**items[0], "n": 7}, {**items[1], "gone": True})
    world.ok("run", "demo")
    assert tables.seen("orders") == [{"id": 1, "n": 3}, {"id": 3, "n": 4}]
    assert tables.seen("items") == [{"order_id": 1, "place": 1, "n": 7}]
    # What is stored is enough for whoever only reads the targets.
    world.targets["registry"] = json.dumps({"conn_type": "http", "extra": {"url": "http://127.0.0.1:9"}})
    assert world.ok("audit", "demo", "--deep") == ""
    assert "order_id=1 place=1" in world.ok("where", tables.topic("items"), "0", "2")


def test_a_group_that_lost_its_database_gets_its_keys_from_the_registry_again(tables: Tables) -> None:
    world = tables.world
    world.settings["each_topic"] = {tables.topic("heap"): False}
    world.write_pipeline()
    findings = json.loads(world.here("doctor", tables.member("items"), "--json").stdout)
    assert [each for each in findings if each["severity"] == "error" and ": sink " in each["check"]] == []
    tables.send("orders", {"id": 1, "n": 1})
    tables.send("items", {"order_id": 1, "place": 2, "n": 3})
    world.ok("run", "demo")
    world.lose_manifest_database()
    world.ok("db", "adopt", "demo", "--why", "the disk is gone")
    tables.send("items", {"order_id": 1, "place": 2, "n": 4})
    world.ok("run", "demo")
    assert tables.seen("orders") == [{"id": 1, "n": 1}]
    assert tables.seen("items") == [{"order_id": 1, "place": 2, "n": 4}]
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_key_that_changes_is_refused_by_name_and_the_former_one_goes_on_when_it_is_listed(tables: Tables) -> None:
    world, member = tables.world, tables.member("orders")
    world.settings["each_topic"] = {tables.topic(table): False for table in ("items", "heap")}
    world.write_pipeline()
    tables.send("orders", {"id": 1, "n": 1})
    world.ok("run", "demo")
    with SchemaRegistryClient({"url": tables.registry.url, "timeout": 30}) as client:
        client.set_compatibility(f"{tables.topic('orders')}-key", "NONE")
    tables.send("orders", {"id": 1, "region": 5, "n": 2}, key=("id", "region"))
    refused = world.here("run", "demo")
    assert refused.exit_code == 1
    assert "sink iceberg has one row for each id, which was the record's key when the sink was first" in refused.stderr
    assert "the key's schema has id, key_region" in refused.stderr
    assert world.status("demo")[0]["state"] == "failed"
    listed = [{"iceberg": {"key": ["id"]}}, {"delta": {"key": ["id"]}}, {"postgres": {"key": ["id"]}}]
    world.settings["each_topic"][tables.topic("orders")] = {"sinks": listed}
    world.write_pipeline()
    world.ok("retry", member)
    assert tables.seen("orders") == [{"id": 1, "n": 2}]
    assert world.status("demo")[0]["state"] == "ok"
    assert world.ok("audit", "demo", "--deep") == ""
