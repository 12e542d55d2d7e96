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
from tidemark.database.client import ManifestDatabase
from tidemark.dataset import Dataset
from tidemark.digest import Digest, row_digest
from tidemark.errors import SinkRefused
from tidemark.failpoints import failpoint
from tidemark.findings import Finding, ok, warning
from tidemark.manifest import Manifest, Publication
from tidemark.offsets import Range, TopicPartition
from tidemark.order import TransformOrder
from tidemark.paths import STAGING, RecordName, staging_folder
from tidemark.problem import Problem
from tidemark.receipt import ObjectKind, PublishedObject, Receipt
from tidemark.sinks.base import Fence, Mark, Owner, Position, WriteMode
from tidemark.sinks.capabilities import MayBeRolledBack, NamedFile, NamesFiles
from tidemark.sinks.dead_letters import DeadLetter
from tidemark.sinks.iceberg.audit import differences_of_iceberg
from tidemark.sinks.iceberg.columns import names_of_rows, stored_columns
from tidemark.sinks.iceberg.evidence import DIGEST
from tidemark.sinks.iceberg.file_io import try_write
from tidemark.sinks.iceberg.files import has_row, manifests_in, named_files, rows_of_manifest
from tidemark.sinks.iceberg.settings import Settings
from tidemark.sinks.iceberg.staged import data_folder, root_of
from tidemark.sinks.iceberg.table import IcebergTarget
from tidemark.sinks.located import Located, Standing
from tidemark.sinks.stored.dead_letter_files import are_as_written, dead_letters_in, file_with_offset
from tidemark.sinks.stored.owner_file import note_target_in, noted_targets_in
from tidemark.sinks.stored.record_files import newest_record_in, record_in, rename_records
from tidemark.sinks.stored.staging_folders import staged_attempts, staged_manifests
from tidemark.storage.base import Move, ObjectStore
from tidemark.storage.open import open_store

MANY_SNAPSHOTS = 1_000  # from here on a commit takes seconds


