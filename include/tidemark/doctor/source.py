"""The source of a pipeline: the connection, the topics, the permission to read them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa

from tidemark.connections.lookup import Lookup
from tidemark.doctor.checks import TIMEOUT_S, Check
from tidemark.errors import TidemarkError, Unavailable
from tidemark.model.findings import Finding, failed, ok, warning
from tidemark.model.manifest import count_of
from tidemark.model.offsets import Range, TopicPartition
from tidemark.model.partitions import Bounds
from tidemark.model.record_schema import READ, input_row
from tidemark.pipeline.decoded_topics import next_step
from tidemark.pipeline.pinned import pinned
from tidemark.pipeline.settings import Pipeline
from tidemark.processing.doubts import doubts
from tidemark.sources.base import Source
from tidemark.sources.registry import open_source
from tidemark.sources.settings import Gaps

LOOKED_AT = 20  # newest records of each topic that are read: their times may have another unit than the file says


def checks(pipelines: Sequence[Pipeline], lookup: Lookup) -> Iterator[Check]:
    """Check the source of each pipeline. An address that does not answer is asked and reported once."""
    silent: dict[str, list[str]] = {}
    for pipeline in pipelines:
        name = f"{pipeline.name}: {pipeline.source.kind}"
        # Four questions (topics, offsets, clean-up policies, one record), each with 10 s for the answer.
        ask = partial(source_findings, name, pipeline, pipelines, lookup, silent)
        yield Check(name, ask, 3 * TIMEOUT_S, pipeline_name=pipeline.name)


def source_findings(
    name: str, pipeline: Pipeline, pipelines: Sequence[Pipeline], lookup: Lookup, silent: dict[str, list[str]]
) -> Iterator[Finding]:
    source = open_source(pipeline.name, pipeline.source, lookup)
    if pipeline.name in silent.get(source.address, ()):
        return
    try:
        topics = source.selected()
        places, missing = source.partitions(topics)
    except Unavailable as gone:
        names = silent[source.address] = _at_the_same_address(source, pipelines, lookup)
        waiting = f"; {len(names)} pipelines wait for it: {', '.join(names)}" if len(names) > 1 else ""
        yield failed(name, f"{gone.what}{waiting}", gone.next_step)
        return
    yield ok(name, f"{source.address} answers")
    for topic in topics:
        if problem := pipeline.decode.problem_with_topic(topic):
            yield failed(name, f"topic {topic} {problem}", next_step(pipeline))
    for topic in missing:
        error = source.missing_topic(topic)
        yield failed(name, error.what, error.next_step)
    if not places:
        return
    bounds = source.bounds(places)
    offsets = sum(bound.last_stable - bound.log_start for bound in bounds.values())
    counts = ((len(topics) - len(missing), "topic"), (len(places), "partition"), (offsets, "offset"))
    yield ok(name, f"{', '.join(count_of(number, what) for number, what in counts)} to read")
    yield from _compacted(name, pipeline, source, sorted({place.topic for place in places}))
    yield from _readable(name, source, bounds)
    if (newest := _newest(source, bounds)).num_rows:
        for doubt in doubts(pinned(pipeline, lookup, {}).decode.record_order(), newest):
            yield warning(name, str(doubt), doubt.next_step)
    for transaction in source.open_transactions(bounds).values():
        message = transaction.described(datetime.now(UTC))
        yield warning(name, message, "find the producer and end its transaction: nothing after it can be read")


def _at_the_same_address(source: Source, pipelines: Sequence[Pipeline], lookup: Lookup) -> list[str]:
    """Return the names of the pipelines with this source. A pipeline with a wrong connection has a finding of its
    own.
    """
    names = []
    for pipeline in pipelines:
        with suppress(TidemarkError):
            other = open_source(pipeline.name, pipeline.source, lookup)
            if (other.title, other.address) == (source.title, source.address):
                names.append(pipeline.name)
    return names


def _compacted(name: str, pipeline: Pipeline, source: Source, topics: Sequence[str]) -> Iterator[Finding]:
    if pipeline.source.gaps is Gaps.COMPACTED:
        return
    for topic in source.compacted(topics):
        yield failed(
            name,
            f"topic {topic} is compacted: {source.title} removes records from it",
            "if you want that, set gaps: compacted",
        )


def _readable(name: str, source: Source, bounds: Mapping[TopicPartition, Bounds]) -> Iterator[Finding]:
    """Read one record of each topic that has records: some users may ask for offsets, but not read."""
    first: dict[str, TopicPartition] = {}
    for place, bound in bounds.items():
        if bound.log_start < bound.last_stable:
            first.setdefault(place.topic, place)
    for place in first.values():
        source.first_record_in(place, [(bounds[place].log_start, bounds[place].last_stable)])
    if first:
        yield ok(name, f"records can be read ({', '.join(sorted(first))})")


def _newest(source: Source, bounds: Mapping[TopicPartition, Bounds]) -> pa.RecordBatch:
    """Return the last records of one partition of each topic, as Spark gives them."""
    last: dict[str, TopicPartition] = {}
    for place, bound in bounds.items():
        if bound.log_start < bound.last_stable:
            last.setdefault(place.topic, place)
    ranges = [
        Range(place, max(bounds[place].log_start, bounds[place].last_stable - LOOKED_AT), bounds[place].last_stable)
        for place in last.values()
    ]
    rows = [input_row(record) for range_ in ranges for record in source.records(range_)]
    return pa.RecordBatch.from_pylist(rows, schema=READ)
