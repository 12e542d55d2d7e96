"""Rows of one Spark task into one JSON file, below the attempt's staging folder."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.event_time import INSTANT
from tidemark.model.order import Order, SinkOrder
from tidemark.model.receipt import ObjectKind
from tidemark.sinks.staging.grouping import HASH_COLUMNS, digest_of, grouped
from tidemark.sinks.writer import SinkWriter, StagedPart

Place = tuple[ObjectKind, str, int]  # kind, topic, partition


class ToyWriter(SinkWriter):
    """Holds all rows of the task until it ends."""

    def __init__(self, order: Order, sink: SinkOrder, task: str) -> None:
        self.sink = sink.name
        self.folder = staging(order, sink)
        self.task = task
        self.pieces: dict[Place, list[pa.Table]] = {}

    @classmethod
    def has_staged(cls, order: Order, sink: SinkOrder) -> bool:
        return any(staging(order, sink).glob("*.json"))

    def write(self, rows: pa.RecordBatch, event_time: pa.Array) -> None:
        self._hold(ObjectKind.DATA, rows)

    def write_dead_letters(self, rows: pa.RecordBatch) -> None:
        self._hold(ObjectKind.DEAD_LETTER, rows)

    def _hold(self, kind: ObjectKind, rows: pa.RecordBatch) -> None:
        for topic, partition, _, piece in grouped(rows, pa.nulls(rows.num_rows, INSTANT)):
            self.pieces.setdefault((kind, topic, partition), []).append(piece)

    def close(self) -> list[StagedPart]:
        parts: list[StagedPart] = []
        content: dict[str, list[dict[str, Any]]] = {kind: [] for kind in ObjectKind}
        for (kind, topic, partition), pieces in self.pieces.items():
            measured = pa.concat_tables(pieces).combine_chunks()
            table = measured.drop_columns(HASH_COLUMNS.names)
            content[kind] += table.to_pylist()
            offsets = pc.min_max(table.column("_offset")).as_py()
            parts.append(
                StagedPart(
                    sink=self.sink, kind=kind, staged=self.task, folder="", format=None, topic=topic,
                    partition=partition, rows=table.num_rows, bytes=table.nbytes, digest=str(digest_of(measured)),
                    first_offset=offsets["min"], last_offset=offsets["max"],
                )
            )  # fmt: skip
        if parts:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._file.write_text(json.dumps(content, default=str))
        return parts

    def abort(self) -> None:
        self._file.unlink(missing_ok=True)

    @property
    def _file(self) -> Path:
        return self.folder / f"{self.task}.json"


def staging(order: Order, sink: SinkOrder) -> Path:
    """Where the tasks of one attempt leave their files."""
    return Path(sink.options["folder"], order.staging)