class IcebergSink(NamesFiles, MayBeRolledBack):
    """One table of one pipeline."""

    write_mode = WriteMode.UPSERT

    def __init__(self, pipeline_name: str, settings: Settings, lookup: Lookup) -> None:
        super().__init__(pipeline_name, settings.name)
        self.target = settings.target
        self.table = IcebergTarget(pipeline_name, settings, lookup)
        self._settings = settings
        self._lookup = lookup
        self._columns = pa.schema([])

    def dataset(self) -> Dataset:
        """By its location, as Spark names an Iceberg table."""
        return Dataset.of_folder(self.table.loaded().location())

    def claim(self, database_id: str) -> None:
        self.table.claim(Owner(database_id))
        self.refuse_foreign(database_id)

    def owner(self) -> Owner | None:
        claimed = self.table.claimed()
        return claimed.owner if claimed else None

    def hand_over(self, owner: Owner) -> None:
        self.table.hand_over(owner)

    def position(self) -> Position | None:
        claimed = self.table.claimed()
        return Position(claimed.identity, self.table.evidence().number) if claimed else None

    def noted_targets(self) -> set[str]:
        """In the location of the table: another catalog may name it too, or have another table there."""
        store = self.store()
        return noted_targets_in(store) if store else set()

    def note_target(self) -> None:
        store = self.store()
        if store is not None:
            note_target_in(store, self.target)

    def store(self) -> ObjectStore | None:
        """The location of the table; None when there is no table."""
        table = self.table.load()
        return None if table is None else self._store(table.location())

    def _store(self, location: str) -> ObjectStore:
        root = root_of(location)
        if "://" in root and not root.startswith("s3://"):
            raise SinkRefused(
                f"the table lies at {location}, and tables are written in folders and in s3:// only",
                next_step="create it in another location",
                **self.table.context(),
            )
        return open_store(root, self._settings.store_settings(), self._lookup)

    def order(self, manifest_id: int, attempt: int) -> dict[str, Any]:
        del manifest_id, attempt  # they are in the order
        table = self.table.loaded()
        return {
            "root": root_of(table.location()),
            "schema": table.schema().model_dump_json(),
            "spec": table.spec().model_dump_json(),
        }

    def prepare(
        self,
        manifest_id: int,
        attempt: int,
        decode: Mapping[str, Any],
        transforms: Sequence[TransformOrder],
        database: ManifestDatabase,
    ) -> None:
        """Checks, or creates, the table and its columns, and notes that the attempt stages."""
        del database
        self._columns = stored_columns(decode, transforms)
        table = self.table.check(self._columns)
        assert table is not None, "it was created"
        self._store(table.location()).put(_opened(manifest_id, attempt), b"")

    def rehearse(self, decode: Mapping[str, Any], transforms: Sequence[TransformOrder]) -> Iterator[Finding]:
        columns = stored_columns(decode, transforms)
        table = self.table.check(columns, change=False)
        if table is None:
            tried = self.table.try_warehouse()
            yield ok(self.name, f"the catalog answers{tried}; the first attempt creates the table")
            return
        with self.table.reading():
            try_write(table.io, table.location())  # by the client of PyIceberg
        store, key = self._store(table.location()), f"{STAGING}/doctor-{uuid4().hex}"
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

    def records(self, *, own: bool = True, above: int = 0) -> list[RecordName]:
        del own  # a table has the manifests of one pipeline
        attempts = self.table.evidence().attempts.items()
        return [RecordName(self.pipeline_name, manifest_id, attempt) for manifest_id, attempt in attempts
                if manifest_id > above]  # fmt: skip

    def recorded_attempt(self, manifest_id: int) -> int | None:
        return self.table.evidence().attempts.get(manifest_id)

    def unvouched(self, database: ManifestDatabase) -> dict[int, dict[str, Any] | None]:
        """Looks for rows only when the table has known a manifest that this database does not know, or may have."""
        table = self.table.load()
        if table is None:
            return {}
        evidence = self.table.evidence_of(table)
        suspects = self._unknown(database, evidence.ever.keys() - evidence.attempts.keys())
        if not suspects and evidence.is_sure_above(database.highest_manifest(self.pipeline_name)):
            return {}
        with self.table.reading() as reading:
            had = {manifest_id for manifest_id in manifests_in(reading) if not evidence.never_had(manifest_id)}
        store, unknown = self._store(table.location()), sorted(self._unknown(database, had - evidence.attempts.keys()))
        return {manifest_id: newest_record_in(store, self.pipeline_name, manifest_id) for manifest_id in unknown}

    def _unknown(self, database: ManifestDatabase, manifest_ids: set[int]) -> set[int]:
        if not manifest_ids:
            return manifest_ids
        known = database.manifests(self.pipeline_name, ids=sorted(manifest_ids))
        return manifest_ids - {manifest.id for manifest in known}

    def record(self, name: RecordName) -> dict[str, Any] | None:
        if self.recorded_attempt(name.manifest_id) != name.attempt:
            return None  # the file of an attempt that did not commit, or has been replaced
        store = self.store()
        return record_in(store, name) if store else None

    def has_objects(self, receipt: Receipt) -> bool:
        """Whether the table and all dead letters are there: the rows were committed together with the evidence."""
        store = self.store()
        if store is None:
            return False
        dead = self._of(receipt, ObjectKind.DEAD_LETTER)
        return store.has({object_.path: object_.bytes for object_ in dead})

    def named_files(self) -> list[NamedFile]:
        if self.table.load() is None:
            return []
        with self.table.reading() as table:
            return named_files(table)

    def same_output(self, before: Receipt, now: Receipt) -> bool:
        """Reads all rows of the manifest: they must be those of ``now``, and the dead letters as they were written."""
        dead = self._of(before, ObjectKind.DEAD_LETTER)
        if not self.holds(before) or not are_as_written(self._existing_store(), dead):
            return False
        expected = sum((Digest.parse(part.digest) for part in self._of(now, ObjectKind.DATA)), Digest.zero())
        with self.table.reading(manifest=now.manifest_id) as table:
            if not {field.name for field in self._columns} <= {field.name for field in table.schema().fields}:
                return False
            rows = rows_of_manifest(table, now.manifest_id, self._columns.names)
        try:
            rows = rows.select(self._columns.names).cast(self._columns)
            return row_digest(rows.rename_columns(names_of_rows(self._columns.names))) == expected
        except pa.ArrowException:
            return False

    def wait_for_lower(self, manifest_id: int) -> None:
        """Makes the commit of a lower attempt fail, if one may be about to commit."""
        if self.staged_attempts(manifest_id):
            self.table.fence()

    def put(self, receipt: Receipt, ranges: Sequence[Range], database_id: str, fence: Fence, mark: Mark) -> None:
        """Steps 2 to 4: put dead letters and the record into their places, commit, then mark.

        A restored database gives a number out again: the record of an older life is not replaced by another one.
        """
        fence()
        self.refuse_foreign(database_id)
        manifest_id, attempt = receipt.manifest_id, receipt.attempt
        rows, dead = self._of(receipt, ObjectKind.DATA), self._of(receipt, ObjectKind.DEAD_LETTER)
        store = self._store(self.table.loaded().location())
        name = RecordName(self.pipeline_name, manifest_id, attempt)
        content = self.content_of_record(receipt, ranges, database_id)
        before = record_in(store, name)
        if before and before.get("database") == database_id and before.get("digest") != content["digest"]:
            raise self.table.fenced_by_its_number(manifest_id, attempt)
        if self.recorded_attempt(manifest_id) != attempt:
            moves = [Move(object_.staged, object_.path, object_.bytes) for object_ in dead]
            store.move_each(moves, fence, lambda: None)
            store.put(str(name), json.dumps(content, sort_keys=True).encode())
            store.sync([str(name), *(object_.path for object_ in dead), *(object_.staged for object_ in rows)])
        failpoint("publish.mid")
        self.table.publish(
            manifest_id,
            attempt,
            {object_.staged: object_.bytes for object_ in rows},
            self._summary(content, ranges),
            fence,
        )
        failpoint("publish.before_mark")
        mark()

    def _summary(self, content: Mapping[str, Any], ranges: Sequence[Range]) -> dict[str, str]:
        """What the snapshot says of a record to people and programs that have no manifest database."""
        places = [f"{covered.at.topic}-{covered.at.partition}[{covered.start},{covered.end})" for covered in ranges]
        return {
            "tidemark.pipeline": self.pipeline_name,
            "tidemark.database": content["database"],
            DIGEST: content["digest"],
            "tidemark.ranges": " ".join(places),
            "tidemark.counts": json.dumps(content["counts"]),
        }

    def discard(self, receipt: Receipt) -> None:
        """Removes the dead letters and the record of an attempt that is not in the table; its rows are staging."""
        store = self.store()
        if store is None or self.recorded_attempt(receipt.manifest_id) == receipt.attempt:
            return
        store.delete([str(RecordName(self.pipeline_name, receipt.manifest_id, receipt.attempt))])
        store.delete(object_.path for object_ in self._of(receipt, ObjectKind.DEAD_LETTER))

    def rename_pipeline(self, old: str) -> None:
        """Records have the name in their key, and the claim has it; snapshots keep the name of their time."""
        store = self.store()
        if store is not None:
            rename_records(store, old, self.pipeline_name)
        self.table.take_over(old)

    def staged_manifests(self) -> list[int]:
        store = self.store()
        return staged_manifests(store) if store else []

    def staged_attempts(self, manifest_id: int) -> list[int]:
        store = self.store()
        return staged_attempts(store, manifest_id) if store else []

    def clear_staging(self, manifest_id: int, attempt: int) -> None:
        """Files that a snapshot names stay, of whatever branch or tag: programs that expire snapshots remove them.

        A process may be about to commit the others, paused or not. So no file is removed before the table has a
        snapshot that makes such a commit fail.
        """
        table = self.table.load()
        if table is None:
            return
        store, folder = self._store(table.location()), data_folder(manifest_id, attempt)
        staged = {key for key, _ in store.list(folder)}
        named = self.table.named(table, manifest_id, attempt, staged)
        if staged - named:
            if self.table.evidence_of(table).attempts.get(manifest_id, 0) < attempt:
                self.table.fence()
                table = self.table.loaded()
                named = self.table.named(table, manifest_id, attempt, staged)
            if named:
                store.delete(staged - named)
            else:
                store.delete_folder(folder)
        store.delete_folder(staging_folder(manifest_id, attempt))

    def audit(self, database: ManifestDatabase, manifests: Sequence[Manifest], *, deep: bool) -> Iterator[Problem]:
        return differences_of_iceberg(database, self, self.table, self.store(), manifests, deep=deep)

    def locate(
        self, manifest: Manifest, published: Publication, receipt: Receipt, at: TopicPartition, offset: int
    ) -> Located:
        attempt = published.attempt
        with self.table.reading(manifest=manifest.id) as table:
            if has_row(table, manifest.id, at, offset):
                return Located(self.name, attempt, Standing.HELD, "a row", ObjectKind.DATA, self.target)
            root = root_of(table.location())
        dead = file_with_offset(self._existing_store(), self._of(receipt, ObjectKind.DEAD_LETTER), at, offset)
        if dead is not None:
            place = f"{root}/{dead.path}"
            return Located(self.name, attempt, Standing.HELD, "a dead letter", ObjectKind.DEAD_LETTER, place)
        if any(partition.gap_count > len(partition.gaps) for partition in receipt.partitions):
            what = "the table does not hold it, and the manifest has more gaps than its receipt lists"
            return Located(self.name, attempt, Standing.NO_RECORD, what)
        what = f"the table does not hold it; next: tidemark audit {self.pipeline_name} --deep"
        return Located(self.name, attempt, Standing.MISSING, what)

    def dead_letters(self, receipt: Receipt, *, values: bool) -> Iterator[DeadLetter]:
        files = self._of(receipt, ObjectKind.DEAD_LETTER)
        yield from dead_letters_in(self._existing_store(), files, values=values)

    def _existing_store(self) -> ObjectStore:
        store = self.store()
        if store is None:
            raise FileNotFoundError(f"{self.target} does not exist")
        return store

    def _of(self, receipt: Receipt, kind: ObjectKind) -> list[PublishedObject]:
        return [part for part in receipt.objects_of(self.name) if part.kind is kind]


def _opened(manifest_id: int, attempt: int) -> str:
    """A file that says that an attempt may have staged."""
    return f"{staging_folder(manifest_id, attempt)}/open"


def open_sink(pipeline_name: str, settings: Settings, lookup: Lookup) -> IcebergSink:
    return IcebergSink(pipeline_name, settings, lookup)
