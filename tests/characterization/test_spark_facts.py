"""What reading relies on in this Spark's Kafka batch source, and what it must never be asked.

tests/spark/test_job.py pins the same for the job as it is; here are the source's own defaults and silences, which are
why the job sets every option and why topic ids are compared. The last two are why the job counts for itself.
"""

import json
import time
from collections.abc import Callable

import pytest
from confluent_kafka import TopicPartition
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.functions import count, lit

from sandbox.services.broker import Broker
from sandbox.services.processes import wait_until
from tests.worlds.world import World
from tidemark.lifecycle.attempt import order_of
from tidemark.lifecycle.plan import Tick, plan
from tidemark.model.manifest import RunKind
from tidemark.sources.spark import open_reader
from tidemark.spark import job

pytestmark = [
    pytest.mark.thorough,
    # PySpark 4.0 leaves the sockets of collect() to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning"),
]

MakeTopic = Callable[..., str]
FAILED = (PySparkException, Py4JError)
Read = Callable[..., DataFrame]


@pytest.fixture
def read(session: SparkSession, broker: Broker) -> Read:
    """A batch read of ``[start, end)`` of partition 0; options with two underscores for a dot."""

    def opened(topic: str, start: int, end: int, **options: str) -> DataFrame:
        given = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "assign": json.dumps({topic: [0]}),
            "startingOffsets": json.dumps({topic: {"0": start}}),
            "endingOffsets": json.dumps({topic: {"0": end}}),
            **{name.replace("__", "."): value for name, value in options.items()},
        }
        return session.read.format("kafka").options(**given).load().select("offset")

    return opened


def offsets(frame: DataFrame) -> list[int]:
    return sorted(row.offset for row in frame.collect())


def send(broker: Broker, topic: str, count: int, stamp: int = 1_700_000_000_000) -> None:
    producer = broker.producer()
    for number in range(count):
        producer.produce(topic, str(number), partition=0, timestamp=stamp + number)
    assert producer.flush(30) == 0


def transact(broker: Broker, topic: str, count: int, *, commit: bool) -> None:
    producer = broker.producer(transactional_id=f"{topic}-{time.monotonic_ns()}")
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, str(number), partition=0)
    assert producer.flush(30) == 0
    stable = broker.log_end(topic, 0)
    if commit:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)
    wait_until(lambda: broker.log_end(topic, 0) > stable, "the marker, which comes after the answer", timeout=30)


def drop(broker: Broker, topic: str, before: int) -> None:
    admin = broker.admin()
    [answer] = admin.delete_records([TopicPartition(topic, 0, before)]).values()
    answer.result(30)


def test_exactly_the_offsets_asked_for_are_read_whatever_else_there_is(
    read: Read, broker: Broker, topic: MakeTopic
) -> None:
    name = topic(partitions=2)
    send(broker, name, 20)
    assert offsets(read(name, 5, 12)) == list(range(5, 12))
    assert offsets(read(name, 5, 5)) == []


def test_aborted_records_are_read_unless_the_isolation_is_set(read: Read, broker: Broker, topic: MakeTopic) -> None:
    name = topic()
    send(broker, name, 2)
    transact(broker, name, 3, commit=False)  # 2, 3, 4 and a marker at 5
    transact(broker, name, 2, commit=True)  # 6, 7 and a marker at 8
    assert offsets(read(name, 0, 9)) == [0, 1, 2, 3, 4, 6, 7], "Java's default is read_uncommitted"
    assert offsets(read(name, 0, 9, kafka__isolation__level="read_committed")) == [0, 1, 6, 7]


@pytest.mark.parametrize(("start", "end"), [(0, 6), (2, 6), (3, 5), (5, 6), (7, 9)], ids=str)
def test_a_range_that_ends_in_records_nobody_sees_ends_promptly(
    read: Read, broker: Broker, topic: MakeTopic, start: int, end: int
) -> None:
    name = topic()
    send(broker, name, 2)
    transact(broker, name, 3, commit=False)
    transact(broker, name, 2, commit=True)
    started = time.monotonic()
    seen = offsets(read(name, start, end, kafka__isolation__level="read_committed"))
    assert seen == [offset for offset in (0, 1, 6, 7) if start <= offset < end]
    assert time.monotonic() - started < 60, "the poll time-out is 120 s"


