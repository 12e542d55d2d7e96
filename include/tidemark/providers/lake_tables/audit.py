"""Compares the rows of a lake table with what was published, whatever the format of the table."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.model.manifest import Manifest, Publication
from tidemark.model.problem import Problem
from tidemark.providers.lake_tables.lost_files import LostFile
from tidemark.providers.lake_tables.row_origins import RowOrigins
from tidemark.providers.tables.audit import differences_of_manifest, too_few_rows
from tidemark.providers.tables.column_names import NUMBER, TOPIC_PARTITION
from tidemark.sinks.base import Expected, Ledger, mended_by_replay

PLACES = pa.schema([("_topic", pa.string()), (TOPIC_PARTITION, pa.int32()), ("_offset", pa.int64())])


def places_of(publication: Publication) -> pa.Schema:
    """Return the columns that identify the rows of a published manifest."""
    numbered = [pa.field(NUMBER, pa.int32())] if publication.counts.exploded else []
    return pa.schema([*PLACES, *numbered])


def differences_of_count(manifest: Manifest, publication: Publication, rows: int) -> Iterator[Problem]:
    written = publication.counts.written
    if rows != written:
        yield mended_by_replay(manifest, f"the table has {rows:,} rows of it where {written:,} were published")


def differences_of_rows(manifest: Manifest, publication: Publication, rows: pa.Table) -> Iterator[Problem]:
    """Compare all rows of a manifest, with the columns of ``places_of``, with its ranges and its number of published
    rows."""
    yield from differences_of_count(manifest, publication, rows.num_rows)
    places = rows.group_by(rows.column_names, use_threads=False).aggregate([([], "count_all")])
    twice = places.filter(pc.greater(places.column("count_all"), 1))
    if twice.num_rows:
        first = twice.slice(0, 1).to_pylist()[0]
        place = f"{first['_topic']}-{first[TOPIC_PARTITION]} offset {first['_offset']}"
        yield mended_by_replay(manifest, f"{twice.num_rows:,} rows twice, first {place}")
    spans = {(covered.at.topic, covered.at.partition): covered for covered in manifest.ranges}
    bounds = [("_offset", "min"), ("_offset", "max")]
    for part in rows.group_by(["_topic", TOPIC_PARTITION]).aggregate(bounds).to_pylist():
        covered = spans.get((part["_topic"], part[TOPIC_PARTITION]))
        if covered is None or part["_offset_min"] < covered.start or part["_offset_max"] >= covered.end:
            place = f"{part['_topic']}-{part[TOPIC_PARTITION]} offsets {part['_offset_min']} to {part['_offset_max']}"
            yield mended_by_replay(manifest, f"the table has rows of it from {place}, which it does not cover")


def rows_without_evidence(expected: Expected, ledger: Ledger, present: set[int]) -> Iterator[Problem]:
    """Yield a problem for each manifest of this pipeline that has rows in the table but no evidence."""
    stray = present - ledger.evidence().keys()
    for manifest_id in sorted(stray - expected.not_own(stray)):
        what = f"{ledger.target} has rows of it, but no evidence: they were put there by hand"
        yield Problem(manifest_id, what, f"tidemark replay {ledger.pipeline_name} --manifest {manifest_id}")


def problems_of_orphans(ledger: Ledger, orphans: Iterable[int]) -> Iterator[Problem]:
    """Yield a problem for each manifest that ``MayBeRolledBack`` has found."""
    for manifest_id in orphans:
        what = f"{ledger.target} has rows of manifest {manifest_id}, which this database does not know, and no evidence"
        yield Problem(None, what, f"tidemark db adopt {ledger.pipeline_name} --why TEXT")


def too_few_current_rows(expected: Expected, rows: int) -> Iterator[Problem]:
    """Yield a problem for each manifest that had more keys than the table has rows, which are at most ``rows``."""
    for manifest, publication in expected.published():
        keys = publication.counts.written - publication.counts.superseded
        if rows < keys and not expected.given_up(manifest.id, publication.attempt):
            yield too_few_rows(manifest, rows, keys)


def differences_of_current_rows(expected: Expected, ledger: Ledger, rows_now: RowOrigins) -> Iterator[Problem]:
    """Compare all rows of a table with a key with all publications; ``too_few_current_rows`` compares their number."""
    for manifest, publication in expected.published():
        yield from differences_of_manifest(manifest, publication, rows_now.origins.get(manifest.id, []))
    if rows_now.keys < rows_now.rows:
        yield Problem(
            None,
            f"{ledger.target} has {rows_now.rows:,} rows of {rows_now.keys:,} keys: another program has added rows",
            "delete all but one row of each key",
        )


def differences_of_lost_files(
    expected: Expected, ledger: Ledger, lost: Iterable[LostFile[Any]], shown: Mapping[int, int]
) -> Iterator[Problem]:
    """Yield a problem for each published manifest that may have rows in a lost file, and for lost files without such a
    manifest.

    ``shown`` has the attempts that the table shows. A manifest for which it shows another attempt is reported
    elsewhere.
    """
    lost = list(lost)
    published = [
        manifest
        for manifest, publication in expected.published()
        if shown.get(manifest.id) == publication.attempt and not expected.given_up(manifest.id, publication.attempt)
    ]
    reported: set[str] = set()
    for manifest in published:
        of_manifest = sorted({file.what for file in lost if file.may_have_rows_of(manifest.id)})
        reported.update(of_manifest)
        if of_manifest:
            more = f", and {len(of_manifest) - 1:,} more" if len(of_manifest) > 1 else ""
            yield mended_by_replay(manifest, f"{of_manifest[0]}{more}")
    any_manifest = max((manifest.id for manifest, _ in expected.published()), default=None)
    for what in sorted({file.what for file in lost} - reported):
        replay = (
            f"; or drop it: tidemark replay {ledger.pipeline_name} --manifest {any_manifest}" if any_manifest else ""
        )
        yield Problem(None, f"{what}, and its readers fail", f"restore it{replay}")
