"""A table with every row of every manifest, in a partition for each; a replay takes out what is in its partition."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from tidemark.model.digest import Digest
from tidemark.model.manifest import Manifest, Publication
from tidemark.model.offsets import TopicPartition
from tidemark.model.problem import Problem
from tidemark.model.receipt import ObjectKind, PublishedObject
from tidemark.sinks.base import Expected, Ledger
from tidemark.sinks.column_names import MANIFEST_ID, NUMBER, TOPIC_PARTITION
from tidemark.sinks.delta.evidence import TableEvidence
from tidemark.sinks.delta.files import (
    TableFile,
    added,
    digest_of_files,
    is_as_written,
    missing_file,
    rows_at,
    rows_of_files,
)
from tidemark.sinks.delta.properties import KEY, refuse_other_property
from tidemark.sinks.delta.published_rows import PublishedRows, StagedAttempt, TableChanges
from tidemark.sinks.located import Located, RecordStatus
from tidemark.storage.base import Move, ObjectStore

_PLACES: Final = pa.schema([("_topic", pa.string()), (TOPIC_PARTITION, pa.int32()), ("_offset", pa.int64())])


class ManifestRows(PublishedRows):
    keyed = False
    partition = MANIFEST_ID
    evidence_value = 0  # ids of manifests begin with 1

    def manifests(self, table: DeltaTable) -> set[int]:
        """The log says it."""
        return {file.value for file in self.files(table) if file.rows != 0} - {None}

    def columns(self, stored: pa.Schema) -> pa.Schema:
        return stored

    def properties(self) -> dict[str, str]:
        return {}

    def refuse(self, table: DeltaTable, context: Mapping[str, Any]) -> None:
        refuse_other_property(table, KEY, "[]", context)

    def order(self) -> dict[str, Any]:
        return {}

    def moves(self, publishing: StagedAttempt) -> list[Move]:
        return [Move(part.staged, part.path, part.bytes) for part in _in_table(publishing)]

    def changes(
        self, table: DeltaTable, evidence: TableEvidence, publishing: StagedAttempt, context: Mapping[str, Any]
    ) -> TableChanges:
        del evidence, context
        removed = [file.removed(self.partition) for file in self._of_manifest(table, publishing.manifest_id)]
        parts = _in_table(publishing)
        put = added(self.store, table, self.partition, publishing.manifest_id, parts)
        return TableChanges([*removed, *put], {part.path: part.bytes for part in parts})

    def _of_manifest(self, table: DeltaTable, manifest_id: int) -> list[TableFile]:
        return [file for file in self.files(table) if file.value == manifest_id]

    def same(self, table: DeltaTable, now: StagedAttempt, columns: pa.Schema) -> bool:
        """Reads all rows of the manifest."""
        expected = sum((Digest.parse(part.digest) for part in now.parts), Digest.zero())
        files = self._of_manifest(table, now.manifest_id)
        try:
            digest = digest_of_files(self.store, files, columns, self.partition)
        except (OSError, pa.ArrowException):
            return False
        return bool(digest == expected)

    def differences(self, table: DeltaTable, expected: Expected, ledger: Ledger, *, deep: bool) -> Iterator[Problem]:
        """The log says how many rows each manifest has; deep, one manifest is in memory at a time."""
        evidence = ledger.evidence()
        sizes = dict(self.store.list())  # in one go: to ask for each file would take hours in a bucket with many
        files: dict[int, list[TableFile]] = {}
        for file in self.files(table):
            files.setdefault(file.value, []).append(file)
        for manifest, publication in expected.published():
            if expected.given_up(manifest.id, publication.attempt):
                continue
            if evidence.get(manifest.id) != publication.attempt:
                continue  # which is told apart
            receipt = expected.receipt(manifest.id, publication.attempt)
            objects = receipt.objects_of(ledger.name) if receipt else ()
            parts = [part for part in objects if part.kind is ObjectKind.DATA]
            written = _in_table(StagedAttempt(manifest.id, publication.attempt, parts))
            of_manifest = files.get(manifest.id, [])
            audited = _Audited(ledger.pipeline_name, manifest, publication, of_manifest, written, self.store)
            missing = missing_file(sizes, of_manifest)
            yield from audited.differences(missing, deep=deep)

    def located(
        self, table: DeltaTable, ledger: Ledger, manifest: Manifest, published: Publication, at: TopicPartition,
        offset: int,
    ) -> Located | None:  # fmt: skip
        place = {"_topic": at.topic, TOPIC_PARTITION: at.partition, "_offset": offset}
        for file in self._of_manifest(table, manifest.id):
            if rows_at(self.store, [file], place, _PLACES, self.partition):
                where = f"{self.store.root}/{file.path}"
                return Located(ledger.name, published.attempt, RecordStatus.HELD, "a row", ObjectKind.DATA, where)
        return None


def _in_table(publishing: StagedAttempt) -> list[PublishedObject]:
    """The files with rows of an attempt, by their keys in the table. A receipt has none, since the log of the table
    says which files count."""
    folder = f"{MANIFEST_ID}={publishing.manifest_id}"
    return [replace(part, path=f"{folder}/{part.staged.rpartition('/')[2]}") for part in publishing.parts]


class _Audited:
    """One published manifest, and the files that the table names of it."""

    def __init__(
        self,
        pipeline_name: str,
        manifest: Manifest,
        publication: Publication,
        files: Sequence[TableFile],
        written: Sequence[PublishedObject],
        store: ObjectStore,
    ) -> None:
        self._manifest = manifest
        self._publication = publication
        self._files = files
        self._written = written
        self._store = store
        self._replay = f"tidemark replay {pipeline_name} --manifest {manifest.id}"

    def differences(self, missing: str | None, *, deep: bool) -> Iterator[Problem]:
        """``missing`` names a file that is not there."""
        if missing is not None:
            yield self._problem(missing)
        elif deep:
            yield from self._rows()
        elif all(file.rows is not None for file in self._files):
            yield from self._count(sum(file.rows or 0 for file in self._files))

    def _count(self, rows: int) -> Iterator[Problem]:
        written = self._publication.counts.written
        if rows != written:
            yield self._problem(f"the table has {rows:,} rows of it where {written:,} were published")

    def _rows(self) -> Iterator[Problem]:
        """Compares the offsets in the table with the ranges of the manifest, and files that nobody has rewritten with
        what was written."""
        numbered = [pa.field(NUMBER, pa.int32())] if self._publication.counts.exploded else []
        columns = pa.schema([*_PLACES, *numbered])
        try:
            rows = pa.Table.from_batches(rows_of_files(self._store, self._files, columns, MANIFEST_ID), columns)
        except (OSError, pa.ArrowException) as error:
            yield self._problem(f"a file of the table cannot be read: {str(error)[:200]}")
            return
        yield from self._count(rows.num_rows)
        places = rows.group_by(rows.column_names, use_threads=False).aggregate([([], "count_all")])
        twice = places.filter(pc.greater(places.column("count_all"), 1))
        if twice.num_rows:
            first = twice.slice(0, 1).to_pylist()[0]
            place = f"{first['_topic']}-{first[TOPIC_PARTITION]} offset {first['_offset']}"
            yield self._problem(f"{twice.num_rows:,} rows twice, first {place}")
        yield from self._beyond(rows)
        named = {file.path for file in self._files}
        for part in self._written if named == {part.path for part in self._written} else ():
            if not is_as_written(self._store, part, MANIFEST_ID, self._manifest.id):
                yield self._problem(f"{part.path} holds other rows than were written")

    def _beyond(self, rows: pa.Table) -> Iterator[Problem]:
        spans = {(covered.at.topic, covered.at.partition): covered for covered in self._manifest.ranges}
        bounds = [("_offset", "min"), ("_offset", "max")]
        for part in rows.group_by(["_topic", TOPIC_PARTITION]).aggregate(bounds).to_pylist():
            covered = spans.get((part["_topic"], part[TOPIC_PARTITION]))
            if covered is None or part["_offset_min"] < covered.start or part["_offset_max"] >= covered.end:
                offsets = f"{part['_offset_min']} to {part['_offset_max']}"
                place = f"{part['_topic']}-{part[TOPIC_PARTITION]} offsets {offsets}"
                yield self._problem(f"the table has rows of it from {place}, which it does not cover")

    def _problem(self, what: str) -> Problem:
        return Problem(self._manifest.id, what, self._replay)
