"""The output of a lake table: what its commits contain, and where the row of a record is."""

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from tidemark.errors import THEN_RETRY, SinkRefused
from tidemark.failpoints import failpoint
from tidemark.model.manifest import Counts, Manifest, Publication
from tidemark.model.offsets import Range, TopicPartition, range_from
from tidemark.model.order import TransformOrder
from tidemark.model.receipt import ObjectKind, Receipt
from tidemark.model.storable import Storable
from tidemark.paths import RECORDS, RecordName, manifest_staging, staging_folder
from tidemark.providers.lake_tables.evidence import CountedMerge
from tidemark.providers.lake_tables.evolution import required_paths
from tidemark.providers.lake_tables.ledger import LakeTableLedger
from tidemark.providers.lake_tables.refusals import fenced_by_its_number, no_table
from tidemark.providers.lake_tables.table_columns import stored_columns
from tidemark.providers.lake_tables.table_rows import StagedAttempt
from tidemark.providers.tables.located import replaced_row
from tidemark.providers.tables.required import with_required
from tidemark.sinks.base import Expected, Fence, Mark, Record, Work, WriteMode
from tidemark.sinks.capabilities import KeepsDeadLetterFiles, MayBeRolledBack, NamedFile, NamesFiles
from tidemark.sinks.located import Located, RecordStatus
from tidemark.sinks.object_store.published_files import changed, holds
from tidemark.sinks.object_store.record_files import record_in
from tidemark.storage.base import Move, ObjectStore
from tidemark.transforms.sequence import columns_after

DIGEST: Final = "tidemark.digest"


