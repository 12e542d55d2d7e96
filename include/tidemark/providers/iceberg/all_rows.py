"""A table with every row of every manifest; a replay removes the rows of the earlier attempt."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from tidemark.model.digest import Digest, row_digest
from tidemark.model.manifest import Manifest, Publication
from tidemark.model.offsets import TopicPartition
from tidemark.model.problem import Problem
from tidemark.model.receipt import ObjectKind
from tidemark.providers.iceberg.change import FileChanges
from tidemark.providers.iceberg.files import (
    Replaced,
    lost_files,
    manifests_with_files,
    named_files,
    replaced,
    rows_at,
    rows_of_manifest,
    staged_files,
)
from tidemark.providers.lake_tables.audit import differences_of_count, differences_of_rows, places_of
from tidemark.providers.lake_tables.lost_files import LostFile
from tidemark.providers.lake_tables.nested import conformed_table
from tidemark.providers.lake_tables.table_rows import StagedAttempt, TableRows
from tidemark.providers.tables.column_names import names_of_rows
from tidemark.sinks.base import Expected, Ledger
from tidemark.sinks.capabilities import NamedFile
from tidemark.sinks.located import Located, RecordStatus
from tidemark.storage.base import ObjectStore


class AllRows(TableRows[Table, FileChanges]):
    def changes(self, table: Table, staged: StagedAttempt, context: Mapping[str, Any]) -> FileChanges:
        del context
        old = Replaced() if staged.is_first else replaced(table, staged.manifest_id, staged.lost)
        return FileChanges([*staged_files(table, staged.parts), *old.rewritten(table)], old.files)

    def lost_files(self, table: Table, store: ObjectStore, manifest_id: int | None = None) -> list[LostFile[DataFile]]:
        return lost_files(table, store, manifest_id)

    def same(self, table: Table, now: StagedAttempt, columns: pa.Schema) -> bool:
        """Return whether the table has exactly the rows that are staged now; reads all rows of the manifest."""
        expected = sum((Digest.parse(part.digest) for part in now.parts), Digest.zero())
        rows = rows_of_manifest(table, now.manifest_id, columns.names)
        try:
            rows = conformed_table(rows, columns)
            return row_digest(rows.rename_columns(names_of_rows(columns.names))) == expected
        except pa.ArrowException:
            return False

    def named_files(self, table: Table) -> list[NamedFile]:
        return named_files(table)

    def differences(self, table: Table, expected: Expected, ledger: Ledger, *, deep: bool) -> Iterator[Problem]:
        """Yield the differences. If ``deep``, compare the rows, one manifest in memory at a time; else only check that
        a file may have rows of each manifest."""
        may_have_rows = manifests_with_files(table)
        shown = ledger.evidence()
        for manifest, publication in expected.published():
            if expected.given_up(manifest.id, publication.attempt):
                continue
            if not deep:
                if shown.get(manifest.id) == publication.attempt and not may_have_rows(manifest.id):
                    yield from differences_of_count(manifest, publication, 0)
                continue
            rows = rows_of_manifest(table, manifest.id, places_of(publication).names)
            yield from differences_of_rows(manifest, publication, rows)

    def located(
        self, table: Table, ledger: Ledger, manifest: Manifest, published: Publication, at: TopicPartition, offset: int
    ) -> Located | None:
        if not rows_at(table, manifest.id, at, offset, ["_offset"]):
            return None
        return Located(ledger.name, published.attempt, RecordStatus.HELD, "a row", ObjectKind.DATA, ledger.target)
