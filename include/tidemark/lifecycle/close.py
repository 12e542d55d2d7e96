"""What a run came to, and how far a pipeline is behind."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tidemark.errors import NotFound, WorkFailed
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.publish import Publisher, published_counts
from tidemark.manifest import UNDONE, Counts, Manifest, ManifestState
from tidemark.offsets import TopicPartition
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


@dataclass(frozen=True)
class Lag:
    """One partition: ``lag`` offsets are not planned yet, ``unpublished`` are planned and not published."""

    topic: str
    partition: int
    log_start: int
    planned: int
    last_stable: int
    log_end: int
    unpublished: int
    open_transaction: str | None  # what holds ``last_stable`` below ``log_end``, and since when

    @property
    def lag(self) -> int:
        return max(0, self.last_stable - self.planned)


def close(context: Context, run_key: str) -> Closing:
    """Pass when every manifest of the run and of ``covered_by`` is published, or name those that are not."""
    run = context.database.find_run(context.pipeline_name, run_key)
    if run is None:
        raise NotFound(f"there is no run {run_key}", next_step="plan it first", pipeline=context.pipeline_name)
    manifests = require_done(context, [*run["manifests"], *run["covered_by"]])
    Publisher(context).sweep()
    receipts = [context.database.receipt(one.id, one.publications[0].attempt) for one in manifests]
    hours = sum_of_hours(receipt.hours for receipt in receipts if receipt)
    counts = sum((published_counts(one) for one in manifests), Counts())
    return Closing(run_key, run["reached"], tuple(run["manifests"]), tuple(run["covered_by"]), counts, hours)


def lag(context: Context) -> list[Lag]:
    """How far each partition's chain is behind the source; a partition without a chain is behind from its log start."""
    places, missing = context.source.partitions(context.pipeline.source.topics)
    if missing:
        raise context.source.missing_topic(missing[0])
    ends = {chain.at: chain.end for chain in context.database.chains(context.pipeline_name)}
    waiting = context.database.manifests(context.pipeline_name, UNDONE)
    unpublished: dict[TopicPartition, int] = {}
    for one in (each for manifest in waiting for each in manifest.ranges):
        unpublished[one.at] = unpublished.get(one.at, 0) + one.span
    marks = context.source.bounds(places)
    now = datetime.now(UTC)
    held = {place: one.described(now) for place, one in context.source.open_transactions(marks).items()}
    return [
        Lag(
            place.topic, place.partition, mark.log_start, ends.get(place, mark.log_start), mark.last_stable,
            mark.log_end, unpublished.get(place, 0), held.get(place),
        )
        for place, mark in sorted(marks.items())
    ]  # fmt: skip


def require_done(context: Context, ids: Sequence[int]) -> list[Manifest]:
    """The manifests, all of them published; ``WorkFailed`` names those that are not."""
    manifests = context.database.manifests(ids=ids)
    missing = [one for one in manifests if one.state is not ManifestState.DONE]
    if missing:
        raise WorkFailed(
            f"{len(missing)} of {len(manifests)} manifests are not published: "
            + ", ".join(f"{one.id} ({one.state})" for one in missing[:10]),
            next_step=f"tidemark retry {context.pipeline_name}",
            pipeline=context.pipeline_name,
        )
    return manifests
