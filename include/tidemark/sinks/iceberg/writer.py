"""Writes the rows of one Spark task as Parquet files below the location of the table; a file holds one partition.

Rows wait in memory until there are enough of them for a group, or too many in all; then they go to the file of their
partition, which stays open until it is full. No snapshot names these files before they are published, so no reader
sees them. ``task`` names the try of the Spark task too, so that a task that runs twice writes other files.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema

from tidemark.errors import SinkRefused, TidemarkError
from tidemark.order import Order, SinkOrder
from tidemark.reasons import without_values
from tidemark.receipt import ObjectKind
from tidemark.sinks.iceberg.columns import stored_names
from tidemark.sinks.iceberg.partitioning import EVENT_TIME
from tidemark.sinks.iceberg.staged import PARTITION, SPEC, data_folder
from tidemark.sinks.staging.finished_files import FinishedFiles
from tidemark.sinks.staging.grouping import HASH_COLUMNS, grouped
from tidemark.sinks.staging.held_rows import HeldRows
from tidemark.sinks.staging.staged_file import has_complete_file, staging_of
from tidemark.sinks.staging.staged_parquet import StagedParquet
from tidemark.sinks.writer import StagedPart
from tidemark.storage.base import ObjectStore
from tidemark.storage.open import open_store

OPEN_FILES = 200  # of one task; systems allow 1,024 in a process
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True)
class _Target:
    """The rows of one file: of one partition of the source, and of one partition of the table, as JSON."""

    kind: ObjectKind
    topic: str
    partition: int
    values: str


class IcebergWriter:
    """Collects rows per (topic, partition, partition of the table), and closes a file when it has
    ``max_file_bytes``."""

    def __init__(self, order: Order, sink: SinkOrder, task: str) -> None:
        self._name = sink.name
        self._task = task
        self._context = {"pipeline": order.pipeline_name, "manifest": order.manifest_id, "sink": sink.name}
        self._max_objects: int = sink.options["max_objects"]
        self._max_bytes: int = sink.options["max_file_bytes"]
        self._schema = Schema.model_validate_json(sink.options["schema"])
        self._columns = schema_to_pyarrow(self._schema, include_field_ids=True)
        self._spec = PartitionSpec.model_validate_json(sink.options["spec"])
        self._store = _store(sink)
        self._data = data_folder(order.manifest_id, order.attempt)
        self._dead = f"{order.staging}/{self._name}"
        self._held = HeldRows[_Target](file_bytes=self._max_bytes)
        self._open: dict[_Target, StagedParquet] = {}
        self._finished = FinishedFiles(self._store.at_once)
        self._keys: list[str] = []
        self._unique = uuid4().hex

    def write(self, rows: pa.RecordBatch, event_time: pa.Array) -> None:
        rows = rows.append_column(EVENT_TIME, event_time)
        columns = [(part, self._partitioned(part, _as_in_table(rows))) for part in self._spec.fields]
        apart = [column.cast(pa.string()) for _, column in columns]
        key = pc.binary_join_element_wise(*apart, "\x1f") if apart else pa.nulls(rows.num_rows, pa.string())
        for topic, partition, _, piece in grouped(rows, key):
            first = _as_in_table(piece.slice(0, 1).drop_columns(HASH_COLUMNS.names).to_batches()[0])
            values = [_plain(self._partitioned(part, first)[0].as_py()) for part in self._spec.fields]
            self._hold(_Target(ObjectKind.DATA, topic, partition, json.dumps(values)), piece)

    def write_dead_letters(self, rows: pa.RecordBatch) -> None:
        for topic, partition, _, piece in grouped(rows, pa.nulls(rows.num_rows, pa.string())):
            self._hold(_Target(ObjectKind.DEAD_LETTER, topic, partition, "[]"), piece)

    def close(self) -> list[StagedPart]:
        for target, measured in self._held.rest():
            self._append(target, measured)
        for target in list(self._open):
            self._finish(target)
        return self._finished.parts()

    def abort(self) -> None:
        self._held.clear()
        for file in self._open.values():
            file.abandon()
        self._open.clear()
        self._finished.abandon()
        with suppress(TidemarkError):  # files that stay do no harm: no receipt names them
            self._store.delete(self._keys)

    def _partitioned(self, part: PartitionField, rows: pa.RecordBatch) -> pa.Array:
        source = self._schema.find_field(part.source_id)
        of_table = self._columns.field(source.name).type
        transformed = part.transform.pyarrow_transform(source.field_type)(rows.column(source.name).cast(of_table))
        return transformed.combine_chunks() if isinstance(transformed, pa.ChunkedArray) else transformed

    def _hold(self, target: _Target, piece: pa.Table) -> None:
        for due, rows in self._held.add(target, piece):
            self._append(due, rows)

    def _append(self, target: _Target, measured: pa.Table) -> None:
        """Write rows, with the columns of ``HASH_COLUMNS``, into a file; close it when another group of this size would
        not fit."""
        measured = measured.combine_chunks()
        with self._translated(target):
            rows = self._as_stored(target, measured.drop_columns(HASH_COLUMNS.names))
            file = self._open.get(target) or self._begin(target, rows.schema)
            before = file.bytes
            file.append(rows, measured)
        if 2 * file.bytes - before > self._max_bytes:
            self._finish(target)

    def _as_stored(self, target: _Target, rows: pa.Table) -> pa.Table:
        """Rows with the types and field ids of the table; dead letters, which are no rows of it, as they are."""
        if target.kind is ObjectKind.DEAD_LETTER:
            return rows
        names = stored_names(rows.schema.names)
        fields = [self._columns.field(name) for name in names]
        footer = {PARTITION: target.values.encode(), SPEC: str(self._spec.spec_id).encode()}
        return rows.rename_columns(names).cast(pa.schema(fields)).replace_schema_metadata(footer)

    def _begin(self, target: _Target, schema: pa.Schema) -> StagedParquet:
        if len(self._open) >= OPEN_FILES:
            self._finish(max(self._open, key=lambda target: self._open[target].bytes))
        number = len(self._keys)
        if number >= self._max_objects:
            raise SinkRefused(
                f"one task has made {number:,} files, and at most {self._max_objects:,} are allowed (max_objects)",
                next_step="nothing was published; partition by day instead of by hour, or into fewer buckets, or raise "
                "sinks.iceberg.max_objects; then: tidemark retry {pipeline} --manifest {manifest}",
                topic=target.topic, partition=target.partition, **self._context,
            )  # fmt: skip
        folder = self._data if target.kind is ObjectKind.DATA else self._dead
        self._keys.append(f"{folder}/{self._task}-{number:05d}-{self._unique}.parquet")
        self._open[target] = StagedParquet(self._store, self._keys[-1], schema)
        return self._open[target]

    def _finish(self, target: _Target) -> None:
        file = self._open.pop(target)
        self._finished.add(file.bytes, partial(self._part, target, file))

    def _part(self, target: _Target, file: StagedParquet) -> StagedPart:
        dead = target.kind is ObjectKind.DEAD_LETTER
        with self._translated(target):
            return file.part(
                self._name, target.kind, target.topic, target.partition,
                staged=f"{self._name}/{file.name}" if dead else file.key, folder="", suffix="parquet" if dead else None,
            )  # fmt: skip

    @contextmanager
    def _translated(self, target: _Target) -> Iterator[None]:
        context = {"topic": target.topic, "partition": target.partition, **self._context}
        try:
            with staging_of(self._name, **context):
                yield
        except pa.ArrowException as error:
            raise SinkRefused(
                f"the table cannot store a row: {without_values(str(error))[:300]}",
                next_step="nothing was published; the table has changed since the attempt began: tidemark retry "
                "{pipeline}",
                **context,
            ) from None


def _as_in_table(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.rename_columns(stored_names(rows.schema.names))


def _plain(value: Any) -> Any:
    """A value of a partition as JSON has it: a date is the number of its day, as in Iceberg."""
    return (value - _EPOCH).days if isinstance(value, date) else value


def _store(sink: SinkOrder) -> ObjectStore:
    return open_store(sink.options["root"], sink.options["s3"])


def open_writer(order: Order, sink: SinkOrder, task: str) -> IcebergWriter:
    return IcebergWriter(order, sink, task)


def try_connection(conn_id: str) -> None:
    del conn_id  # tasks write files only, and no connection names their folder


def has_staged(order: Order, sink: SinkOrder) -> bool:
    return has_complete_file(_store(sink), data_folder(order.manifest_id, order.attempt))
