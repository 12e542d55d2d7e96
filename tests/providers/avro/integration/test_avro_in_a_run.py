"""Avro from confluent-kafka's own serializers, through a secured registry, into a lake: evolution, keys, replays."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
import pytest
from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    header_schema_id_serializer,
    topic_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from sandbox.services.authority import Authority
from sandbox.services.registry import SchemaRegistry
from tests.worlds.registry_proxy import RegistryProxy, basic
from tests.worlds.world import World

MakeWorld = Callable[..., World]
PASSWORD = "s3same-open"
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
FIRST = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
SECOND = {
    **FIRST,
    "fields": [
        {"name": "id", "type": "long"},
        FIRST["fields"][1],
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
THIRD = {**SECOND, "fields": [*SECOND["fields"], {"name": "more", "type": "int", "default": 5}]}
AT = 1_709_290_800_000  # 2024-03-01T11:00:00Z


class Shop:
    """Orders in a topic, written with their keys through the door of a registry."""

    def __init__(self, world: World, door: RegistryProxy, authority: Authority) -> None:
        self.world, self.door = world, door
        client = {"url": door.url, "basic.auth.user.info": f"ada:{PASSWORD}"}
        self._client = SchemaRegistryClient(
            {**client, "timeout": 30, "ssl.ca.location": str(authority.certificate_file)}
        )
        self._subject = {"subject.name.strategy": topic_subject_name_strategy}

    def register(self, schema: dict[str, Any], part: str = "value") -> None:
        AvroSerializer(self._client, json.dumps(schema), conf=self._subject)(
            {"id": 0, "at": 0, "note": None, "more": 0}, SerializationContext(self.world.topic, part)
        )

    def send(self, schema: dict[str, Any], *values: dict[str, Any], in_header: bool = False) -> None:
        conf = {**self._subject, **({"schema.id.serializer": header_schema_id_serializer} if in_header else {})}
        write = AvroSerializer(self._client, json.dumps(schema), conf=conf)
        write_key = AvroSerializer(self._client, json.dumps(KEY), conf=self._subject)
        for value in values:
            headers: list[tuple[str, bytes]] = []
            data = write(value, SerializationContext(self.world.topic, MessageField.VALUE, headers))
            key = write_key({"id": value["id"]}, SerializationContext(self.world.topic, MessageField.KEY))
            self.world.send(data, key=key, headers=list(headers))

    def key(self, number: int) -> bytes:
        made = AvroSerializer(self._client, json.dumps(KEY), conf=self._subject)(
            {"id": number}, SerializationContext(self.world.topic, MessageField.KEY)
        )
        assert made is not None
        return made

    def rows(self) -> list[dict[str, Any]]:
        rows = [row for path in self.world.data_paths() for row in pq.read_table(path).to_pylist()]
        return sorted(rows, key=lambda row: row["_offset"])

    def letters(self) -> list[dict[str, Any]]:
        paths = self.world.data_paths("--dead-letters")
        return [row for path in paths for row in pq.read_table(path).to_pylist()]

    def receipt(self) -> dict[str, Any]:
        with psycopg.connect(self.world.dsn) as connection:
            newest = "SELECT receipt FROM tidemark.attempt WHERE receipt IS NOT NULL ORDER BY attempt DESC LIMIT 1"
            row = connection.execute(newest).fetchone()
            assert row is not None
            receipt: dict[str, Any] = row[0]
            return receipt


@pytest.fixture
def shop(registry: SchemaRegistry, make_world: MakeWorld, tmp_path: Path) -> Iterator[Shop]:
    authority = Authority(tmp_path / "authority")
    with RegistryProxy(registry, basic("ada", PASSWORD), authority) as door:
        extra = {"url": door.url, "ssl.ca.location": str(authority.certificate_file)}
        connection = {"conn_type": "http", "login": "ada", "password": PASSWORD, "extra": extra}
        world = make_world(
            partitions=1,
            settings={
                "decode": {
                    "format": "avro",
                    "registry": {"connection": "registry"},
                    "key": {"format": "avro", "registry": {"connection": "registry"}},
                    "headers": True,
                },
                "event_time": {"field": "at"},
            },
            targets={"registry": json.dumps(connection)},
        )
        yield Shop(world, door, authority)


def orders(*numbers: int, **more: Any) -> list[dict[str, Any]]:
    return [{"id": number, "at": AT + number, **more} for number in numbers]


def test_records_of_several_schemas_become_rows_of_the_newest(shop: Shop) -> None:
    shop.send(FIRST, *orders(1, 2))
    shop.send(SECOND, *orders(3, note="new"))
    shop.send(FIRST, *orders(4), in_header=True)
    shop.world.send(b"no avro", key=shop.key(5))
    shop.world.send(b"\0\0\x0f\x42\x3fx", key=shop.key(6))
    shop.door.requests.clear()
    shop.world.ok("run", "demo")
    rows = [(row["key_id"], row["id"], row["note"]) for row in shop.rows()]
    assert rows == [(1, 1, None), (2, 2, None), (3, 3, "new"), (4, 4, None)]
    assert [bool(row["headers"]) for row in shop.rows()] == [False, False, False, True]
    reasons = [letter["_reason"] for letter in shop.letters()]
    assert len(reasons) == 2
    assert "its first byte is 110" in reasons[0]
    assert "the registry has no schema 1000000" not in reasons[1]
    assert "the registry has no schema 999999" in reasons[1]
    asked = [path for path in shop.door.requests if not path.endswith("999999")]
    assert len(asked) == len(set(asked)), "each schema once"
    assert PASSWORD not in json.dumps(shop.receipt())
    assert sorted(question.split(": ")[1].split()[0] for question in shop.receipt()["schemas"]) == [
        *["subject"] * 2,
        *["writer"] * 4,
    ]


def test_a_replay_uses_the_schemas_of_before_and_a_new_manifest_the_newest(shop: Shop) -> None:
    shop.send(SECOND, *orders(1, note="a"))
    shop.world.ok("run", "demo")
    shop.register(THIRD)
    [manifest] = shop.world.manifests()
    shop.door.requests.clear()
    shop.world.ok("replay", "demo", "--manifest", str(manifest["id"]))
    assert shop.door.requests == []
    assert "more" not in shop.rows()[0]
    shop.send(SECOND, *orders(2, note="b"))
    shop.world.ok("run", "demo")
    assert [row.get("more") for row in shop.rows()] == [None, 5]


def test_a_registry_that_stops_in_the_middle_loses_nothing(shop: Shop) -> None:
    shop.send(SECOND, *orders(1, 2, note="a"))
    shop.door.down = "/schemas/"
    done = shop.world.here("run", "demo")
    assert done.exit_code == 1
    assert "the schema registry registry answered schemas/ids/" in done.stderr
    assert "look at the registry's log" in done.stderr
    assert "tidemark retry demo" in done.stderr
    assert shop.world.manifests()[0]["state"] == "failed"
    shop.door.down = ""
    shop.world.ok("retry", "demo")
    assert [row["id"] for row in shop.rows()] == [1, 2]


def test_a_registry_that_is_down_before_leaves_the_manifest_as_it_is(shop: Shop) -> None:
    shop.send(SECOND, *orders(1, note="a"))
    shop.door.down = "/"
    done = shop.world.here("run", "demo")
    assert done.exit_code == 1
    assert "answered subjects/" in done.stderr
    assert PASSWORD not in done.stderr
    shop.door.down = ""
    shop.world.ok("retry", "demo")
    assert [row["id"] for row in shop.rows()] == [1]


def test_killed_after_staging_every_record_stands_once(shop: Shop) -> None:
    shop.send(SECOND, *orders(*range(20), note="a"))
    done = shop.world.tidemark("run", "demo", failpoint="stage.done:kill9")
    assert done.returncode == -signal.SIGKILL
    assert not shop.world.data_paths()
    shop.world.ok("retry", "demo")
    assert [row["id"] for row in shop.rows()] == list(range(20))
    assert shop.world.ok("audit", "demo", "--deep") == ""


def test_doctor_and_peek_ask_the_registry(shop: Shop) -> None:
    shop.send(FIRST, *orders(1))
    assert json.loads(shop.world.ok("peek", "demo", "--json").splitlines()[0])
    done = shop.world.here("doctor", "demo")
    assert "demo: schema registry: it answers, and the schema of the rows has the columns key_id, id, at" in done.stdout
    shop.door.down = "/"
    done = shop.world.here("doctor", "demo")
    assert "answered subjects/" in done.stdout
    peeked = shop.world.here("peek", "demo")
    assert peeked.exit_code == 1
    assert "nothing is lost; then: tidemark retry demo\n" in done.stdout
    assert "nothing is lost; then: tidemark peek demo\n" in peeked.stderr
