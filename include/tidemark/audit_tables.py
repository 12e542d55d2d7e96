"""The audit of a PostgreSQL table: markers agree with publications, and every row is of a published manifest.

A row that was replaced by a newer one of its key is gone by design, so a table cannot show that all rows were merged;
that they were is what the marker says, which was written in the same transaction.
"""

from collections.abc import Iterator
from typing import Any

from tidemark.difference import Difference
from tidemark.lifecycle import Lifecycle
from tidemark.model import Manifest, ManifestState, Publication
from tidemark.sinks.postgres import PostgresSink

_BY_HAND = "no replay takes rows away, so first delete those that were put there by hand"


def differences_of_table(
    lifecycle: Lifecycle, sink: PostgresSink, manifests: list[Manifest], *, deep: bool
) -> Iterator[Difference]:
    """What the table and the tables beside it hold and should not; ``deep`` looks at every row."""
    own = {one.id: one for one in manifests}
    for staged in sink.staged_manifests():
        manifest = own.get(staged)
        if manifest is not None and manifest.state is ManifestState.DONE and not manifest.alive:
            yield Difference(staged, "staging was left by an attempt that died", f"tidemark retry {sink.pipeline}")
    if deep:
        found = sink.rows_by_manifest()  # one pass over the table, however many manifests there are
        for manifest in manifests:
            publication = manifest.published(sink.name)
            if publication is not None:
                yield from _rows(sink, manifest, publication, found.get(manifest.id, []))
        for unknown in _unknown(lifecycle, set(found) - set(own)):
            yield Difference(None, f"{sink.target} has rows of manifest {unknown}, which this database does not know",
                             f"tidemark adopt {sink.pipeline} --why TEXT")  # fmt: skip


def _unknown(lifecycle: Lifecycle, foreign: set[int]) -> list[int]:
    """Those of the manifests that are of no pipeline of this database."""
    known = {one.id for one in lifecycle.database.manifests(ids=sorted(foreign))} if foreign else set()
    return sorted(foreign - known)


def _rows(
    sink: PostgresSink, manifest: Manifest, publication: Publication, found: list[dict[str, Any]]
) -> Iterator[Difference]:
    mend = f"tidemark replay {sink.pipeline} --manifest {manifest.id}"
    counts = publication.counts
    merged = counts.written - counts.superseded - counts.stale
    if (rows := sum(row["rows"] for row in found)) > merged:
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
