"""The audit of an Iceberg table: every row is of a published manifest, and every published row is there."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.model.manifest import Manifest, Publication
from tidemark.model.problem import Problem
from tidemark.sinks.base import Contents, Expected, Ledger
from tidemark.sinks.capabilities import MayBeRolledBack
from tidemark.sinks.column_names import NUMBER, TOPIC_PARTITION
from tidemark.sinks.iceberg.files import manifests_in, rows_of_manifest
from tidemark.sinks.iceberg.table import IcebergTarget

PLACES = ("_topic", TOPIC_PARTITION, "_offset")


def differences_of_iceberg(
    expected: Expected,
    contents: Contents,
    output: MayBeRolledBack,
    ledger: Ledger,
    target: IcebergTarget,
    *,
    deep: bool,
) -> Iterator[Problem]:
    """What the table holds and should not, or lacks; ``deep`` reads every row, one manifest in memory at a time."""
    unvouched = output.unvouched(expected)
    if deep:
        shown = ledger.evidence()
        with target.reading() as reading:
            present = manifests_in(reading)
            yield from _strays(expected, ledger, present - shown.keys())
            for manifest, publication in expected.published():
                if expected.given_up(manifest.id, publication.attempt):
                    continue
                numbered = [NUMBER] if publication.counts.exploded else []
                rows = rows_of_manifest(reading, manifest.id, [*PLACES, *numbered])
                yield from _rows(ledger.pipeline_name, manifest, publication, rows)
        contents["rows"] |= present - unvouched.keys()
    for manifest_id in unvouched:
        what = (
            f"{ledger.target} has rows of manifest {manifest_id}, which this database does not know: another program "
        )
        adopt = f"tidemark db adopt {ledger.pipeline_name} --why TEXT"
        yield Problem(None, f"{what}rolled it back", adopt)


def _strays(expected: Expected, ledger: Ledger, stray: set[int]) -> Iterator[Problem]:
    for manifest_id in sorted(stray - expected.not_own(stray)):
        yield Problem(
            manifest_id,
            f"{ledger.target} has rows of it, and does not say so: they were put there by hand, or came back with a "
            "rollback",
            f"tidemark replay {ledger.pipeline_name} --manifest {manifest_id}",
        )


def _rows(pipeline_name: str, manifest: Manifest, publication: Publication, rows: pa.Table) -> Iterator[Problem]:
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
