"""Publishes into an Iceberg table: one commit makes the staged files of an attempt the rows of its manifest.

The commit removes the rows of an earlier attempt, and names the file that says which attempt at each manifest is now in
the table. So it adds rows and evidence together or not at all. What was committed is never taken back: a higher attempt
replaces it. Evidence, dead letters and records are files in folders of the table's location whose names begin with
``_``.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

from tidemark.connections.lookup import Lookup
from tidemark.model.dataset import Dataset
from tidemark.model.findings import Finding, ok, warning
from tidemark.model.order import TransformOrder
from tidemark.model.problem import Problem
from tidemark.paths import STAGING, staging_folder
from tidemark.providers.iceberg.file_io import try_write
from tidemark.providers.iceberg.files import manifests_in
from tidemark.providers.iceberg.settings import Settings
from tidemark.providers.iceberg.staged import data_folder, root_of
from tidemark.providers.iceberg.table import IcebergTarget
from tidemark.providers.lake_tables.audit import differences_of_lost_files, problems_of_orphans, rows_without_evidence
from tidemark.providers.lake_tables.ledger import LakeTableLedger
from tidemark.providers.lake_tables.output import LakeTableOutput
from tidemark.providers.lake_tables.table_rows import StagedAttempt
from tidemark.sinks.base import Contents, Expected, Fence, Owner, Position, Sink, Staging
from tidemark.sinks.object_store.folder_staging import FolderStaging
from tidemark.sinks.object_store.owner_file import note_target_in, registered_targets_in
from tidemark.sinks.object_store.record_files import rename_records
from tidemark.storage.base import ObjectStore

MANY_SNAPSHOTS = 1_000  # with more snapshots a commit takes seconds


class IcebergLedger(LakeTableLedger):
    """A file in the table's location says which attempts are in the table; their records are files there too.

    A property of the namespace says who owns the table.
    """

    table: IcebergTarget

    def __init__(self, pipeline_name: str, settings: Settings, table: IcebergTarget) -> None:
        super().__init__(pipeline_name, settings.name, settings.target)
        self.table = table

    def owner(self) -> Owner | None:
        claimed = self.table.claimed()
        return claimed.owner if claimed else None

    def claim(self, database_id: str) -> None:
        self.table.claim(Owner(database_id))

    def hand_over(self, owner: Owner) -> None:
        self.table.hand_over(owner)

    def position(self) -> Position | None:
        claimed = self.table.claimed()
        if claimed is None:
            return None
        return Position(claimed.identity, *self.table.position(), self.table.table_id(), self.table.column_ids())

    def registered_targets(self) -> set[str]:
        """Return the targets noted in the table's location. Another catalog may name this table too, or have another
        table there."""
        store = self.table.store_if_known()
        return registered_targets_in(store) if store else set()

    def note_target(self) -> None:
        store = self.table.store_if_known()
        if store is not None:
            note_target_in(store, self.target)

    def rename_pipeline(self, old: str) -> None:
        """Change the name in the keys of records and in the claim. Snapshots keep the old name."""
        store = self.table.store_if_known()
        if store is not None:
            rename_records(store, old, self.pipeline_name)
        self.table.take_over(old)


class IcebergStaging(Staging):
    """Staging in the location of the table. Files of rows are staged at their final paths; a snapshot that names them
    publishes them."""

    def __init__(self, table: IcebergTarget) -> None:
        self._table = table

    def places(self) -> list[ObjectStore]:
        return self._table.places()

    def order(self, manifest_id: int, attempt: int) -> dict[str, Any]:
        del manifest_id, attempt  # they are in the order
        table = self._table.loaded()
        return {
            "root": root_of(table.location()),
            "schema": table.schema().model_dump_json(),
            "spec": table.spec().model_dump_json(),
            **({"generations": self._table.generations} if self._table.keyed else {}),
        }

    def manifests(self) -> list[int]:
        store = self._table.store_if_known()
        return FolderStaging(store).manifests() if store else []

    def attempts(self, manifest_id: int) -> list[int]:
        store = self._table.store_if_known()
        return FolderStaging(store).attempts(manifest_id) if store else []

    def clear(self, manifest_id: int, attempt: int) -> None:
        """Remove the staged files of an attempt, except those that a snapshot of any branch or tag names.

        Programs that expire snapshots remove the latter. A process, perhaps paused, may be about to commit the others.
        So a snapshot that makes such a commit fail is committed before any file is removed.
        """
        table = self._table.load()
        if table is None:
            return
        store, folder = self._table.store_of(table), data_folder(manifest_id, attempt)
        staged = {key for key, _ in store.list(folder)}
        named = self._table.named(table, manifest_id, attempt, staged)
        if staged - named:
            if self._table.evidence_of(table).attempts.get(manifest_id, 0) < attempt:
                self._table.fence()
                table = self._table.loaded()
                named = self._table.named(table, manifest_id, attempt, staged)
            if named:
                store.delete(staged - named)
            else:
                store.delete_folder(folder)
        store.delete_folder(staging_folder(manifest_id, attempt))


class IcebergOutput(LakeTableOutput):
    """The rows of one table."""

    table: IcebergTarget

    def dataset(self) -> Dataset:
        """Return the location of the table, which Spark also uses as the name of an Iceberg table."""
        return Dataset.of_folder(self.table.loaded().location())

    def rehearse(self, decode: Mapping[str, Any], transforms: Sequence[TransformOrder]) -> Iterator[Finding]:
        table = self.table.check(self._stored_columns(decode, transforms), change=False)
        if table is None:
            tried = self.table.try_warehouse()
            yield ok(self.name, f"the catalog answers{tried}; the first attempt creates the table")
            return
        with self.table.reading():
            try_write(table.io, table.location())  # through PyIceberg's file interface, as a commit writes
        store, key = self.table.store_of(table), f"{STAGING}/doctor-{uuid4().hex}"
        try:
            store.put(key, b"probe")
        finally:
            store.delete([key])
        yield ok(self.name, "table, columns and partitions are what an attempt needs; files can be written (tried)")
        if len(table.metadata.snapshots) > MANY_SNAPSHOTS:
            yield warning(
                self.name,
                f"the table has {len(table.metadata.snapshots):,} snapshots, and each makes every commit slower",
                "expire old snapshots, or let keep_snapshots do it",
            )

    def rows_in_place(self, staged: StagedAttempt) -> list[str]:
        return [part.staged for part in staged.parts]

    def commit(self, staged: StagedAttempt, about: Mapping[str, str], fence: Fence, *, again: bool) -> None:
        """Publish the attempt. ``again`` is not needed, because the table says whether it was committed before."""
        del again
        self.table.publish(staged, about, fence)

    def differences(self, expected: Expected, contents: Contents, *, deep: bool) -> Iterator[Problem]:
        """Yield the differences. ``deep`` reads every row, one manifest in memory at a time, unless files of the table
        are lost."""
        orphans = self.orphaned_manifests(expected)
        with self.table.reading() as table:
            lost = self.table.rows.lost_files(table, self.table.store_of(table))
            yield from differences_of_lost_files(expected, self._ledger, lost, self._ledger.evidence())
            deep = deep and not lost
            if deep:
                present = manifests_in(table)
                contents["rows"] |= present - orphans.keys()
                yield from rows_without_evidence(expected, self._ledger, present)
            if not lost:
                yield from self.table.rows.differences(table, expected, self._ledger, deep=deep)
        yield from problems_of_orphans(self._ledger, orphans)


def open_sink(pipeline_name: str, settings: Settings, lookup: Lookup) -> Sink:
    table = IcebergTarget(pipeline_name, settings, lookup)
    ledger = IcebergLedger(pipeline_name, settings, table)
    return Sink(ledger, IcebergStaging(table), IcebergOutput(ledger))
