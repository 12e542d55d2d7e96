"""The audit of a PostgreSQL table: markers agree with publications, and every row is of a published manifest.

A row that was replaced by a newer one of its key is gone by design, so a table cannot show that all rows were merged;
that they were is what the marker says, which was written in the same transaction. Keys never go, so there are at least
as many rows as any manifest had keys.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tidemark.database.client import ManifestDatabase
from tidemark.manifest import Manifest, ManifestState, Publication
from tidemark.paths import RecordName
from tidemark.sinks.base import Sink
from tidemark.sinks.difference import Difference
from tidemark.sinks.postgres.target import PostgresTarget

_BY_HAND = "no replay takes rows away, so first delete those that were put there by hand"


def differences_of_table(
    database: ManifestDatabase, sink: Sink, table: PostgresTarget, manifests: Sequence[Manifest], *, deep: bool
) -> Iterator[Difference]:
    """What the table and the tables beside it hold and should not; ``deep`` looks at every row."""
    own = {one.id: one for one in manifests}
    yield from _left_in_staging(database, sink, own)
    markers = sink.newest_records()
    yield from _unpublished(database, sink, own, markers)
    strange = {"a marker": set(markers)}
    published = [(one, seen) for one in manifests if (seen := one.published(sink.name))]
    there = table.there()
    if published and not there:
        yield Difference(None, f"{sink.target} does not exist, and has rows of {len(published):,} manifests published",
                         f"restore it; or replay each manifest: tidemark manifests {sink.pipeline_name}")  # fmt: skip
    elif deep and there:
        rows = table.rows_by_manifest()  # one pass over the table, however many manifests there are
        dead = table.dead_letters_by_manifest()
        strange |= {"rows": set(rows), "dead letters": set(dead)}
        yield from _contents(sink, table, published, rows, dead)
    yield from _unknown(database, sink, strange)


def _left_in_staging(database: ManifestDatabase, sink: Sink, own: Mapping[int, Manifest]) -> Iterator[Difference]:
    staged = [one for one in sink.staged_manifests() if one in own]
    now = database.manifests(ids=staged) if staged else []
    dead = [one.id for one in now if one.state is ManifestState.DONE and not one.alive]
    still = set(sink.staged_manifests()) if dead else set()  # one that was at work may have ended, and cleaned up
    for manifest in dead:
        if manifest in still:
            what = "staging was left by an attempt that died"
            yield Difference(manifest, what, f"tidemark retry {sink.pipeline_name}")


def _unpublished(
    database: ManifestDatabase, sink: Sink, own: Mapping[int, Manifest], markers: Mapping[int, RecordName]
) -> Iterator[Difference]:
    """Rows are merged with their marker, so a marker of more than what is published tells of an attempt that died."""
    ahead = [one for one in markers.values() if one.manifest_id in own and _is_ahead(one, own[one.manifest_id], sink)]
    for now in database.manifests(ids=[one.manifest_id for one in ahead]) if ahead else []:
        marker = markers[now.id]
        if marker.attempt > now.attempt:
            what = f"{sink.target} has a marker of attempt {marker.attempt}, this database ends at {now.attempt}"
            yield Difference(now.id, what, f"tidemark adopt {sink.pipeline_name} --why TEXT")
        elif not now.alive and _is_ahead(marker, now, sink):
            what = f"the rows of attempt {marker.attempt} are in the table and not published: it died before that"
            yield Difference(now.id, what, f"tidemark retry {sink.pipeline_name}")


def _is_ahead(marker: RecordName, manifest: Manifest, sink: Sink) -> bool:
    published = manifest.published(sink.name)
    return published is None or marker.attempt > published.attempt


def _unknown(database: ManifestDatabase, sink: Sink, strange: Mapping[str, set[int]]) -> Iterator[Difference]:
    """What is there of manifests that are of no pipeline of this database."""
    for unknown in sorted(database.unknown_manifests(sorted(set().union(*strange.values())))):
        kinds = " and ".join(kind for kind, of in strange.items() if unknown in of)
        yield Difference(None, f"{sink.target} has {kinds} of manifest {unknown}, which this database does not know",
                         f"tidemark adopt {sink.pipeline_name} --why TEXT")  # fmt: skip


def _contents(
    sink: Sink,
    table: PostgresTarget,
    published: list[tuple[Manifest, Publication]],
    rows: Mapping[int, list[dict[str, Any]]],
    dead: Mapping[int, int],
) -> Iterator[Difference]:
    """All rows and dead letters against all publications."""
    superseded = table.superseded()
    there = sum(row["rows"] for of in rows.values() for row in of)
    for manifest, publication in published:
        yield from _rows(sink, manifest, publication, rows.get(manifest.id, []))
        mend, counts = f"tidemark replay {sink.pipeline_name} --manifest {manifest.id}", publication.counts
        if (kept := dead.get(manifest.id, 0)) != counts.dead_lettered:
            yield Difference(manifest.id, f"{kept:,} dead letters are kept where {counts.dead_lettered:,} were", mend)
        # The table's marker knows how many rows a newer one replaced also when the database was lost.
        keys = counts.written - max(counts.superseded, superseded.get(manifest.id, 0))
        if there < keys:
            what = f"the table has {there:,} rows in all, and this manifest had {keys:,} keys: rows were taken away"
            yield Difference(manifest.id, what, mend)


def _rows(
    sink: Sink, manifest: Manifest, publication: Publication, found: list[dict[str, Any]]
) -> Iterator[Difference]:
    mend = f"tidemark replay {sink.pipeline_name} --manifest {manifest.id}"
    counts = publication.counts
    merged = counts.written - counts.superseded - counts.stale
    # What a replay with other code did not produce any more has a lower attempt, and stays; no attempt has number 0.
    if (rows := sum(row["rows"] for row in found if row["attempt"] in (0, publication.attempt))) > merged:
        what = f"the table has {rows:,} rows of it where {merged:,} were merged; {_BY_HAND}"
        yield Difference(manifest.id, what, mend)
    for row in found:
        if not _inside(manifest, row):
            place = f"{row['topic']}-{row['partition']} offsets {row['first']} to {row['last']}"
            what = f"the table has rows of it from {place}, which it does not cover; {_BY_HAND}"
            yield Difference(manifest.id, what, mend)
        if row["attempt"] > publication.attempt:
            what = f"the table has rows of attempt {row['attempt']}, published is attempt {publication.attempt}"
            yield Difference(manifest.id, what, f"tidemark retry {sink.pipeline_name}")


def _inside(manifest: Manifest, row: dict[str, Any]) -> bool:
    return any(
        (one.at.topic, one.at.partition) == (row["topic"], row["partition"])
        and one.start <= row["first"]
        and row["last"] < one.end
        for one in manifest.ranges
    )
