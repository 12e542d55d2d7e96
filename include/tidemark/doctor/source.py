"""The source as one pipeline sees it: the connection, the topics, the right to read them."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from tidemark.connections import Lookup
from tidemark.doctor.checks import TIMEOUT_S, Check
from tidemark.findings import Finding, failed, ok, warning
from tidemark.offsets import TopicPartition
from tidemark.partitions import Bounds
from tidemark.pipeline.settings import Pipeline
from tidemark.sources.base import Source
from tidemark.sources.registry import open_source
from tidemark.sources.settings import Gaps


def checks(pipeline: Pipeline, lookup: Lookup) -> list[Check]:
    name = f"{pipeline.name}: {pipeline.source.kind}"
    # Topics, offsets, clean-up policies and one record: four questions, each answered within 10 s.
    return [Check(name, lambda: source_findings(name, pipeline, lookup), 3 * TIMEOUT_S)]


def source_findings(name: str, pipeline: Pipeline, lookup: Lookup) -> Iterator[Finding]:
    source, topics = open_source(pipeline.name, pipeline.source, lookup), pipeline.source.topics
    places, missing = source.partitions(topics)
    yield ok(name, f"{source.address} answers")
    for topic in missing:
        error = source.missing_topic(topic)
        yield failed(name, error.what, error.next_step)
    if not places:
        return
    bounds = source.bounds(places)
    records = sum(held.last_stable - held.log_start for held in bounds.values())
    yield ok(name, f"{len(topics) - len(missing)} topics, {len(places)} partitions, {records:,} offsets to read")
    yield from _compacted(name, pipeline, source)
    yield from _readable(name, source, bounds)
    for transaction in source.open_transactions(bounds).values():
        what = transaction.described(datetime.now(UTC))
        yield warning(name, what, "nothing past it can be read: find the producer, and end its transaction")


def _compacted(name: str, pipeline: Pipeline, source: Source) -> Iterator[Finding]:
    if pipeline.source.gaps is Gaps.COMPACTED:
        return
    for topic in source.compacted(pipeline.source.topics):
        yield failed(name, f"topic {topic} is compacted: records vanish from it", "if that is meant: gaps: compacted")


def _readable(name: str, source: Source, bounds: Mapping[TopicPartition, Bounds]) -> Iterator[Finding]:
    """One record of each topic that has one: asking for offsets needs fewer rights than reading."""
    first: dict[str, TopicPartition] = {}
    for place, held in bounds.items():
        if held.log_start < held.last_stable:
            first.setdefault(place.topic, place)
    for place in first.values():
        source.first_record_in(place, [(bounds[place].log_start, bounds[place].last_stable)])
    if first:
        yield ok(name, f"records can be read ({', '.join(sorted(first))})")
