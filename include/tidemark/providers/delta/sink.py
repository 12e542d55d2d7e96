"""Publishes into a Delta table: one commit makes the files of an attempt the rows of its manifest.

The commit also replaces the file that says which attempt at each manifest is in the table. So it adds rows and evidence
together or not at all. What was committed is never taken back: a higher attempt replaces it. Owner, records, dead
letters and staging lie in folders of the table whose names begin with ``_``.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from tidemark.connections.lookup import Lookup
from tidemark.errors import SinkRefused
from tidemark.model.dataset import Dataset
from tidemark.model.findings import Finding, ok
from tidemark.model.order import TransformOrder
from tidemark.model.problem import Problem
from tidemark.model.receipt import MALFORMED
from tidemark.paths import RECORDS, STAGING
from tidemark.providers.delta.columns import arrow_columns
from tidemark.providers.delta.settings import TARGET, Settings
from tidemark.providers.delta.table import DeltaTarget
from tidemark.providers.delta.writer import encoded_schema
from tidemark.providers.lake_tables.audit import differences_of_lost_files, problems_of_orphans, rows_without_evidence
from tidemark.providers.lake_tables.ledger import LakeTableLedger
from tidemark.providers.lake_tables.output import LakeTableOutput
from tidemark.providers.lake_tables.table_rows import StagedAttempt
from tidemark.sinks.base import Contents, Expected, Fence, Position, Sink
from tidemark.sinks.object_store.folder_staging import FolderStaging
from tidemark.sinks.object_store.store_ledger import StoreLedger
from tidemark.sinks.objects_output import try_moves
from tidemark.storage.open import open_store

CLAIM: Final = f"{RECORDS}/_table.json"  # the pipeline of the table, and the identity that its first owner gave it


class DeltaLedger(LakeTableLedger, StoreLedger):
    """Stores owner and records as files in the location of the table. A record counts if the table says that it has the
    rows of its attempt."""

    table: DeltaTarget

    def __init__(self, pipeline_name: str, settings: Settings, table: DeltaTarget) -> None:
        StoreLedger.__init__(self, pipeline_name, settings.name, settings.target, table.store)
        self._location = Path(settings.location)
        self.table = table

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
                **self.table.context(),
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
        if claimed is None:
            return None
        table = self.table.load()
        return Position(
            claimed["identity"],
            0 if table is None else self.table.evidence_of(table).number,
            table_id="" if table is None else str(table.metadata().id),
            columns={} if table is None else dict.fromkeys(self.table.columns_of(table).names, ""),
        )

    def rename_pipeline(self, old: str) -> None:
        """Change the name in the keys of records and in the claim. The table's log keeps the old name."""
        super().rename_pipeline(old)
        claimed = self._claimed()
        if claimed is not None and claimed["pipeline"] == old:
            self.store.put(CLAIM, _claim(self.pipeline_name, claimed["identity"]))


def _claim(pipeline_name: str, identity: str) -> bytes:
    return json.dumps({"pipeline": pipeline_name, "identity": identity}).encode()


class DeltaStaging(FolderStaging):
    """Staging below the location of the table. Executors get the columns, so they need no Delta library."""

    def __init__(self, table: DeltaTarget) -> None:
        super().__init__(table.store)
        self._table = table

    def order(self, manifest_id: int, attempt: int) -> dict[str, Any]:
        """Return the staging order for executors: the columns of the table, and, if it has a key, the log generations
        of the attempt for which ``prepare`` was called."""
        columns = encoded_schema(arrow_columns(self._table.loaded()))
        own = {"generations": self._table.generations} if self._table.keyed else {}
        return {**super().order(manifest_id, attempt), "columns": columns, **self._table.rows.order(), **own}


class DeltaOutput(LakeTableOutput):
    """The rows of one table."""

    table: DeltaTarget

    def dataset(self) -> Dataset:
        return Dataset.of_folder(self.table.store.root)

    def rehearse(self, decode: Mapping[str, Any], transforms: Sequence[TransformOrder]) -> Iterator[Finding]:
        tried = try_moves(self.table.store, f"{STAGING}/doctor-{uuid4().hex}")
        table = self.table.check(self._stored_columns(decode, transforms), change=False)
        if table is None:
            yield ok(self.name, f"{tried}; the first attempt creates the table")
        else:
            yield ok(self.name, f"table, columns and properties are what an attempt needs; {tried}")

    def commit(self, staged: StagedAttempt, about: Mapping[str, str], fence: Fence, *, again: bool) -> None:
        if not again:
            self.table.publish(staged, about, fence)

    def differences(self, expected: Expected, contents: Contents, *, deep: bool) -> Iterator[Problem]:
        """Yield what is in the table and should not be, or is missing.

        In a table of all rows the log says which manifests have rows; of a table with a key a ``deep`` audit reads the
        rows to know it. If files are lost, no rows are read.
        """
        orphans = self.orphaned_manifests(expected)
        table = self.table.loaded()
        lost = self.table.rows.lost_files(table, self.table.store)
        yield from differences_of_lost_files(expected, self._ledger, lost, self._ledger.evidence())
        deep = deep and not lost
        if deep or not self.table.keyed:
            present = self.table.rows.manifests(table)
            contents["rows"] |= present - orphans.keys()
            yield from rows_without_evidence(expected, self._ledger, present)
        if not lost:
            yield from self.table.rows.differences(table, expected, self._ledger, deep=deep)
        yield from problems_of_orphans(self._ledger, orphans)


def open_sink(pipeline_name: str, settings: Settings, lookup: Lookup) -> Sink:
    store = open_store(settings.location, settings.store_settings(), lookup)
    table = DeltaTarget(pipeline_name, settings, store, lookup)
    ledger = DeltaLedger(pipeline_name, settings, table)
    return Sink(ledger, DeltaStaging(table), DeltaOutput(ledger))
