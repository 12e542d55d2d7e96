"""The audit of totals compares markers with publications and contributions; if ``deep``, also totals with
contributions."""

from collections.abc import Iterator, Mapping
from typing import Any

from tidemark.model.manifest import Manifest, Publication
from tidemark.model.problem import Problem
from tidemark.providers.postgres.aggregates.stray_contributions import what_of_strays
from tidemark.providers.postgres.totals.tables import Totals
from tidemark.sinks.base import Expected, Ledger, mended_by_replay

_BY_HAND = "no attempt of Tidemark has left them there: delete those rows by hand"

_REPLAYS = "the manifests above may have contributed to them: replay those, then audit again"


def differences_of_totals(expected: Expected, ledger: Ledger, totals: Totals) -> Iterator[Problem]:
    """Yield what the tables hold and should not, or lack. Combines all contributions again."""
    published = expected.published()
    contributions = {row["manifest"]: row for row in totals.ask("contributions")}
    incomplete = list(_contributions(expected, totals, published, contributions))
    yield from incomplete
    known = {manifest.id for manifest, _ in published} | ledger.evidence().keys()  # some were put after ``published``
    for stray, (why, step) in what_of_strays(expected, ledger, contributions.keys() - known, _BY_HAND).items():
        what = f"{totals.config.contributions} has {contributions[stray]['keys']:,} rows of manifest {stray}, "
        yield Problem(None, what + why, step)
    yield from _totals(ledger.pipeline_name, totals, first=_REPLAYS if incomplete else "")


def _contributions(
    expected: Expected,
    totals: Totals,
    published: list[tuple[Manifest, Publication]],
    contributions: Mapping[int, Mapping[str, Any]],
) -> Iterator[Problem]:
    """Compare the contributions of each manifest with its marker and its publication, except what you gave up with
    ``accept``."""
    checksums = {row["manifest"]: row["checksum"] for row in totals.ask("checksums")}
    dead = totals.dead_letters_by_manifest()
    for manifest, publication in published:
        if expected.given_up(manifest.id, publication.attempt):
            continue
        held = contributions.get(manifest.id, {"rows": 0, "checksum": "0"})
        counts = publication.counts
        if held["rows"] != counts.written:
            what = f"the contributions of it count {held['rows']:,} records where {counts.written:,} were written"
            yield mended_by_replay(manifest, what)
        elif held["checksum"] != checksums.get(manifest.id, held["checksum"]):
            yield mended_by_replay(manifest, "its contributions were changed by hand")
        if (kept := dead.get(manifest.id, 0)) != counts.dead_lettered:
            yield mended_by_replay(manifest, f"{kept:,} dead letters are kept where {counts.dead_lettered:,} were")


def _totals(pipeline_name: str, totals: Totals, *, first: str) -> Iterator[Problem]:
    """Compare all totals with all contributions. A replay of any manifest that contributes to a total combines it
    again."""
    for row in totals.ask("wrong_totals"):
        number = f"{row['totals']:,} totals of {totals.config.table}"
        if row["manifest"] is None:
            yield Problem(None, f"{number} have no contributions", first or _BY_HAND, f"({row['example']})")
        else:
            yield Problem(
                row["manifest"],
                f"{number} are not the combination of their contributions",
                f"tidemark replay {pipeline_name} --manifest {row['manifest']}",
                f"({row['example']})",
            )
