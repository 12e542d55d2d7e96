"""The end of a run: whether all of it is published, and what it did."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tidemark.errors import NotFound, NotPublished
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.older import (
    NAMED,
    Held,
    commands,
    described,
    held_by_nobody,
    older_unfinished,
    refuse_older,
)
from tidemark.lifecycle.preflight import recent_manifests
from tidemark.lifecycle.publish import Publisher, published_counts
from tidemark.manifest import Counts, Manifest, ManifestState
from tidemark.pipeline.settings import Unfinished
from tidemark.receipt import sum_of_hours


@dataclass(frozen=True)
class Closing:
    """The result of a run, from the database: all manifests of the run, of ``covered_by`` and of ``taken_along`` are
    published.

    ``hours`` maps an event hour (UTC) to ``[written, late]``.
    """

    run_key: str
    reached: bool
    manifests: tuple[int, ...]
    covered_by: tuple[int, ...]
    taken_along: tuple[int, ...]
    counts: Counts
    hours: dict[str, list[int]]


def close(context: Context, run_key: str, *, processed: Collection[int] = (), held: Held = held_by_nobody) -> Closing:
    """The result of a run whose manifests, those of ``covered_by`` and those that it ``processed`` are all published.

    Raises ``NotFound`` for an unknown run, and ``NotPublished`` when a manifest is not published. With
    ``unfinished: fail`` also when an older one is unfinished that is not ``held``, as ``older_unfinished`` has it.
    """
    run = context.database.find_run(context.pipeline_name, run_key)
    if run is None:
        raise NotFound(f"there is no run {run_key}", next_step="plan it first", pipeline=context.pipeline_name)
    own = [*run["manifests"], *run["covered_by"]]
    taken_along = tuple(sorted({*processed} - {*own}))
    manifests = require_done(context, [*own, *taken_along])
    Publisher(context).sweep(above=recent_manifests(context.database))
    if context.pipeline.unfinished is Unfinished.FAIL:
        refuse_older(context, older_unfinished(context, own, held))
    published = [(manifest.id, shown.attempt) for manifest in manifests for shown in manifest.publications[:1]]
    receipts = [context.database.receipt(manifest_id, attempt) for manifest_id, attempt in published]
    hours = sum_of_hours(receipt.hours for receipt in receipts if receipt)
    counts = sum((published_counts(manifest) for manifest in manifests), Counts())
    return Closing(
        run_key, run["reached"], tuple(run["manifests"]), tuple(run["covered_by"]), taken_along, counts, hours
    )


def require_done(context: Context, ids: Sequence[int]) -> list[Manifest]:
    """The manifests; raises ``NotPublished`` when some of them are not published, with cause and attempt of each."""
    manifests = context.database.manifests(ids=ids)
    undone = [manifest for manifest in manifests if manifest.state is not ManifestState.DONE]
    if undone:
        more = f"; and {len(undone) - NAMED} more" if len(undone) > NAMED else ""
        raise NotPublished(
            f"{len(undone)} of {len(manifests)} manifests are not published: "
            + "; ".join(_cause(context, manifest) for manifest in undone[:NAMED])
            + more,
            manifests=[manifest.id for manifest in undone],
            next_step=" and ".join(commands(undone)),
            pipeline=context.pipeline_name,
        )
    return manifests


def _cause(context: Context, manifest: Manifest) -> str:
    """What is not published, why, and whose attempt was the last."""
    attempts = context.database.attempts(manifest.id)
    if not attempts:
        planned = f" in DAG run {manifest.dag_run}" if manifest.dag_run else ""
        return f"{described(manifest)}: no attempt has started{planned}"
    last = attempts[-1]
    return f"{described(manifest)}; attempt {last['attempt']} by {last['actor']}"
