"""Finds the publications in the current snapshot of a table when no snapshot that is left says it.

Another program may have rolled the table back, committed, and expired what was before, or only compacted it and expired
the rest: both leave snapshots that name no publication. The table's older metadata still names the parents of the
expired ones. Where it does not reach back to a publication, the rows that are left of them tell the two apart.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from tidemark.model.digest import Digest, row_digest
from tidemark.model.receipt import MALFORMED
from tidemark.paths import RecordName
from tidemark.providers.iceberg.files import bounds, live_files, rows_of_tasks, tasks_of
from tidemark.providers.iceberg.staged import attempt_of

FIRST: Final = 1  # the attempt that has none before it, so that any row of the manifest is its own


def main_with_expired(table: Table) -> Iterator[Snapshot]:
    """The snapshots of the main branch, newest first, also those that have expired, as far as the table's log of older
    metadata goes back; each file of it is read when a parent is looked for."""
    snapshots: dict[int, Snapshot] = {}
    wanted, last = table.metadata.current_snapshot_id, None
    for metadata in _newest_first(table):
        # The older word stands: some programs write that a snapshot has no parent when they expire the parent.
        snapshots |= {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
        while wanted in snapshots:
            if wanted != last:
                yield snapshots[wanted]
            last = wanted
            if snapshots[wanted].parent_snapshot_id is None:
                break
            wanted = snapshots[wanted].parent_snapshot_id


def _newest_first(table: Table) -> Iterator[TableMetadata]:
    yield table.metadata
    for entry in reversed(table.metadata.metadata_log):
        with suppress(FileNotFoundError, ValueError):  # removed, or cut, by another program
            yield FromInputFile.table_metadata(table.io.new_input(entry.metadata_file))


def newest_shown(table: Table, pipeline_name: str, ever: Mapping[int, tuple[int, int]], kept: int | None) -> int:
    """The number of the newest publication that the current snapshot is built on; 0 when it shows none.

    ``ever`` has attempt and number of each publication by manifest, and 0 as number of what was rolled back. ``kept``
    is a snapshot with the rows of all the others, if there is one. A publication is shown by one of its files, or by
    rows that no other publication had: main holds it then, and all that was published before it.
    """
    numbered = ((number, manifest_id, attempt) for manifest_id, (attempt, number) in ever.items() if number)
    published = sorted(numbered, reverse=True)
    carried = _carried(table) if published else set()
    now = _Rows(table, table.metadata.current_snapshot_id)
    before = None if kept is None else _Rows(table, kept)
    newest = 0
    for number, manifest_id, attempt in published:
        newest = newest or number
        name = RecordName(pipeline_name, manifest_id, attempt)
        shown = (manifest_id, attempt, number) in carried or _shows(table, now, before, name)
        if shown:
            return newest
        if shown is False:
            newest = 0
    return newest


def _carried(table: Table) -> set[tuple[int, int, int]]:
    """Manifest, attempt and sequence number of the files that attempts have staged and nobody has rewritten.

    A file that another program has added again, such as by picking a snapshot, has the number of that commit.
    """
    current = table.current_snapshot()
    carried = set()
    for entry in live_files(table, [current] if current else []):
        names = attempt_of(entry.data_file.file_path)
        if names is not None and entry.sequence_number is not None:
            carried.add((*names, entry.sequence_number))
    return carried


def _shows(table: Table, now: "_Rows", before: "_Rows | None", name: RecordName) -> bool | None:
    """Whether the rows of a publication are there; None when what is there says nothing of it.

    A replay may have made the rows of an attempt before the one that it replaced, so rows that are equal to its own do
    not show it; nor do some of them, as an earlier attempt may have made no others.
    """
    if not now.count(name.manifest_id):
        had = _wrote_rows(table, name) if before is None else before.count(name.manifest_id) > 0
        return False if had else None
    if name.attempt == FIRST:
        return True
    return None if before is not None and now.digest(name.manifest_id) == before.digest(name.manifest_id) else False


def _wrote_rows(table: Table, name: RecordName) -> bool:
    """Whether an attempt may have written rows; the record that it left beside the table says it."""
    try:
        with table.io.new_input(f"{table.location().rstrip('/')}/{name}").open() as file:
            record: Any = json.loads(file.read())
        return bool(record["counts"]["written"])
    except (FileNotFoundError, *MALFORMED):
        return True


class _Rows:
    """The rows of one snapshot, with the columns that the table has now."""

    def __init__(self, table: Table, snapshot_id: int | None) -> None:
        self._table = table
        self._snapshot_id = snapshot_id

    @cached_property
    def _tasks(self) -> list[tuple[FileScanTask, tuple[int, int] | None]]:
        return [(task, bounds(self._table, task.file)) for task in tasks_of(self._table, snapshot_id=self._snapshot_id)]

    def count(self, manifest_id: int) -> int:
        rows: int = self._of(manifest_id, own_column=True).num_rows
        return rows

    def digest(self, manifest_id: int) -> Digest:
        return row_digest(self._of(manifest_id))

    def _of(self, manifest_id: int, *, own_column: bool = False) -> pa.Table:
        tasks = [task for task, within in self._tasks if within is None or within[0] <= manifest_id <= within[1]]
        return rows_of_tasks(self._table, tasks, manifest_id, own_column=own_column)
