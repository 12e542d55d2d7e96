"""Where a pipeline starts that takes over from another tool, and what its first plan refuses."""

import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
import yaml
from confluent_kafka import Consumer, TopicPartition

from sandbox.bootstrap.checkout import CHECKOUT
from sandbox.services.processes import wait_until
from tests.worlds.world import Place, World
from tidemark.kafka.cluster import KafkaCluster

MakeWorld = Callable[..., World]
NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)


def record(number: int) -> str:
    return json.dumps({"n": number, "at": NOON.isoformat()})


@contextmanager
def member(world: World, group: str, **config: Any) -> Iterator[Consumer]:
    """A consumer of another tool, subscribed; it leaves the group at the end."""
    settings = {"bootstrap.servers": world.broker.bootstrap_servers, "group.id": group, "log_level": 2}
    more = {name.replace("_", "."): value for name, value in config.items()}
    consumer = Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest", **more})
    try:
        consumer.subscribe([world.topic])
        yield consumer
    finally:
        consumer.close()


def read(consumer: Consumer, enough: Callable[[Counter[Place]], bool]) -> Counter[Place]:
    """What the consumer got, record by record, until it is enough."""
    seen: Counter[Place] = Counter()
    while not enough(seen):
        message = consumer.poll(30)
        assert message is not None, f"nothing came after {sum(seen.values())} records"
        assert message.error() is None
        seen[(str(message.topic()), message.partition() or 0, message.offset() or 0)] += 1
    return seen


def committed(world: World, offsets: Mapping[int, int]) -> str:
    """A group that has committed these offsets, by partition, and has stopped."""
    group = f"connect-{uuid4().hex[:8]}"
    with member(world, group) as consumer:
        read(consumer, lambda seen: bool(seen))
        places = [TopicPartition(world.topic, partition, offset) for partition, offset in offsets.items()]
        consumer.commit(offsets=places, asynchronous=False)
    return group


def refused(world: World, *words: str) -> str:
    """What ``plan`` says when it refuses; nothing may be stored then."""
    done = world.here("plan", "demo", *words)
    assert done.exit_code == 1, f"exit {done.exit_code}: {done.stdout} {done.stderr}"
    assert world.chain() == []
    assert world.json("manifests", "demo") == []
    return done.stderr


def start_at(world: World, start: Any, **kafka: Any) -> None:
    world.write_pipeline(starting_offsets=start, **kafka)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_pipeline_takes_over_from_a_consumer_group_without_gap_or_duplicate(
    make_world: MakeWorld, protocol: str
) -> None:
    world = make_world(partitions=3)
    world.produce(300)
    group = f"connect-{uuid4().hex[:8]}"
    with member(world, group, group_protocol=protocol) as consumer:
        copied = read(consumer, lambda seen: len({partition for _, partition, _ in seen}) == 3)
        consumer.commit(asynchronous=False)
    assert 3 <= sum(copied.values()) < 300, "the pipeline has something left to copy"
    world.produce(60)
    start_at(world, {"group": group})
    world.ok("run", "demo")
    world.produce(30)
    start_at(world, {"group": "another, which is not looked at any more"})
    world.ok("run", "demo")
    assert world.exact() == world.everything() - copied
    assert world.exact() + copied == world.everything(), "both together: each record once"
    anchors = {partition: end for partition, kind, _, end in world.chain() if kind == "anchor"}
    assert anchors == Counter(partition for _, partition, _ in copied)
    assert world.ok("audit", "demo", "--deep") == ""


