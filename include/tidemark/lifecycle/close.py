"""What a run came to, and how far a pipeline is behind."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tidemark.errors import NotFound, WorkFailed
from tidemark.lifecycle.attempt import Lifecycle
from tidemark.lifecycle.publish import published_counts
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


def close(lifecycle: Lifecycle, run_key: str) -> Closing:
    """Pass when every manifest of the run and of ``covered_by`` is published, or name those that are not."""
    run = lifecycle.database.find_run(lifecycle.pipeline.name, run_key)
    if run is None:
        raise NotFound(f"there is no run {run_key}", next_step="plan it first", pipeline=lifecycle.pipeline.name)
    manifests = require_done(lifecycle, [*run["manifests"], *run["covered_by"]])
    lifecycle.publisher.sweep()
    receipts = [lifecycle.database.receipt(one.id, one.publications[0].attempt) for one in manifests]
    hours = sum_of_hours(receipt.hours for receipt in receipts if receipt)
    counts = sum((published_counts(one) for one in manifests), Counts())
    return Closing(run_key, run["reached"], tuple(run["manifests"]), tuple(run["covered_by"]), counts, hours)


def lag(lifecycle: Lifecycle) -> list[Lag]:
    """How far each partition's chain is behind Kafka; a partition without a chain is behind from its log start."""
    places, missing = lifecycle.cluster.partitions(lifecycle.pipeline.source.kafka.topics)
    if missing:
        raise lifecycle.cluster.missing_topic(missing[0], lifecycle.pipeline.name)
    ends = {chain.at: chain.end for chain in lifecycle.database.chains(lifecycle.pipeline.name)}
    waiting = lifecycle.database.manifests(lifecycle.pipeline.name, UNDONE)
    unpublished: dict[TopicPartition, int] = {}
    for one in (each for manifest in waiting for each in manifest.ranges):
        unpublished[one.at] = unpublished.get(one.at, 0) + one.span
    marks = lifecycle.cluster.watermarks(places)
    now = datetime.now(UTC)
    held = {place: one.described(now) for place, one in lifecycle.cluster.open_transactions(marks).items()}
    return [
        Lag(
            place.topic, place.partition, mark.log_start, ends.get(place, mark.log_start), mark.last_stable,
            mark.log_end, unpublished.get(place, 0), held.get(place),
        )
        for place, mark in sorted(marks.items())
    ]  # fmt: skip


def require_done(lifecycle: Lifecycle, ids: Sequence[int]) -> list[Manifest]:
    """The manifests, all of them published; ``WorkFailed`` names those that are not."""
    manifests = lifecycle.database.manifests(ids=ids)
    missing = [one for one in manifests if one.state is not ManifestState.DONE]
    if missing:
        raise WorkFailed(
            f"{len(missing)} of {len(manifests)} manifests are not published: "
            + ", ".join(f"{one.id} ({one.state})" for one in missing[:10]),
            next_step=f"tidemark retry {lifecycle.pipeline.name}",
            pipeline=lifecycle.pipeline.name,
        )
    return manifests
