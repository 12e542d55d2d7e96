"""One table in its catalog: its owner, its columns, and the one commit that publishes a manifest.

The client must not retry a commit by itself: it would add rows a second time if the answer to a commit was lost, and it
removes files of a commit that it believes to have failed. So each try builds its snapshot on the current table, and the
catalog accepts it only while that is the newest. Afterwards the table itself shows whether the try succeeded.
"""

import json
import logging
import warnings
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.io import load_file_io
from pyiceberg.schema import Schema, index_by_name
from pyiceberg.table import Table

from tidemark.connections.kept import kept_clients
from tidemark.connections.lookup import Lookup
from tidemark.errors import Fenced, SinkRefused, TidemarkError, Unavailable
from tidemark.failpoints import failpoint
from tidemark.kinds import STORES
from tidemark.paths import is_remote, scheme_of
from tidemark.providers.iceberg.all_rows import AllRows
from tidemark.providers.iceberg.catalog import OpenCatalog, catalog_key
from tidemark.providers.iceberg.change import FileChanges, SnapshotChange
from tidemark.providers.iceberg.columns import (
    arrow_columns,
    described,
    partitioning,
    refuse_misfits,
    refuse_other_version,
    schema_for,
    type_of,
)
from tidemark.providers.iceberg.evidence import (
    ATTEMPT,
    EVIDENCE,
    FOLDER,
    MANIFEST,
    NEWEST,
    OLD_EVIDENCE,
    digest_on_main,
    new_key,
    newest_key,
    outdated,
    summary_of,
)
from tidemark.providers.iceberg.file_io import try_write
from tidemark.providers.iceberg.files import keys_added_by, manifests_in, named_keys
from tidemark.providers.iceberg.settings import Settings
from tidemark.providers.iceberg.staged import root_of
from tidemark.providers.iceberg.upsert import CurrentRows
from tidemark.providers.lake_tables.evidence import TableEvidence
from tidemark.providers.lake_tables.evolution import MissingField, NarrowField, missing_fields, narrow_fields
from tidemark.providers.lake_tables.lost_files import evidence_without
from tidemark.providers.lake_tables.output import DIGEST
from tidemark.providers.lake_tables.properties import refuse_other_settings
from tidemark.providers.lake_tables.refusals import (
    fenced_by_its_number,
    no_columns,
    refuse_removed,
    restored_meanwhile,
)
from tidemark.providers.lake_tables.table import LakeTable
from tidemark.providers.lake_tables.table_rows import StagedAttempt, TableRows
from tidemark.sinks.base import Fence, Owner
from tidemark.storage.base import ObjectStore
from tidemark.storage.open import open_store

NEW_TABLE: Final = {  # properties of tables that Tidemark creates
    "format-version": "2",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",  # but keeps 100, which show expired snapshots
}
REMOVED_AT_COMMIT: Final = (
    "the rows are in the table, and its readers fail. tidemark retry {pipeline} marks the manifest as published; then "
    "drop what is gone, and put the rows there again: tidemark replay {pipeline} --manifest {manifest}"
)


@dataclass(frozen=True)
class Claim:
    """The properties with which the namespace claims the table: who may write to it, and the identity that its first
    owner gave it."""

    owner: Owner
    pipeline_name: str
    identity: str


