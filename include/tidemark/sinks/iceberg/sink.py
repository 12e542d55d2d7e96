"""Publishes into an Iceberg table: one commit makes the staged files of an attempt the rows of its manifest.

The commit takes the rows of an earlier attempt out, and says in a property of the table which attempt is in it now. So
rows and evidence are there together or not at all, and what was committed is never taken back: a higher attempt
replaces it. Dead letters and records are files in folders of the table's location whose names begin with ``_``.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

import pyarrow as pa

from tidemark.connections import Lookup
from tidemark.errors import SinkRefused
from tidemark.failpoints import failpoint
from tidemark.model.dataset import Dataset
from tidemark.model.findings import Finding, ok, warning
from tidemark.model.manifest import Counts, Manifest, Publication
from tidemark.model.offsets import Range, TopicPartition
from tidemark.model.order import TransformOrder
from tidemark.model.problem import Problem
from tidemark.model.receipt import ObjectKind, Receipt
from tidemark.paths import STAGING, RecordName, staging_folder
from tidemark.sinks.base import (
    Contents,
    Expected,
    Fence,
    Mark,
    Owner,
    Position,
    Record,
    Sink,
    Staging,
    Work,
)
from tidemark.sinks.capabilities import NamedFile
from tidemark.sinks.iceberg.file_io import try_write
from tidemark.sinks.iceberg.files import manifests_in
from tidemark.sinks.iceberg.settings import Settings
from tidemark.sinks.iceberg.staged import data_folder, root_of
from tidemark.sinks.iceberg.table import IcebergTarget
from tidemark.sinks.lake_tables.audit import rows_without_evidence, unvouched_rows
from tidemark.sinks.lake_tables.ledger import LakeTableLedger
from tidemark.sinks.lake_tables.output import LakeTableOutput, is_of_other_rows
from tidemark.sinks.lake_tables.refusals import fenced_by_its_number
from tidemark.sinks.located import Located
from tidemark.sinks.object_store.folder_staging import staged_attempts, staged_manifests
from tidemark.sinks.object_store.owner_file import note_target_in, noted_targets_in
from tidemark.sinks.object_store.published_files import changed
from tidemark.sinks.object_store.record_files import newest_record_in, record_in, rename_records
from tidemark.sinks.table_columns import stored_columns
from tidemark.storage.base import Move, ObjectStore
from tidemark.storage.open import open_store

MANY_SNAPSHOTS = 1_000  # from here on a commit takes seconds


class IcebergPlace:
    """The table of a sink, and the store of its location; the three faces share it."""

    def __init__(self, pipeline_name: str, settings: Settings, lookup: Lookup) -> None:
        self.target = settings.target
        self.table = IcebergTarget(pipeline_name, settings, lookup)
        # Of the attempt that is prepared, when rows have a version: topic, partition and log generation of each range.
        self.generations: list[tuple[str, int, int]] = []
        self._settings = settings
        self._lookup = lookup

    def store(self) -> ObjectStore | None:
        """The location of the table; None when there is no table."""
        table = self.table.load()
        return None if table is None else self.store_at(table.location())

    def existing_store(self) -> ObjectStore:
        """As ``store``; raises ``FileNotFoundError`` without a table."""
        store = self.store()
        if store is None:
            raise FileNotFoundError(f"{self.target} does not exist")
        return store

    def store_at(self, location: str) -> ObjectStore:
        root = root_of(location)
        if "://" in root and not root.startswith("s3://"):
            raise SinkRefused(
                f"the table lies at {location}, and tables are written in folders and in s3:// only",
                next_step="create it in another location",
                **self.table.context(),
            )
        return open_store(root, self._settings.store_settings(), self._lookup)


class IcebergLedger(LakeTableLedger):
    """A property of the table says which attempts are in it; their records are files in its location. A property of
    the namespace says who owns it."""

    def __init__(self, pipeline_name: str, name: str, place: IcebergPlace) -> None:
        super().__init__(pipeline_name, name, place.target)
        self._place = place
        self._table = place.table

    def owner(self) -> Owner | None:
        claimed = self._table.claimed()
        return claimed.owner if claimed else None

    def claim(self, database_id: str) -> None:
        self._table.claim(Owner(database_id))

    def hand_over(self, owner: Owner) -> None:
        self._table.hand_over(owner)

    def position(self) -> Position | None:
        claimed = self._table.claimed()
        return Position(claimed.identity, self._table.evidence().number) if claimed else None

    def noted_targets(self) -> set[str]:
        """In the location of the table: another catalog may name it too, or have another table there."""
        store = self._place.store()
        return noted_targets_in(store) if store else set()

    def note_target(self) -> None:
        store = self._place.store()
        if store is not None:
            note_target_in(store, self.target)

    def attempts(self) -> Mapping[int, int]:
        return self._table.evidence().attempts

    def record_file(self, name: RecordName) -> dict[str, Any] | None:
        store = self._place.store()
        return record_in(store, name) if store else None

    def rename_pipeline(self, old: str) -> None:
        """Records have the name in their key, and the claim has it; snapshots keep the name of their time."""
        store = self._place.store()
        if store is not None:
            rename_records(store, old, self.pipeline_name)
        self._table.take_over(old)


class IcebergStaging(Staging):
    """Staging in the location of the table. Files of rows are staged where they stay, once a snapshot names them."""

    def __init__(self, place: IcebergPlace) -> None:
        self._place = place
        self._table = place.table

    def order(self, manifest_id: int, attempt: int) -> dict[str, Any]:
        del manifest_id, attempt  # they are in the order
        table = self._table.loaded()
        return {
            "root": root_of(table.location()),
            "schema": table.schema().model_dump_json(),
            "spec": table.spec().model_dump_json(),
            **({"generations": self._place.generations} if self._table.rows.keyed else {}),
        }

    def manifests(self) -> list[int]:
        store = self._place.store()
        return staged_manifests(store) if store else []

    def attempts(self, manifest_id: int) -> list[int]:
        store = self._place.store()
        return staged_attempts(store, manifest_id) if store else []

    def clear(self, manifest_id: int, attempt: int) -> None:
        """Files that a snapshot names stay, of whatever branch or tag: programs that expire snapshots remove them.

        A process may be about to commit the others, paused or not. So no file is removed before the table has a
        snapshot that makes such a commit fail.
        """
        table = self._table.load()
        if table is None:
            return
        store, folder = self._place.store_at(table.location()), data_folder(manifest_id, attempt)
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

    def __init__(self, place: IcebergPlace, ledger: IcebergLedger) -> None:
        super().__init__(ledger)
        self.place = place
        self.table = place.table
        self._columns = pa.schema([])

    def dataset(self) -> Dataset:
        """By its location, as Spark names an Iceberg table."""
        return Dataset.of_folder(self.table.loaded().location())

    def exists(self) -> bool:
        return self.table.load() is not None

    def prepare(self, work: Work) -> None:
        """Checks, or creates, the table and its columns, and notes that the attempt stages."""
        self._columns = stored_columns(work.decode, work.transforms, keyed=self.table.rows.keyed)
        self.place.generations = work.generations() if self.table.rows.keyed else []
        table = self.table.check(self._columns)
        assert table is not None, "it was created"
        self.place.store_at(table.location()).put(_opened(work.manifest_id, work.attempt), b"")

    def rehearse(self, decode: Mapping[str, Any], transforms: Sequence[TransformOrder]) -> Iterator[Finding]:
        columns = stored_columns(decode, transforms, keyed=self.table.rows.keyed)
        table = self.table.check(columns, change=False)
        if table is None:
            tried = self.table.try_warehouse()
            yield ok(self.name, f"the catalog answers{tried}; the first attempt creates the table")
            return
        with self.table.reading():
            try_write(table.io, table.location())  # by the client of PyIceberg
        store, key = self.place.store_at(table.location()), f"{STAGING}/doctor-{uuid4().hex}"
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

    def unvouched(self, expected: Expected) -> dict[int, dict[str, Any] | None]:
        """Looks for rows only when the table has known a manifest that this database does not know, or may have."""
        table = self.table.load()
        if table is None:
            return {}
        evidence = self.table.evidence_of(table)
        suspects = expected.not_own(evidence.ever.keys() - evidence.attempts.keys())
        if not suspects and evidence.is_sure_above(expected.highest()):
            return {}
        with self.table.reading() as reading:
            had = {manifest_id for manifest_id in manifests_in(reading) if not evidence.never_had(manifest_id)}
        store, unknown = self.place.store_at(table.location()), sorted(expected.not_own(had - evidence.attempts.keys()))
        return {manifest_id: newest_record_in(store, self.pipeline_name, manifest_id) for manifest_id in unknown}

    def has(self, receipt: Receipt) -> bool:
        """Whether the table and all dead letters are there: the rows were committed together with the evidence."""
        store = self.place.store()
        if store is None:
            return False
        dead = self.parts(receipt, ObjectKind.DEAD_LETTER)
        return store.has({object_.path: object_.bytes for object_ in dead})

    def named_files(self) -> list[NamedFile]:
        if self.table.load() is None:
            return []
        with self.table.reading() as table:
            return self.table.rows.named_files(table)

    def same(self, before: Receipt, now: Receipt) -> bool:
        """The dead letters must be as they were written, and the rows those of ``now``."""
        dead = self.parts(before, ObjectKind.DEAD_LETTER)
        if not self.has(before) or changed(self.place.existing_store(), dead):
            return False
        with self.table.reading(manifest=now.manifest_id) as table:
            if not {field.name for field in self._columns} <= {field.name for field in table.schema().fields}:
                return False
            return self.table.rows.same(table, now, self.parts(now, ObjectKind.DATA), self._columns)

    def counts(self, receipt: Receipt, ranges: Sequence[Range]) -> Counts:
        counts = super().counts(receipt, ranges)
        table = self.table.load() if self.table.rows.keyed else None
        return counts if table is None else self.table.rows.counts(table, receipt, counts)

    def wait_for_lower(self, manifest_id: int) -> None:
        """Makes the commit of a lower attempt fail, if one may be about to commit."""
        store = self.place.store()
        if store is not None and staged_attempts(store, manifest_id):
            self.table.fence()

    def put(self, receipt: Receipt, record: Record, fence: Fence, mark: Mark) -> None:
        """Steps 2 to 4: put dead letters and the record into their places, commit, then mark.

        A restored database gives a number out again: the record of an older life is not replaced by another one.
        """
        fence()
        manifest_id, attempt = receipt.manifest_id, receipt.attempt
        rows, dead = self.parts(receipt, ObjectKind.DATA), self.parts(receipt, ObjectKind.DEAD_LETTER)
        store = self.place.store_at(self.table.loaded().location())
        name = RecordName(self.pipeline_name, manifest_id, attempt)
        before = record_in(store, name)
        if before and is_of_other_rows(before, record):
            raise fenced_by_its_number(attempt, self.table.context(manifest=manifest_id))
        if self._ledger.recorded_attempt(manifest_id) != attempt:
            moves = [Move(object_.staged, object_.path, object_.bytes) for object_ in dead]
            store.move_each(moves, fence, lambda: None)
            store.put(str(name), json.dumps(record, sort_keys=True).encode())
            store.sync([str(name), *(object_.path for object_ in dead), *(object_.staged for object_ in rows)])
        failpoint("publish.mid")
        self.table.publish(
            manifest_id,
            attempt,
            {object_.staged: object_.bytes for object_ in rows},
            self.about(record),
            fence,
        )
        failpoint("publish.before_mark")
        mark()

    def discard(self, receipt: Receipt) -> None:
        """Removes the dead letters and the record of an attempt that is not in the table; its rows are staging."""
        store = self.place.store()
        if store is None or self._ledger.recorded_attempt(receipt.manifest_id) == receipt.attempt:
            return
        store.delete([str(RecordName(self.pipeline_name, receipt.manifest_id, receipt.attempt))])
        store.delete(object_.path for object_ in self.parts(receipt, ObjectKind.DEAD_LETTER))

    def differences(self, expected: Expected, contents: Contents, *, deep: bool) -> Iterator[Problem]:
        """``deep`` reads every row, one manifest in memory at a time."""
        unvouched = self.unvouched(expected)
        if deep:
            with self.table.reading() as table:
                present = manifests_in(table)
                contents["rows"] |= present - unvouched.keys()
                yield from rows_without_evidence(expected, self._ledger, present, ", or came back with a rollback")
                yield from self.table.rows.differences(table, expected, self._ledger)
        yield from unvouched_rows(self._ledger, unvouched, ": another program rolled it back")

    def located_row(
        self, manifest: Manifest, published: Publication, at: TopicPartition, offset: int
    ) -> Located | None:
        with self.table.reading(manifest=manifest.id) as table:
            return self.table.rows.located(table, self._ledger, manifest, published, at, offset)

    def replaced_by(self, published: Publication) -> Located | None:
        return self.table.rows.replaced_by(self._ledger, published)

    def dead_letter_store(self) -> ObjectStore:
        return self.place.existing_store()


def _opened(manifest_id: int, attempt: int) -> str:
    """A file that says that an attempt may have staged."""
    return f"{staging_folder(manifest_id, attempt)}/open"


def open_sink(pipeline_name: str, settings: Settings, lookup: Lookup) -> Sink:
    place = IcebergPlace(pipeline_name, settings, lookup)
    ledger = IcebergLedger(pipeline_name, settings.name, place)
    return Sink(ledger, IcebergStaging(place), IcebergOutput(place, ledger))