class LakeTableOutput(NamesFiles, MayBeRolledBack, KeepsDeadLetterFiles):
    """The rows of one table. Rows and evidence are committed together, and a higher attempt replaces both."""

    write_mode = WriteMode.UPSERT

    def __init__(self, ledger: LakeTableLedger) -> None:
        super().__init__(ledger.pipeline_name, ledger.name)
        self.table = ledger.table
        self._ledger = ledger
        self._columns = pa.schema([])

    def exists(self) -> bool:
        return self.table.load() is not None

    def storable(self, declared: Storable) -> Storable:
        """Declare the columns that may not be null, as the table defines them."""
        table = self.table.load()
        paths = () if table is None else tuple(required_paths(self.table.columns_of(table)))
        return with_required(declared, self.name, paths)

    def dead_letter_store(self) -> ObjectStore:
        store = self.table.store_if_known()
        if store is None:
            raise FileNotFoundError(f"{self._ledger.target} does not exist")
        return store

    def prepare(self, work: Work) -> None:
        """Check, or create, the table and its columns, and note that the attempt may stage."""
        self.know(work)
        table = self.table.check(self._columns)
        self._refuse_null_of_deletions(table, work)
        store = self.table.store_of(table)
        store.put(f"{staging_folder(work.manifest_id, work.attempt)}/open", b"")

    def know(self, work: Work) -> None:
        self._columns = self._stored_columns(work.decode, work.transforms)
        self.table.generations = work.generations() if self.table.keyed else []
        self.written_columns = self._columns.names

    def _refuse_null_of_deletions(self, table: Any, work: Work) -> None:
        """Raise ``SinkRefused`` for a required column that a deletion does not fill; a deletion fills only the columns
        of its key."""
        columns = columns_after(work.decode, work.transforms)
        emptied = {*columns.schema.names} - {*columns.of_tombstones} if columns.of_tombstones else set()
        for path in required_paths(self.table.columns_of(table)):
            if len(path) == 1 and path[0] in emptied:
                raise SinkRefused(
                    f"column {path[0]} of the table may not be null, and a tombstone has no value for it",
                    next_step=f"let it be null: ALTER TABLE .. ALTER COLUMN {path[0]} DROP NOT NULL" + THEN_RETRY,
                    **self.table.context(),
                )

    def _stored_columns(self, decode: Mapping[str, Any], transforms: Sequence[TransformOrder]) -> pa.Schema:
        return stored_columns(decode, transforms, keyed=self.table.keyed)

    def put(self, receipt: Receipt, record: Record, fence: Fence, mark: Mark) -> None:
        """Do the steps 2 to 4: put dead letters, rows and the record at their final places, commit, then set the mark.

        No reader looks at these places before the commit. A restored database may reuse an attempt number: a record
        that another attempt wrote under it is not overwritten.
        """
        fence()
        manifest_id, attempt = receipt.manifest_id, receipt.attempt
        store = self.table.store_if_known()
        if store is None:
            raise no_table(self.table.context())
        name = RecordName(self.pipeline_name, manifest_id, attempt)
        before = record_in(store, name)
        if before and before.get("database") == record["database"] and before.get("digest") != record["digest"]:
            raise fenced_by_its_number(attempt, self.table.context(manifest=manifest_id))
        already_committed = self._ledger.recorded_attempt(manifest_id) == attempt
        staged = self.staged_rows(receipt)
        if not already_committed:
            dead = self.parts(receipt, ObjectKind.DEAD_LETTER)
            moves = [Move(part.staged, part.path, part.bytes) for part in dead] + self.table.rows.moves(staged)
            store.move_each(moves, fence, lambda: None)
            store.put(str(name), json.dumps(record, sort_keys=True).encode())
            store.sync([str(name), *(move.key for move in moves), *self.rows_in_place(staged)])
        failpoint("publish.mid")
        self.commit(staged, self.about(record), fence, again=already_committed and before is not None)
        failpoint("publish.before_mark")
        mark()

    def staged_rows(self, receipt: Receipt) -> StagedAttempt:
        return StagedAttempt(receipt.manifest_id, receipt.attempt, self.parts(receipt, ObjectKind.DATA))

    def rows_in_place(self, staged: StagedAttempt) -> list[str]:
        """Return the keys of the files with rows that were staged at their final paths."""
        del staged
        return []

    @abstractmethod
    def commit(self, staged: StagedAttempt, about: Mapping[str, str], fence: Fence, *, again: bool) -> None:
        """Make the staged rows those of the manifest, in one commit with the properties ``about``.

        ``again`` is true if the table has the rows of the attempt already, and its record lies beside the table.

        Raises ``Fenced`` if the table has the rows of a higher attempt, or of another attempt with the same number, and
        what ``fence`` raises.
        """

    def named_files(self) -> list[NamedFile]:
        if not self.exists():
            return []
        with self.table.reading() as table:
            return self.table.rows.named_files(table)

    def wait_for_lower(self, manifest_id: int) -> None:
        """Make the commit of a lower attempt fail, if one may be about to commit."""
        store = self.table.store_if_known()
        if store is not None and store.folders(manifest_staging(manifest_id)):
            self.table.fence()

    def has(self, receipt: Receipt) -> bool:
        """Return whether all dead letters exist, and all files that may have rows of the manifest.

        The rows were committed together with the evidence, so files alone need a check.
        """
        if not self.exists():
            return False
        with self.table.reading(manifest=receipt.manifest_id) as table:
            store, dead = self.table.store_of(table), self.parts(receipt, ObjectKind.DEAD_LETTER)
            has_dead_letters = store.has({part.path: part.bytes for part in dead})
            return has_dead_letters and not self.table.rows.lost_files(table, store, receipt.manifest_id)

    def same(self, before: Receipt, now: Receipt) -> bool:
        """Return whether the dead letters are as they were written, and the table has the rows of ``now``."""
        dead = self.parts(before, ObjectKind.DEAD_LETTER)
        if not self.has(before) or changed(self.dead_letter_store(), dead):
            return False
        with self.table.reading(manifest=now.manifest_id) as table:
            if not {*self._columns.names} <= {field.name for field in table.schema().fields}:
                return False
            return self.table.rows.same(table, self.staged_rows(now), self._columns)

    def counts(self, receipt: Receipt, ranges: Sequence[Range]) -> Counts:
        counts = super().counts(receipt, ranges)
        merge = self.merge_of(receipt) if self.table.keyed else None
        return replace(counts, superseded=merge.superseded, stale=merge.stale) if merge else counts

    def merge_of(self, receipt: Receipt) -> CountedMerge | None:
        """Return the row counts of an attempt in a table with a key; None if the table has no counts for it."""
        evidence = self.table.evidence()
        already_committed = evidence.attempts.get(receipt.manifest_id) == receipt.attempt
        return evidence.merges.get(receipt.manifest_id) if already_committed else None

    def orphaned_manifests(self, expected: Expected) -> dict[int, dict[str, Any] | None]:
        table = self.table.load()
        if table is None:
            return {}
        store, ids = self.table.store_of(table), sorted(expected.not_own(self.table.manifests_without_evidence(table)))
        return {manifest_id: _newest_record(store, self.pipeline_name, manifest_id) for manifest_id in ids}

    def discard(self, receipt: Receipt) -> None:
        """Remove the dead letters of an attempt that is not in the table.

        Its record stays, because the rows may return with an older version of the table. Its files of rows belong to
        staging, or older versions may name them.
        """
        store = self.table.store_if_known()
        if store is None or self._ledger.recorded_attempt(receipt.manifest_id) == receipt.attempt:
            return
        store.delete(part.path for part in self.parts(receipt, ObjectKind.DEAD_LETTER))

    def locate(
        self, manifest: Manifest, published: Publication, receipt: Receipt, at: TopicPartition, offset: int
    ) -> Located:
        with self.table.reading(manifest=manifest.id) as table:
            row = self.table.rows.located(table, self._ledger, manifest, published, at, offset)
        located = row or self._located_dead_letter(published, receipt, at, offset)
        if located is not None:
            return located
        if any(partition.gap_count > len(partition.gaps) for partition in receipt.partitions):
            what = "the table does not hold it, and the manifest has more gaps than its receipt lists"
            return Located(self.name, published.attempt, RecordStatus.NO_RECORD, what)
        if self.table.keyed:
            return replaced_row(self._ledger, published)
        what = f"the table does not hold it; next: tidemark audit {self.pipeline_name} --deep"
        return Located(self.name, published.attempt, RecordStatus.MISSING, what)

    def _located_dead_letter(
        self, published: Publication, receipt: Receipt, at: TopicPartition, offset: int
    ) -> Located | None:
        """Return the file that holds a record as a dead letter; None if no file does."""
        store = self.dead_letter_store()
        files = self.parts(receipt, ObjectKind.DEAD_LETTER)
        file = next((file for file in files if holds(store, file, at, offset)), None)
        if file is None:
            return None
        place = f"{store.root}/{file.path}"
        return Located(self.name, published.attempt, RecordStatus.HELD, "a dead letter", ObjectKind.DEAD_LETTER, place)

    def about(self, record: Record) -> dict[str, str]:
        """Return the properties of the commit, for readers without access to the manifest database."""
        ranges = [range_from(part) for part in record["ranges"]]
        places = [f"{covered.at.topic}-{covered.at.partition}[{covered.start},{covered.end})" for covered in ranges]
        return {
            "tidemark.pipeline": self.pipeline_name,
            "tidemark.database": record["database"],
            DIGEST: record["digest"],
            "tidemark.ranges": " ".join(places),
            "tidemark.counts": json.dumps(record["counts"]),
        }


def _newest_record(store: ObjectStore, pipeline_name: str, manifest_id: int) -> dict[str, Any] | None:
    """Return the record of the highest attempt at a manifest, whether it is published or not."""
    folder = f"{RECORDS}/{pipeline_name}"
    names = [RecordName.parse(key) for key in store.names(folder, beginning=f"{manifest_id:010d}.")]
    newest = max((name for name in names if name), key=lambda name: name.attempt, default=None)
    return record_in(store, newest) if newest else None
