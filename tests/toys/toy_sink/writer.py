"""Rows of one Spark task into one JSON file, below the attempt's staging folder."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidemark.event_time import INSTANT
from tidemark.model.order import Order, SinkOrder
from tidemark.model.receipt import ObjectKind
from tidemark.sinks.staging.grouping import HASH_COLUMNS, grouped
from tidemark.sinks.staging.measures import Measures
from tidemark.sinks.writer import SinkWriter, StagedPart


class ToyWriter(SinkWriter):
    """Holds all rows of the task until it ends."""

    def __init__(self, order: Order, sink: SinkOrder, task: str) -> None:
        super().__init__(order, sink, task)
        self.file = staging(order, sink) / f"{task}.json"
        self.rows: dict[str, list[dict[str, Any]]] = {kind: [] for kind in ObjectKind}
        self.measures = {kind: Measures() for kind in ObjectKind}

    @classmethod
    def has_staged(cls, order: Order, sink: SinkOrder) -> bool:
        return any(staging(order, sink).glob("*.json"))

    def write(self, rows: pa.RecordBatch, event_time: pa.Array) -> None:
        self._hold(ObjectKind.DATA, rows)

    def write_dead_letters(self, rows: pa.RecordBatch) -> None:
        self._hold(ObjectKind.DEAD_LETTER, rows)

    def _hold(self, kind: ObjectKind, rows: pa.RecordBatch) -> None:
        for topic, partition, _, piece in grouped(rows, pa.nulls(rows.num_rows, INSTANT)):
            self.measures[kind].add(topic, partition, piece, piece.nbytes)
            self.rows[kind] += piece.drop_columns(HASH_COLUMNS.names).to_pylist()

    def close(self) -> list[StagedPart]:
        if any(self.rows.values()):
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_text(json.dumps(self.rows, default=str))
        return [part for kind in ObjectKind for part in self.measures[kind].parts(self._name, kind, "", self._task)]

    def abort(self) -> None:
        self.file.unlink(missing_ok=True)


def staging(order: Order, sink: SinkOrder) -> Path:
    """Where the tasks of one attempt leave their files."""
    return Path(sink.options["folder"], order.staging)
