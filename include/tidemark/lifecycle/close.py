"""The end of a run: whether all of it is published, and what it did."""

from collections.abc import Sequence
from dataclasses import dataclass

from tidemark.errors import NotFound, WorkFailed
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.publish import Publisher, published_counts
from tidemark.manifest import Counts, Manifest, ManifestState
from tidemark.receipt import sum_of_hours


@dataclass(frozen=True)
class Closing:
    """What a run did, read from the database: every manifest of it and of ``covered_by`` is published."""

    run_key: str
    reached: bool
    manifests: tuple[int, ...]
    covered_by: tuple[int, ...]
    counts: Counts
    hours: dict[str, list[int]]


def close(context: Context, run_key: str) -> Closing:
    """Pass when every manifest of the run and of ``covered_by`` is published, or name those that are not."""
    run = context.database.find_run(context.name, run_key)
    if run is None:
        raise NotFound(f"there is no run {run_key}", next_step="plan it first", pipeline=context.name)
    manifests = require_done(context, [*run["manifests"], *run["covered_by"]])
    Publisher(context).sweep()
    receipts = [context.database.receipt(one.id, one.publications[0].attempt) for one in manifests]
    hours = sum_of_hours(receipt.hours for receipt in receipts if receipt)
    counts = sum((published_counts(one) for one in manifests), Counts())
    return Closing(run_key, run["reached"], tuple(run["manifests"]), tuple(run["covered_by"]), counts, hours)


def require_done(context: Context, ids: Sequence[int]) -> list[Manifest]:
    """The manifests, all of them published; ``WorkFailed`` names those that are not."""
    manifests = context.database.manifests(ids=ids)
    missing = [one for one in manifests if one.state is not ManifestState.DONE]
    if missing:
        raise WorkFailed(
            f"{len(missing)} of {len(manifests)} manifests are not published: "
            + ", ".join(f"{one.id} ({one.state})" for one in missing[:10]),
            next_step=f"tidemark retry {context.name}",
            pipeline=context.name,
        )
    return manifests
