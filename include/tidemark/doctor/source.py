"""Kafka as one pipeline sees it: the connection, the topics, the right to read them."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from tidemark.connections import kafka_connection
from tidemark.doctor.finding import TIMEOUT_S, Check, Finding, failed, ok, warning
from tidemark.kafka import KafkaCluster, Watermarks
from tidemark.named_connections import Lookup
from tidemark.offsets import TopicPartition
from tidemark.pipeline import Gaps, Pipeline

Marks = Mapping[TopicPartition, Watermarks]


def checks(pipeline: Pipeline, lookup: Lookup) -> list[Check]:
    name = f"{pipeline.name}: kafka"
    # Topics, offsets, clean-up policies and one record: four questions, each answered within 10 s.
    return [Check(name, lambda: source(name, pipeline, lookup), 3 * TIMEOUT_S)]


def source(name: str, pipeline: Pipeline, lookup: Lookup) -> Iterator[Finding]:
    connection = kafka_connection(pipeline, lookup)
    cluster = KafkaCluster(connection.bootstrap_servers, connection.config)
    places, missing = cluster.partitions(pipeline.source.kafka.topics)
    yield ok(name, f"{connection.bootstrap_servers} answers")
    for topic in missing:
        error = cluster.missing_topic(topic, pipeline.name)
        yield failed(name, error.what, error.next_step)
    if not places:
        return
    marks = cluster.watermarks(places)
    records = sum(mark.last_stable - mark.log_start for mark in marks.values())
    yield ok(name, f"{len(pipeline.source.kafka.topics) - len(missing)} topics, {len(places)} partitions, "
                   f"{records:,} offsets to read")  # fmt: skip
    yield from _compacted(name, pipeline, cluster)
    yield from _readable(name, cluster, marks)
    for one in cluster.open_transactions(marks).values():
        yield warning(
            name,
            one.described(datetime.now(UTC)),
            "nothing past it can be read: find the producer, and end its transaction",
        )


def _compacted(name: str, pipeline: Pipeline, cluster: KafkaCluster) -> Iterator[Finding]:
    if pipeline.source.kafka.gaps is Gaps.COMPACTED:
        return
    for topic in cluster.compacted(pipeline.source.kafka.topics):
        yield failed(name, f"topic {topic} is compacted: records vanish from it", "if that is meant: gaps: compacted")


def _readable(name: str, cluster: KafkaCluster, marks: Marks) -> Iterator[Finding]:
    """One record of each topic that has one: asking for offsets needs fewer rights than reading."""
    first: dict[str, TopicPartition] = {}
    for place, mark in marks.items():
        if mark.log_start < mark.last_stable:
            first.setdefault(place.topic, place)
    for place in first.values():
        mark = marks[place]
        cluster.first_record_in(place, [(mark.log_start, mark.last_stable)])
    if first:
        yield ok(name, f"records can be read ({', '.join(sorted(first))})")
