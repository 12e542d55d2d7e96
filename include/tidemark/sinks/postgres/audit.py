"""The audit of a PostgreSQL table: markers agree with publications, and every row is of a published manifest.

A newer row replaces an older one of its key, so the table cannot show that all rows were merged. The marker shows it,
since it was written in the same transaction. Keys are never removed, so there are at least as many rows as any manifest
had keys.
"""

from collections.abc import Iterator
from typing import Any

from tidemark.model.manifest import Manifest, Publication
from tidemark.model.problem import Problem
from tidemark.sinks.base import Contents, Expected
from tidemark.sinks.postgres.target import PostgresTarget

_BY_HAND = "no replay takes rows away, so first delete those that were put there by hand"


def differences_of_table(
    expected: Expected, contents: Contents, pipeline_name: str, table: PostgresTarget
) -> Iterator[Problem]:
    """Compares all rows and dead letters with all publications; what a person has given up is not missed."""
    rows = table.rows_by_manifest()  # one pass over the table, however many manifests there are
    dead = table.dead_letters_by_manifest()
    contents |= {"rows": set(rows), "dead letters": set(dead)}
    superseded = table.superseded()
    total = sum(row["rows"] for rows_of_manifest in rows.values() for row in rows_of_manifest)
    for manifest, publication in expected.published():
        yield from _rows(pipeline_name, manifest, publication, rows.get(manifest.id, []))
        replay, counts = f"tidemark replay {pipeline_name} --manifest {manifest.id}", publication.counts
        kept = dead.get(manifest.id, 0)
        # The marker has the number of replaced rows too, for a database that was lost and adopted the target.
        keys = counts.written - max(counts.superseded, superseded.get(manifest.id, 0))
        if kept == counts.dead_lettered and total >= keys:
            continue
        if expected.given_up(manifest.id, publication.attempt):
            continue
        if kept != counts.dead_lettered:
            yield Problem(manifest.id, f"{kept:,} dead letters are kept where {counts.dead_lettered:,} were", replay)
        if total < keys:
            what = f"the table has {total:,} rows in all, and this manifest had {keys:,} keys: rows were taken away"
            yield Problem(manifest.id, what, replay)


def _rows(
    pipeline_name: str, manifest: Manifest, publication: Publication, rows: list[dict[str, Any]]
) -> Iterator[Problem]:
    replay = f"tidemark replay {pipeline_name} --manifest {manifest.id}"
    counts = publication.counts
    merged = counts.written - counts.superseded - counts.stale
    # Rows of lower attempts that a replay with other code no longer produces stay. Attempt 0: the column is null.
    count = sum(row["rows"] for row in rows if row["attempt"] in (0, publication.attempt))
    if count > merged:
        what = f"the table has {count:,} rows of it where {merged:,} were merged; {_BY_HAND}"
        yield Problem(manifest.id, what, replay)
    for row in rows:
        if not _inside(manifest, row):
            place = f"{row['topic']}-{row['partition']} offsets {row['first']} to {row['last']}"
            what = f"the table has rows of it from {place}, which it does not cover; {_BY_HAND}"
            yield Problem(manifest.id, what, replay)
        if row["attempt"] > publication.attempt:
            what = f"the table has rows of attempt {row['attempt']}, published is attempt {publication.attempt}"
            yield Problem(manifest.id, what, f"tidemark retry {pipeline_name}")


def _inside(manifest: Manifest, row: dict[str, Any]) -> bool:
    return any(
        (covered.at.topic, covered.at.partition) == (row["topic"], row["partition"])
        and covered.start <= row["first"]
        and row["last"] < covered.end
        for covered in manifest.ranges
    )
