"""One snapshot of a table, and its commit, which the catalog accepts only if the table is unchanged since it was
loaded.

It does not use the transaction's own commit. That one would retry, and would remove files if it believes that it
failed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AssertTableUUID, RemoveSnapshotsUpdate, SetSnapshotRefUpdate, TableUpdate
from pyiceberg.table.update.snapshot import _MergeAppendFiles, _OverwriteFiles

from tidemark.providers.iceberg.evidence import EVIDENCE, NEWEST, main_snapshots
from tidemark.providers.iceberg.position_deletes import RowDelta
from tidemark.providers.lake_tables.evidence import CountedMerge

FOR_EVER: Final = 2**63 - 1  # milliseconds, as Iceberg counts ages


@dataclass(frozen=True)
class FileChanges:
    """The files that a snapshot adds to the table, and those that it removes.

    ``deletes`` are new delete files (by position), ``undone`` delete files that the snapshot removes. ``merge`` counts
    what became of the rows, if the table has one row per key.
    """

    put_in: Sequence[DataFile] = ()
    taken_out: Sequence[DataFile] = ()
    deletes: Sequence[DataFile] = ()
    undone: Sequence[DataFile] = ()
    merge: CountedMerge | None = None


@dataclass
class SnapshotChange:
    """One snapshot, with properties of the table. The catalog accepts it only if the table is unchanged since it was
    loaded.

    ``written`` has the sizes of the files that only this snapshot names, by their keys in the table's location.
    """

    table: Table
    summary: dict[str, str]
    properties: Mapping[str, str] = field(default_factory=dict)
    files: FileChanges = field(default_factory=FileChanges)
    written: Mapping[str, int] = field(default_factory=dict)
    snapshot_id: int = 0

    @property
    def _is_publication(self) -> bool:
        return EVIDENCE in self.summary

    def commit(self, keep_snapshots: int | None) -> None:
        """Commit the snapshot; raises ``CommitFailedException`` if the table has changed since it was loaded."""
        transaction = self.table.transaction()
        self._add_snapshot(transaction)
        if not self.properties.items() <= self.table.metadata.properties.items():
            transaction.set_properties(dict(self.properties))
        tag = (_newest(self.snapshot_id),) if self._is_publication else ()
        expired = _expired(self.table.metadata, keep_snapshots, moves_tag=self._is_publication)
        updates = (*transaction._updates, *tag, *expired)
        requirements = (*transaction._requirements, AssertTableUUID(uuid=self.table.metadata.table_uuid))
        self.table._do_commit(updates=updates, requirements=requirements)

    def _add_snapshot(self, transaction: Transaction) -> None:
        files = self.files
        summary = {**self.summary, **(files.merge.about() if files.merge else {})}
        update = transaction.update_snapshot(snapshot_properties=summary)
        snapshot: _OverwriteFiles | _MergeAppendFiles
        if files.deletes or files.undone:
            snapshot = RowDelta(transaction, self.table, summary, added=files.deletes, removed=files.undone)
        else:
            snapshot = update.overwrite() if files.taken_out else update.merge_append()
        with snapshot:
            for file in files.taken_out:
                snapshot.delete_data_file(file)
            for file in files.put_in:
                snapshot.append_data_file(file)
        self.snapshot_id = snapshot.snapshot_id

    def is_on_main(self, table: Table) -> bool:
        return any(snapshot.snapshot_id == self.snapshot_id for snapshot in main_snapshots(table.metadata))


def _newest(snapshot_id: int) -> TableUpdate:
    """Return the update that moves our tag. It sets the tag's age, because a property of the table may set a shorter
    one."""
    return SetSnapshotRefUpdate(
        ref_name=NEWEST, type="tag", snapshot_id=snapshot_id,
        max_ref_age_ms=FOR_EVER, max_snapshot_age_ms=None, min_snapshots_to_keep=None,
    )  # fmt: skip


def _expired(metadata: TableMetadata, keep: int | None, *, moves_tag: bool) -> tuple[TableUpdate, ...]:
    """Return the update that removes old snapshots of main, so that ``keep`` remain; not those that a tag or another
    branch needs.

    Our own tag needs only its snapshot, unless it moves to the one that this commit adds.
    """
    if keep is None:
        return ()
    parents = {snapshot.snapshot_id: snapshot.parent_snapshot_id for snapshot in metadata.snapshots}
    needed: set[int] = set()
    for name, ref in metadata.refs.items():
        at: int | None = ref.snapshot_id if name not in ("main", NEWEST) else None
        while at is not None and at not in needed:
            needed.add(at)
            at = parents.get(at)
    if NEWEST in metadata.refs and not moves_tag:
        needed.add(metadata.refs[NEWEST].snapshot_id)
    newest_first = [snapshot.snapshot_id for snapshot in main_snapshots(metadata)]
    behind = newest_first[keep - 1 :]  # one more comes with this commit
    old = [snapshot_id for snapshot_id in behind if snapshot_id not in needed]
    return (RemoveSnapshotsUpdate(snapshot_ids=old),) if old else ()
