"""A table with one row per key, its newest version: staged rows are merged, and the rows that they replace are deleted.

The rows in the table hold their versions, so a merge needs no memory of its own: it reads key and version of the rows
that may have the same key. Rows that lose, in the table or staged, are deleted by position in the commit that adds the
files. If every row of a file has lost, a staged file is not added, and a file of the table is removed.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table
from pyiceberg.utils.concurrent import ExecutorFactory

from tidemark.errors import SinkRefused, TidemarkError
from tidemark.model.manifest import Manifest, Publication
from tidemark.model.offsets import TopicPartition
from tidemark.model.positions import positions
from tidemark.model.problem import Problem
from tidemark.providers.iceberg.change import FileChanges
from tidemark.providers.iceberg.files import lost_files, rows_at, staged_files, tasks_of, tasks_of_manifest
from tidemark.providers.iceberg.position_deletes import (
    DeletedRows,
    deleted_positions,
    own_deletes,
    refuse_equality_deletes,
    write_deletes,
)
from tidemark.providers.iceberg.reading import batches_of
from tidemark.providers.iceberg.staged import data_folder
from tidemark.providers.lake_tables.audit import differences_of_current_rows, too_few_current_rows
from tidemark.providers.lake_tables.evidence import CountedMerge
from tidemark.providers.lake_tables.lost_files import LostFile
from tidemark.providers.lake_tables.merge import KeyedRows, Merge
from tidemark.providers.lake_tables.properties import KEY
from tidemark.providers.lake_tables.row_origins import RowOrigins
from tidemark.providers.lake_tables.table_rows import StagedAttempt, TableRows
from tidemark.providers.tables.column_names import IS_DELETED, MANIFEST_ID
from tidemark.providers.tables.columns import ATTEMPT
from tidemark.providers.tables.located import newest_row
from tidemark.sinks.base import Expected, Ledger
from tidemark.sinks.capabilities import NamedFile
from tidemark.sinks.located import Located
from tidemark.storage.base import ObjectStore

R = TypeVar("R")
ROWS_AT_ONCE = 1_000_000  # rows whose keys and versions are in memory at once, if files are smaller
NO_POSITIONS = pa.array([], pa.int64())


@dataclass
class _Losers:
    """The rows that a merge removes from the table; staged files that are not added are not listed here."""

    taken_out: list[DataFile] = field(default_factory=list)
    deleted: list[DeletedRows] = field(default_factory=list)
    undone: list[DataFile] = field(default_factory=list)
    positions: dict[str, pa.Array] = field(default_factory=dict)  # positions of the replaced rows, by path of the file


class CurrentRows(TableRows[Table, FileChanges]):
    def __init__(self, key: Sequence[str], order_by: str | None) -> None:
        self._key = key
        self._order_by = order_by

    def properties(self) -> dict[str, str]:
        return {KEY: json.dumps(list(self._key))}

    # the merge

    def changes(self, table: Table, staged: StagedAttempt, context: Mapping[str, Any]) -> FileChanges:
        """Return the changes of a merge. It reads key and version of all rows in the partitions for which the attempt
        has staged rows."""
        refuse_equality_deletes(table, context)
        files = staged_files(table, staged.parts)
        current = [task for task in _tasks_beside(table, files) if task.file.file_path not in staged.lost]
        with Merge(self._columns(table), self._key, self._order_by) as merge:
            dead = self._read(table, merge, files, current)
            merged = merge.merged()
        losers = _losers(table, current, dead, _positions_by_file(merged.replaced))
        put_in = []
        dropped = _positions_by_file(merged.dropped)
        for number, file in enumerate(files):
            lost = dropped.get(number, NO_POSITIONS)
            if len(lost) < file.record_count:
                put_in.append(file)
                losers.deleted += [DeletedRows(file, lost)] if len(lost) else []
        counts = CountedMerge(merged.superseded, merged.stale, _count_kept(table, staged, losers.positions))
        folder = data_folder(staged.manifest_id, staged.attempt)
        deletes = write_deletes(table, folder, losers.deleted)
        return FileChanges(put_in, losers.taken_out, deletes, losers.undone, counts)

    def withdraw(self, table: Table, changes: FileChanges) -> None:
        for file in changes.deletes:
            with suppress(OSError, TidemarkError):  # a file that stays does no harm: no snapshot names it
                table.io.delete(file.file_path)

    def _read(
        self, table: Table, merge: Merge, staged: Sequence[DataFile], current: Sequence[FileScanTask]
    ) -> dict[int, pa.Array]:
        """Give a merge the rows of these files.

        Return, for each file of the table with staged keys, the positions of its deleted rows.
        """
        merge.stage(self._rows(table, staged))
        touched = merge.touch(self._rows(table, [task.file for task in current]))
        numbers = pc.unique(touched.column("file")).to_pylist()
        tasks = [current[number] for number in numbers]
        deleted = ExecutorFactory.get_or_create().map(
            lambda task: deleted_positions(table, task, task.delete_files), tasks
        )
        dead = dict(zip(numbers, deleted, strict=True))
        merge.drop_deleted(_places(dead))
        return dead

    def _columns(self, table: Table) -> pa.Schema:
        needed = Merge.needed(self._key, self._order_by)
        return schema_to_pyarrow(table.schema().select(*needed), include_field_ids=False)

    def _rows(self, table: Table, files: Sequence[DataFile]) -> Iterator[KeyedRows]:
        needed = Merge.needed(self._key, self._order_by)
        number = 0
        for group in _groups(files):
            for batches in _each(lambda file: batches_of(table, file, needed), group):
                for first, batch in batches:
                    yield KeyedRows(number, pc.add(positions(batch.num_rows), first), batch)
                number += 1

    # questions about the table

    def lost_files(self, table: Table, store: ObjectStore, manifest_id: int | None = None) -> list[LostFile[DataFile]]:
        return lost_files(table, store, manifest_id)

    def same(self, table: Table, now: StagedAttempt, columns: pa.Schema) -> bool:
        """Return whether the table has every key that is staged now, in this version or a newer one."""
        del columns
        staged = staged_files(table, now.parts)
        with Merge(self._columns(table), self._key, self._order_by) as merge:
            self._read(table, merge, staged, _tasks_beside(table, staged))
            return merge.lacking() == 0

    def named_files(self, table: Table) -> list[NamedFile]:
        raise SinkRefused(
            f"the table {'.'.join(table.name())} has one row for each key, but its files also hold rows that were "
            "replaced",
            next_step="read the table with an engine",
        )

    def differences(self, table: Table, expected: Expected, ledger: Ledger, *, deep: bool) -> Iterator[Problem]:
        current = None
        if deep:
            current = self._row_origins(table)
            yield from differences_of_current_rows(expected, ledger, current)
        rows = current.rows if current else sum(task.file.record_count for task in tasks_of(table))
        yield from too_few_current_rows(expected, rows)

    def _row_origins(self, table: Table) -> RowOrigins:
        needed = RowOrigins.needed(self._key)
        columns = schema_to_pyarrow(table.schema().select(*needed), include_field_ids=False)
        rows = table.scan(selected_fields=tuple(needed)).to_arrow_batch_reader()
        return RowOrigins.of(columns, self._key, rows)

    def located(
        self, table: Table, ledger: Ledger, manifest: Manifest, published: Publication, at: TopicPartition, offset: int
    ) -> Located | None:
        del published
        rows = rows_at(table, manifest.id, at, offset, [*self._key, ATTEMPT, IS_DELETED])
        return newest_row(ledger, self._key, rows)


def _tasks_beside(table: Table, staged: Sequence[DataFile]) -> list[FileScanTask]:
    """Return the files that may have rows with a staged key: those of the same partitions, or of another
    partitioning."""
    partitions = {file.partition for file in staged}
    spec_id = table.metadata.default_spec_id
    return [task for task in tasks_of(table) if task.file.spec_id != spec_id or task.file.partition in partitions]


def _groups(files: Sequence[DataFile]) -> Iterator[list[DataFile]]:
    """Yield the files in their order, in groups that are read at the same time: a group has few rows, or is a single
    file."""
    group: list[DataFile] = []
    for file in files:
        if group and sum(other.record_count for other in group) + file.record_count > ROWS_AT_ONCE:
            yield group
            group = []
        group.append(file)
    if group:
        yield group


def _each(read: Callable[[DataFile], Iterable[R]], files: Sequence[DataFile]) -> Iterator[Iterable[R]]:
    """Yield the result of ``read`` for each file; reads several at the same time, because a store may be slow to
    answer."""
    if len(files) == 1:
        yield read(files[0])
    else:
        yield from ExecutorFactory.get_or_create().map(lambda file: list(read(file)), files)


def _places(by_file: Mapping[int, pa.Array]) -> pa.Table:
    files = [pa.repeat(number, len(rows)).cast(pa.int32()) for number, rows in by_file.items()]
    return pa.table(
        {"file": pa.chunked_array(files, pa.int32()), "position": pa.chunked_array(by_file.values(), pa.int64())}
    )


def _positions_by_file(places: pa.Table) -> dict[int, pa.Array]:
    """Return the positions in each file, ascending; ``places`` is sorted by file."""
    position, first = places.column("position").combine_chunks(), 0
    by_file = {}
    for group in pc.value_counts(places.column("file")).to_pylist():  # keeps the order of first occurrence
        by_file[group["values"]] = position.slice(first, group["counts"])
        first += group["counts"]
    return by_file


def _losers(
    table: Table, current: Sequence[FileScanTask], dead: Mapping[int, pa.Array], replaced: Mapping[int, pa.Array]
) -> _Losers:
    """Return what becomes of the files with replaced rows; ``dead`` has the rows of each file that were deleted
    before."""
    losers = _Losers()
    for number, lost in replaced.items():
        task = current[number]
        own = own_deletes(task)
        losers.undone += own
        losers.positions[task.file.file_path] = lost
        if len(_union(dead[number], lost)) == task.file.record_count:
            losers.taken_out.append(task.file)
            continue
        before = dead[number] if len(own) == len(task.delete_files) else deleted_positions(table, task, own)
        losers.deleted.append(DeletedRows(task.file, _union(before, lost)))
    return losers


def _union(first: pa.Array, second: pa.Array) -> pa.Array:
    both = pc.unique(pa.concat_arrays([first, second]))
    return both.take(pc.sort_indices(both))


def _count_kept(table: Table, staged: StagedAttempt, replaced: Mapping[str, pa.Array]) -> int:
    """Count the rows of earlier attempts that stay; ``replaced`` has the positions of those that do not, by file."""
    if staged.is_first:
        return 0
    count = 0
    for task in tasks_of_manifest(table, staged.manifest_id):
        path = task.file.file_path
        if path in staged.lost:
            continue
        deleted = _union(deleted_positions(table, task, task.delete_files), replaced.get(path, NO_POSITIONS))
        for first, batch in batches_of(table, task.file, [MANIFEST_ID, ATTEMPT]):
            of_manifest = pc.equal(batch.column(MANIFEST_ID), staged.manifest_id)
            earlier = pc.and_(of_manifest, pc.less(batch.column(ATTEMPT), staged.attempt))
            places = pc.add(pc.indices_nonzero(pc.fill_null(earlier, fill_value=False)).cast(pa.int64()), first)
            count += len(places) - (pc.sum(pc.is_in(places, value_set=deleted)).as_py() or 0)
    return count
