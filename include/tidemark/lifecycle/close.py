"""The end of a run: whether all of it is published, and what it did."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tidemark.errors import NotFound, WorkFailed
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.preflight import recent_manifests
from tidemark.lifecycle.publish import Publisher, published_counts
from tidemark.manifest import Counts, Manifest, ManifestState
from tidemark.receipt import sum_of_hours


@dataclass(frozen=True)
class Closing:
    """The result of a run, from the database: all manifests of the run and of ``covered_by`` are published.

    ``hours`` maps an event hour (UTC) to ``[written, late]``.
    """

    run_key: str
    reached: bool
    manifests: tuple[int, ...]
    covered_by: tuple[int, ...]
    counts: Counts
    hours: dict[str, list[int]]


def close(context: Context, run_key: str) -> Closing:
    """The result of a run whose manifests, and those of ``covered_by``, are all published.

    Raises ``NotFound`` for an unknown run, and ``WorkFailed`` when a manifest is not published.
    """
    run = context.database.find_run(context.pipeline_name, run_key)
    if run is None:
        raise NotFound(f"there is no run {run_key}", next_step="plan it first", pipeline=context.pipeline_name)
    manifests = require_done(context, [*run["manifests"], *run["covered_by"]])
    Publisher(context).sweep(above=recent_manifests(context.database))
    counts, hours = published_sums(context, manifests)
    return Closing(run_key, run["reached"], tuple(run["manifests"]), tuple(run["covered_by"]), counts, hours)


def published_sums(context: Context, manifests: Sequence[Manifest]) -> tuple[Counts, dict[str, list[int]]]:
    """What the published attempts of these manifests counted: all together, and ``[written, late]`` by event hour."""
    published = [(manifest.id, shown.attempt) for manifest in manifests for shown in manifest.publications[:1]]
    receipts = [context.database.receipt(manifest_id, attempt) for manifest_id, attempt in published]
    hours = sum_of_hours(receipt.hours for receipt in receipts if receipt)
    return sum((published_counts(manifest) for manifest in manifests), Counts()), hours


def ranges_of_hours(hours: Iterable[str]) -> list[list[str]]:
    """Event hours (``2013-01-01T10``, UTC) as ranges ``[start, end)`` of neighbours, such as ``2013-01-01T10:00Z``."""
    ranges: list[list[datetime]] = []
    for hour in sorted(datetime.fromisoformat(text).replace(tzinfo=UTC) for text in hours):
        if not ranges or ranges[-1][1] != hour:
            ranges.append([hour, hour])
        ranges[-1][1] = hour + timedelta(hours=1)
    return [[f"{moment:%Y-%m-%dT%H:%MZ}" for moment in range_] for range_ in ranges]


def require_done(context: Context, ids: Sequence[int]) -> list[Manifest]:
    """The manifests; raises ``WorkFailed`` when some of them are not published."""
    manifests = context.database.manifests(ids=ids)
    undone = [manifest for manifest in manifests if manifest.state is not ManifestState.DONE]
    if undone:
        raise WorkFailed(
            f"{len(undone)} of {len(manifests)} manifests are not published: "
            + ", ".join(f"{manifest.id} ({manifest.state})" for manifest in undone[:10]),
            next_step=_wait_or_retry(context, undone),
            pipeline=context.pipeline_name,
        )
    return manifests


def _wait_or_retry(context: Context, undone: Sequence[Manifest]) -> str:
    at_work = [manifest.id for manifest in undone if manifest.alive]
    retry = f"tidemark retry {context.pipeline_name}"
    if not at_work:
        return retry
    wait = f"wait until the attempt at work on manifest {at_work[0]} has ended: tidemark show {at_work[0]}"
    return wait if len(at_work) == len(undone) else f"{wait}; then: {retry}"
