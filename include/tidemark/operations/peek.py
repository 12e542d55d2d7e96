"""What a pipeline would make of real records: read, decoded and placed as its Spark job does it, and not kept.

The same ``processing/processor.py`` does the work, on Arrow batches as a source gives them to Spark. Nothing is written
or committed, and no manifest database is asked.
"""

import json
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import Any

import pyarrow as pa

from tidemark.errors import ConfigurationError, NotFound, UndecodableRecord
from tidemark.json_text import json_lines
from tidemark.offsets import Range, TopicPartition
from tidemark.order import OnError, Order, SourceOrder
from tidemark.partitions import Bounds, Record
from tidemark.pipeline.settings import Pipeline
from tidemark.processing.processor import INPUT, BatchProcessor
from tidemark.sinks.writer import StagedPart
from tidemark.sources.base import Source
from tidemark.suggestion import nearest

WIDENING = 8  # a window of offsets that held too few records is made this much longer


@dataclass(frozen=True)
class Wanted:
    """Which records: the newest ``count``, spread over partitions, or those from offset ``start`` of one on."""

    count: int
    topic: str | None = None
    partition: int | None = None
    start: int | None = None


@dataclass(frozen=True)
class Peeked:
    """What came of the records, in the order of their places; ``refusal`` is why a manifest with them would fail.

    Each row and dead letter is like a line of a JSON lines file, with ``targets``: the folders and tables it goes to.
    A row has ``event_time`` too, and ``late``.
    """

    rows: list[dict[str, Any]]
    dead_letters: list[dict[str, Any]]
    refusal: str | None


def peek(pipeline: Pipeline, source: Source, wanted: Wanted) -> Peeked:
    """Read records and say what the pipeline would make of each; ``NotFound`` for a place that there is not."""
    read = pa.RecordBatch.from_pylist([_row(one) for one in _records(pipeline, source, wanted)], schema=INPUT)
    order = _order(pipeline, source)
    try:
        BatchProcessor(order).process("peek", [read], [])
        refusal = None
    except UndecodableRecord as error:
        refusal = str(error)
    collected = _Collected(pipeline)
    lenient = {**order.event_time, "on_invalid": OnError.DEAD_LETTER.value}
    kept = replace(order, on_error=OnError.DEAD_LETTER.value, event_time=lenient)
    BatchProcessor(kept).process("peek", [read], [collected])
    return Peeked(_in_order(collected.rows), _in_order(collected.letters), refusal)


def _in_order(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda one: (one["topic"], one["partition"], one["offset"]))


def _order(pipeline: Pipeline, source: Source) -> Order:
    return Order(
        pipeline=pipeline.name, manifest_id=0, attempt=0, ranges=(), sinks=(),
        source=SourceOrder(pipeline.source.kind, source.order()), decode=pipeline.decode.order(),
        event_time=pipeline.event_time.order(), on_error=pipeline.on_error.value,
        nul_allowed=all(settings.stores_nul for settings in pipeline.sinks),
    )  # fmt: skip


# which records


def _records(pipeline: Pipeline, source: Source, wanted: Wanted) -> list[Record]:
    marks = source.bounds(_places(pipeline, source, wanted))
    if wanted.start is not None:
        [(place, mark)] = marks.items()
        if not mark.log_start <= wanted.start < mark.last_stable:
            raise NotFound(
                f"there is no offset {wanted.start} to read: {source.title} holds "
                f"[{mark.log_start}, {mark.last_stable})",
                next_step="name an offset inside, or leave --from out",
                pipeline=pipeline.name, topic=place.topic, partition=place.partition,
            )  # fmt: skip
        return list(islice(source.records(Range(place, wanted.start, mark.last_stable)), wanted.count))
    shares = spread({place: mark.last_stable - mark.log_start for place, mark in marks.items()}, wanted.count)
    return [one for place, share in shares.items() for one in _newest(source, place, marks[place], share)]


def _places(pipeline: Pipeline, source: Source, wanted: Wanted) -> list[TopicPartition]:
    topics = pipeline.source.topics
    if wanted.topic is not None and wanted.topic not in topics:
        said = f"{nearest(wanted.topic, topics)} it reads: {', '.join(topics)}".strip()
        raise NotFound(f"the pipeline does not read topic {wanted.topic}; {said}",
                       next_step="name one of them", pipeline=pipeline.name)  # fmt: skip
    places, missing = source.partitions([wanted.topic] if wanted.topic else topics)
    if missing:
        raise source.missing_topic(missing[0])
    chosen = [one for one in places if wanted.partition in (None, one.partition)]
    if not chosen:
        raise NotFound(f"there is no partition {wanted.partition}", pipeline=pipeline.name,
                       next_step=f"partitions go from 0 to {max(one.partition for one in places)}")  # fmt: skip
    if wanted.start is not None and len(chosen) > 1:
        raise ConfigurationError("--from OFFSET is about one partition", pipeline=pipeline.name,
                                 next_step="add --partition, and --topic when there are several")  # fmt: skip
    return chosen


def spread(available: Mapping[TopicPartition, int], count: int) -> dict[TopicPartition, int]:
    """How many to take of each so that they differ as little as may be; none gets more than it has."""
    shares: dict[TopicPartition, int] = {}
    left = count
    for number, (place, span) in enumerate(sorted(available.items(), key=lambda one: (one[1], one[0]))):
        shares[place] = min(span, -(-left // (len(available) - number)))
        left -= shares[place]
    return {place: share for place, share in sorted(shares.items()) if share}


def _newest(source: Source, place: TopicPartition, mark: Bounds, share: int) -> Iterable[Record]:
    """The last ``share`` records before the last stable offset; gaps make it look further back."""
    window = share
    while True:
        start = max(mark.log_start, mark.last_stable - window)
        found = deque(source.records(Range(place, start, mark.last_stable)), maxlen=share)
        if len(found) == share or start == mark.log_start:
            return found
        window *= WIDENING


def _row(one: Record) -> dict[str, Any]:
    return {
        "key": one.key, "value": one.value, "topic": one.topic, "partition": one.partition, "offset": one.offset,
        "timestamp": one.timestamp_ms * 1000,
        "headers": [{"key": key, "value": value} for key, value in one.headers or ()] or None,
    }  # fmt: skip


# what becomes of them


@dataclass
class _Collected:
    """A sink that keeps rows in memory, each with where the sinks of the pipeline would put it."""

    pipeline: Pipeline
    rows: list[dict[str, Any]] = field(default_factory=list)
    letters: list[dict[str, Any]] = field(default_factory=list)

    def write(self, rows: pa.RecordBatch, event_time: pa.Array) -> None:
        lateness = self.pipeline.event_time.allowed_lateness
        stamped = rows.column("_timestamp").to_pylist()
        for line, when, stamp in zip(json_lines(rows).to_pylist(), event_time.to_pylist(), stamped, strict=True):
            row = json.loads(line)
            placed = {"event_time": when, "late": stamp - when > lateness, "targets": self._targets(row, when)}
            self.rows.append({**row, **placed})

    def write_dead_letters(self, rows: pa.RecordBatch) -> None:
        letters = [json.loads(line) for line in json_lines(rows).to_pylist()]
        self.letters += [{**one, "targets": self._targets(one, None)} for one in letters]

    def close(self) -> list[StagedPart]:
        return []

    def abort(self) -> None:
        pass

    def _targets(self, row: dict[str, Any], when: datetime | None) -> list[str]:
        """Folders and tables; without ``when``, those of dead letters."""
        return [sink.place_of(self.pipeline.name, row["topic"], when) for sink in self.pipeline.sinks]
