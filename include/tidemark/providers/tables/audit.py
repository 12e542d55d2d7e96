"""Audits a table of current rows: every row is of a published manifest, and no key is missing or there twice.

A newer row replaces an older one of its key, so the table cannot show that all rows were merged. The evidence shows
that, because it was committed with them. Keys are never removed, so there are at least as many rows as any manifest had
keys.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tidemark.model.manifest import Manifest, Publication
from tidemark.model.problem import Problem
from tidemark.sinks.base import mended_by_replay

_BY_HAND = "no replay removes rows, so first delete those that were inserted by hand"


def too_few_rows(manifest: Manifest, rows: int, keys: int) -> Problem:
    what = f"the table has {rows:,} rows in all, and this manifest had {keys:,} keys: rows were taken away"
    return mended_by_replay(manifest, what)


def differences_of_manifest(
    manifest: Manifest, publication: Publication, rows: Sequence[Mapping[str, Any]]
) -> Iterator[Problem]:
    """Compare the rows of one manifest, by partition and attempt, with its ranges and with what was merged."""
    counts = publication.counts
    merged = counts.written - counts.superseded - counts.stale
    # Rows of lower attempts stay if a replay with other code no longer makes them. Attempt 0: the column is null.
    count = sum(row["rows"] for row in rows if row["attempt"] in (0, publication.attempt))
    if count > merged:
        what = f"the table has {count:,} rows of it where {merged:,} were merged; {_BY_HAND}"
        yield mended_by_replay(manifest, what)
    for row in rows:
        if not _inside(manifest, row):
            place = f"{row['topic']}-{row['partition']} offsets {row['first']} to {row['last']}"
            what = f"the table has rows of it from {place}, which it does not cover; {_BY_HAND}"
            yield mended_by_replay(manifest, what)
        if row["attempt"] > publication.attempt:
            what = f"the table has rows of attempt {row['attempt']}, published is attempt {publication.attempt}"
            yield Problem(manifest.id, what, f"tidemark retry {manifest.pipeline_name}")


def _inside(manifest: Manifest, row: Mapping[str, Any]) -> bool:
    return any(
        (covered.at.topic, covered.at.partition) == (row["topic"], row["partition"])
        and covered.start <= row["first"]
        and row["last"] < covered.end
        for covered in manifest.ranges
    )
