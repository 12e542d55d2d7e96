"""One table as one sink of a pipeline sees it: its columns, its evidence, and the one commit that publishes a manifest.

deltalake must not retry a commit by itself. Meanwhile another process may have committed a higher attempt, or rewritten
the files that this commit removes. So each try is based on the current table, and fails if the next version exists
already. Then everything starts again.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from uuid import uuid4

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from tidemark.connections.lookup import Lookup
from tidemark.errors import Fenced, SinkRefused, TidemarkError
from tidemark.failpoints import failpoint
from tidemark.providers.delta.client import DeltaClient
from tidemark.providers.delta.columns import (
    arrow_columns,
    arrow_of,
    columns_to_add,
    described,
    missing_columns,
    refuse_misfits,
    refuse_other_partitioning,
    schema_for,
)
from tidemark.providers.delta.evidence import read_evidence, write_evidence
from tidemark.providers.delta.files import TableFile, now_ms
from tidemark.providers.delta.key_rows import KeyRows
from tidemark.providers.delta.manifest_rows import ManifestRows
from tidemark.providers.delta.published_rows import PublishedRows, TableChanges
from tidemark.providers.delta.refusals import refuse_unfit
from tidemark.providers.delta.settings import Settings
from tidemark.providers.lake_tables.evidence import TableEvidence
from tidemark.providers.lake_tables.lost_files import evidence_without
from tidemark.providers.lake_tables.properties import refuse_other_settings
from tidemark.providers.lake_tables.refusals import (
    fenced_by_its_number,
    no_columns,
    refuse_removed,
    restored_meanwhile,
)
from tidemark.providers.lake_tables.table import LakeTable
from tidemark.providers.lake_tables.table_rows import StagedAttempt
from tidemark.sinks.base import Fence
from tidemark.storage.base import ObjectStore

Changing = Callable[[DeltaTable, TableEvidence], tuple[TableChanges, TableEvidence]]


class DeltaTarget(LakeTable[DeltaTable]):
    """The table, and the store of its location."""

    def __init__(self, pipeline_name: str, settings: Settings, store: ObjectStore, lookup: Lookup) -> None:
        super().__init__(pipeline_name, settings.name, settings.location, keyed=bool(settings.key_columns))
        self.store = store
        self.rows: PublishedRows = KeyRows(store, settings) if settings.key_columns else ManifestRows(store)
        self._settings = settings
        self._client = DeltaClient(settings, store, lookup)
        self._known: tuple[str, TableEvidence] | None = None

    # the current table

    def load(self) -> DeltaTable | None:
        """Load the table. Raises ``SinkRefused`` for a table in which rows and evidence would not stay exact."""
        table = self._client.load(self.context())
        if table is not None:
            refuse_unfit(table, self.context())
            refuse_other_partitioning(table, self.rows.partition, self.context())
        return table

    def store_of(self, table: DeltaTable) -> ObjectStore:
        del table
        return self.store

    def columns_of(self, table: DeltaTable) -> pa.Schema:
        return arrow_columns(table)

    def store_if_known(self) -> ObjectStore:
        return self.store

    def evidence_of(self, table: DeltaTable) -> TableEvidence:
        return self._evidence_with_files(table)[0]

    def manifests_without_evidence(self, table: DeltaTable) -> set[int]:
        """Return the manifests with rows but without evidence: somebody copied rows into the table, or removed the
        evidence.

        For a table with a key, rows are read only if it has no evidence at all.
        """
        evidence = self.evidence_of(table)
        if self.keyed and evidence.number:
            return set()
        return self.rows.manifests(table) - evidence.attempts.keys()

    def _evidence_with_files(self, table: DeltaTable) -> tuple[TableEvidence, list[TableFile]]:
        """Return the newest evidence in the table, and the files that hold evidence. Both are empty if somebody has
        removed the files."""
        files = {file.path: file for file in self.rows.evidence_files(table)}
        by_path = {path: evidence for path in files if (evidence := self._evidence_in(path))}
        newest = max(by_path.values(), key=lambda evidence: evidence.number, default=TableEvidence())
        return newest, [files[path] for path in by_path]

    def _evidence_in(self, path: str) -> TableEvidence | None:
        """Return the evidence in a file, from memory if it was read before, because each commit writes another file.

        A missing file counts as empty evidence; the next commit drops it from the log.
        """
        if self._known and self._known[0] == path:
            return self._known[1]
        with self._client.used(self.context()):
            try:
                with self.store.open(path) as file:
                    evidence = read_evidence(file)
            except FileNotFoundError:
                return TableEvidence()
        if evidence is not None:
            self._known = path, evidence
        return evidence

    # its columns

    def check(self, columns: pa.Schema, *, change: bool = True) -> DeltaTable | None:
        wanted = schema_for(self.rows.columns(columns), self.context())
        table = self.load()
        if table is None and self._settings.auto_create:
            if not change:
                return None
            self._client.create(wanted, self.rows.partition, self.rows.properties(), self.context())
            table = self.load()
        if table is None:
            raise SinkRefused(
                "the table does not exist",
                next_step=f"write auto_create: true, or create it, partitioned by {self.rows.partition}, with the "
                f"columns {described([(field.name, field.type) for field in arrow_of(wanted)])}",
                **self.context(),
            )
        refuse_misfits(table, wanted, self.context())
        refuse_other_settings(table.metadata().configuration, self.rows.properties(), self.context())
        missing = [(part.name, part.type) for part in missing_columns(table, wanted)]
        if missing and not self._settings.auto_create:
            raise no_columns([name for name, _ in missing], described(missing), self.context())
        return self._extended(table, wanted) if missing and change else table

    def _extended(self, table: DeltaTable, wanted: Schema) -> DeltaTable:
        """Add what is missing. If another slice adds columns at the same time, add those that it left out."""
        for _ in self.tries():
            with suppress(DeltaError, OSError):
                table.alter.add_columns(columns_to_add(table, wanted))
            table = self.loaded()
            if not missing_columns(table, wanted):
                break
        return table

    # the commit

    def publish(self, staged: StagedAttempt, about: Mapping[str, str], fence: Fence) -> None:
        """Make the files of an attempt the rows of its manifest, in one commit (``LakeTableOutput.commit``)."""
        manifest_id, attempt = staged.manifest_id, staged.attempt
        context = self.context(manifest=manifest_id, attempt=attempt)

        def changing(table: DeltaTable, evidence: TableEvidence) -> tuple[TableChanges, TableEvidence]:
            newest = evidence.attempts.get(manifest_id, 0)
            if newest == attempt:
                raise fenced_by_its_number(attempt, self.context(manifest=manifest_id))
            fence()  # the database may know a newer attempt that the table does not have yet
            if newest > attempt:
                raise Fenced.by_a_higher(attempt, newest, "rows in the table", **self.context(manifest=manifest_id))
            refuse_other_settings(table.metadata().configuration, self.rows.properties(), context)
            with self._client.used(context):
                lost = self.rows.lost_files(table, self.store) if newest else []
                paths = frozenset(file.file.path for file in lost)
                changes = self.rows.changes(table, replace(staged, lost=paths), context)
            removed = {action.path for action in changes.actions if isinstance(action, RemoveAction)}
            dropped = [file.file.removed(self.rows.partition) for file in lost if file.file.path not in removed]
            changes = replace(changes, actions=[*changes.actions, *dropped])
            remaining = evidence_without(evidence, lost)
            return changes, remaining.with_next(table.version() + 1, manifest_id, attempt, changes.merge)

        transaction = Transaction(f"tidemark/{self.pipeline_name}/{self._settings.name}/{manifest_id}", attempt)
        changes = self._commit(changing, [transaction], about, fence, manifest=manifest_id, attempt=attempt)
        refuse_removed(
            self.store,
            changes.written,
            "the manifest is not published, and readers of the table fail. Take its newest version back: RESTORE TABLE "
            ".. TO VERSION AS OF the one before it; then: tidemark db adopt {pipeline} --why TEXT",
            context,
        )

    def fence(self) -> None:
        """Commit the evidence again, so that a prepared commit of another process fails."""
        if self.load() is not None:
            self._commit(lambda _, evidence: (TableChanges([], {}), evidence), [], {}, lambda: None)

    def _commit(
        self,
        changing: Changing,
        transactions: list[Transaction],
        about: Mapping[str, str],
        fence: Fence,
        **more: object,
    ) -> TableChanges:
        """Commit what ``changing`` makes of the table and its evidence; try again if another process committed
        first."""
        context = self.context(**more)
        position = 0
        for _ in self.tries(**more):
            table = self.loaded()
            evidence, evidence_files = self._evidence_with_files(table)
            if evidence.number < position:
                raise restored_meanwhile(context)
            position = evidence.number
            changes, after = changing(table, evidence)
            added = self._added(after, table)
            removed = [file.removed(self.rows.partition) for file in evidence_files]
            actions = [*changes.actions, *removed, added]
            counts = changes.merge.about() if changes.merge else {}
            properties = CommitProperties({**about, **counts}, max_commit_retries=0, app_transactions=transactions)
            version = table.version() + 1
            fence()
            failpoint("publish.before_record")  # if others commit during a pause here, this commit fails
            written = {**changes.written, added.path: added.size}
            refuse_removed(self.store, written, "nothing was published; tidemark retry {pipeline}", context)
            try:
                table.create_write_transaction(
                    actions, "append", table.schema(), [self.rows.partition], commit_properties=properties
                )
            except (DeltaError, OSError) as error:
                if not self._has_landed(version, added.path, error, context):
                    with suppress(TidemarkError):  # a file that stays does no harm: no version names it
                        self.store.delete([*changes.own, added.path])
                    continue
            self.store.sync([f"_delta_log/{version:020}.json"])
            break
        return changes

    def _added(self, evidence: TableEvidence, table: DeltaTable) -> AddAction:
        """Write a file with the evidence, and return the log's action for it."""
        partition, value = self.rows.partition, self.rows.evidence_value
        path = f"{partition}={value}/evidence-{table.version() + 1:020}-{uuid4().hex}.parquet"
        columns = arrow_columns(table)
        with self.store.create(path) as file:
            write_evidence(evidence, file, columns.remove(columns.get_field_index(partition)))
        self.store.sync([path])
        size = self.store.size(path) or 0
        return AddAction(path, size, {partition: str(value)}, now_ms(), True, '{"numRecords": 0}')

    def _has_landed(self, version: int, path: str, error: Exception, context: Mapping[str, object]) -> bool:
        """Return whether a commit without a clear answer succeeded; false if others have made this version.

        Raises the error again, as ``Unavailable``, if nobody has made this version: then it was no conflict.
        """
        newest = self._client.load(context)
        if newest is not None and newest.version() >= version:
            table = self._client.load(context, version)
            return table is not None and any(file.path == path for file in self.rows.evidence_files(table))
        with self._client.used(context):
            raise error
