"""One pipeline whose topics hold records of different formats, on a real broker, through the command line."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from io import BytesIO
from typing import Any

import fastavro
import pyarrow.parquet as pq

from tests.worlds.world import World

MakeWorld = Callable[..., World]
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "shop", "type": "string"},
    ],
}
AT = datetime(2024, 3, 1, 11, tzinfo=UTC)


def rows(world: World, *words: str) -> list[dict[str, Any]]:
    return [row for path in world.data_paths(*words) for row in pq.read_table(path).to_pylist()]


def avro(number: int) -> bytes:
    written = BytesIO()
    fastavro.schemaless_writer(written, ORDER, {"id": number, "at": AT, "shop": "s"})
    return written.getvalue()


def test_topics_of_two_formats_become_rows_of_one_table(make_world: MakeWorld, prefix: str) -> None:
    decode = [
        {"topics": [f"{prefix}-old"], "format": "json", "schema": "id BIGINT NOT NULL, at TIMESTAMP, note STRING"},
        {"topics_regex": f"{prefix}-new-.*", "format": "avro", "schema": ORDER},
    ]
    kafka = {"topics": [f"{prefix}-old"], "topics_regex": f"{prefix}-.*"}
    world = make_world(settings={"kafka": kafka, "decode": decode, "event_time": {"field": "at"}})
    world.add_topic(f"{prefix}-old", b'{"id": 1, "at": "2024-03-01T11:00:00Z", "note": "n"}', b"no JSON")
    world.add_topic(f"{prefix}-new-1", avro(2), b"no Avro")
    world.ok("run", "demo")
    assert sorted((row["id"], row["at"], row["note"], row["shop"]) for row in rows(world)) == [
        (1, AT, "n", None), (2, AT, None, "s"),
    ]  # fmt: skip
    assert {row["_topic"] for row in rows(world, "--dead-letters")} == {f"{prefix}-old", f"{prefix}-new-1"}
    peeked = world.ok("peek", "demo", "--topic", f"{prefix}-new-1", "-n", "2", "--json").splitlines()
    assert json.loads(peeked[0])["data"] == {"id": 2, "at": "2024-03-01T11:00:00.000000Z", "note": None, "shop": "s"}

    world.add_topic(f"{prefix}-new-2", avro(3))
    world.add_topic(f"{prefix}-other", b'{"id": 4, "at": "2024-03-01T11:00:00Z"}')
    for words in (("plan", "demo"), ("peek", "demo"), ("doctor", "demo")):
        done = world.here(*words)
        assert done.exit_code != 0, words
        assert f"topic {prefix}-other matches no entry of decode" in done.stdout + done.stderr, words
    assert "write the topic into topics or topics_regex of exactly one entry of decode" in done.stdout
    assert "; then: tidemark doctor demo\n" in done.stdout
    decode[0]["topics"] = [f"{prefix}-old", f"{prefix}-other"]
    world.write_pipeline(topics=kafka["topics"])
    world.ok("doctor", "demo")
    world.ok("run", "demo")
    assert sorted(row["id"] for row in rows(world)) == [1, 2, 3, 4]
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_topic_that_lost_its_decoder_is_not_processed(make_world: MakeWorld, prefix: str) -> None:
    topics = [f"{prefix}-a", f"{prefix}-b"]
    decode = [{"topics": [topic], "format": "string"} for topic in topics]
    world = make_world(settings={"kafka": {"topics": topics}, "decode": decode, "event_time": {}})
    for topic in topics:
        world.add_topic(topic, topic.encode())
    world.ok("plan", "demo")
    world.settings["decode"] = decode[:1]
    world.write_pipeline(topics=topics[:1])
    done = world.here("retry", "demo")
    assert done.exit_code != 0
    assert f"topic {topics[1]} matches no entry of decode" in done.stderr
    world.settings["decode"] = decode
    world.write_pipeline(topics=topics)
    world.ok("retry", "demo")
    assert sorted(row["value"] for row in rows(world)) == topics
