"""Writes the rows of one Spark task as Parquet files below the location of the table; a file holds one partition.

No snapshot names these files before they are published, so no reader sees them.
"""

import json
from contextlib import AbstractContextManager
from datetime import date
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema

from tidemark.errors import SinkRefused
from tidemark.model.order import Order, SinkOrder
from tidemark.model.receipt import ObjectKind
from tidemark.sinks.column_names import EVENT_TIME, stored_names
from tidemark.sinks.current_rows.versioned import with_version
from tidemark.sinks.iceberg.staged import PARTITION, SPEC, data_folder
from tidemark.sinks.lake_tables.refusals import storing
from tidemark.sinks.staging.grouping import HASH_COLUMNS, grouped
from tidemark.sinks.staging.partitioned_writer import PartitionedWriter, Target
from tidemark.sinks.staging.staged_file import StagedFile, has_complete_file
from tidemark.sinks.staging.staged_parquet import StagedParquet
from tidemark.sinks.writer import StagedPart
from tidemark.storage.base import ObjectStore
from tidemark.storage.open import open_store

_EPOCH = date(1970, 1, 1)


class IcebergWriter(PartitionedWriter):
    """Collects rows per (topic, partition, partition of the table)."""

    def __init__(self, order: Order, sink: SinkOrder, task: str) -> None:
        super().__init__(order, sink, task, _store(sink))
        self._schema = Schema.model_validate_json(sink.options["schema"])
        self._columns = schema_to_pyarrow(self._schema, include_field_ids=True)
        self._spec = PartitionSpec.model_validate_json(sink.options["spec"])
        self._data = data_folder(order.manifest_id, order.attempt)
        self._dead = f"{order.staging}/{self._name}"
        self._attempt = order.attempt
        # Of each partition; a table of all rows has no versions.
        self._generations = {(topic, number): made for topic, number, made in sink.options.get("generations", ())}
        self._unique = uuid4().hex

    @classmethod
    def has_staged(cls, order: Order, sink: SinkOrder) -> bool:
        return has_complete_file(_store(sink), data_folder(order.manifest_id, order.attempt))

    def write(self, rows: pa.RecordBatch, event_time: pa.Array) -> None:
        rows = rows.append_column(EVENT_TIME, event_time)
        columns = [(part, self._partitioned(part, _as_in_table(rows))) for part in self._spec.fields]
        apart = [column.cast(pa.string()) for _, column in columns]
        key = pc.binary_join_element_wise(*apart, "\x1f") if apart else pa.nulls(rows.num_rows, pa.string())
        for topic, partition, _, piece in grouped(rows, key):
            first = _as_in_table(piece.slice(0, 1).drop_columns(HASH_COLUMNS.names).to_batches()[0])
            values = [_plain(self._partitioned(part, first)[0].as_py()) for part in self._spec.fields]
            self._hold(Target(ObjectKind.DATA, topic, partition, json.dumps(values)), piece)

    def write_dead_letters(self, rows: pa.RecordBatch) -> None:
        for topic, partition, _, piece in grouped(rows, pa.nulls(rows.num_rows, pa.string())):
            self._hold(Target(ObjectKind.DEAD_LETTER, topic, partition, "[]"), piece)

    def _partitioned(self, part: PartitionField, rows: pa.RecordBatch) -> pa.Array:
        source = self._schema.find_field(part.source_id)
        of_table = self._columns.field(source.name).type
        transformed = part.transform.pyarrow_transform(source.field_type)(rows.column(source.name).cast(of_table))
        return transformed.combine_chunks() if isinstance(transformed, pa.ChunkedArray) else transformed

    def _append(self, file: StagedFile, target: Target, rows: pa.Table) -> None:
        assert isinstance(file, StagedParquet)
        file.append(self._as_stored(target, rows.drop_columns(HASH_COLUMNS.names)), rows)

    def _as_stored(self, target: Target, rows: pa.Table) -> pa.Table:
        """Rows with the types and field ids of the table; dead letters, which are no rows of it, as they are."""
        if target.kind is ObjectKind.DEAD_LETTER:
            return rows
        rows = rows.rename_columns(stored_names(rows.schema.names))
        if self._generations:
            rows = with_version(rows, self._generations[target.topic, target.partition], self._attempt)
        fields = [self._columns.field(name) for name in rows.schema.names]
        footer = {PARTITION: target.place.encode(), SPEC: str(self._spec.spec_id).encode()}
        return rows.cast(pa.schema(fields)).replace_schema_metadata(footer)

    def _key(self, target: Target, number: int) -> str:
        folder = self._data if target.kind is ObjectKind.DATA else self._dead
        return f"{folder}/{self._task}-{number:05d}-{self._unique}.parquet"

    def _create(self, target: Target, number: int, key: str, rows: pa.Table) -> StagedParquet:
        del number
        schema = self._as_stored(target, rows.slice(0, 1).drop_columns(HASH_COLUMNS.names)).schema
        return StagedParquet(self._store, key, schema)

    def _part(self, file: StagedFile, target: Target) -> StagedPart:
        dead = target.kind is ObjectKind.DEAD_LETTER
        return file.part(
            self._name, target.kind, target.topic, target.partition,
            staged=f"{self._name}/{file.name}" if dead else file.key, folder="", suffix="parquet" if dead else None,
        )  # fmt: skip

    def _too_many(self, number: int, target: Target) -> SinkRefused:
        return SinkRefused(
            f"one task has made {number:,} files, and at most {self._max_objects:,} are allowed (max_objects)",
            next_step="nothing was published; partition by day instead of by hour, or into fewer buckets, or raise "
            "sinks.iceberg.max_objects; then: tidemark retry {pipeline} --manifest {manifest}",
            topic=target.topic, partition=target.partition, **self._context,
        )  # fmt: skip

    def _translated(self, target: Target) -> AbstractContextManager[None]:
        next_step = "nothing was published; the table has changed since the attempt began: tidemark retry {pipeline}"
        return storing(self._name, next_step, {"topic": target.topic, "partition": target.partition, **self._context})


def _as_in_table(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.rename_columns(stored_names(rows.schema.names))


def _plain(value: Any) -> Any:
    """A value of a partition as JSON has it: a date is the number of its day, as in Iceberg."""
    return (value - _EPOCH).days if isinstance(value, date) else value


def _store(sink: SinkOrder) -> ObjectStore:
    return open_store(sink.options["root"], sink.options["s3"])
