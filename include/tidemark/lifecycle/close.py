"""The result of a run, and how far a pipeline is behind its source."""

from collections import Counter
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
    """The result of a run, from the database: all manifests of the run and of ``covered_by`` are published.

    ``hours`` maps an event hour (UTC) to ``[written, late]``.
    """

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
    """The result of a run whose manifests, and those of ``covered_by``, are all published.

    Raises ``NotFound`` for an unknown run, and ``WorkFailed`` when a manifest is not published.
    """
    run = context.database.find_run(context.pipeline_name, run_key)
    if run is None:
        raise NotFound(f"there is no run {run_key}", next_step="plan it first", pipeline=context.pipeline_name)
    manifests = require_done(context, [*run["manifests"], *run["covered_by"]])
    Publisher(context).sweep()
    receipts = [context.database.receipt(manifest.id, manifest.publications[0].attempt) for manifest in manifests]
    hours = sum_of_hours(receipt.hours for receipt in receipts if receipt)
    counts = sum((published_counts(manifest) for manifest in manifests), Counts())
    return Closing(run_key, run["reached"], tuple(run["manifests"]), tuple(run["covered_by"]), counts, hours)


def lag(context: Context) -> list[Lag]:
    """How far each partition's chain is behind the source; without a chain all offsets from the log start count."""
    places, missing = context.source.partitions(context.pipeline.source.topics)
    if missing:
        raise context.source.missing_topic(missing[0])
    ends = {chain.at: chain.end for chain in context.database.chains(context.pipeline_name)}
    unpublished: Counter[TopicPartition] = Counter()
    for manifest in context.database.manifests(context.pipeline_name, UNDONE):
        for range_ in manifest.ranges:
            unpublished[range_.at] += range_.span
    bounds = context.source.bounds(places)
    now = datetime.now(UTC)
    transactions = context.source.open_transactions(bounds)
    held = {place: transaction.described(now) for place, transaction in transactions.items()}
    return [
        Lag(
            place.topic, place.partition, log.log_start, ends.get(place, log.log_start), log.last_stable, log.log_end,
            unpublished[place], held.get(place),
        )
        for place, log in sorted(bounds.items())
    ]  # fmt: skip


def require_done(context: Context, ids: Sequence[int]) -> list[Manifest]:
    """The manifests; raises ``WorkFailed`` when some of them are not published."""
    manifests = context.database.manifests(ids=ids)
    undone = [manifest for manifest in manifests if manifest.state is not ManifestState.DONE]
    if undone:
        raise WorkFailed(
            f"{len(undone)} of {len(manifests)} manifests are not published: "
            + ", ".join(f"{manifest.id} ({manifest.state})" for manifest in undone[:10]),
            next_step=f"tidemark retry {context.pipeline_name}",
            pipeline=context.pipeline_name,
        )
    return manifests
