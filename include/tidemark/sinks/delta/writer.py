"""Writes the rows of one Spark task as Parquet files into the staging folder of the attempt, below the table.

StagedAttempt moves each to its place in the table, and only then the log of the table names it. VACUUM looks into no
folder whose name begins with ``_``, so it leaves alone what is staged, however long Spark works.
"""

from base64 import b64decode, b64encode
from contextlib import AbstractContextManager
from typing import Final
from uuid import uuid4

import pyarrow as pa

from tidemark.errors import SinkRefused
from tidemark.model.order import Order, SinkOrder
from tidemark.model.receipt import ObjectKind
from tidemark.paths import dead_letter_folder
from tidemark.sinks.column_names import EVENT_TIME, MANIFEST_ID, stored_names
from tidemark.sinks.current_rows.versioned import with_version
from tidemark.sinks.delta.buckets import buckets_of
from tidemark.sinks.lake_tables.refusals import storing
from tidemark.sinks.staging.grouping import HASH_COLUMNS, grouped
from tidemark.sinks.staging.partitioned_writer import PartitionedWriter, Target
from tidemark.sinks.staging.staged_file import StagedFile, has_complete_file
from tidemark.sinks.staging.staged_parquet import StagedParquet
from tidemark.sinks.writer import StagedPart
from tidemark.storage.base import ObjectStore
from tidemark.storage.open import open_store

ROWS: Final = b"tidemark.rows"  # in the footer of a file: the columns of its rows before they were stored


class DeltaWriter(PartitionedWriter):
    """One file for each partition of the source and, in a table with a key, each bucket.

    A restored database gives the number of an attempt out again, so names end in a uuid: no file has the name of one
    that a version of the table may name.
    """

    def __init__(self, order: Order, sink: SinkOrder, task: str) -> None:
        super().__init__(order, sink, task, _store(sink))
        self._columns = decoded_schema(sink.options["columns"])
        self._folder = f"{order.staging}/{sink.name}"
        self._unique = uuid4().hex
        self._attempt = order.attempt
        self._key_columns: list[str] = sink.options.get("key", [])
        self._buckets: int = sink.options.get("buckets", 1)
        # Of each partition; a table of all rows has no versions.
        self._generations = {(topic, number): made for topic, number, made in sink.options.get("generations", ())}

    @classmethod
    def has_staged(cls, order: Order, sink: SinkOrder) -> bool:
        return has_complete_file(_store(sink), f"{order.staging}/{sink.name}")

    def write(self, rows: pa.RecordBatch, event_time: pa.Array) -> None:
        rows = rows.append_column(EVENT_TIME, event_time)
        for topic, partition, bucket, piece in grouped(rows, self._periods(rows)):
            self._hold(Target(ObjectKind.DATA, topic, partition, "" if bucket is None else str(bucket)), piece)

    def _periods(self, rows: pa.RecordBatch) -> pa.Array:
        """The bucket of each row; none in a table of all rows."""
        if not self._key_columns:
            return pa.nulls(rows.num_rows, pa.int32())
        named = rows.rename_columns(stored_names(rows.schema.names))
        return buckets_of(named, self._columns, self._key_columns, self._buckets)

    def write_dead_letters(self, rows: pa.RecordBatch) -> None:
        for topic, partition, _, piece in grouped(rows, pa.nulls(rows.num_rows, pa.string())):
            self._hold(Target(ObjectKind.DEAD_LETTER, topic, partition, dead_letter_folder(topic)), piece)

    def _key(self, target: Target, number: int) -> str:
        folder = f"{self._folder}/{target.place}" if self._is_of_bucket(target) else self._folder
        return f"{folder}/{self._task}-{number:05d}-{self._unique}.parquet"

    def _is_of_bucket(self, target: Target) -> bool:
        return target.kind is ObjectKind.DATA and target.place != ""

    def _create(self, target: Target, number: int, key: str, rows: pa.Table) -> StagedParquet:
        del number
        return StagedParquet(self._store, key, self._as_stored(target, rows.slice(0, 1)).schema)

    def _append(self, file: StagedFile, target: Target, rows: pa.Table) -> None:
        assert isinstance(file, StagedParquet)
        file.append(self._as_stored(target, rows), rows)

    def _as_stored(self, target: Target, rows: pa.Table) -> pa.Table:
        """Rows with the types of the table and without its partition; dead letters, which are no rows of it, as they
        are."""
        rows = rows.drop_columns(HASH_COLUMNS.names)
        if target.kind is ObjectKind.DEAD_LETTER:
            return rows
        before = rows.schema.remove_metadata()
        rows = rows.rename_columns(stored_names(rows.schema.names))
        if self._key_columns:
            rows = with_version(rows, self._generations[target.topic, target.partition], self._attempt)
        else:
            rows = rows.drop_columns([MANIFEST_ID])
        stored = rows.cast(pa.schema([self._columns.field(name) for name in rows.schema.names]))
        return stored.replace_schema_metadata({ROWS: encoded_schema(before).encode()})

    def _part(self, file: StagedFile, target: Target) -> StagedPart:
        dead = target.kind is ObjectKind.DEAD_LETTER
        return file.part(
            self._name, target.kind, target.topic, target.partition,
            staged=f"{self._name}/{file.name}" if dead else file.key, folder=target.place if dead else "",
            suffix="parquet" if dead else None,
        )  # fmt: skip

    def _too_many(self, number: int, target: Target) -> SinkRefused:
        return SinkRefused(
            f"one task has made {number:,} files, and at most {self._max_objects:,} are allowed (max_objects)",
            next_step="nothing was published; raise sinks.delta.max_file_bytes or max_objects; then: tidemark retry "
            "{pipeline} --manifest {manifest}",
            topic=target.topic, partition=target.partition, **self._context,
        )  # fmt: skip

    def _translated(self, target: Target) -> AbstractContextManager[None]:
        next_step = (
            "nothing was published; correct the type of the column; if the table has changed since the "
            "attempt began: tidemark retry {pipeline}"
        )
        return storing(self._name, next_step, {"topic": target.topic, "partition": target.partition, **self._context})


def bucket_of(staged: str) -> int:
    """The bucket of the rows in a staged file, by its key."""
    return int(staged.split("/")[-2])


def encoded_schema(columns: pa.Schema) -> str:
    """Columns as a text that an order or a footer can hold."""
    return b64encode(columns.serialize().to_pybytes()).decode()


def decoded_schema(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(b64decode(text)))


def _store(sink: SinkOrder) -> ObjectStore:
    return open_store(sink.options["root"], sink.options.get("s3"))
