"""A table with every row of every manifest; a replay takes the rows of the earlier attempt out."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from tidemark.model.digest import Digest, row_digest
from tidemark.model.manifest import Manifest, Publication
from tidemark.model.offsets import TopicPartition
from tidemark.model.problem import Problem
from tidemark.model.receipt import ObjectKind, PublishedObject, Receipt
from tidemark.sinks.base import Expected, Ledger
from tidemark.sinks.capabilities import NamedFile
from tidemark.sinks.column_names import NUMBER, TOPIC_PARTITION, names_of_rows
from tidemark.sinks.iceberg.change import FileChanges
from tidemark.sinks.iceberg.files import Replaced, has_row, named_files, replaced, rows_of_manifest, staged_files
from tidemark.sinks.iceberg.merge_evidence import refuse_other_key
from tidemark.sinks.iceberg.table_rows import Publishing, TableRows
from tidemark.sinks.located import Located, RecordStatus

PLACES = ("_topic", TOPIC_PARTITION, "_offset")


class AllRows(TableRows):
    keyed = False

    def refuse(self, table: Table, context: Mapping[str, Any]) -> None:
        refuse_other_key(table, (), context)

    def changes(self, table: Table, publishing: Publishing, context: Mapping[str, Any]) -> FileChanges:
        del context
        old = Replaced() if publishing.is_first else replaced(table, publishing.manifest_id)
        return FileChanges([*staged_files(table, publishing.staged), *old.rewritten(table)], old.files)

    def same(self, table: Table, now: Receipt, parts: Sequence[PublishedObject], columns: pa.Schema) -> bool:
        """Reads all rows of the manifest."""
        expected = sum((Digest.parse(part.digest) for part in parts), Digest.zero())
        rows = rows_of_manifest(table, now.manifest_id, columns.names)
        try:
            rows = rows.select(columns.names).cast(columns)
            return row_digest(rows.rename_columns(names_of_rows(columns.names))) == expected
        except pa.ArrowException:
            return False

    def named_files(self, table: Table) -> list[NamedFile]:
        return named_files(table)

    def differences(self, table: Table, expected: Expected, ledger: Ledger) -> Iterator[Problem]:
        """One manifest in memory at a time."""
        for manifest, publication in expected.published():
            if expected.given_up(manifest.id, publication.attempt):
                continue
            numbered = [NUMBER] if publication.counts.exploded else []
            rows = rows_of_manifest(table, manifest.id, [*PLACES, *numbered])
            yield from _differences_of_manifest(ledger.pipeline_name, manifest, publication, rows)

    def located(
        self, table: Table, ledger: Ledger, manifest: Manifest, published: Publication, at: TopicPartition, offset: int
    ) -> Located | None:
        if not has_row(table, manifest.id, at, offset):
            return None
        return Located(ledger.name, published.attempt, RecordStatus.HELD, "a row", ObjectKind.DATA, ledger.target)


def _differences_of_manifest(
    pipeline_name: str, manifest: Manifest, publication: Publication, rows: pa.Table
) -> Iterator[Problem]:
    """Compares the offsets in the table with the manifest's ranges and with the number of published rows."""
    replay = f"tidemark replay {pipeline_name} --manifest {manifest.id}"
    if rows.num_rows != publication.counts.written:
        what = f"the table has {rows.num_rows:,} rows of it where {publication.counts.written:,} were published"
        yield Problem(manifest.id, what, replay)
    places = rows.group_by(rows.column_names, use_threads=False).aggregate([([], "count_all")])
    twice = places.filter(pc.greater(places.column("count_all"), 1))
    if twice.num_rows:
        first = twice.slice(0, 1).to_pylist()[0]
        place = f"{first['_topic']}-{first[TOPIC_PARTITION]} offset {first['_offset']}"
        what = f"{twice.num_rows:,} rows twice, first {place}"
        yield Problem(manifest.id, what, replay)
    spans = {(covered.at.topic, covered.at.partition): covered for covered in manifest.ranges}
    for part in (
        rows.group_by(["_topic", TOPIC_PARTITION]).aggregate([("_offset", "min"), ("_offset", "max")]).to_pylist()
    ):
        covered = spans.get((part["_topic"], part[TOPIC_PARTITION]))
        if covered is None or part["_offset_min"] < covered.start or part["_offset_max"] >= covered.end:
            place = f"{part['_topic']}-{part[TOPIC_PARTITION]} offsets {part['_offset_min']} to {part['_offset_max']}"
            yield Problem(manifest.id, f"the table has rows of it from {place}, which it does not cover", replay)
