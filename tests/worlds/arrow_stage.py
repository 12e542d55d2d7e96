"""Stages an order without Spark: a second reader passes Arrow batches to ``processing/processor.py``.

With it, tests of plan and publish take seconds. ``tests/spark`` tests Spark itself.
"""

from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module

import pyarrow as pa
from confluent_kafka import Consumer, Message, TopicPartition

from tidemark.connections.lookup import revealed
from tidemark.environment import Environment
from tidemark.failpoints import failpoint, watching
from tidemark.kafka.connection import named_connection
from tidemark.kafka.mechanisms import client_options
from tidemark.kinds import SOURCES
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.work import SharedStage
from tidemark.model.offsets import Range
from tidemark.model.order import Order
from tidemark.model.receipt import Receipt, receipt_of_tasks
from tidemark.model.record_schema import INPUT
from tidemark.processing.processor import BatchProcessor
from tidemark.sinks.writers import writer_of
from tidemark.sources.range_reader import RangeReader


def arrow_stage(order: Order) -> Receipt:
    """Do an order, one task after the other."""
    failpoint("read.before")
    processor = BatchProcessor(order)
    with watching("stage.mid", lambda: any(writer_of(sink.kind).has_staged(order, sink) for sink in order.sinks)):
        reports = [processor.process(f"{task:05d}-0", _read(order, ranges)) for task, ranges in enumerate(order.tasks)]
    return receipt_of_tasks(order, reports)


def _read(order: Order, ranges: Iterable[Range]) -> Iterator[pa.RecordBatch]:
    for covered in ranges:
        yield from _read_range(order, covered)


def _read_range(order: Order, range_: Range) -> Iterable[pa.RecordBatch]:
    """Of Kafka by a client of our own, since Spark reads it; other sources are read as a task does it."""
    if order.source.kind != "kafka":
        reader = import_module(f"{SOURCES[order.source.kind]}.spark").open_reader(order)
        assert isinstance(reader, RangeReader)
        return reader.batches(range_)
    kafka = order.source.options
    secured = named_connection(kafka["connection"], order.pipeline_name) if kafka["connection"] else None
    options = client_options(revealed(secured.config), secured.bootstrap_servers) if secured else {}
    rows = [_row(message) for message in messages(kafka["bootstrap_servers"], range_, options)]
    return [pa.RecordBatch.from_pylist(rows, schema=INPUT)]


def messages(bootstrap_servers: str, range_: Range, options: Mapping[str, str] | None = None) -> Iterator[Message]:
    """The committed records of a range."""
    consumer = Consumer(
        {
            **(options or {}),
            "bootstrap.servers": bootstrap_servers,
            "group.id": "tests",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 10,
        }
    )
    try:
        consumer.assign([TopicPartition(range_.at.topic, range_.at.partition, range_.start)])
        while True:
            message = consumer.poll(10)
            assert message is not None, f"no answer while reading {range_}"
            offset = message.offset()
            assert offset is not None
            if message.error() is not None or offset >= range_.end:
                return
            yield message
            if offset == range_.end - 1:
                return
    finally:
        consumer.close()


def _row(message: Message) -> dict[str, object]:
    return {
        "key": message.key(),
        "value": message.value(),
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": message.timestamp()[1] * 1000,
        "headers": [{"key": key, "value": value} for key, value in message.headers() or []] or None,
    }


class ArrowStage:
    """Stages with ``arrow_stage`` for a command. Nothing has to be started, and a job cannot be ended."""

    def __call__(self, order: Order) -> Receipt:
        return arrow_stage(order)

    def start(self, records: int) -> None:
        pass

    def end_jobs(self) -> None:
        pass


def without_spark(context: Context, environment: Environment, master: str | None, report: object = None) -> SharedStage:
    """In the place of ``engines.stage_in``. No mock: that would keep the context, and so its connections open."""
    del context, environment, master, report
    return ArrowStage()
