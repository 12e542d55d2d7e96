"""Where a pipeline starts: what ``starting_offsets`` comes to in each partition, asked once, at its first plan.

The planner compares what is found here with what Kafka holds: the log start, and the last stable offset.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import assert_never

from tidemark.errors import PlanRefused
from tidemark.kafka.cluster import KafkaCluster
from tidemark.offsets import TopicPartition
from tidemark.partitions import Bounds
from tidemark.sources.kafka.starting_offsets import CommittedOffsets, ExplicitOffsets, StartingOffsets

Marks = Mapping[TopicPartition, Bounds]


def starting_offsets(
    pipeline_name: str, wanted: StartingOffsets, cluster: KafkaCluster, marks: Marks
) -> dict[TopicPartition, int]:
    """The first offset to read of every partition; ``PlanRefused`` where the file or the group does not say it."""
    match wanted:
        case "earliest":
            return {place: mark.log_start for place, mark in marks.items()}
        case "latest":
            return {place: mark.last_stable for place, mark in marks.items()}
        case datetime() as when:
            found = cluster.offsets_at(list(marks), when)
            answers = {place: (found[place] or (mark.last_stable,))[0] for place, mark in marks.items()}
            return {place: min(offset, marks[place].last_stable) for place, offset in answers.items()}
        case CommittedOffsets(group):
            return _committed(pipeline_name, cluster, marks, group)
        case ExplicitOffsets(offsets):
            return _explicit(pipeline_name, marks, offsets)
        case other:
            assert_never(other)


def _committed(pipeline_name: str, cluster: KafkaCluster, marks: Marks, name: str) -> dict[TopicPartition, int]:
    """Where a group has committed. A partition that never held a record starts at 0 in any case."""
    group = cluster.group(name, list(marks))
    if not group.exists:
        raise PlanRefused(
            f"Kafka knows no consumer group {name}",
            next_step="nothing was planned; correct source.kafka.starting_offsets.group (a connector's group is "
            f"connect-NAME; Kafka forgets a group that rested for a week), or write {_written(marks, {})}",
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
            next_step="nothing was planned; plan again when it has: the producer's transaction.timeout.ms ends it",
            pipeline=pipeline_name,
            topic=place.topic,
            partition=place.partition,
            group=name,
        )
    found = {place: 0 for place, mark in marks.items() if mark.log_end == 0} | dict(group.committed)
    missing = sorted(marks.keys() - found.keys())
    if missing:
        raise PlanRefused(
            f"consumer group {name} has committed nothing for {_named(missing)}",
            next_step=f"nothing was planned; decide where they start, and write {_written(marks, found)}",
            pipeline=pipeline_name,
            topic=missing[0].topic,
            partition=missing[0].partition,
            group=name,
        )
    return found


def _explicit(pipeline_name: str, marks: Marks, offsets: Mapping[str, Mapping[int, int]]) -> dict[TopicPartition, int]:
    """What the file says, which must be said of every partition there is and of no other."""
    places = {(place.topic, place.partition): place for place in marks}
    given = {(topic, partition): at for topic, each in offsets.items() for partition, at in each.items()}
    unknown = sorted(given.keys() - places.keys())
    found = {places[one]: offset for one, offset in given.items() if one in places}
    missing = sorted(marks.keys() - found.keys())
    if not unknown and not missing:
        return found
    topic, partition = unknown[0] if unknown else (missing[0].topic, missing[0].partition)
    names = ", ".join(f"{one}-{number}" for one, number in unknown)
    what = f"names {names}, which Kafka does not have" if unknown else f"says nothing of {_named(missing)}"
    raise PlanRefused(
        f"starting_offsets {what}",
        next_step=f"nothing was planned; write {_written(marks, found)}",
        pipeline=pipeline_name,
        topic=topic,
        partition=partition,
    )


def _written(marks: Marks, known: Mapping[TopicPartition, int]) -> str:
    """The explicit form for every partition, with the word OFFSET where a person has to decide."""
    topics: dict[str, list[str]] = {}
    for place in sorted(marks):
        topics.setdefault(place.topic, []).append(f"{place.partition}: {known.get(place, 'OFFSET')}")
    parts = ", ".join(f"{topic}: {{{', '.join(each)}}}" for topic, each in topics.items())
    return f"starting_offsets: {{offsets: {{{parts}}}}}"


def _named(places: list[TopicPartition]) -> str:
    return ", ".join(f"{one.topic}-{one.partition}" for one in places)