def test_lost_offsets_fail_only_when_asked_to(read: Read, broker: Broker, topic: MakeTopic) -> None:
    name = topic()
    send(broker, name, 20)
    drop(broker, name, 8)
    with pytest.raises(FAILED):
        offsets(read(name, 0, 20, failOnDataLoss="true"))
    with pytest.raises(FAILED):
        offsets(read(name, 0, 20))  # the default of batch reads
    assert offsets(read(name, 0, 20, failOnDataLoss="false")) == list(range(8, 20)), "rows vanish without a word"


def test_an_end_beyond_the_last_stable_offset_waits_for_the_poll_time_out(
    read: Read, broker: Broker, topic: MakeTopic
) -> None:
    name = topic()
    send(broker, name, 3)
    producer = broker.producer(transactional_id=name)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, b"open", partition=0)
    producer.flush(30)
    options = {"kafka__isolation__level": "read_committed", "kafkaConsumer__pollTimeoutMs": "3000"}
    started = time.monotonic()
    with pytest.raises(FAILED):
        offsets(read(name, 0, 4, **options))
    assert 3 <= time.monotonic() - started < 60
    assert offsets(read(name, 0, 4, failOnDataLoss="false", **options)) == [0, 1, 2], "without a word again"
    producer.abort_transaction(30)


def test_a_starting_timestamp_silently_wins_over_starting_offsets(read: Read, broker: Broker, topic: MakeTopic) -> None:
    name = topic()
    send(broker, name, 10)
    assert offsets(read(name, 2, 10, startingTimestamp="1700000000006")) == [6, 7, 8, 9]


def test_a_recreated_topic_that_is_long_enough_is_read_without_a_word(
    read: Read, broker: Broker, topic: MakeTopic
) -> None:
    name = topic()
    send(broker, name, 5)
    broker.delete_topic(name)
    broker.create_topic(name, 1, {"retention.ms": "-1"})
    send(broker, name, 9)
    assert offsets(read(name, 2, 5)) == [2, 3, 4], "why the topic's id is compared before and after"


def test_a_partition_that_was_added_fails_subscribe_and_not_assign(
    read: Read, session: SparkSession, broker: Broker, topic: MakeTopic
) -> None:
    name = topic()
    send(broker, name, 5)
    broker.add_partitions(name, 2)
    assert offsets(read(name, 0, 5)) == [0, 1, 2, 3, 4]
    subscribed = (
        session.read.format("kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", name)
        .option("startingOffsets", json.dumps({name: {"0": 0}}))
        .option("endingOffsets", json.dumps({name: {"0": 5}}))
    )
    with pytest.raises(FAILED):
        subscribed.load().collect()


def test_an_observation_counts_records_once_more_each_time_spark_computes_them(
    read: Read, broker: Broker, topic: MakeTopic
) -> None:
    """Cutting by range computes its input twice, first to find where to cut: five records, and ten are observed.

    Only tasks that succeed are in these ten, so a task that is run again after a loss adds its records once more too.
    The job's numbers are rows that each task returns (ADR 0002), and a frame's rows are there once.
    """
    name = topic()
    send(broker, name, 5)
    once, twice = Observation(), Observation()
    assert offsets(read(name, 0, 5).observe(once, count(lit(1)).alias("read"))) == [0, 1, 2, 3, 4]
    assert once.get == {"read": 5}
    observed = read(name, 0, 5).observe(twice, count(lit(1)).alias("read"))
    assert offsets(observed.repartitionByRange(2, "offset")) == [0, 1, 2, 3, 4]
    assert twice.get == {"read": 10}


def test_R9_the_job_has_no_shuffle_so_no_stage_whose_output_could_be_lost(session: SparkSession, world: World) -> None:
    world.produce(5)
    context = world.context()
    [manifest] = context.database.manifests.find(ids=plan(context, Tick("one", RunKind.MANUAL, None)).manifests)
    order = order_of(context, manifest, 1)
    frame = job.task_reports(session, order, open_reader(order))
    physical_plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "MapInArrow" in physical_plan
    assert "Exchange" not in physical_plan
