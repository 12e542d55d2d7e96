"""The audit of a PostgreSQL table: markers must agree with publications, and every row must belong to a published
manifest.

A newer row replaces an older one of its key, so the table cannot show that all rows were merged. The marker shows it,
because it was written in the same transaction. Keys are never removed, so the table has at least as many rows as any
manifest had keys.
"""

from collections.abc import Iterator

from tidemark.model.problem import Problem
from tidemark.providers.postgres.target import PostgresTarget
from tidemark.providers.tables.audit import differences_of_manifest, too_few_rows
from tidemark.sinks.base import Contents, Expected, mended_by_replay


def differences_of_table(expected: Expected, contents: Contents, table: PostgresTarget) -> Iterator[Problem]:
    """Compare all rows and dead letters with all publications. What you gave up with ``accept`` is not missed."""
    rows = table.rows_by_manifest()  # one pass over the table, however many manifests there are
    dead = table.dead_letters_by_manifest()
    contents |= {"rows": set(rows), "dead letters": set(dead)}
    superseded = table.superseded()
    total = sum(row["rows"] for rows_of_manifest in rows.values() for row in rows_of_manifest)
    for manifest, publication in expected.published():
        yield from differences_of_manifest(manifest, publication, rows.get(manifest.id, []))
        counts = publication.counts
        kept = dead.get(manifest.id, 0)
        # A database that was lost, and has adopted the target, knows the number of replaced rows only from the marker.
        keys = counts.written - max(counts.superseded, superseded.get(manifest.id, 0))
        if kept == counts.dead_lettered and total >= keys:
            continue
        if expected.given_up(manifest.id, publication.attempt):
            continue
        if kept != counts.dead_lettered:
            yield mended_by_replay(manifest, f"{kept:,} dead letters are kept where {counts.dead_lettered:,} were")
        if total < keys:
            yield too_few_rows(manifest, total, keys)
