"""Writes the rows of one Spark task as JSON lines, a file for each partition, below the attempt's staging folder."""

from contextlib import suppress

import pyarrow as pa

from tidemark.errors import TidemarkError
from tidemark.model.order import Order, SinkOrder
from tidemark.model.receipt import ObjectKind
from tidemark.sinks.formats.base import open_format
from tidemark.sinks.formats.formatted_file import FormattedFile
from tidemark.sinks.staging.grouping import grouped
from tidemark.sinks.staging.staged_file import has_complete_file
from tidemark.sinks.writer import SinkWriter, StagedPart
from tidemark.storage.base import ObjectStore
from tidemark.storage.open import open_store
from tidemark.times.event_time import INSTANT


class Writer(SinkWriter):
    """Holds the files of all partitions open until the task ends."""

    def __init__(self, order: Order, sink: SinkOrder, task: str) -> None:
        super().__init__(order, sink, task)
        self._store, self._folder = _store(sink), f"{order.staging}/{sink.name}"
        self._format = open_format("jsonl", "none")
        self._files: dict[tuple[ObjectKind, str, int], FormattedFile] = {}

    @classmethod
    def has_staged(cls, order: Order, sink: SinkOrder) -> bool:
        return has_complete_file(_store(sink), f"{order.staging}/{sink.name}")

    def write(self, rows: pa.RecordBatch, event_time: pa.Array) -> None:
        self._append(ObjectKind.DATA, rows)

    def write_dead_letters(self, rows: pa.RecordBatch) -> None:
        self._append(ObjectKind.DEAD_LETTER, rows)

    def _append(self, kind: ObjectKind, rows: pa.RecordBatch) -> None:
        for topic, partition, _, piece in grouped(rows, pa.nulls(rows.num_rows, INSTANT)):
            if (kind, topic, partition) not in self._files:
                key = f"{self._folder}/{self._task}-{len(self._files)}.{self._format.suffix}"
                file = FormattedFile(self._store, key, None, self._format, piece)
                self._files[kind, topic, partition] = file
            self._files[kind, topic, partition].append(piece)

    def close(self) -> list[StagedPart]:
        return [self._part(file, *place) for place, file in self._files.items()]

    def _part(self, file: FormattedFile, kind: ObjectKind, topic: str, partition: int) -> StagedPart:
        staged = f"{self._name}/{file.name}"
        return file.part(self._name, kind, topic, staged=staged, folder="rows", suffix=self._format.suffix)

    def abort(self) -> None:
        for file in self._files.values():
            file.abandon()
        with suppress(TidemarkError):  # files that stay do no harm: no receipt names them
            self._store.delete(file.key for file in self._files.values())


def _store(sink: SinkOrder) -> ObjectStore:
    return open_store(sink.options["root"])
