"""What planning relies on in this Kafka and this client: an upgrade that changes it shows here first."""

import uuid
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from confluent_kafka import Consumer, IsolationLevel, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from sandbox.services.broker import Broker
from sandbox.services.processes import wait_until

MakeTopic = Callable[..., str]
COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    return broker.admin()


def offset(admin: AdminClient, topic: str, spec: OffsetSpec, isolation: IsolationLevel = COMMITTED) -> int:
    place = TopicPartition(topic, 0)
    return int(admin.list_offsets({place: spec}, isolation_level=isolation)[place].result(30).offset)


def topic_id(admin: AdminClient, topic: str) -> str:
    return str(admin.describe_topics(TopicCollection([topic]))[topic].result(30).topic_id)


def send(broker: Broker, topic: str, *stamps: int) -> None:
    producer = broker.producer()
    for stamp in stamps:
        producer.produce(topic, b"x", timestamp=stamp)
    assert producer.flush(30) == 0


def opened(broker: Broker, topic: str, records: int) -> Producer:
    """A producer whose transaction has sent records and is still open."""
    producer = broker.producer(transactional_id=uuid.uuid4().hex)
    producer.init_transactions(30)
    producer.begin_transaction()
    for _ in range(records):
        producer.produce(topic, b"x")
    assert producer.flush(30) == 0
    return producer


def test_an_open_transaction_separates_the_last_stable_offset_from_the_end(
    broker: Broker, topic: MakeTopic, admin: AdminClient
) -> None:
    name = topic()
    send(broker, name, 1, 2)
    producer = opened(broker, name, 3)
    send(broker, name, 3)
    latest = OffsetSpec.latest
    assert offset(admin, name, latest(), COMMITTED) == 2
    assert offset(admin, name, latest(), UNCOMMITTED) == 6
    producer.abort_transaction(30)
    wait_until(lambda: offset(admin, name, latest(), COMMITTED) == 7, "the marker to be written", timeout=30)
    assert offset(admin, name, latest(), UNCOMMITTED) == 7, "the marker takes an offset"


def test_the_default_isolation_of_list_offsets_is_not_ours(
    broker: Broker, topic: MakeTopic, admin: AdminClient
) -> None:
    name = topic()
    producer = opened(broker, name, 3)
    place = TopicPartition(name, 0)
    assert admin.list_offsets({place: OffsetSpec.latest()})[place].result(30).offset == 3
    producer.abort_transaction(30)


@pytest.mark.parametrize(
    ("when", "first"), [(0, 0), (100, 0), (101, 1), (300, 1), (301, 4), (500, 4), (501, -1)], ids=str
)
def test_the_offset_for_a_time_is_the_first_stamped_then_or_later_in_the_order_of_offsets(
    broker: Broker, topic: MakeTopic, admin: AdminClient, when: int, first: int
) -> None:
    name = topic()
    send(broker, name, 100, 300, 200, 250, 500)
    assert offset(admin, name, OffsetSpec.for_timestamp(when)) == first


def test_the_offset_for_a_time_may_lie_beyond_the_last_stable_one(
    broker: Broker, topic: MakeTopic, admin: AdminClient
) -> None:
    name = topic()
    send(broker, name, 100)
    producer = opened(broker, name, 1)
    now = int(datetime.now(UTC).timestamp() * 1000) - 60_000
    assert offset(admin, name, OffsetSpec.for_timestamp(now), UNCOMMITTED) == 1
    assert offset(admin, name, OffsetSpec.latest(), COMMITTED) == 1
    producer.abort_transaction(30)


def test_deleted_records_move_the_first_offset_at_once(broker: Broker, topic: MakeTopic, admin: AdminClient) -> None:
    name = topic()
    send(broker, name, *range(1, 11))
    place = TopicPartition(name, 0, 7)
    assert admin.delete_records([place])[place].result(30).low_watermark == 7
    assert offset(admin, name, OffsetSpec.earliest()) == 7
    assert offset(admin, name, OffsetSpec.latest()) == 10


def test_a_recreated_topic_has_another_id_and_begins_at_0(broker: Broker, topic: MakeTopic, admin: AdminClient) -> None:
    name = topic()
    send(broker, name, 1, 2, 3)
    before = topic_id(admin, name)
    assert topic_id(admin, name) == before
    broker.delete_topic(name)
    broker.create_topic(name)
    assert topic_id(admin, name) != before
    assert offset(admin, name, OffsetSpec.latest(), UNCOMMITTED) == 0


def read(broker: Broker, topic: str, **config: str) -> list[int | None]:
    """Offsets up to the end that this consumer sees."""
    options = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "none", "enable.partition.eof": True}
    consumer = Consumer({**options, **{name.replace("_", "."): value for name, value in config.items()}})
    consumer.assign([TopicPartition(topic, 0, 0)])
    offsets = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        offsets.append(message.offset())
    consumer.close()
    return offsets


def test_librdkafka_skips_aborted_records_unless_told_otherwise(broker: Broker, topic: MakeTopic) -> None:
    name = topic()
    send(broker, name, 1)
    opened(broker, name, 2).abort_transaction(30)
    wait_until(lambda: broker.log_end(name, 0) == 4, "the marker to be written", timeout=30)
    send(broker, name, 2)
    assert read(broker, name) == read(broker, name, isolation_level="read_committed") == [0, 4]
    assert read(broker, name, isolation_level="read_uncommitted") == [0, 1, 2, 4]


def test_a_producer_that_returns_under_its_name_ends_the_transaction_it_left(
    broker: Broker, topic: MakeTopic, admin: AdminClient
) -> None:
    name = topic()
    left = broker.producer(transactional_id=name)
    left.init_transactions(30)
    left.begin_transaction()
    left.produce(name, b"x")
    left.flush(30)
    assert offset(admin, name, OffsetSpec.latest(), COMMITTED) == 0
    broker.producer(transactional_id=name).init_transactions(30)
    wait_until(lambda: offset(admin, name, OffsetSpec.latest(), COMMITTED) == 2, "the abort to be written", timeout=30)
    assert read(broker, name) == []
