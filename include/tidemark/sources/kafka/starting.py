"""Turns ``starting_offsets`` of a pipeline into an offset for each partition, at its first plan.

The planner compares the result with the log start and the last stable offset.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import assert_never

from tidemark.errors import PlanRefused
from tidemark.kafka.cluster import KafkaCluster
from tidemark.model.offsets import TopicPartition
from tidemark.model.partitions import Bounds
from tidemark.sources.kafka.starting_offsets import CommittedOffsets, ExplicitOffsets, StartingOffsets
from tidemark.sources.starting_points import common_starts

AllBounds = Mapping[TopicPartition, Bounds]


def starting_offsets(
    pipeline_name: str, wanted: StartingOffsets, cluster: KafkaCluster, bounds: AllBounds
) -> dict[TopicPartition, int]:
    """Return the first offset to read of every partition.

    Raises ``PlanRefused`` if the pipeline file or the consumer group does not define all of them.
    """
    match wanted:
        case "earliest" | "latest" | datetime():
            return common_starts(wanted, bounds, cluster.offsets_at)
        case CommittedOffsets(group):
            return _committed(pipeline_name, cluster, bounds, group)
        case ExplicitOffsets(offsets):
            return _explicit(pipeline_name, bounds, offsets)
        case other:
            assert_never(other)


def _committed(pipeline_name: str, cluster: KafkaCluster, bounds: AllBounds, name: str) -> dict[TopicPartition, int]:
    """Return the committed offsets of a consumer group. A partition that never had a record starts at 0."""
    group = cluster.group(name, list(bounds))
    if not group.exists:
        raise PlanRefused(
            f"consumer group {name} does not exist in Kafka",
            next_step="nothing was planned; correct source.kafka.starting_offsets.group (a connector's group is "
            f"connect-NAME; Kafka removes a group that was not used for a week), or write {_written(bounds, {})}",
            pipeline=pipeline_name,
            group=name,
        )
    if group.active:
        raise PlanRefused(
            f"consumer group {name} is active: it and this pipeline would copy the same records",
            next_step="nothing was planned; stop its consumers for good (pause is not enough), then plan again",
            pipeline=pipeline_name,
            group=name,
        )
    if group.unsettled:
        place = group.unsettled[0]
        raise PlanRefused(
            f"a transaction that commits offsets of consumer group {name} has not ended",
            next_step="nothing was planned; plan again when it has ended (transaction.timeout.ms of its producer)",
            pipeline=pipeline_name,
            topic=place.topic,
            partition=place.partition,
            group=name,
        )
    offsets = {place: 0 for place, bound in bounds.items() if bound.log_end == 0} | dict(group.committed)
    missing = sorted(bounds.keys() - offsets.keys())
    if missing:
        raise PlanRefused(
            f"consumer group {name} has committed nothing for {_named(missing)}",
            next_step=f"nothing was planned; decide where they start, and write {_written(bounds, offsets)}",
            pipeline=pipeline_name,
            topic=missing[0].topic,
            partition=missing[0].partition,
            group=name,
        )
    return offsets


def _explicit(
    pipeline_name: str, bounds: AllBounds, offsets: Mapping[str, Mapping[int, int]]
) -> dict[TopicPartition, int]:
    """Return the offsets of the pipeline file, which must name every partition of the topics and no other."""
    places = {(place.topic, place.partition): place for place in bounds}
    known: dict[TopicPartition, int] = {}
    unknown: list[tuple[str, int]] = []
    for topic, partitions in offsets.items():
        for partition, offset in partitions.items():
            if (topic, partition) in places:
                known[places[topic, partition]] = offset
            else:
                unknown.append((topic, partition))
    missing = sorted(bounds.keys() - known.keys())
    if not unknown and not missing:
        return known
    topic, partition = min(unknown) if unknown else (missing[0].topic, missing[0].partition)
    names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(unknown))
    what = f"names {names}, which Kafka does not have" if unknown else f"does not name {_named(missing)}"
    raise PlanRefused(
        f"starting_offsets {what}",
        next_step=f"nothing was planned; write {_written(bounds, known)}",
        pipeline=pipeline_name,
        topic=topic,
        partition=partition,
    )


def _written(bounds: AllBounds, known: Mapping[TopicPartition, int]) -> str:
    """Return ``starting_offsets`` for every partition, with the word OFFSET where you must decide."""
    topics: dict[str, list[str]] = {}
    for place in sorted(bounds):
        topics.setdefault(place.topic, []).append(f"{place.partition}: {known.get(place, 'OFFSET')}")
    parts = ", ".join(f"{topic}: {{{', '.join(offsets)}}}" for topic, offsets in topics.items())
    return f"starting_offsets: {{offsets: {{{parts}}}}}"


def _named(places: list[TopicPartition]) -> str:
    return ", ".join(f"{place.topic}-{place.partition}" for place in places)
