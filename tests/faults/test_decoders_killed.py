"""Each decoder is killed at a failpoint: every record is a row or a dead letter exactly once, whatever was read
before."""

import json
import signal
from collections.abc import Callable
from io import BytesIO
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from sandbox.services.registry import SchemaRegistry
from tests.protobuf_schemas import descriptor_set, message_class, proto
from tests.worlds.world import World
from tidemark.kinds import DECODERS

GOOD = 12
AVRO = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
JSON_SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
PROTO = descriptor_set(proto("shop", {"Order": ["int64 id = 1"]}))


def avro(number: int) -> bytes:
    written = BytesIO()
    fastavro.schemaless_writer(written, AVRO, {"id": number})
    return written.getvalue()


def protobuf(number: int) -> bytes:
    return bytes(message_class(PROTO, "shop.Order")(id=number).SerializeToString())


def as_json(number: int) -> bytes:
    return json.dumps({"id": number}).encode()


def as_text(number: int) -> bytes:
    return str(number).encode()


CASES: dict[str, tuple[dict[str, Any], Callable[[int], bytes], list[bytes], str]] = {
    "avro": ({"schema": AVRO}, avro, [b"\x80"], "stage.done"),
    "json": ({"schema": "id BIGINT NOT NULL"}, as_json, [b"{"], "stage.mid"),
    "json_schema": ({}, as_json, [b"{}"], "publish.before_mark"),
    "protobuf": ({"message": "shop.Order", "descriptor_set": "order.desc"}, protobuf, [b"\x08"], "publish.mid"),
    "raw": ({}, as_text, [], "publish.receipt"),
    "string": ({}, as_text, [b"\xff"], "publish.before_record"),
}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind == "raw" else pytest.mark.exhaustive) for kind in DECODERS]
)
def test_killed_once_each_record_is_a_row_or_a_dead_letter_once(
    make_world: Callable[..., World], request: pytest.FixtureRequest, kind: str
) -> None:
    decode, value, bad, point = CASES[kind]
    world = make_world(partitions=1, settings={"decode": {"format": kind, **decode}, "event_time": {}})
    (world.pipelines / "order.desc").write_bytes(PROTO)
    frame = b""
    if kind == "json_schema":
        registry: SchemaRegistry = request.getfixturevalue("registry")
        with SchemaRegistryClient({"url": registry.url, "timeout": 30}) as client:
            number = client.register_schema(f"{world.topic}-value", Schema(json.dumps(JSON_SCHEMA), "JSON"))
        world.settings["decode"]["registry"] = {"url": registry.url}
        frame = b"\0" + number.to_bytes(4)
    world.write_pipeline()
    world.send(*(frame + value(number) for number in range(GOOD)), *bad)
    killed = world.tidemark("run", "demo", "--run-key", "one", failpoint=f"{point}:kill9")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    world.ok("retry", "demo")
    world.ok("run", "demo", "--run-key", "one")
    assert offsets(world) == list(range(GOOD))
    assert offsets(world, "--dead-letters") == list(range(GOOD, GOOD + len(bad)))
    assert world.ok("audit", "demo", "--deep") == ""


def offsets(world: World, *words: str) -> list[int]:
    return sorted(row["_offset"] for path in world.data_paths(*words) for row in pq.read_table(path).to_pylist())
