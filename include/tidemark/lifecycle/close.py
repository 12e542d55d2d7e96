"""Ends a run: checks that all its manifests are published, closes event hours, and sums up what the run did."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from tidemark.database.statements import Row
from tidemark.errors import NotFound, NotPublished
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.failed_tasks import Task, begun
from tidemark.lifecycle.hours import close_hours
from tidemark.lifecycle.older import (
    NAMED,
    HeldElsewhere,
    commands,
    described,
    never_held,
    older_unfinished,
    refuse_older,
)
from tidemark.lifecycle.preflight import recent_manifests
from tidemark.lifecycle.progress import report_progress
from tidemark.lifecycle.publish import Publisher
from tidemark.model.json_values import NOT_IN_JSON
from tidemark.model.manifest import Counts, Manifest, ManifestState
from tidemark.model.receipt import sum_of_hours
from tidemark.pipeline.settings import Unfinished


@dataclass(frozen=True)
class Closing:
    """The result of a run, from the database: all manifests of the run, of ``covered_by`` and of ``taken_along`` are
    published.

    ``hours`` maps an event hour (UTC) to ``[written, late]``. ``closed_hours`` became complete with this run; other
    runs may have read their records.
    """

    run_key: str
    reached: bool
    manifests: tuple[int, ...]
    covered_by: tuple[int, ...]
    taken_along: tuple[int, ...]
    counts: Counts
    hours: dict[str, list[int]]
    closed_hours: tuple[datetime, ...] = field(default=(), metadata=NOT_IN_JSON)


def close(
    context: Context, run_key: str, *, processed: Collection[int] = (), held: HeldElsewhere = never_held
) -> Closing:
    """Close the hours that are complete, and return the result of a run that has ended. Raises as
    ``require_run_done``."""
    run, manifests = require_run_done(context, run_key, processed=processed, held=held)
    own = (*run["manifests"], *run["covered_by"])
    taken_along = tuple(manifest.id for manifest in manifests if manifest.id not in own)
    counts, hours = published_sums(context, manifests)
    with begun(context.database, context.pipeline_name, Task.CLOSE):
        closed_hours = tuple(close_hours(context))
    forget_failed(context)
    return Closing(
        run_key, run["reached"], tuple(run["manifests"]), tuple(run["covered_by"]), taken_along, counts, hours,
        closed_hours,
    )  # fmt: skip


def forget_failed(context: Context) -> None:
    """Forget failures of ``process`` and ``close``: a run has ended well, so its manifests are published."""
    for task in (Task.PROCESS, Task.CLOSE):
        context.database.tasks.forget_failed(context.pipeline_name, task)


def require_run_done(
    context: Context, run_key: str, *, processed: Collection[int] = (), held: HeldElsewhere = never_held
) -> tuple[Row, list[Manifest]]:
    """Return the run with its manifests, those of ``covered_by`` and those that it ``processed``; all are published.

    Raises ``NotFound`` for an unknown run, and ``NotPublished`` if a manifest is not published. With ``unfinished:
    fail`` also if ``older_unfinished`` returns any; ``held`` is for that function. Cleans up after attempts that died.
    """
    run = context.database.runs.find(context.pipeline_name, run_key)
    if run is None:
        raise NotFound(f"there is no run {run_key}", next_step="plan it first")
    own = [*run["manifests"], *run["covered_by"]]
    manifests = require_done(context, sorted({*own, *processed}), planned=run["manifests"])
    Publisher(context).sweep(above=recent_manifests(context.database))
    context.database.manifests.add_up_sums(context.pipeline_name)
    report_progress(context)  # also after accepted losses, and so that offsets of the consumer group do not expire
    if context.pipeline.unfinished is Unfinished.FAIL:
        refuse_older(older_unfinished(context, own, held))
    return run, manifests


def published_sums(context: Context, manifests: Sequence[Manifest]) -> tuple[Counts, dict[str, list[int]]]:
    """Return the sum of the published counts of these manifests, and ``[written, late]`` by event hour."""
    published = [(manifest.id, shown.attempt) for manifest in manifests for shown in manifest.publications[:1]]
    receipts = [context.database.attempts.receipt(manifest_id, attempt) for manifest_id, attempt in published]
    hours = sum_of_hours(receipt.hours for receipt in receipts if receipt)
    return sum((manifest.published_counts for manifest in manifests), Counts()), hours


def ranges_of_hours(hours: Iterable[datetime]) -> list[list[str]]:
    """Return event hours as ranges ``[start, end)`` of adjacent hours, as texts in UTC: ``2013-01-01T10:00Z``."""
    ranges: list[list[datetime]] = []
    for hour in sorted(hour.astimezone(UTC) for hour in hours):
        if not ranges or ranges[-1][1] != hour:
            ranges.append([hour, hour])
        ranges[-1][1] = hour + timedelta(hours=1)
    return [[f"{moment:%Y-%m-%dT%H:%MZ}" for moment in range_] for range_ in ranges]


def require_done(context: Context, ids: Sequence[int], *, planned: Sequence[int] | None = None) -> list[Manifest]:
    """Return the manifests; raises ``NotPublished`` with cause and last attempt of each that is not published.

    ``planned`` are the manifests that the run itself has planned; None if the caller does not close a run.
    """
    manifests = context.database.manifests.find(ids=ids)
    undone = [manifest for manifest in manifests if manifest.state is not ManifestState.DONE]
    if undone:
        more = f"; and {len(undone) - NAMED} more" if len(undone) > NAMED else ""
        raise NotPublished(
            f"{len(undone)} of {len(manifests)} manifests are not published: "
            + "; ".join(_cause(context, manifest) for manifest in undone[:NAMED])
            + more,
            manifests=[manifest.id for manifest in undone],
            next_step=_next_step(undone, planned),
        )
    return manifests


def _next_step(undone: Sequence[Manifest], planned: Sequence[int] | None) -> str:
    at_work = [manifest.id for manifest in undone if manifest.alive]
    faster = "" if planned is None or {*at_work} & {*planned} else "another planner was faster, and is at work: "
    finish = " and ".join(commands([manifest for manifest in undone if not manifest.alive]))
    if not at_work:
        return finish
    wait = f"{faster}wait until the attempt at work on manifest {at_work[0]} has ended: tidemark show {at_work[0]}"
    return f"{wait}; then: {finish}" if finish else wait


def _cause(context: Context, manifest: Manifest) -> str:
    """Return which manifest is not published, why, and who made the last attempt."""
    attempts = context.database.attempts.of_manifest(manifest.id)
    if not attempts:
        planned = f" in DAG run {manifest.dag_run}" if manifest.dag_run else ""
        return f"{described(manifest)}: no attempt has started{planned}"
    last = attempts[-1]
    return f"{described(manifest)}; attempt {last['attempt']} by {last['actor']}"
