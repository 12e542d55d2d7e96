"""A topic that is another one under its old name: made again, mirrored elsewhere, or restored from a backup."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from tests.worlds.world import World

MakeWorld = Callable[..., World]
RECORDS = 40


def held(world: World) -> dict[int, list[Message]]:
    """The records of each partition of the world's topic."""
    options = {"bootstrap.servers": world.broker.bootstrap_servers, "group.id": "a copy", "enable.partition.eof": False}
    consumer = Consumer(options)
    records: dict[int, list[Message]] = {}
    for partition in range(world.partitions):
        consumer.assign([TopicPartition(world.topic, partition, 0)])
        end = world.broker.log_end(world.topic, partition)
        records[partition] = [message for _ in range(end) if (message := consumer.poll(20)) is not None]
        assert len(records[partition]) == end
    consumer.close()
    return records


def move(world: World, *, left_out: int = 0, added: int = 0, partitions: int | None = None) -> None:
    """Give the topic's name to a copy of it: without the first records of each partition, behind so many others."""
    records = held(world)
    world.broker.delete_topic(world.topic)
    world.partitions = partitions or world.partitions
    world.broker.create_topic(world.topic, world.partitions, {"retention.ms": "-1"})
    producer = world.broker.producer()
    for partition, messages in records.items():
        first = messages[0]
        for message in [first] * added + messages[left_out:]:
            producer.produce(
                world.topic, message.value(), key=message.key(), partition=partition, timestamp=message.timestamp()[1]
            )
    assert producer.flush(30) == 0


def numbers(world: World) -> Counter[int]:
    """Count how often each record that the world sent is in the lake."""
    rows = (row for path in world._published() for row in pq.read_table(Path(path), partitioning=None).to_pylist())
    return Counter(row["n"] for row in rows)


def refuse_and_accept(world: World, *words: str) -> str:
    """A plan is refused; the dry run of the decision, which changes nothing, and then the decision print the same."""
    assert world.here("run", "demo").exit_code == 1
    accept = ("accept", "topic", "demo", "--topic", world.topic, "--why", "moved", *words)
    shown = world.ok(*accept, "--dry-run")
    assert world.here("run", "demo").exit_code == 1
    assert world.ok(*accept) == shown
    world.ok("run", "demo")
    return shown


def once_each(world: World) -> None:
    assert numbers(world) == Counter(range(world.produced))
    assert world.ok("audit", "demo", "--deep") == ""


@pytest.mark.parametrize("settled", [True, False], ids=["all published", "some planned and not published"])
def test_a_copy_with_the_old_offsets_goes_on_behind_the_last_published_record(world: World, settled: bool) -> None:
    world.produce(RECORDS)
    world.ok("run", "demo")
    world.produce(10)
    if not settled:
        world.ok("plan", "demo")
    move(world)
    world.produce(20)
    shown = refuse_and_accept(world)
    for partition in (0, 1):
        assert f"{world.topic}-{partition}: reading begins at offset 20 of the new topic: behind the last pub" in shown
    once_each(world)


def test_a_copy_at_other_offsets_is_refused_and_read_from_where_a_person_says(world: World) -> None:
    world.produce(RECORDS)
    world.ok("run", "demo")
    move(world, left_out=8)
    world.produce(6)
    accept = ("accept", "topic", "demo", "--topic", world.topic, "--why", "moved")
    assert world.here("run", "demo").exit_code == 1
    refused = world.here(*accept)
    assert refused.exit_code == 1
    for partition in (0, 1):
        assert f"{world.topic}-{partition} 12 offsets of the 15 in the new log are not newer" in refused.stderr
    [time] = [word for word in refused.stderr.split() if word.startswith("20") and "T" in word]
    shown = refuse_and_accept(world, "--from", time)
    assert shown.count("reading begins at offset 12 of the new topic: as you say; 12 offsets of the 15") == 2
    once_each(world)


@pytest.mark.parametrize("added", [0, 3], ids=["fewer before it", "more before it"])
def test_partitions_may_begin_at_offsets_of_their_own(world: World, added: int) -> None:
    world.produce(RECORDS)
    world.ok("run", "demo")
    world.send('{"n": 40, "at": "2024-03-01T00:00:00Z", "name": "x"}', partition=1)
    world.ok("run", "demo")
    world.produced += 1
    move(world, left_out=0 if added else 5, added=added)
    world.produce(10)
    first = (20, 21) if added == 0 else (20 + added, 21 + added)
    begin = [offset - (0 if added else 5) for offset in first]
    refuse_and_accept(world, "--from", f"1:{begin[1]}", "--from", f"0:{begin[0]}")
    once_each(world)


def test_a_copy_with_more_partitions_is_refused_where_it_holds_old_records(world: World) -> None:
    world.produce(RECORDS)
    world.ok("run", "demo")
    old = held(world)[0]
    move(world, partitions=3)
    producer = world.broker.producer()
    producer.produce(world.topic, old[0].value(), partition=2, timestamp=old[0].timestamp()[1])
    assert producer.flush(30) == 0
    assert world.here("run", "demo").exit_code == 1
    accept = ("accept", "topic", "demo", "--topic", world.topic, "--why", "moved")
    assert f"{world.topic}-2 1 offset of the 1 in the new log" in world.here(*accept).stderr
    refuse_and_accept(world, "--from", "2:1")
    once_each(world)


def test_all_is_read_again_when_a_person_says_so(world: World) -> None:
    world.produce(RECORDS)
    world.ok("run", "demo")
    move(world, left_out=1)
    shown = refuse_and_accept(world, "--from", "0")
    assert shown.count("reading begins at offset 0 of the new topic: as you say; 19 offsets of the 19") == 2
    assert sum(numbers(world).values()) == RECORDS + 38


@pytest.mark.parametrize("wrong", ["0:99", "99", "noon", "-1", "1:", "0:1:2"])
def test_a_beginning_that_is_none_is_refused_and_nothing_is_decided(world: World, wrong: str) -> None:
    world.produce(RECORDS)
    world.ok("run", "demo")
    move(world, left_out=1)
    assert world.here("run", "demo").exit_code == 1
    before = world.chain()
    done = world.here("accept", "topic", "demo", "--topic", world.topic, "--why", "moved", "--from", wrong)
    assert done.exit_code in (1, 2), done.output
    assert "from 0 to 19, and not 99" in done.stderr if wrong.endswith("99") else "--from" in done.stderr
    assert world.chain() == before
    assert json.loads(world.ok("history", "demo", "--json")) == []
