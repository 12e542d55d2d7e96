"""The audit of a PostgreSQL table: markers agree with publications, and every row is of a published manifest.

A row that was replaced by a newer one of its key is gone by design, so a table cannot show that all rows were merged;
that they were is what the marker says, which was written in the same transaction. Keys never go, so there are at least
as many rows as any manifest had keys.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from tidemark.difference import Difference
from tidemark.layout import RecordName
from tidemark.lifecycle import Lifecycle
from tidemark.model import Manifest, ManifestState
from tidemark.sinks.postgres import PostgresSink

_BY_HAND = "no replay takes rows away, so first delete those that were put there by hand"


def differences_of_table(
    lifecycle: Lifecycle, sink: PostgresSink, manifests: list[Manifest], *, deep: bool
) -> Iterator[Difference]:
    """What the table and the tables beside it hold and should not; ``deep`` looks at every row."""
    own = {one.id: one for one in manifests}
    staged = [one for one in sink.staged_manifests() if one in own]
    for manifest in lifecycle.database.manifests(ids=staged) if staged else []:
        if manifest.state is ManifestState.DONE and not manifest.alive and manifest.id in sink.staged_manifests():
            what = "staging was left by an attempt that died"
            yield Difference(manifest.id, what, f"tidemark retry {sink.pipeline}")
    markers = sink.newest_records()
    yield from _unpublished(lifecycle, sink, own, markers)
    strange = {"a marker": set(markers)}
    published = [one for one in manifests if one.published(sink.name)]
    there = sink.has_table()
    if published and not there:
        yield Difference(None, f"{sink.target} does not exist, and has rows of {len(published):,} manifests published",
                         f"restore it; or replay each manifest: tidemark manifests {sink.pipeline}")  # fmt: skip
    elif deep and there:
        found = sink.rows_by_manifest()  # one pass over the table, however many manifests there are
        strange |= {"rows": set(found), "dead letters": sink.manifests_of_dead_letters()}
        superseded, rows = sink.superseded(), sum(row["rows"] for of in found.values() for row in of)
        for manifest in published:
            yield from _rows(sink, manifest, found.get(manifest.id, []))
            yield from _taken_away(sink, manifest, superseded.get(manifest.id, 0), rows)
    yield from _unknown(lifecycle, sink, strange)


def _unpublished(
    lifecycle: Lifecycle, sink: PostgresSink, own: Mapping[int, Manifest], markers: Mapping[int, RecordName]
) -> Iterator[Difference]:
    """Rows are merged with their marker, so a marker of more than what is published tells of an attempt that died."""
    ahead = [one for one in markers.values() if one.manifest in own and _is_ahead(one, own[one.manifest], sink)]
    for now in lifecycle.database.manifests(ids=[one.manifest for one in ahead]) if ahead else []:
        marker = markers[now.id]
        if marker.attempt > now.attempt:
            what = f"{sink.target} has a marker of attempt {marker.attempt}, this database ends at {now.attempt}"
            yield Difference(now.id, what, f"tidemark adopt {sink.pipeline} --why TEXT")
        elif not now.alive and _is_ahead(marker, now, sink):
            what = f"the rows of attempt {marker.attempt} are in the table and not published: it died before that"
            yield Difference(now.id, what, f"tidemark retry {sink.pipeline}")


def _is_ahead(marker: RecordName, manifest: Manifest, sink: PostgresSink) -> bool:
    published = manifest.published(sink.name)
    return published is None or marker.attempt > published.attempt


def _unknown(lifecycle: Lifecycle, sink: PostgresSink, strange: Mapping[str, set[int]]) -> Iterator[Difference]:
    """What is there of manifests that are of no pipeline of this database."""
    ids = set().union(*strange.values())
    known = {one.id for one in lifecycle.database.manifests(ids=sorted(ids))} if ids else set()
    for unknown in sorted(ids - known):
        kinds = " and ".join(kind for kind, of in strange.items() if unknown in of)
        yield Difference(None, f"{sink.target} has {kinds} of manifest {unknown}, which this database does not know",
                         f"tidemark adopt {sink.pipeline} --why TEXT")  # fmt: skip


def _taken_away(sink: PostgresSink, manifest: Manifest, superseded: int, rows: int) -> Iterator[Difference]:
    """``superseded`` is what the table's marker knows; that of the publication was lost if the database was."""
    publication = manifest.published(sink.name)
    assert publication is not None
    keys = publication.counts.written - max(publication.counts.superseded, superseded)
    if rows < keys:
        what = f"the table has {rows:,} rows in all, and this manifest had {keys:,} keys: rows were taken away"
        yield Difference(manifest.id, what, f"tidemark replay {sink.pipeline} --manifest {manifest.id}")


def _rows(sink: PostgresSink, manifest: Manifest, found: list[dict[str, Any]]) -> Iterator[Difference]:
    publication = manifest.published(sink.name)
    assert publication is not None
    mend = f"tidemark replay {sink.pipeline} --manifest {manifest.id}"
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
            yield Difference(manifest.id, what, f"tidemark retry {sink.pipeline}")
    if (kept := sink.dead_letters(manifest.id)) != counts.dead_lettered:
        yield Difference(manifest.id, f"{kept:,} dead letters are kept where {counts.dead_lettered:,} were", mend)


def _inside(manifest: Manifest, row: dict[str, Any]) -> bool:
    return any(
        (one.at.topic, one.at.partition) == (row["topic"], row["partition"])
        and one.start <= row["first"]
        and row["last"] < one.end
        for one in manifest.ranges
    )
