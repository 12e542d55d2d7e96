"""Which publications are in the current snapshot of a table when no snapshot that is left says it.

Another program may have rolled the table back, committed, and expired what was before, or only compacted it and expired
the rest: both leave snapshots that name no publication. What they have of its rows tells the two apart.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final

import pyarrow as pa
from pyiceberg.table import FileScanTask, Table

from tidemark.digest import Digest, row_digest
from tidemark.sinks.iceberg.files import bounds, live_files, rows_of_tasks, tasks_of
from tidemark.sinks.iceberg.staged import attempt_of

FIRST: Final = 1  # the attempt that has none before it, so that any row of the manifest is its own


def newest_shown(table: Table, ever: Mapping[int, tuple[int, int]], kept: int | None) -> int:
    """The number of the newest publication that the current snapshot is built on; 0 when it shows none.

    ``ever`` has attempt and number of each publication by manifest, and 0 as number of what was rolled back. ``kept``
    is a snapshot with the rows of all the others, if there is one. A publication is shown by one of its files, or by
    its rows: main holds it then, and all that was published before it.
    """
    there = sorted(((number, *entry) for number, *entry in _published(ever)), reverse=True)
    carried = _carried(table) if there else set()
    now = _Rows(table, table.metadata.current_snapshot_id)
    before = None if kept is None else _Rows(table, kept)
    newest = 0
    for number, manifest_id, attempt in there:
        newest = newest or number
        shown = (manifest_id, attempt, number) in carried or _shows(now, before, manifest_id, attempt)
        if shown:
            return newest
        if shown is False:
            newest = 0
    return newest


def _published(ever: Mapping[int, tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    for manifest_id, (attempt, number) in ever.items():
        if number:
            yield number, manifest_id, attempt


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


def _shows(now: "_Rows", before: "_Rows | None", manifest_id: int, attempt: int) -> bool | None:
    """Whether the rows of a publication are there; None when it has none that could be."""
    there = now.count(manifest_id)
    if before is None:
        return there > 0 and attempt == FIRST
    if not there and not before.count(manifest_id):
        return None
    if attempt == FIRST:
        return there > 0
    return there > 0 and now.digest(manifest_id) == before.digest(manifest_id)


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
