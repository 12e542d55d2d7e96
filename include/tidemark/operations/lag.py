"""Measures how far a pipeline is behind its source."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from tidemark.database.client import ManifestDatabase
from tidemark.lifecycle.context import Context
from tidemark.model.json_values import in_json
from tidemark.model.offsets import TopicPartition
from tidemark.pipeline.settings import Pipeline
from tidemark.planner import another_topic
from tidemark.sources.base import Source


@dataclass(frozen=True)
class Lag:
    """One partition: ``lag`` offsets are not planned yet, ``unpublished`` offsets are planned and not published.

    ``changed`` says how its log differs from the one that was planned, so that the next plan refuses it; empty if it
    does not differ.
    """

    topic: str
    partition: int
    log_start: int
    planned: int
    last_stable: int
    log_end: int
    unpublished: int
    open_transaction: str | None  # what holds ``last_stable`` below ``log_end``, and since when
    changed: str = ""

    @property
    @in_json
    def lag(self) -> int:
        return max(0, self.last_stable - self.planned)


@dataclass(frozen=True)
class Planned:
    """The database's part of the lag: the end of each chain, and how many of its offsets are not published."""

    ends: Mapping[TopicPartition, int]
    unpublished: Mapping[TopicPartition, int]


def planned(database: ManifestDatabase, pipeline: Pipeline) -> Planned:
    """Return the database's part of the lag, for the topics that the pipeline file selects."""
    unpublished: Counter[TopicPartition] = Counter()
    for manifest in database.manifests.undone(pipeline.name):
        for range_ in manifest.ranges:
            unpublished[range_.at] += range_.span
    chains = [chain for chain in database.chains.of_pipeline(pipeline.name) if pipeline.source.reads(chain.at.topic)]
    return Planned({chain.at: chain.end for chain in chains}, unpublished)


def lag(context: Context) -> list[Lag]:
    """Return how far each partition's chain is behind the source; without a chain all offsets from the log start
    count."""
    return behind(context.source, planned(context.database, context.pipeline))


def behind(source: Source, known: Planned) -> list[Lag]:
    """Return the same as ``lag`` with what the database has answered before (``known``): only the source is asked."""
    ids = {place.topic: place.topic_id for place in known.ends}
    places, missing = source.partitions(source.selected(*sorted(ids)))
    if missing:
        raise source.missing_topic(missing[0])
    bounds = source.bounds(places)
    now = datetime.now(UTC)
    held = {place: transaction.described(now) for place, transaction in source.open_transactions(bounds).items()}
    return [
        Lag(
            place.topic, place.partition, log.log_start, known.ends.get(place, log.log_start), log.last_stable,
            log.log_end, known.unpublished.get(place, 0), held.get(place),
            _change(place, ids.get(place.topic, place.topic_id), log.log_end, known.ends.get(place)),
        )
        for place, log in sorted(bounds.items())
    ]  # fmt: skip


def _change(place: TopicPartition, planned_id: str, log_end: int, planned_end: int | None) -> str:
    if place.topic_id != planned_id:
        return another_topic(place.topic, planned_id, place.topic_id)
    if planned_end is not None and log_end < planned_end:
        return f"{place.name} was truncated: it ends at {log_end}, the chain at {planned_end}"
    return ""
