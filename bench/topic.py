"""How fast a topic as a sink publishes: one transaction with its four headers, from staged messages to the mark."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa

from bench.records import PARTITIONS, SCHEMA, messages
from sandbox.services.broker import Broker
from tidemark.config.base import Surroundings
from tidemark.connections import from_environment
from tidemark.decoders.base import HEADERS
from tidemark.offsets import Range, TopicPartition
from tidemark.order import Order, SinkOrder, SourceOrder
from tidemark.processing.processor import BatchProcessor
from tidemark.receipt import receipt_of_tasks
from tidemark.sinks.registry import open_sink
from tidemark.sinks.topic.settings import Settings

BATCH = 20_000


def measure(broker: Broker, folder: Path, count: int) -> dict[str, Any]:
    """Stage ``count`` messages in this process, then publish them in one transaction."""
    topic = f"bench-{uuid4().hex[:8]}"
    broker.create_topic(topic, PARTITIONS)
    settings = Settings.model_validate(
        {"bootstrap_servers": broker.bootstrap_servers, "topic": topic, "key": ["user"]},
        context=Surroundings(folder, folder),
    )
    sink = open_sink("bench", settings, from_environment)
    database_id = str(uuid4())
    sink.claim(database_id)
    ranges = tuple(Range(TopicPartition("events", "id", at), 0, count // PARTITIONS) for at in range(PARTITIONS))
    options = {**settings.order(), **sink.order(1, 1)}
    order = Order(
        "bench", 1, 1, ranges, SourceOrder("kafka", {}), {"format": "json", "schema": SCHEMA}, {"on_invalid": "fail"},
        "fail", (SinkOrder(settings.name, settings.kind, options),),
    )  # fmt: skip
    began = time.monotonic()
    receipt = receipt_of_tasks(order, [BatchProcessor(order).process("0", batches(count))])
    staged = time.monotonic()
    sink.put(receipt, ranges, database_id, agree, agree)
    return {"messages": count, "stage": staged - began, "publish": time.monotonic() - staged}


def agree(visible: int | None = None) -> None:
    """The fence of an attempt that nobody overtakes, and a mark in no database."""


def batches(count: int) -> Iterator[pa.RecordBatch]:
    rows: list[tuple[Any, ...]] = []
    for number, message in enumerate(messages(count)):
        rows.append((message.key, message.value, "events", message.partition, number // PARTITIONS, message.stamp_ms))
        if len(rows) == BATCH or number == count - 1:
            key, value, topic, partition, offset, stamp = zip(*rows, strict=True)
            yield pa.record_batch(
                {
                    "key": pa.array(key, pa.binary()), "value": pa.array(value, pa.binary()), "topic": pa.array(topic),
                    "partition": pa.array(partition, pa.int32()), "offset": pa.array(offset, pa.int64()),
                    "timestamp": pa.array([at * 1000 for at in stamp], pa.timestamp("us", "UTC")),
                    "headers": pa.nulls(len(rows), HEADERS),
                }
            )  # fmt: skip
            rows = []
