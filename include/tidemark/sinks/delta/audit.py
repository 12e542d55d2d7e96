"""The audit of a Delta table: every row is of a published manifest, and every published row is there."""

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.model.manifest import Manifest, Publication
from tidemark.model.problem import Problem
from tidemark.model.receipt import ObjectKind, PublishedObject
from tidemark.sinks.base import Contents, Expected, Ledger
from tidemark.sinks.capabilities import MayBeRolledBack
from tidemark.sinks.column_names import MANIFEST_ID, NUMBER, TOPIC_PARTITION
from tidemark.sinks.delta.files import TableFile, is_as_written, rows_of_files
from tidemark.sinks.delta.table import DeltaTarget
from tidemark.sinks.delta.writer import in_table

_PLACES = pa.schema([("_topic", pa.string()), (TOPIC_PARTITION, pa.int32()), ("_offset", pa.int64())])


def differences_of_delta(
    expected: Expected,
    contents: Contents,
    output: MayBeRolledBack,
    ledger: Ledger,
    table: DeltaTarget,
    *,
    deep: bool,
) -> Iterator[Problem]:
    """What the table holds and should not, or lacks. The log says how many rows each manifest has; ``deep`` reads every
    row, one manifest in memory at a time."""
    unvouched = output.unvouched(expected)
    evidence = ledger.evidence()
    files: dict[int, list[TableFile]] = {}
    for file in table.files(table.loaded()):
        files.setdefault(file.value, []).append(file)
    present = {manifest_id for manifest_id, named in files.items() if any(file.rows != 0 for file in named)}
    contents["rows"] |= {*present} - unvouched.keys()
    yield from _strays(expected, ledger, present - evidence.keys() - unvouched.keys())
    for manifest, publication in expected.published():
        if expected.given_up(manifest.id, publication.attempt) or evidence.get(manifest.id) != publication.attempt:
            continue
        receipt = expected.receipt(manifest.id, publication.attempt)
        parts = output.parts(receipt, ObjectKind.DATA) if receipt else []
        written = [replace(part, path=in_table(part.staged, manifest.id)) for part in parts]
        audited = _Manifest(ledger.pipeline_name, manifest, publication, files.get(manifest.id, []), written, table)
        yield from audited.differences(deep=deep)
    for manifest_id in unvouched:
        what = f"{ledger.target} has rows of manifest {manifest_id}, which this database does not know, and no evidence"
        yield Problem(None, what, f"tidemark db adopt {ledger.pipeline_name} --why TEXT")


def _strays(expected: Expected, ledger: Ledger, stray: set[int]) -> Iterator[Problem]:
    for manifest_id in sorted(stray - expected.not_own(stray)):
        yield Problem(
            manifest_id,
            f"{ledger.target} has rows of it, and does not say so: they were put there by hand",
            f"tidemark replay {ledger.pipeline_name} --manifest {manifest_id}",
        )


class _Manifest:
    """One published manifest, and the files that the table names of it."""

    def __init__(
        self,
        pipeline_name: str,
        manifest: Manifest,
        publication: Publication,
        files: list[TableFile],
        written: list[PublishedObject],
        table: DeltaTarget,
    ) -> None:
        self._manifest = manifest
        self._publication = publication
        self._files = files
        self._written = written
        self._store = table.store
        self._replay = f"tidemark replay {pipeline_name} --manifest {manifest.id}"

    def differences(self, *, deep: bool) -> Iterator[Problem]:
        missing = [file for file in self._files if self._store.size(file.path) != file.bytes]
        if missing:
            what = f"{missing[0].path}, which the table names, is missing, or has another size"
            yield self._problem(what)
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
