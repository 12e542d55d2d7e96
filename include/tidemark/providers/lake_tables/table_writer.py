"""Writes the rows of one Spark task as Parquet files that a commit of a lake table can name, whatever its format.

A restored database may reuse the number of an attempt. So file names end in a uuid: no file has the name of one that a
version of the table names.
"""

from abc import abstractmethod
from contextlib import AbstractContextManager
from typing import ClassVar
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.errors import THEN_RETRY, SinkRefused
from tidemark.model.order import Order, SinkOrder
from tidemark.model.receipt import ObjectKind
from tidemark.providers.lake_tables.nested import conformed_table
from tidemark.providers.lake_tables.refusals import storing
from tidemark.providers.lake_tables.staged_parquet import StagedParquet
from tidemark.providers.tables.column_names import IS_DELETED, LOG_GENERATION, stored_names
from tidemark.providers.tables.columns import ATTEMPT
from tidemark.sinks.staging.grouping import HASH_COLUMNS
from tidemark.sinks.staging.partitioned_writer import PartitionedWriter, Target
from tidemark.sinks.staging.staged_file import StagedFile
from tidemark.sinks.writer import StagedPart


class LakeTableWriter(PartitionedWriter):
    """Writes one file for each partition of the table. ``fewer_files`` and ``unfit_row`` are next steps of errors."""

    fewer_files: ClassVar[str]
    unfit_row: ClassVar[str]

    def __init__(self, order: Order, sink: SinkOrder, task: str, columns: pa.Schema) -> None:
        """Open a writer; ``columns`` are those of the table."""
        super().__init__(order, sink, task)
        self._columns = columns
        self._attempt = order.attempt
        self._unique = uuid4().hex
        # The log generation of each partition; empty for a table of all rows, which has no versions.
        self._generations = {(topic, number): made for topic, number, made in sink.options.get("generations", ())}

    @abstractmethod
    def _folder_of(self, target: Target) -> str:
        """Return the folder where the files of a target are staged."""

    @abstractmethod
    def _with_footer(self, stored: pa.Table, rows: pa.Table, target: Target) -> pa.Table:
        """Return the rows as a file of the table holds them, with its footer; ``rows`` are those of the task."""

    def _key(self, target: Target, number: int) -> str:
        return f"{self._folder_of(target)}/{self._task}-{number:05d}-{self._unique}.parquet"

    def _create(self, target: Target, number: int, key: str, rows: pa.Table) -> StagedParquet:
        del number
        return StagedParquet(self._store, key, self._as_stored(target, rows.slice(0, 1)).schema)

    def _append(self, file: StagedFile, target: Target, rows: pa.Table) -> None:
        assert isinstance(file, StagedParquet)
        file.append(self._as_stored(target, rows), rows)

    def _as_stored(self, target: Target, measured: pa.Table) -> pa.Table:
        """Return rows with the types of the table; dead letters, which are not rows of it, unchanged."""
        rows = measured.drop_columns(HASH_COLUMNS.names)
        if target.kind is ObjectKind.DEAD_LETTER:
            return rows
        stored = rows.rename_columns(stored_names(rows.schema.names))
        if self._generations:
            stored = self._with_version(stored, self._generations_of(target.topic, rows))
        stored = conformed_table(stored, pa.schema([self._columns.field(name) for name in stored.schema.names]))
        return self._with_footer(stored, rows, target)

    def _generations_of(self, topic: str, rows: pa.Table) -> pa.ChunkedArray:
        """Return the log generation of each row."""
        made = {number: generation for (name, number), generation in self._generations.items() if name == topic}
        at = pc.index_in(rows.column("_partition"), value_set=pa.array(made, pa.int32()))
        return pa.chunked_array([pa.array(made.values(), pa.int32())]).take(at)

    def _with_version(self, rows: pa.Table, generations: pa.ChunkedArray) -> pa.Table:
        """Return rows with the columns of their version, and with the mark that says if they delete their key."""
        if IS_DELETED not in rows.schema.names:
            rows = rows.append_column(IS_DELETED, pa.repeat(pa.scalar(False), rows.num_rows))
        rows = rows.append_column(LOG_GENERATION, generations)
        return rows.append_column(ATTEMPT, pa.repeat(pa.scalar(self._attempt, pa.int32()), rows.num_rows))

    def _part(self, file: StagedFile, target: Target) -> StagedPart:
        dead = target.kind is ObjectKind.DEAD_LETTER
        return file.part(
            self._name, target.kind, target.topic,
            staged=f"{self._name}/{file.name}" if dead else file.key, folder=target.place if dead else "",
            suffix="parquet" if dead else None,
        )  # fmt: skip

    def _too_many(self, number: int, target: Target) -> SinkRefused:
        return SinkRefused(
            f"one task has made {number:,} files, and at most {self._max_objects:,} are allowed (max_objects)",
            next_step=f"nothing was published; {self.fewer_files}" + THEN_RETRY,
            topic=target.topic, **self._context,
        )  # fmt: skip

    def _translated(self, target: Target) -> AbstractContextManager[None]:
        context = {"topic": target.topic, **self._context}
        return storing(self._name, f"nothing was published; {self.unfit_row}: tidemark retry {{pipeline}}", context)
