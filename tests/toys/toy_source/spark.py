"""The face for tasks: the lines of a range as an Arrow batch."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.toys.toy_source.log import COMMITTED, PartitionLog
from tidemark.errors import WorkFailed
from tidemark.model.offsets import Range
from tidemark.model.order import Order
from tidemark.model.record_schema import INPUT
from tidemark.sources.range_reader import RangeReader


class ToyReader(RangeReader):
    """Reads each range from its file."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def batches(self, covered: Range) -> Iterator[pa.RecordBatch]:
        log = PartitionLog(Path(self._folder, covered.at.topic), covered.at.partition)
        if log.start > covered.start:
            raise WorkFailed(f"offset {covered.start} of {covered.at.name} is not there")
        rows = [
            _row(covered, line)
            for line in log.lines()
            if covered.start <= line["offset"] < covered.end and line["fate"] == COMMITTED
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=INPUT)


def _row(covered: Range, line: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "key": None if line["key"] is None else line["key"].encode(),
        "value": None if line["value"] is None else line["value"].encode(),
        "topic": covered.at.topic,
        "partition": covered.at.partition,
        "offset": line["offset"],
        "timestamp": line["timestamp"] * 1000,
        "headers": None,
    }


def open_reader(order: Order) -> ToyReader:
    return ToyReader(order.source.options["folder"])
