"""A table with every row of every manifest, with a partition for each; a replay removes the files of its partition."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from tidemark.model.digest import Digest
from tidemark.model.manifest import Manifest, Publication
from tidemark.model.offsets import TopicPartition
from tidemark.model.problem import Problem
from tidemark.model.receipt import ObjectKind, PublishedObject
from tidemark.providers.delta.files import (
    TableFile,
    added,
    digest_of_files,
    is_as_written,
    rows_at,
    rows_of_files,
)
from tidemark.providers.delta.published_rows import PublishedRows, TableChanges
from tidemark.providers.lake_tables.audit import PLACES, differences_of_count, differences_of_rows, places_of
from tidemark.providers.lake_tables.lost_files import NO_MANIFEST
from tidemark.providers.lake_tables.table_rows import StagedAttempt
from tidemark.providers.tables.column_names import MANIFEST_ID, TOPIC_PARTITION
from tidemark.sinks.base import Expected, Ledger, mended_by_replay
from tidemark.sinks.located import Located, RecordStatus
from tidemark.storage.base import Move


class ManifestRows(PublishedRows):
    partition = MANIFEST_ID
    evidence_value = 0  # the ids of manifests begin with 1

    def manifests(self, table: DeltaTable) -> set[int]:
        """Return the manifests with rows in the table; reads only the log."""
        return {file.value for file in self.files(table) if file.rows != 0} - {None}

    def manifests_of(self, file: TableFile) -> tuple[int, int]:
        return NO_MANIFEST if file.value is None else (file.value, file.value)

    def moves(self, staged: StagedAttempt) -> list[Move]:
        return [Move(part.staged, part.path, part.bytes) for part in _table_objects(staged)]

    def changes(self, table: DeltaTable, staged: StagedAttempt, context: Mapping[str, Any]) -> TableChanges:
        del context
        removed = [file.removed(self.partition) for file in self._manifest_files(table, staged.manifest_id)]
        parts = _table_objects(staged)
        put = added(self.store, table, self.partition, staged.manifest_id, parts)
        return TableChanges([*removed, *put], {part.path: part.bytes for part in parts})

    def _manifest_files(self, table: DeltaTable, manifest_id: int) -> list[TableFile]:
        return [file for file in self.files(table) if file.value == manifest_id]

    def same(self, table: DeltaTable, now: StagedAttempt, columns: pa.Schema) -> bool:
        """Return whether the table has exactly the rows that are staged now; reads all rows of the manifest."""
        expected = sum((Digest.parse(part.digest) for part in now.parts), Digest.zero())
        files = self._manifest_files(table, now.manifest_id)
        try:
            digest = digest_of_files(self.store, files, columns, self.partition)
        except (OSError, pa.ArrowException):
            return False
        return bool(digest == expected)

    def differences(self, table: DeltaTable, expected: Expected, ledger: Ledger, *, deep: bool) -> Iterator[Problem]:
        """Compare how many rows each manifest has by the log. If ``deep``, compare the rows, one manifest in memory at
        a time."""
        evidence = ledger.evidence()
        files: dict[int, list[TableFile]] = {}
        for file in self.files(table):
            files.setdefault(file.value, []).append(file)
        for manifest, publication in expected.published():
            if expected.given_up(manifest.id, publication.attempt):
                continue
            if evidence.get(manifest.id) != publication.attempt:
                continue  # the audit reports other attempts elsewhere
            of_manifest = files.get(manifest.id, [])
            if deep:
                receipt = expected.receipt(manifest.id, publication.attempt)
                objects = receipt.objects_of(ledger.name) if receipt else ()
                parts = [part for part in objects if part.kind is ObjectKind.DATA]
                written = _table_objects(StagedAttempt(manifest.id, publication.attempt, parts))
                yield from self._differences_of_rows(manifest, publication, of_manifest, written)
            elif all(file.rows is not None for file in of_manifest):
                count = sum(file.rows or 0 for file in of_manifest)
                yield from differences_of_count(manifest, publication, count)

    def _differences_of_rows(
        self,
        manifest: Manifest,
        publication: Publication,
        files: Sequence[TableFile],
        written: Sequence[PublishedObject],
    ) -> Iterator[Problem]:
        """Read all rows of a manifest. Compare files that nobody has rewritten with what was written."""
        columns = places_of(publication)
        try:
            rows = pa.Table.from_batches(rows_of_files(self.store, files, columns, self.partition), columns)
        except (OSError, pa.ArrowException) as error:
            yield mended_by_replay(manifest, f"a file of the table cannot be read: {str(error)[:200]}")
            return
        yield from differences_of_rows(manifest, publication, rows)
        named = {file.path for file in files}
        for part in written if named == {part.path for part in written} else ():
            if not is_as_written(self.store, part, self.partition, manifest.id):
                yield mended_by_replay(manifest, f"a file holds other rows than Tidemark wrote: {part.path}")

    def located(
        self, table: DeltaTable, ledger: Ledger, manifest: Manifest, published: Publication, at: TopicPartition,
        offset: int,
    ) -> Located | None:  # fmt: skip
        place = {"_topic": at.topic, TOPIC_PARTITION: at.partition, "_offset": offset}
        for file in self._manifest_files(table, manifest.id):
            if rows_at(self.store, [file], place, PLACES, self.partition):
                where = f"{self.store.root}/{file.path}"
                return Located(ledger.name, published.attempt, RecordStatus.HELD, "a row", ObjectKind.DATA, where)
        return None


def _table_objects(staged: StagedAttempt) -> list[PublishedObject]:
    """Return the files with rows of an attempt, by their keys in the table.

    A receipt does not have these keys, because the log of the table says which files count.
    """
    folder = f"{MANIFEST_ID}={staged.manifest_id}"
    return [replace(part, path=f"{folder}/{part.staged.rpartition('/')[2]}") for part in staged.parts]
