"""Reads messages back from the sink's topics."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.model.offsets import Range, TopicPartition
from tidemark.model.partitions import Record
from tidemark.providers.topic.cluster import TopicCluster
from tidemark.providers.topic.headers import From, source_of
from tidemark.providers.topic.markers import Markers


@dataclass(frozen=True)
class SinkTopics:
    """The topics of a sink, and their cluster."""

    cluster: TopicCluster
    data: str
    dead_letters: str
    markers: Markers

    def exist(self) -> bool:
        """Return whether the topic of the data exists."""
        return bool(self.cluster.partitions([self.data])[0])


def messages_of(
    cluster: TopicCluster, marker: Mapping[str, Any], manifest_id: int, topics: Sequence[str]
) -> Iterator[tuple[Record, From]]:
    """Yield the messages of a manifest in these topics, from the places that its marker lists."""
    for topic, partition, _, first, last in marker.get("delivered", ()):
        if topic not in topics:
            continue
        for message in messages_between(cluster, topic, partition, first, last + 1):
            source = source_of(message)
            if source is not None and source.manifest_id == manifest_id:
                yield message, source


def messages_between(cluster: TopicCluster, topic: str, partition: int, start: int, end: int) -> Iterator[Record]:
    """Yield the committed messages of ``[start, end)`` that the partition still has."""
    for place in cluster.partitions([topic])[0]:
        if place.partition == partition:
            bounds = cluster.bounds([place])[place]
            start, end = max(start, bounds.log_start), min(end, bounds.last_stable)
            if start < end:
                yield from cluster.records(Range(TopicPartition(topic, place.topic_id, partition), start, end))
