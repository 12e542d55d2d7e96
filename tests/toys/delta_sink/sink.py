"""Publishing into a Delta table: one commit makes the files of an attempt the rows of its manifest.

The table has a partition for each manifest, so a commit takes out what an earlier attempt put there. It also sets the
application transaction of the manifest to the attempt: rows and evidence are there together or not at all. deltalake
must not try again by itself, since the commit of another process may have put a higher attempt there meanwhile. So a
refused commit begins again: the table is loaded, and the attempt compared. The toy keeps no position: that a person
restored an older version shows in an audit alone.

Owner, records, dead letters and staging lie in folders of the table whose names begin with ``_``.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction

from tests.toys.delta_sink.settings import Settings
from tests.toys.delta_sink.writer import PARTITION
from tidemark.connections import Lookup
from tidemark.errors import Fenced, Unavailable
from tidemark.failpoints import failpoint
from tidemark.model.dataset import Dataset
from tidemark.model.findings import Finding, ok
from tidemark.model.manifest import Manifest, Publication
from tidemark.model.offsets import TopicPartition
from tidemark.model.order import TransformOrder
from tidemark.model.problem import Problem
from tidemark.model.receipt import ObjectKind, Receipt
from tidemark.paths import RecordName
from tidemark.processing.processor import METADATA
from tidemark.sinks.base import Contents, Expected, Fence, Mark, Record, Sink, Work, WriteMode
from tidemark.sinks.capabilities import KeepsDeadLetterFiles
from tidemark.sinks.located import Located, RecordStatus
from tidemark.sinks.object_store.dead_letter_files import are_as_written, file_with_offset
from tidemark.sinks.object_store.folder_staging import FolderStaging
from tidemark.sinks.object_store.store_ledger import StoreLedger
from tidemark.storage.base import Move, ObjectStore
from tidemark.storage.open import open_store
from tidemark.transforms.sequence import columns_after

TRIES = 20  # of a commit, while others commit to the same table


def load(store: ObjectStore) -> DeltaTable | None:
    """The newest state of the table; None when there is none."""
    return DeltaTable(store.root) if DeltaTable.is_deltatable(store.root) else None


class DeltaLedger(StoreLedger):
    """Records lie as in a lake, and count when the table says that their attempt is in it."""

    record_word = "rows"

    def recorded_attempt(self, manifest_id: int) -> int | None:
        table = load(self.store)
        return None if table is None else table.transaction_version(str(manifest_id))

    def records(self, *, own: bool = True, above: int = 0) -> list[RecordName]:
        table = load(self.store)
        if table is None:
            return []
        names = super().records(own=own, above=above)
        return [name for name in names if table.transaction_version(str(name.manifest_id)) == name.attempt]

    def record(self, name: RecordName) -> dict[str, Any] | None:
        return super().record(name) if self.recorded_attempt(name.manifest_id) == name.attempt else None


class DeltaOutput(KeepsDeadLetterFiles):
    """The rows of one table."""

    write_mode = WriteMode.UPSERT

    def __init__(self, ledger: DeltaLedger) -> None:
        super().__init__(ledger.pipeline_name, ledger.name)
        self._ledger = ledger
        self._store = ledger.store

    def dataset(self) -> Dataset:
        return Dataset.of_folder(self._store.root)

    def exists(self) -> bool:
        return load(self._store) is not None

    def dead_letter_store(self) -> ObjectStore:
        return self._store

    def prepare(self, work: Work) -> None:
        """Creates the table with the columns of the rows."""
        columns = columns_after(work.decode, work.transforms).schema
        fields = [field.with_nullable(True) for field in (*METADATA, *columns)]
        schema = pa.schema([*fields, pa.field(PARTITION, pa.string())])
        DeltaTable.create(self._store.root, schema=Schema.from_arrow(schema), partition_by=[PARTITION], mode="ignore")

    def put(self, receipt: Receipt, record: Record, fence: Fence, mark: Mark) -> None:
        """Steps 2 to 4: put files and the record into their places, where no reader looks yet, commit, then mark."""
        fence()
        if self._ledger.recorded_attempt(receipt.manifest_id) != receipt.attempt:
            objects = receipt.objects_of(self.name)
            self._store.move_each([Move(part.staged, part.path, part.bytes) for part in objects], fence, lambda: None)
            name = str(RecordName(self.pipeline_name, receipt.manifest_id, receipt.attempt))
            self._store.put(name, json.dumps(record).encode())
            self._store.sync([name, *(part.path for part in objects)])
            failpoint("publish.mid")
            self._commit(receipt, fence)
        failpoint("publish.before_mark")
        mark()

    def _commit(self, receipt: Receipt, fence: Fence) -> None:
        manifest_id, attempt = str(receipt.manifest_id), receipt.attempt
        added = [
            AddAction(part.path, part.bytes, {PARTITION: manifest_id}, 0, True, json.dumps({"numRecords": part.rows}))
            for part in self.parts(receipt, ObjectKind.DATA)
        ]
        properties = CommitProperties(app_transactions=[Transaction(manifest_id, attempt)], max_commit_retries=0)
        for _ in range(TRIES):
            table = DeltaTable(self._store.root)
            if (table.transaction_version(manifest_id) or 0) > attempt:
                raise Fenced(f"attempt {attempt} is fenced: a higher one is in the table")
            fence()
            failpoint("publish.before_record")
            try:
                table.create_write_transaction(
                    added, "overwrite", table.schema(), [PARTITION], [(PARTITION, "=", manifest_id)],
                    commit_properties=properties,
                )  # fmt: skip
            except CommitFailedError:
                continue
            return
        raise Unavailable(f"others commit to {self._ledger.target} all the time", next_step="try again")

    def has(self, receipt: Receipt) -> bool:
        """Whether the table and all files are there; the rows were committed together with the evidence."""
        objects = receipt.objects_of(self.name)
        return self.exists() and self._store.has({part.path: part.bytes for part in objects})

    def same(self, before: Receipt, now: Receipt) -> bool:
        """Reads all files: they must be in the table, and as they were written."""
        del now
        files = self._files(before.manifest_id)
        named = {part.path for part in self.parts(before, ObjectKind.DATA)} == files
        return named and are_as_written(self._store, before.objects_of(self.name))

    def _files(self, manifest_id: int) -> set[str]:
        """The files of a manifest that the table names, relative to it."""
        table = load(self._store)
        uris = table.file_uris(file_pruning_predicate=[(PARTITION, "=", str(manifest_id))]) if table else []
        return {uri.removeprefix(f"{self._store.root}/") for uri in uris}

    def discard(self, receipt: Receipt) -> None:
        if self._ledger.recorded_attempt(receipt.manifest_id) != receipt.attempt:
            record = str(RecordName(self.pipeline_name, receipt.manifest_id, receipt.attempt))
            self._store.delete([record, *(part.path for part in receipt.objects_of(self.name))])

    def differences(self, expected: Expected, contents: Contents, *, deep: bool) -> Iterator[Problem]:
        table = load(self._store)
        assert table is not None, "it exists"
        contents["rows"] |= {int(partition[PARTITION]) for partition in table.partitions()}
        for manifest, publication in expected.published():
            receipt = expected.receipt(manifest.id, publication.attempt)
            if receipt is None or expected.given_up(manifest.id, publication.attempt):
                continue
            files = self.parts(receipt, ObjectKind.DATA)
            replay = f"tidemark replay {self.pipeline_name} --manifest {manifest.id}"
            if {part.path for part in files} != self._files(manifest.id):
                yield Problem(manifest.id, "the table names other files than were published", replay)
            elif not self._store.has({part.path: part.bytes for part in files}):
                yield Problem(manifest.id, "a file that the table names is missing, or has another size", replay)
            elif deep and not are_as_written(self._store, files):
                yield Problem(manifest.id, "a file of the table holds other rows than were published", replay)

    def locate(
        self, manifest: Manifest, published: Publication, receipt: Receipt, at: TopicPartition, offset: int
    ) -> Located:
        dead_letter = self.located_dead_letter(published, receipt, at, offset)
        if dead_letter is not None:
            return dead_letter
        file = file_with_offset(self._store, self.parts(receipt, ObjectKind.DATA), at, offset)
        if file is None or file.path not in self._files(manifest.id):
            return Located(self.name, published.attempt, RecordStatus.MISSING, "the table does not hold it")
        place = f"{self._store.root}/{file.path}"
        return Located(self.name, published.attempt, RecordStatus.HELD, "a row", ObjectKind.DATA, place)

    def rehearse(self, decode: Mapping[str, Any], transforms: Sequence[TransformOrder]) -> Iterator[Finding]:
        self._store.put("_staging/doctor", b"probe")
        self._store.delete(["_staging/doctor"])
        yield ok(self.name, "files can be written and removed (tried)")


def open_sink(pipeline_name: str, settings: Settings, lookup: Lookup) -> Sink:
    store = open_store(settings.folder, {}, lookup)
    ledger = DeltaLedger(pipeline_name, settings.name, settings.target, store)
    return Sink(ledger, FolderStaging(store), DeltaOutput(ledger))
