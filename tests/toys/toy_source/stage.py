"""Stages an order of the toy source without Spark, by what the driver's face reads."""

import pyarrow as pa

from tests.toys.toy_source.settings import Settings
from tests.toys.toy_source.source import ToySource
from tidemark.failpoints import failpoint
from tidemark.model.offsets import Range
from tidemark.model.order import Order
from tidemark.model.partitions import Record
from tidemark.model.receipt import Receipt, receipt_of_tasks
from tidemark.processing.processor import BatchProcessor
from tidemark.record_schema import INPUT


def records_stage(order: Order) -> Receipt:
    """One task per range."""
    failpoint("read.before")
    processor = BatchProcessor(order)
    reports = [processor.process(f"{task:05d}-0", [_read(order, range_)]) for task, range_ in enumerate(order.ranges)]
    return receipt_of_tasks(order, reports)


def _read(order: Order, covered: Range) -> pa.RecordBatch:
    settings = Settings.model_validate({**order.source.options, "topics": [covered.at.topic]})
    source = ToySource(order.pipeline_name, settings)
    return pa.RecordBatch.from_pylist([_row(record) for record in source.records(covered)], schema=INPUT)


def _row(record: Record) -> dict[str, object]:
    return {
        "key": record.key,
        "value": record.value,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms * 1000,
        "headers": None,
    }