class IcebergTarget(LakeTable[Table]):
    """One table as one sink of a pipeline sees it. The catalog is opened at first use."""

    def __init__(self, pipeline_name: str, settings: Settings, lookup: Lookup) -> None:
        super().__init__(pipeline_name, settings.name, settings.table, keyed=bool(settings.key_columns))
        self.rows: TableRows[Table, FileChanges] = (
            CurrentRows(settings.key_columns, settings.order_by) if settings.key_columns else AllRows()
        )
        self._settings = settings
        self._lookup = lookup
        self._opened: OpenCatalog | None = None
        self._key: Hashable = None
        self._known: tuple[str, TableEvidence] | None = None
        self._namespace, _, self._name = settings.table.rpartition(".")
        self._claim_key = f"tidemark.owner.{self._name}"

    @contextmanager
    def _catalog(self, **more: object) -> Iterator[OpenCatalog]:
        opened = self._client()
        with opened.used(**self.context(**more)), _quiet():
            yield opened

    def _client(self) -> OpenCatalog:
        """Return the client that the running plan shares, if there is one; else the client of this table."""
        kept = kept_clients()
        if kept is not None:
            if self._key is None:
                self._key = catalog_key(self._settings, self._lookup)
            return kept.client(self._key, lambda: OpenCatalog(self._settings, self._lookup).kept_open())
        if self._opened is None:
            self._opened = OpenCatalog(self._settings, self._lookup)
        return self._opened

    # the owner

    def claimed(self) -> Claim | None:
        return self._claim_in(self._properties())

    def _properties(self) -> Mapping[str, Any]:
        with self._catalog() as opened:
            try:
                return opened.catalog.load_namespace_properties(self._namespace)
            except NoSuchNamespaceError:
                return {}

    def _claim_in(self, properties: Mapping[str, Any]) -> Claim | None:
        text = properties.get(self._claim_key)
        if text is None:
            return None
        content = json.loads(str(text))
        owner = Owner(content["database"], tuple(content["before"]))
        return Claim(owner, content["pipeline"], content["identity"])

    def claim(self, owner: Owner) -> Claim:
        """Make ``owner`` the owner, unless the table has one; return the claim that holds.

        Raises ``Unavailable`` if another database or pipeline claims the table at the same time.
        """
        claim = self.claimed() or self._first_claim(owner)
        if claim.pipeline_name != self.pipeline_name:
            raise SinkRefused(
                f"the table belongs to pipeline {claim.pipeline_name}: a replay of one would not know the rows of "
                "the other",
                next_step="give each pipeline a table of its own (sinks.iceberg.table), and join them in a view",
                **self.context(),
            )
        return claim

    def _first_claim(self, owner: Owner) -> Claim:
        """Claim a table without an owner; return the claim that holds.

        A namespace has no conditional writes. So a process first notes for whom it asks, then looks at the other notes,
        and claims the table only if nobody else asks. Of two databases at the same time, at least one sees the other
        and gives up.
        """
        asking = f"tidemark.asking.{self._name}."
        own, whose = f"{asking}{uuid4()}", f"pipeline {self.pipeline_name} of database {owner.database}"
        try:
            self._write({own: whose})
        except TidemarkError:  # another process may have made the namespace first
            self._write({own: whose})
        try:
            properties = self._properties()
            claim = self._claim_in(properties)
            others = {other for key, other in properties.items() if key.startswith(asking)} - {whose}
            if claim is None and not others:
                claim = self._claimed_alone(owner)
        finally:
            self._write({}, own)
        if claim is None:
            raise Unavailable(
                f"another process claims the table at the same time, for {', '.join(sorted(others))}",
                next_step="nothing was written; check TIDEMARK_DB, then: tidemark plan {pipeline}. If that one died "
                f"before it was done, and will not come back, remove the properties {asking}* of the namespace "
                f"{self._namespace}",
                **self.context(),
            )
        return claim

    def _claimed_alone(self, owner: Owner) -> Claim:
        own = Claim(owner, self.pipeline_name, str(uuid4()))
        try:
            self._write_claim(own)
        except TidemarkError:  # another process may have done it for the same pipeline
            claim = self.claimed()
            if claim is None:
                raise
            return claim
        return own

    def hand_over(self, owner: Owner) -> None:
        claim = self.claimed()
        identity = claim.identity if claim else str(uuid4())
        self._write_claim(Claim(owner, self.pipeline_name, identity))

    def take_over(self, old: str) -> None:
        """Write this pipeline's name into a claim that has its old name."""
        claim = self.claimed()
        if claim is not None and claim.pipeline_name == old:
            self._write_claim(replace(claim, pipeline_name=self.pipeline_name))

    def _write_claim(self, claim: Claim) -> None:
        content = {"database": claim.owner.database, "before": claim.owner.before, "pipeline": claim.pipeline_name,
                   "identity": claim.identity}  # fmt: skip
        self._write({self._claim_key: json.dumps(content)})

    def _write(self, updates: dict[str, str], *removals: str) -> None:
        """Change properties of the namespace; create the namespace if it does not exist."""
        with self._catalog() as opened:
            if not opened.catalog.namespace_exists(self._namespace):
                opened.catalog.create_namespace(self._namespace)
            opened.catalog.update_namespace_properties(self._namespace, removals=set(removals), updates=updates)

    # the current table

    def load(self) -> Table | None:
        """Load the table. Raises ``SinkRefused`` for a table of a version up to 0.3, which kept its evidence
        elsewhere."""
        with self._catalog() as opened:
            try:
                table = opened.catalog.load_table(self._settings.table)
            except (NoSuchTableError, NoSuchNamespaceError):
                return None
        if OLD_EVIDENCE in table.metadata.properties:
            raise SinkRefused(
                f"the table was written by version 0.3 or an earlier one (it has the property {OLD_EVIDENCE}), which "
                "this version does not carry over",
                next_step="nothing was changed; finish what is planned with that version, then give the sink a new "
                "table (sinks.iceberg.table) in a pipeline of another name",
                **self.context(),
            )
        return table

    def store_of(self, table: Table) -> ObjectStore:
        root = root_of(table.location())
        if is_remote(root) and scheme_of(root) not in STORES:
            stores = " and ".join(f"{scheme}://" for scheme in STORES)
            raise SinkRefused(
                f"the table lies at {table.location()}, and Tidemark writes tables only in folders, {stores}",
                next_step="create it in another location",
                **self.context(),
            )
        return open_store(root, self._settings.store_settings(), self._lookup)

    def columns_of(self, table: Table) -> pa.Schema:
        return arrow_columns(table.schema())

    def places(self) -> list[ObjectStore]:
        """Return the location of the table, or the one that it will get."""
        table = self.load()
        if table is not None:
            return [self.store_of(table)]
        folder = self._settings.claimed_folder(self.pipeline_name)
        return [open_store(folder, self._settings.store_settings(), self._lookup)] if folder else []

    @contextmanager
    def reading(self, **more: object) -> Iterator[Table]:
        """Yield the table; errors of its files are translated inside the block."""
        table = self.loaded()
        with self._catalog(**more):
            yield table

    def try_warehouse(self) -> str:
        """Write below the warehouse of tables in a store, as the catalog would; return what to report about it."""
        warehouse = self._settings.warehouse or ""
        if not is_remote(warehouse):
            return ""
        with self._catalog() as opened:
            try_write(load_file_io(opened.catalog.properties, warehouse), warehouse)
        return ", and metadata can be written (tried)"

    def evidence_of(self, table: Table) -> TableEvidence:
        with self._catalog():
            key = newest_key(table)
        if key is None:
            return TableEvidence()
        if self._known and self._known[0] == key:
            return self._known[1]
        evidence = TableEvidence.of_text(self.store_of(table).get(key) or b"")
        if evidence is None:
            return TableEvidence()
        self._known = key, evidence
        return evidence

    def manifests_without_evidence(self, table: Table) -> set[int]:
        """Return the manifests with rows, if the table has no evidence at all; else none, because rows and evidence go
        back together."""
        if table.current_snapshot() is None or self.evidence_of(table).number:
            return set()
        with self._catalog():
            return manifests_in(table)

    def table_id(self) -> str:
        """Return the identity that the catalog gave the table when it was created; empty if the table does not
        exist."""
        table = self.load()
        return "" if table is None else str(table.metadata.table_uuid)

    def column_ids(self) -> dict[str, str]:
        """Return the id of each column, and of each field inside one, by its path. Ids are never reused."""
        table = self.load()
        fields = {} if table is None else index_by_name(table.schema())
        return {path: str(field_id) for path, field_id in fields.items()}

    def position(self) -> tuple[int, str]:
        """Return the number of the newest publication in the table, and a hint for the error if nothing shows any
        publication."""
        table = self.load()
        number = 0 if table is None else self.evidence_of(table).number
        if table is None or number or NEWEST not in table.metadata.refs:
            return number, ""
        hint = (
            ". Nothing that is left says what it holds: it was rolled back to before its first publication, or other "
            "programs have committed, and expired all that was before. If nobody has rolled it back, take it to its "
            "newest publication, without what others have committed since: CALL CATALOG.system.set_current_snapshot("
            f"table => '{self._settings.table}', ref => '{NEWEST}')"
        )
        return number, hint

    # its columns

    def check(self, columns: pa.Schema, *, change: bool = True) -> Table | None:
        with self._catalog():
            wanted = schema_for(columns)
        table = self.load()
        if table is None and self._settings.auto_create:
            table = self._create(wanted) if change else None
            if table is None:
                return None
        if table is None:
            raise SinkRefused(
                "the table does not exist",
                next_step="write auto_create: true, or create it with the columns "
                f"{', '.join(f'{field.name} {field.field_type}' for field in wanted.fields)}",
                **self.context(),
            )
        refuse_other_version(table, self.context())
        refuse_misfits(table, wanted, self._settings.terms, self.context(), widens=self._settings.auto_create)
        refuse_other_settings(table.metadata.properties, self.rows.properties(), self.context())
        missing = self._missing(table, wanted)
        if missing and not self._settings.auto_create:
            listed = ", ".join(f"{part.name} {described(part.type)}" for part in missing)
            raise no_columns([part.name for part in missing], listed, self.context())
        return self._extended(table, wanted) if change else table

    @staticmethod
    def _missing(table: Table, wanted: Schema) -> list[MissingField]:
        return missing_fields(arrow_columns(table.schema()), arrow_columns(wanted))

    @staticmethod
    def _narrow(table: Table, wanted: Schema) -> list[NarrowField]:
        return narrow_fields(arrow_columns(table.schema()), arrow_columns(wanted))

    def _create(self, wanted: Schema) -> Table:
        with self._catalog() as opened, suppress(TableAlreadyExistsError):  # another slice has created it
            return opened.catalog.create_table(
                self._settings.table,
                schema=wanted,
                partition_spec=partitioning(wanted, self._settings.terms),
                properties=NEW_TABLE,
            )
        return self.loaded()

    def _extended(self, table: Table, wanted: Schema) -> Table:
        """Add columns, and fields inside them, and widen narrow ones. If another slice does it at the same time, do the
        rest."""
        for _ in self.tries():
            missing, narrow = self._missing(table, wanted), self._narrow(table, wanted)
            if not missing and not narrow:
                break
            with self._catalog(), suppress(CommitFailedException), table.update_schema() as update:
                for part in missing:
                    update.add_column(part.path, type_of(part.type))
                for field in narrow:
                    update.update_column(field.path, field_type=type_of(field.needed))
            table = self.loaded()
        return table

    # the commit

    def publish(self, staged: StagedAttempt, summary: Mapping[str, str], fence: Fence) -> None:
        """Commit one snapshot in which the staged files replace the rows of the manifest. You may call it again: see
        ``LakeTableOutput.commit``."""
        manifest_id, attempt = staged.manifest_id, staged.attempt
        position = 0
        for _ in self.tries(manifest=manifest_id, attempt=attempt):
            table = self.loaded()
            refuse_other_version(table, self.context(manifest=manifest_id, attempt=attempt))
            evidence = self.evidence_of(table)
            if evidence.number < position:
                raise restored_meanwhile(self.context(manifest=manifest_id, attempt=attempt))
            position = evidence.number
            newest = evidence.attempts.get(manifest_id, 0)
            if self._is_published(table, evidence, manifest_id, attempt, summary[DIGEST]):
                return
            fence()  # the database may know a newer attempt that the table does not have yet
            if newest > attempt:
                raise Fenced.by_a_higher(attempt, newest, "rows in the table", **self.context(manifest=manifest_id))
            change = self._prepared(table, evidence, staged, summary)
            fence()
            failpoint("publish.before_record")  # if others commit during a pause here, the catalog refuses this commit
            context, store = self.context(manifest=manifest_id, attempt=attempt), self.store_of(table)
            refuse_removed(store, change.written, "nothing was published; tidemark retry {pipeline}", context)
            if self._commit(change, lambda: self._landed(manifest_id, attempt, summary[DIGEST])):
                refuse_removed(store, change.written, REMOVED_AT_COMMIT, context)
                self._forget_old_evidence(table)
                return
            with self._catalog(manifest=manifest_id, attempt=attempt):
                self.rows.withdraw(table, change.files)

    def _prepared(
        self, table: Table, evidence: TableEvidence, staged: StagedAttempt, summary: Mapping[str, str]
    ) -> SnapshotChange:
        """Return the snapshot that publishes an attempt, based on the current table; write its evidence file."""
        manifest_id, attempt = staged.manifest_id, staged.attempt
        context = self.context(manifest=manifest_id, attempt=attempt)
        refuse_other_settings(table.metadata.properties, self.rows.properties(), context)
        # Only a first attempt may skip the search for old rows, and only if the evidence shows that there are none:
        # a later attempt may follow one that the database has lost.
        first = attempt == 1 and evidence.number > 0 and manifest_id not in evidence.attempts
        store = self.store_of(table)
        with self._catalog(manifest=manifest_id, attempt=attempt):
            lost = self.rows.lost_files(table, store) if manifest_id in evidence.attempts else []
            paths = frozenset(file.file.file_path for file in lost)
            files = self.rows.changes(table, replace(staged, is_first=first, lost=paths), context)
        files = replace(files, taken_out=[*files.taken_out, *(file.file for file in lost)])
        number = table.metadata.next_sequence_number()
        after = evidence_without(evidence, lost).with_next(number, manifest_id, attempt, files.merge)
        key, content = new_key(number), after.text().encode()
        store.put(key, content)
        store.sync([key])
        named = {MANIFEST: str(manifest_id), ATTEMPT: str(attempt), EVIDENCE: key}
        root = f"{root_of(table.location())}/"
        new = {
            root_of(file.file_path).removeprefix(root): file.file_size_in_bytes
            for file in (*files.put_in, *files.deletes)
        }
        written = {**new, key: len(content)}
        return SnapshotChange(table, {**summary, **named}, self.rows.properties(), files, written)

    def _forget_old_evidence(self, table: Table) -> None:
        store = self.store_of(table)
        with suppress(TidemarkError):  # a file that stays does no harm
            store.delete(outdated((key for key, _ in store.list(FOLDER)), table.metadata))

    def _landed(self, manifest_id: int, attempt: int, digest: str) -> bool:
        """Return whether a commit without a clear answer succeeded."""
        table = self.loaded()
        return self._is_published(table, self.evidence_of(table), manifest_id, attempt, digest)

    def _is_published(self, table: Table, evidence: TableEvidence, manifest_id: int, attempt: int, digest: str) -> bool:
        """Return whether the table has the rows of this attempt.

        Raises ``Fenced`` if the table has other rows with the same attempt number, or if no remaining snapshot shows
        that they are these.
        """
        if evidence.attempts.get(manifest_id) != attempt:
            return False
        if digest_on_main(table.metadata, manifest_id, attempt) != digest:
            raise fenced_by_its_number(attempt, self.context(manifest=manifest_id))
        return True

    def fence(self) -> None:
        """Commit a snapshot without rows, so that a prepared commit of another process fails."""
        for _ in self.tries():
            table = self.load()
            if table is None:
                return
            refuse_other_version(table, self.context())
            with self._catalog():
                change = SnapshotChange(table, {"tidemark.fence": str(uuid4())})
            if self._commit(change, lambda change=change: change.is_on_main(self.loaded())):  # type: ignore[misc]
                return

    def _commit(self, change: SnapshotChange, landed: Callable[[], bool]) -> bool:
        """Return whether the change was committed; false if others committed first. Without a clear answer ``landed``
        looks at the table."""
        try:
            with self._catalog():
                change.commit(self._settings.keep_snapshots)
        except CommitFailedException:
            return landed()  # the client may have repeated a request that had succeeded
        except Unavailable:
            if landed():
                return True
            raise
        return True

    def named(self, table: Table, manifest_id: int, attempt: int, staged: Collection[str]) -> set[str]:
        """Return the keys of those staged files of an attempt that a snapshot of main, a branch or a tag names.

        If the evidence says that the table has the rows, or a snapshot's summary says that it added them, all files are
        named. But in a table with a key some files may not have been added. Otherwise the manifest files of all
        snapshots are read.
        """
        if not staged:
            return set()
        wanted = {MANIFEST: str(manifest_id), ATTEMPT: str(attempt)}
        adding = [snapshot for snapshot in table.metadata.snapshots if wanted.items() <= summary_of(snapshot).items()]
        if adding and self.keyed:
            with self._catalog(manifest=manifest_id, attempt=attempt):
                added = set(staged) & keys_added_by(table, adding[0])
                return added | named_keys(table, set(staged) - added)
        if adding or self.evidence_of(table).attempts.get(manifest_id) == attempt:
            return set(staged)
        with self._catalog(manifest=manifest_id, attempt=attempt):
            return named_keys(table, staged)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the client's warnings about what is normal here, such as old metadata files that are gone already."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="pyiceberg")
        yield


logging.getLogger("pyiceberg").setLevel(logging.ERROR)