def test_the_page_about_kafka_connect_goes_there_and_the_connector_can_go_on_where_the_pipeline_ended(
    make_world: MakeWorld,
) -> None:
    page = (CHECKOUT / "docs" / "from-kafka-connect.md").read_text()
    [file] = re.findall(r"^```yaml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    commands = "".join(re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE)).splitlines()
    world = make_world(partitions=3, name="orders", settings={"on_error": "fail"})
    own = yaml.safe_load((world.pipelines / "orders.yaml").read_text())
    pipeline = yaml.safe_load(file)
    group = f"connect-{uuid4().hex[:8]}"
    kafka = pipeline["source"]["kafka"]
    assert kafka["starting_offsets"] == {"group": kafka["progress_group"]}
    kafka |= {"topics": [world.topic], "starting_offsets": {"group": group}, "progress_group": group}
    pipeline |= {"decode": own["decode"], "sinks": own["sinks"]}
    world.targets["kafka_default"] = f"kafka://{world.broker.bootstrap_servers}"
    (world.pipelines / "orders.yaml").write_text(yaml.safe_dump(pipeline))

    world.produce(300)
    with member(world, group) as connector:
        before = read(connector, lambda seen: len({partition for _, partition, _ in seen}) == 3)
        connector.commit(asynchronous=False)
        assert f"consumer group {group} is active" in world.here("plan", "orders", "--dry-run").stderr
    for command in commands:
        world.ok(*shlex.split(command.removeprefix("tidemark ")))
    world.produce(60)
    world.ok("run", "orders")
    assert world.exact() == world.everything() - before

    world.produce(30)
    with member(world, group) as connector:
        after = read(connector, lambda seen: sum(seen.values()) == 30)
    assert before + world.exact() + after == world.everything(), "each record once"


def test_a_dry_run_shows_where_a_group_ended_and_stores_nothing(make_world: MakeWorld) -> None:
    world = make_world(partitions=1)
    world.produce(10)
    start_at(world, {"group": committed(world, {0: 4})})
    [[covered]] = world.json("plan", "demo", "--dry-run")["slices"]
    assert (covered["partition"], covered["start"], covered["end"]) == (0, 4, 10)
    assert world.chain() == []


def test_a_group_that_is_not_known_is_refused(world: World) -> None:
    world.produce(10)
    start_at(world, {"group": "connect-flihgts"})
    message = refused(world)
    assert "consumer group connect-flihgts does not exist in Kafka" in message
    assert f"starting_offsets: {{offsets: {{{world.topic}: {{0: OFFSET, 1: OFFSET}}}}}}" in message


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_that_is_still_active_is_refused_until_it_has_stopped(make_world: MakeWorld, protocol: str) -> None:
    world = make_world(partitions=1)
    world.produce(10)
    group = f"connect-{uuid4().hex[:8]}"
    start_at(world, {"group": group})
    with member(world, group, group_protocol=protocol) as consumer:
        read(consumer, lambda seen: len(seen) == 3)
        consumer.commit(asynchronous=False)
        message = refused(world)
        assert f"consumer group {group} is active" in message
        assert "stop its consumers" in message
    world.ok("plan", "demo")
    assert world.chain() == [(0, "anchor", None, 3), (0, "data", 3, 10)]


def test_a_partition_for_which_the_group_has_committed_nothing_is_refused_with_what_to_write(
    make_world: MakeWorld,
) -> None:
    world = make_world(partitions=3)
    world.produce(30)
    group = committed(world, {0: 4, 2: 10})
    start_at(world, {"group": group})
    message = refused(world)
    assert f"consumer group {group} has committed nothing for {world.topic}-1 " in message
    assert f"topic={world.topic} partition=1 group={group}" in message
    told = re.search(r"write (starting_offsets: .*)", message)
    assert told is not None
    world.write_pipeline(**yaml.safe_load(told[1].replace("OFFSET", "7")))
    world.ok("run", "demo")
    assert [row for row in world.chain() if row[1] == "anchor"] == [
        (0, "anchor", None, 4), (1, "anchor", None, 7), (2, "anchor", None, 10)
    ]  # fmt: skip


def test_a_partition_that_never_held_a_record_needs_no_committed_offset(make_world: MakeWorld) -> None:
    world = make_world(partitions=2)
    world.send(*map(record, range(5)))
    start_at(world, {"group": committed(world, {0: 5})})
    world.ok("run", "demo")
    assert world.chain() == [(0, "anchor", None, 5), (1, "anchor", None, 0)]
    world.send(record(6), partition=1)
    world.ok("run", "demo")
    assert world.exact() == Counter({(world.topic, 1, 0): 1})


def test_a_commit_in_a_transaction_that_has_not_ended_is_refused(make_world: MakeWorld) -> None:
    world = make_world(partitions=1)
    world.produce(10)
    group = committed(world, {0: 4})
    start_at(world, {"group": group})
    producer = world.broker.producer(transactional_id=uuid4().hex)
    producer.init_transactions(30)
    producer.begin_transaction()
    with member(world, group) as consumer:
        metadata = consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction([TopicPartition(world.topic, 0, 8)], metadata, 30)
    assert f"a transaction that commits offsets of consumer group {group} has not ended" in refused(world)
    producer.commit_transaction(30)
    cluster = KafkaCluster(world.broker.bootstrap_servers, {})
    places, _ = cluster.partitions([world.topic])  # Kafka answers before the group has the end of the transaction
    wait_until(lambda: not cluster.group(group, places).unsettled, "the end of the transaction", timeout=30)
    world.ok("plan", "demo")
    assert world.chain() == [(0, "anchor", None, 8), (0, "data", 8, 10)]


def test_an_offset_inside_an_open_transaction_is_refused_until_it_ends(make_world: MakeWorld) -> None:
    world = make_world(partitions=1)
    world.send(*map(record, range(4)))
    producer = world.broker.producer(transactional_id=uuid4().hex)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(world.topic, record(4), partition=0)
    producer.produce(world.topic, record(5), partition=0)
    assert producer.flush(30) == 0
    group = f"connect-{uuid4().hex[:8]}"
    with member(world, group, isolation_level="read_uncommitted") as consumer:
        read(consumer, lambda seen: len(seen) == 6)
        consumer.commit(asynchronous=False)
    start_at(world, {"group": group})
    message = refused(world)
    assert f"points to offset 6 of {world.topic}-0, past the last stable offset 4 (it ends at 6)" in message
    assert "plan again when it has ended" in message
    producer.commit_transaction(30)
    wait_until(lambda: world.broker.log_end(world.topic, 0) == 7, "the end of the transaction", timeout=30)
    world.send(record(7))
    world.ok("plan", "demo")
    assert world.chain()[0] == (0, "anchor", None, 6)


def test_an_offset_past_the_log_end_is_refused_from_a_group_and_from_the_file(make_world: MakeWorld) -> None:
    world = make_world(partitions=1)
    world.produce(10)
    for start in ({"group": committed(world, {0: 11})}, {"offsets": {world.topic: {0: 11}}}):
        start_at(world, start)
        message = refused(world)
        assert f"points to offset 11 of {world.topic}-0, past the last stable offset 10 (it ends at 10)" in message
        assert "correct starting_offsets" in message


@pytest.mark.parametrize("from_group", [True, False], ids=["a group", "the file"])
def test_what_retention_took_before_the_first_plan_is_refused_or_recorded(
    make_world: MakeWorld, from_group: bool
) -> None:
    world = make_world(partitions=1)
    world.produce(10)
    start = {"group": committed(world, {0: 3})} if from_group else {"offsets": {world.topic: {0: 3}}}
    world.administer("delete_records", [TopicPartition(world.topic, 0, 6)])
    start_at(world, start)
    message = refused(world)
    assert f"retention took offsets [3, 6) of {world.topic}-0" in message
    assert "on_data_loss: record in the pipeline file" in message
    assert "accept loss" not in message, "there is no chain to accept it on"
    start_at(world, start, on_data_loss="record")
    done = world.json("run", "demo")
    assert world.chain() == [(0, "anchor", None, 3), (0, "lost", 3, 6), (0, "data", 6, 10)]
    assert done["counts"]["read"] == 4
    assert world.ok("audit", "demo", "--deep") == ""


def test_explicit_offsets_are_where_each_partition_starts_and_later_partitions_start_at_0(
    make_world: MakeWorld,
) -> None:
    world = make_world(partitions=2)
    world.produce(20)
    start_at(world, {"offsets": {world.topic: {0: 10, 1: 7}}})
    world.ok("run", "demo")
    assert world.exact() == Counter((world.topic, 1, offset) for offset in (7, 8, 9))
    world.broker.add_partitions(world.topic, 3)
    world.send(record(0), partition=2)
    world.ok("run", "demo")
    assert world.chain()[-2:] == [(2, "anchor", None, 0), (2, "data", 0, 1)]


def test_explicit_offsets_that_leave_out_partitions_are_refused_with_their_list(make_world: MakeWorld) -> None:
    world = make_world(partitions=3)
    world.produce(30)
    start_at(world, {"offsets": {world.topic: {1: 7}}})
    message = refused(world)
    assert f"starting_offsets does not name {world.topic}-0, {world.topic}-2" in message
    assert f"write starting_offsets: {{offsets: {{{world.topic}: {{0: OFFSET, 1: 7, 2: OFFSET}}}}}}" in message


def test_explicit_offsets_of_a_partition_or_topic_that_is_not_there_are_refused(make_world: MakeWorld) -> None:
    world = make_world(partitions=1)
    world.produce(10)
    start_at(world, {"offsets": {world.topic: {0: 1, 7: 1}}})
    message = refused(world)
    assert f"starting_offsets names {world.topic}-7, which Kafka does not have" in message
    assert f"write starting_offsets: {{offsets: {{{world.topic}: {{0: 1}}}}}}" in message
    start_at(world, {"offsets": {f"{world.topic}x": {0: 1}}})
    done = world.here("plan", "demo")
    assert done.exit_code == 2
    assert f'{world.topic}x: is not in source.kafka.topics; did you mean "{world.topic}"?' in done.stderr
