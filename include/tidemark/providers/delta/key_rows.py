"""A table with one row per key, its newest version: staged rows are merged bucket by bucket.

All versions of a key lie in one bucket, which is a partition of the table. A merge reads key and version of the rows in
each bucket for which the attempt has staged rows. Then it writes that bucket again: the rows that stay, and the staged
rows that win. A bucket in which no staged row wins is left unchanged. One bucket at a time is merged, as a stream.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from tidemark.model.manifest import Manifest, Publication
from tidemark.model.offsets import TopicPartition
from tidemark.model.positions import positions
from tidemark.model.problem import Problem
from tidemark.providers.delta.buckets import BUCKET
from tidemark.providers.delta.columns import arrow_columns
from tidemark.providers.delta.files import (
    TableFile,
    add_action,
    footer_of,
    refuse_changed,
    rows_at,
    rows_of_files,
)
from tidemark.providers.delta.published_rows import Action, PublishedRows, TableChanges
from tidemark.providers.delta.settings import Settings
from tidemark.providers.delta.writer import bucket_of
from tidemark.providers.lake_tables.audit import differences_of_current_rows, too_few_current_rows
from tidemark.providers.lake_tables.evidence import CountedMerge
from tidemark.providers.lake_tables.lost_files import ANY_MANIFEST
from tidemark.providers.lake_tables.merge import KeyedRows, Merge, Merged
from tidemark.providers.lake_tables.properties import KEY
from tidemark.providers.lake_tables.row_origins import RowOrigins
from tidemark.providers.lake_tables.staged_parquet import StagedParquet
from tidemark.providers.lake_tables.table_rows import StagedAttempt
from tidemark.providers.tables.column_names import IS_DELETED, MANIFEST_ID, TOPIC_PARTITION
from tidemark.providers.tables.columns import ATTEMPT
from tidemark.providers.tables.located import newest_row
from tidemark.sinks.base import Expected, Ledger
from tidemark.sinks.located import Located
from tidemark.sinks.staging.held_rows import GROUP_ROWS, TASK_BYTES
from tidemark.storage.base import ObjectStore

BUCKETS: Final = "tidemark.buckets"  # the table's property with the number of buckets
_OF_ATTEMPTS: Final = pa.schema([(MANIFEST_ID, pa.int64()), (ATTEMPT, pa.int32())])


@dataclass
class _Bucket:
    """The files of one bucket: those in the table, and those that are staged."""

    number: int
    current: list[TableFile] = field(default_factory=list)
    staged: list[TableFile] = field(default_factory=list)


class KeyRows(PublishedRows):
    partition = BUCKET
    evidence_value = -1  # the numbers of buckets begin with 0

    def __init__(self, store: ObjectStore, settings: Settings) -> None:
        super().__init__(store)
        self._key = settings.key_columns
        self._order_by = settings.order_by
        self._buckets = settings.buckets
        self._max_file_bytes = settings.max_file_bytes
        self._needed = Merge.needed(settings.key_columns, settings.order_by)

    def manifests_of(self, file: TableFile) -> tuple[int, int]:
        """Return that any manifest may have rows in the file, because a merge rewrites a bucket with rows of all
        earlier manifests."""
        del file
        return ANY_MANIFEST

    def manifests(self, table: DeltaTable) -> set[int]:
        """Return the manifests with rows in the table; reads one column of all rows."""
        columns = pa.schema([(MANIFEST_ID, pa.int64())])
        ids: set[int] = set()
        for batch in rows_of_files(self.store, self.files(table), columns, self.partition):
            ids |= set(pc.unique(batch.column(0)).to_pylist())
        return ids - {None}

    def columns(self, stored: pa.Schema) -> pa.Schema:
        return stored.append(pa.field(BUCKET, pa.int32()))

    def properties(self) -> dict[str, str]:
        return {KEY: json.dumps(list(self._key)), BUCKETS: str(self._buckets)}

    def order(self) -> dict[str, Any]:
        return {"key": list(self._key), "buckets": self._buckets}

    # the merge

    def changes(self, table: DeltaTable, staged: StagedAttempt, context: Mapping[str, Any]) -> TableChanges:
        del context
        columns = arrow_columns(table)
        actions: list[Action] = []
        written: dict[str, int] = {}
        superseded = stale = left = 0
        buckets = self._touched(table, staged)
        for part in staged.parts:
            refuse_changed(columns, footer_of(self.store, part.staged, part.bytes).schema.to_arrow_schema())
        for bucket in buckets.values():
            with self._read(bucket, columns) as merge:
                merged = merge.merged()
            superseded += merged.superseded
            stale += merged.stale
            if merged.kept.num_rows or merged.replaced.num_rows:
                stored = columns.remove(columns.get_field_index(BUCKET))
                rewrite = _Rewrite(self.store, bucket, merged, stored, staged, self._max_file_bytes)
                actions += [*(file.removed(self.partition) for file in bucket.current), *rewrite.write()]
                written |= rewrite.written
                left += rewrite.left
            elif staged.attempt > 1:
                left += self._count_kept_in(bucket.current, staged)
        if staged.attempt > 1:
            others = [file for file in self.files(table) if file.value not in buckets and file.path not in staged.lost]
            left += self._count_kept_in(others, staged)
        return TableChanges(actions, written, list(written), CountedMerge(superseded, stale, left))

    def _touched(self, table: DeltaTable, staged: StagedAttempt) -> dict[int, _Bucket]:
        """Return the buckets with staged rows, by number."""
        buckets: dict[int, _Bucket] = {}
        for part in staged.parts:
            number = bucket_of(part.staged)
            bucket = buckets.setdefault(number, _Bucket(number))
            bucket.staged.append(TableFile(part.staged, part.bytes, part.rows, number))
        for file in self.files(table):
            if file.value in buckets and file.path not in staged.lost:
                buckets[file.value].current.append(file)
        return dict(sorted(buckets.items()))

    @contextmanager
    def _read(self, bucket: _Bucket, columns: pa.Schema) -> Iterator[Merge]:
        """Open a merge that has read the rows of a bucket."""
        needed = pa.schema([columns.field(name) for name in self._needed])
        with Merge(needed, self._key, self._order_by) as merge:
            merge.stage(self._keyed_rows(bucket.staged, needed))
            merge.touch(self._keyed_rows(bucket.current, needed))
            yield merge

    def _keyed_rows(self, files: Sequence[TableFile], needed: pa.Schema) -> Iterator[KeyedRows]:
        for number, file in enumerate(files):
            first = 0
            for batch in rows_of_files(self.store, [file], needed, self.partition):
                yield KeyedRows(number, pc.add(positions(batch.num_rows), first), batch)
                first += batch.num_rows

    def _count_kept_in(self, files: Iterable[TableFile], staged: StagedAttempt) -> int:
        """Count the rows of earlier attempts at the manifest."""
        batches = rows_of_files(self.store, files, _OF_ATTEMPTS, self.partition)
        return sum(_earlier(batch, staged) for batch in batches)

    # questions about the table

    def same(self, table: DeltaTable, now: StagedAttempt, columns: pa.Schema) -> bool:
        """Return whether the table has every key that is staged now, in this version or a newer one."""
        del columns
        of_table = arrow_columns(table)
        for bucket in self._touched(table, now).values():
            with self._read(bucket, of_table) as merge:
                if merge.lacking():
                    return False
        return True

    def differences(self, table: DeltaTable, expected: Expected, ledger: Ledger, *, deep: bool) -> Iterator[Problem]:
        files = self.files(table)
        counted = [file.rows for file in files]
        rows = None if None in counted else sum(count or 0 for count in counted)
        if deep:
            needed = RowOrigins.needed(self._key)
            of_table = arrow_columns(table)
            columns = pa.schema([of_table.field(name) for name in needed])
            batches = rows_of_files(self.store, files, columns, self.partition)
            current = RowOrigins.of(columns, self._key, batches)
            rows = current.rows
            yield from differences_of_current_rows(expected, ledger, current)
        if rows is not None:
            yield from too_few_current_rows(expected, rows)

    def located(
        self, table: DeltaTable, ledger: Ledger, manifest: Manifest, published: Publication, at: TopicPartition,
        offset: int,
    ) -> Located | None:  # fmt: skip
        del published
        place = {MANIFEST_ID: manifest.id, "_topic": at.topic, TOPIC_PARTITION: at.partition, "_offset": offset}
        of_table = arrow_columns(table)
        names = dict.fromkeys([*place, *self._key, ATTEMPT, IS_DELETED])
        columns = pa.schema([of_table.field(name) for name in names])
        rows = rows_at(self.store, self.files(table), place, columns, self.partition)
        return newest_row(ledger, self._key, rows)


@dataclass
class _Rewrite:
    """Writes the rows of a bucket that remain after a merge into new files, as a stream.

    ``written`` has the sizes of these files. ``left`` counts the rows of earlier attempts in them.
    """

    store: ObjectStore
    bucket: _Bucket
    merged: Merged
    columns: pa.Schema
    staged: StagedAttempt
    max_file_bytes: int
    written: dict[str, int] = field(default_factory=dict)
    left: int = 0

    def write(self) -> list[Action]:
        """Return the log's actions for the new files."""
        file: StagedParquet | None = None
        try:
            for rows in _row_groups(self._remaining_rows()):
                file = file or self._file()
                file.append(rows)
                if file.bytes > self.max_file_bytes:
                    self._finish(file)
                    file = None
            if file is not None:
                self._finish(file)
        except BaseException:
            if file is not None:
                file.abandon()
            raise
        self.store.sync(self.written)
        values: dict[str, str | None] = {BUCKET: str(self.bucket.number)}
        return [
            add_action(path, size, values, footer_of(self.store, path, size)) for path, size in self.written.items()
        ]

    def _file(self) -> StagedParquet:
        made_for = f"{self.staged.manifest_id:010d}-{self.staged.attempt:04d}"
        return StagedParquet(
            self.store, f"{BUCKET}={self.bucket.number}/{made_for}-{uuid4().hex}.parquet", self.columns
        )

    def _finish(self, file: StagedParquet) -> None:
        _, size = file.finish()
        self.written[file.key] = size

    def _remaining_rows(self) -> Iterator[pa.RecordBatch]:
        for number, file in enumerate(self.bucket.current):
            for batch in self._filtered(file, _positions_in_file(self.merged.replaced, number), stay=False):
                self.left += _earlier(batch, self.staged)
                yield batch
        for number, file in enumerate(self.bucket.staged):
            yield from self._filtered(file, _positions_in_file(self.merged.kept, number), stay=True)

    def _filtered(self, file: TableFile, places: pa.Array, *, stay: bool) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file at these positions if ``stay``, else all other rows."""
        first = 0
        for batch in rows_of_files(self.store, [file], self.columns, BUCKET):
            inside = pc.is_in(pc.add(positions(batch.num_rows), first), value_set=_between(places, first, batch))
            yield batch.filter(inside if stay else pc.invert(inside))
            first += batch.num_rows


def _between(places: pa.Array, first: int, batch: pa.RecordBatch) -> pa.Array:
    """Return the positions that lie in a batch."""
    return places.filter(pc.and_(pc.greater_equal(places, first), pc.less(places, first + batch.num_rows)))


def _positions_in_file(places: pa.Table, number: int) -> pa.Array:
    return places.filter(pc.equal(places.column("file"), number)).column("position").combine_chunks()


def _earlier(batch: pa.RecordBatch, staged: StagedAttempt) -> int:
    """Return how many rows of a batch belong to earlier attempts at the manifest."""
    of_manifest = pc.equal(batch.column(MANIFEST_ID), staged.manifest_id)
    earlier = pc.and_(of_manifest, pc.less(batch.column(ATTEMPT), staged.attempt))
    return int(pc.sum(pc.cast(earlier, pa.int64())).as_py() or 0)


def _row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Join batches into tables, each as large as a row group of a file may be."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= GROUP_ROWS or size >= TASK_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)
