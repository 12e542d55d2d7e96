"""Writes the rows of one Spark task as Parquet files into the staging folder of the attempt, below the table."""

from contextlib import AbstractContextManager

import pyarrow as pa

from tidemark.errors import SinkRefused
from tidemark.event_time import INSTANT
from tidemark.model.order import Order, SinkOrder
from tidemark.model.receipt import ObjectKind
from tidemark.paths import dead_letter_folder
from tidemark.sinks.staging.grouping import HASH_COLUMNS, grouped
from tidemark.sinks.staging.partitioned_writer import PartitionedWriter, Target
from tidemark.sinks.staging.staged_file import StagedFile, has_complete_file, staging_of
from tidemark.sinks.staging.staged_parquet import StagedParquet
from tidemark.sinks.writer import StagedPart
from tidemark.storage.base import ObjectStore
from tidemark.storage.open import open_store

PARTITION = "_manifest"  # the partition of the table; its values are ids of manifests


class DeltaWriter(PartitionedWriter):
    """One file for each partition of the source; all rows of a manifest are one partition of the table."""

    def __init__(self, order: Order, sink: SinkOrder, task: str) -> None:
        super().__init__(order, sink, task, _store(sink))
        self._folder = f"{order.staging}/{sink.name}"
        self._place = f"{PARTITION}={order.manifest_id}"

    @classmethod
    def has_staged(cls, order: Order, sink: SinkOrder) -> bool:
        return has_complete_file(_store(sink), f"{order.staging}/{sink.name}")

    def write(self, rows: pa.RecordBatch, event_time: pa.Array) -> None:
        del event_time
        for topic, partition, _, piece in grouped(rows, pa.nulls(rows.num_rows, INSTANT)):
            self._hold(Target(ObjectKind.DATA, topic, partition, self._place), piece)

    def write_dead_letters(self, rows: pa.RecordBatch) -> None:
        for topic, partition, _, piece in grouped(rows, pa.nulls(rows.num_rows, INSTANT)):
            self._hold(Target(ObjectKind.DEAD_LETTER, topic, partition, dead_letter_folder(topic)), piece)

    def _key(self, target: Target, number: int) -> str:
        del target
        return f"{self._folder}/{self._task}-{number:05d}.parquet"

    def _create(self, target: Target, number: int, key: str, rows: pa.Table) -> StagedParquet:
        del target, number
        return StagedParquet(self._store, key, rows.drop_columns(HASH_COLUMNS.names).schema)

    def _append(self, file: StagedFile, target: Target, rows: pa.Table) -> None:
        del target
        assert isinstance(file, StagedParquet)
        file.append(rows.drop_columns(HASH_COLUMNS.names), rows)

    def _part(self, file: StagedFile, target: Target) -> StagedPart:
        return file.part(
            self._name, target.kind, target.topic, target.partition,
            staged=f"{self._name}/{file.name}", folder=target.place, suffix="parquet",
        )  # fmt: skip

    def _too_many(self, number: int, target: Target) -> SinkRefused:
        return SinkRefused(f"one task has made {number:,} files for {target.topic}", next_step="make slices smaller")

    def _translated(self, target: Target) -> AbstractContextManager[None]:
        return staging_of(self._name, topic=target.topic, partition=target.partition, **self._context)


def _store(sink: SinkOrder) -> ObjectStore:
    return open_store(sink.options["root"])
