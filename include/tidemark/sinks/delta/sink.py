"""Publishes into a Delta table: one commit makes the files of an attempt the rows of its manifest.

The commit also replaces the file that says which attempt at each manifest is in the table. So rows and evidence are
there together or not at all, and what was committed is never taken back: a higher attempt replaces it. Owner, records,
dead letters and staging lie in folders of the table whose names begin with ``_``.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa

from tidemark.connections import Lookup
from tidemark.errors import SinkRefused
from tidemark.failpoints import failpoint
from tidemark.model.dataset import Dataset
from tidemark.model.findings import Finding, ok
from tidemark.model.manifest import Counts, Manifest, Publication
from tidemark.model.offsets import Range, TopicPartition
from tidemark.model.order import TransformOrder
from tidemark.model.problem import Problem
from tidemark.model.receipt import MALFORMED, ObjectKind, Receipt
from tidemark.paths import RECORDS, STAGING, RecordName, manifest_staging, staging_folder
from tidemark.sinks.base import Contents, Expected, Fence, Mark, Position, Record, Sink, Work
from tidemark.sinks.capabilities import NamedFile
from tidemark.sinks.delta.columns import arrow_columns
from tidemark.sinks.delta.published_rows import StagedAttempt
from tidemark.sinks.delta.settings import TARGET, Settings
from tidemark.sinks.delta.table import DeltaTarget
from tidemark.sinks.delta.writer import encoded_schema
from tidemark.sinks.lake_tables.audit import rows_without_evidence, unvouched_rows
from tidemark.sinks.lake_tables.ledger import LakeTableLedger
from tidemark.sinks.lake_tables.output import LakeTableOutput, is_of_other_rows
from tidemark.sinks.lake_tables.refusals import fenced_by_its_number
from tidemark.sinks.located import Located
from tidemark.sinks.object_store.folder_staging import FolderStaging
from tidemark.sinks.object_store.published_files import changed
from tidemark.sinks.object_store.record_files import newest_record_in, record_in
from tidemark.sinks.object_store.store_ledger import StoreLedger
from tidemark.sinks.table_columns import stored_columns
from tidemark.storage.base import Move, ObjectStore
from tidemark.storage.open import open_store

CLAIM: Final = f"{RECORDS}/_table.json"  # the pipeline of the table, and the identity that it got with its first owner


class DeltaLedger(LakeTableLedger, StoreLedger):
    """Owner and records are files in the location of the table. A record counts when the table says that its attempt
    is in it."""

    def __init__(self, pipeline_name: str, settings: Settings, table: DeltaTarget) -> None:
        StoreLedger.__init__(self, pipeline_name, settings.name, settings.target, table.store)
        self._location = Path(settings.location)
        self._table = table

    def is_at(self, target: str) -> bool:
        return target.startswith(TARGET) and Path(target.removeprefix(TARGET)).resolve() == self._location.resolve()

    def claim(self, database_id: str) -> None:
        if self.owner() is None:
            self.store.check()
        super().claim(database_id)
        if self._claimed() is None:
            self.store.put_if_absent(CLAIM, _claim(self.pipeline_name, uuid4().hex))
        claimed = self._claimed()
        if claimed is None or claimed["pipeline"] != self.pipeline_name:
            raise SinkRefused(
                f"the table belongs to pipeline {claimed and claimed['pipeline']}",
                next_step="give each pipeline a table of its own (sinks.delta.location), and join them in a view",
                **self._table.context(),
            )

    def _claimed(self) -> dict[str, str] | None:
        content = self.store.get(CLAIM)
        try:
            claim = json.loads(content or b"")
            return {key: str(claim[key]) for key in ("pipeline", "identity")}
        except MALFORMED:
            return None

    def position(self) -> Position | None:
        claimed = self._claimed()
        return Position(claimed["identity"], self._table.evidence().number) if claimed else None

    def attempts(self) -> Mapping[int, int]:
        return self._table.evidence().attempts

    def record_file(self, name: RecordName) -> dict[str, Any] | None:
        return record_in(self.store, name)

    def rename_pipeline(self, old: str) -> None:
        """Records have the name in their key, and the claim has it; the log keeps the name of its time."""
        super().rename_pipeline(old)
        claimed = self._claimed()
        if claimed is not None and claimed["pipeline"] == old:
            self.store.put(CLAIM, _claim(self.pipeline_name, claimed["identity"]))


def _claim(pipeline_name: str, identity: str) -> bytes:
    return json.dumps({"pipeline": pipeline_name, "identity": identity}).encode()


class DeltaStaging(FolderStaging):
    """Staging below the location of the table; executors get the columns, and need no package of Delta."""

    def __init__(self, table: DeltaTarget) -> None:
        super().__init__(table.store)
        self._table = table

    def order(self, manifest_id: int, attempt: int) -> dict[str, Any]:
        """``generations`` are those of the attempt that is prepared."""
        columns = encoded_schema(arrow_columns(self._table.loaded()))
        own = {"generations": self._table.generations} if self._table.rows.keyed else {}
        return {**super().order(manifest_id, attempt), "columns": columns, **self._table.rows.order(), **own}


class DeltaOutput(LakeTableOutput):
    """The rows of one table."""

    def __init__(self, ledger: DeltaLedger, table: DeltaTarget) -> None:
        super().__init__(ledger)
        self.table = table
        self.store = table.store
        self._columns = pa.schema([])

    def dataset(self) -> Dataset:
        return Dataset.of_folder(self.store.root)

    def exists(self) -> bool:
        return self.table.load() is not None

    def dead_letter_store(self) -> ObjectStore:
        return self.store

    def prepare(self, work: Work) -> None:
        """Checks, or creates, the table and its columns, and notes that the attempt stages."""
        self._columns = self._stored_columns(work.decode, work.transforms)
        self.table.generations = work.generations() if self.table.rows.keyed else []
        self.table.check(self._columns)
        self.store.put(f"{staging_folder(work.manifest_id, work.attempt)}/open", b"")

    def _stored_columns(self, decode: Mapping[str, Any], transforms: Sequence[TransformOrder]) -> pa.Schema:
        return stored_columns(decode, transforms, keyed=self.table.rows.keyed)

    def rehearse(self, decode: Mapping[str, Any], transforms: Sequence[TransformOrder]) -> Iterator[Finding]:
        key = f"{STAGING}/doctor-{uuid4().hex}"
        try:
            self.store.put_if_absent(key, b"probe")
            self.store.move(key, f"{key}-moved", len(b"probe"))
        finally:
            self.store.delete([key, f"{key}-moved"])
        table = self.table.check(self._stored_columns(decode, transforms), change=False)
        tried = "objects can be created once, moved and removed (tried)"
        if table is None:
            yield ok(self.name, f"{tried}; the first attempt creates the table")
        else:
            yield ok(self.name, f"table, columns and properties are what an attempt needs; {tried}")

    def wait_for_lower(self, manifest_id: int) -> None:
        """Makes the commit of a lower attempt fail, if one may be about to commit."""
        if self.store.folders(manifest_staging(manifest_id)):
            self.table.fence()

    def put(self, receipt: Receipt, record: Record, fence: Fence, mark: Mark) -> None:
        """Steps 2 to 4: put files and the record into their places, where no reader looks yet, commit, then mark.

        A restored database gives a number out again: the record of an older life is not replaced by another one.
        """
        fence()
        manifest_id, attempt = receipt.manifest_id, receipt.attempt
        name = RecordName(self.pipeline_name, manifest_id, attempt)
        before = record_in(self.store, name)
        is_there = self._ledger.recorded_attempt(manifest_id) == attempt
        if (before is None and is_there) or (before and is_of_other_rows(before, record)):
            raise fenced_by_its_number(attempt, self.table.context(manifest=manifest_id))
        if not is_there:
            dead = self.parts(receipt, ObjectKind.DEAD_LETTER)
            moves = [Move(part.staged, part.path, part.bytes) for part in dead]
            moves += self.table.rows.moves(self._publishing(receipt))
            self.store.move_each(moves, fence, lambda: None)
            self.store.put(str(name), json.dumps(record, sort_keys=True).encode())
            self.store.sync([str(name), *(move.key for move in moves)])
        failpoint("publish.mid")
        if not is_there:
            self.table.publish(self._publishing(receipt), self.about(record), fence)
        failpoint("publish.before_mark")
        mark()

    def _publishing(self, receipt: Receipt) -> StagedAttempt:
        return StagedAttempt(receipt.manifest_id, receipt.attempt, self.parts(receipt, ObjectKind.DATA))

    def has(self, receipt: Receipt) -> bool:
        """Whether the table and all dead letters are there: the rows were committed together with the evidence."""
        dead = self.parts(receipt, ObjectKind.DEAD_LETTER)
        return self.exists() and self.store.has({part.path: part.bytes for part in dead})

    def same(self, before: Receipt, now: Receipt) -> bool:
        """The dead letters must be as they were written, and the rows those of ``now``."""
        dead = self.parts(before, ObjectKind.DEAD_LETTER)
        if not self.has(before) or changed(self.store, dead):
            return False
        table = self.table.loaded()
        if not {*self._columns.names} <= {*arrow_columns(table).names}:
            return False
        return self.table.rows.same(table, self._publishing(now), self._columns)

    def counts(self, receipt: Receipt, ranges: Sequence[Range]) -> Counts:
        counts = super().counts(receipt, ranges)
        return self.table.rows.counts(self.table.evidence(), receipt, counts) if self.table.rows.keyed else counts

    def discard(self, receipt: Receipt) -> None:
        """Removes the dead letters and the record of an attempt that is not in the table. Its files of rows stay: older
        versions of the table may name them, and VACUUM removes them in its time."""
        if self._ledger.recorded_attempt(receipt.manifest_id) == receipt.attempt:
            return
        self.store.delete([str(RecordName(self.pipeline_name, receipt.manifest_id, receipt.attempt))])
        self.store.delete(part.path for part in self.parts(receipt, ObjectKind.DEAD_LETTER))

    def unvouched(self, expected: Expected) -> dict[int, dict[str, Any] | None]:
        """Rows and evidence go back together, so these are what somebody has copied into the table, or all that is left
        after somebody has removed the evidence. Where a table has a key, its rows are read in the second case only."""
        table = self.table.load()
        if table is None:
            return {}
        evidence = self.table.evidence_of(table)[0]
        if self.table.rows.keyed and evidence.number:
            return {}
        ids = sorted(expected.not_own(self.table.rows.manifests(table) - evidence.attempts.keys()))
        return {manifest_id: newest_record_in(self.store, self.pipeline_name, manifest_id) for manifest_id in ids}

    def named_files(self) -> list[NamedFile]:
        table = self.table.load()
        if table is None:
            return []
        files = sorted(self.table.rows.files(table), key=lambda file: (file.value or 0, file.path))
        return [NamedFile(f"{self.store.root}/{file.path}", file.rows or 0, file.bytes) for file in files]

    def differences(self, expected: Expected, contents: Contents, *, deep: bool) -> Iterator[Problem]:
        """Which manifests have rows a table of all rows says in its log; of one with a key it is read, when the audit
        is ``deep``."""
        unvouched = self.unvouched(expected)
        table = self.table.loaded()
        if deep or not self.table.rows.keyed:
            present = self.table.rows.manifests(table)
            contents["rows"] |= present - unvouched.keys()
            yield from rows_without_evidence(expected, self._ledger, present, "")
        yield from self.table.rows.differences(table, expected, self._ledger, deep=deep)
        yield from unvouched_rows(self._ledger, unvouched, ", and no evidence")

    def located_row(
        self, manifest: Manifest, published: Publication, at: TopicPartition, offset: int
    ) -> Located | None:
        return self.table.rows.located(self.table.loaded(), self._ledger, manifest, published, at, offset)

    def replaced_by(self, published: Publication) -> Located | None:
        return self.table.rows.replaced_by(self._ledger, published)


def open_sink(pipeline_name: str, settings: Settings, lookup: Lookup) -> Sink:
    store = open_store(settings.location, settings.store_settings(), lookup)
    table = DeltaTarget(pipeline_name, settings, store, lookup)
    ledger = DeltaLedger(pipeline_name, settings, table)
    return Sink(ledger, DeltaStaging(table), DeltaOutput(ledger, table))
