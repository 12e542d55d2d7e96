"""Shows what a pipeline would make of real records. They are read, decoded and placed as in its Spark job, and not
kept.

The same ``processing/processor.py`` does the work, on Arrow batches as a source gives them to Spark. Nothing is written
or committed, and no manifest database is asked.
"""

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import Any

import pyarrow as pa

from tidemark.connections.lookup import from_environment
from tidemark.errors import ConfigurationError, NotFound, TidemarkError, UndecodableRecord
from tidemark.model.expectations import ExpectationCount, ExpectationOrder, expectation_from
from tidemark.model.offsets import Range, TopicPartition
from tidemark.model.order import OnError, OnInvalid, Order, SourceOrder
from tidemark.model.partitions import Bounds, Record
from tidemark.model.record_schema import READ, input_row
from tidemark.model.unknown_fields import NAMED_FIELDS
from tidemark.pipeline.decoded_topics import refuse_undecoded
from tidemark.pipeline.event_time import EventTimeSettings
from tidemark.pipeline.pinned import pinned
from tidemark.pipeline.settings import Pipeline
from tidemark.processing.doubts import Doubt, doubts
from tidemark.processing.drift import ProposedField, proposed_fields, with_unknown_fields
from tidemark.processing.processor import BatchProcessor
from tidemark.sinks.encoding.json_text import json_lines
from tidemark.sinks.writer import RowTaker, StagedPart
from tidemark.sources.base import Source
from tidemark.sources.registry import open_source
from tidemark.text import nearest

WIDENING = 8  # the factor by which a window of offsets with too few records grows


@dataclass(frozen=True)
class RecordSelection:
    """The records to read: the newest ``count`` over all partitions, or with ``start`` the first ``count`` of one
    partition from this offset on.
    """

    count: int
    topic: str | None = None
    partition: int | None = None
    start: int | None = None


@dataclass(frozen=True)
class Peeked:
    """Rows and dead letters, ordered by topic, partition and offset; ``refusal`` is why a manifest with them would
    fail.

    Each is like a line of a JSON lines file, with ``targets``: the folders and tables it would go to. A row also has
    ``event_time`` and ``late``. If the pipeline allows no lateness, nearly every row is late, so ``late`` is always
    false.

    If the pipeline transforms rows, a row also has ``before``, its decoded data, and ``taken_away`` has the rows that
    were filtered or deduplicated. ``doubts`` are columns whose settings seem wrong, or leave something open.
    ``expectations`` count the rows that do not meet what is expected, as far as these records show it.
    """

    rows: list[dict[str, Any]]
    dead_letters: list[dict[str, Any]]
    refusal: str | None
    doubts: list[Doubt] = field(default_factory=list)
    taken_away: list[dict[str, Any]] = field(default_factory=list)
    expectations: tuple[ExpectationCount, ...] = ()


def peek(pipeline: Pipeline, selection: RecordSelection, conditions: Sequence[str] = ()) -> Peeked:
    """Read records and process them; ``NotFound`` for an unknown topic, partition or offset.

    Raises ``NotFound`` for an unknown topic, partition or offset, and ``ConfigurationError`` if a condition does not
    fit.
    """
    with _of_no_manifest(pipeline.name):
        return _peeked(pipeline, open_source(pipeline.name, pipeline.source), selection, conditions)


def _peeked(pipeline: Pipeline, source: Source, selection: RecordSelection, conditions: Sequence[str]) -> Peeked:
    pipeline, batch = _read(pipeline, source, selection)
    order = _order(pipeline, source)
    tried = {each.name: each for each in order.expectations}
    for condition in conditions:
        tried.setdefault(name := " ".join(condition.split()), ExpectationOrder(name, condition))
    order = replace(order, expectations=tuple(tried.values()))
    try:
        with _of_no_manifest(pipeline.name):
            BatchProcessor(order).process("peek", [batch], [])
        refusal = None
    except UndecodableRecord as error:
        refusal = str(error)
    collected = _Collected(pipeline)
    lenient = dict(order.event_time)
    if lenient["on_invalid"] == OnInvalid.FAIL:
        lenient["on_invalid"] = OnInvalid.DEAD_LETTER.value
    decode = with_unknown_fields(order.decode, OnError.DEAD_LETTER)
    lenient_order = replace(order, decode=decode, on_error=OnError.DEAD_LETTER.value, event_time=lenient)
    report = BatchProcessor(lenient_order).process("peek", [batch], [collected])
    expectations = tuple(map(expectation_from, report["expectations"]))
    rows, letters = _sorted(collected.rows), _sorted(collected.letters)
    doubtful = doubts(order.decode, batch)
    if not order.transforms:
        return Peeked(rows, letters, refusal, doubtful, [], expectations)
    decoded = _Collected(pipeline)
    BatchProcessor(_without_transforms(lenient_order)).process("peek", [batch], [decoded])
    before = {_place(row): row for row in _sorted(decoded.rows)}
    rows = [{**row, "before": before[_place(row)]["data"]} for row in rows]
    remaining = {_place(row) for row in (*rows, *letters)}
    taken_away = [{**row, "targets": []} for place, row in before.items() if place not in remaining]
    return Peeked(rows, letters, refusal, doubtful, taken_away, expectations)


@dataclass(frozen=True)
class Drift:
    """Fields of so many ``records`` that the schema lacks: the first 100 by path. ``more`` counts the others."""

    records: int
    fields: tuple[ProposedField, ...]
    more: int = 0


def drift(pipeline: Pipeline, selection: RecordSelection) -> Drift:
    """Read records and propose lines for the fields that the schema has not; raises as ``peek``."""
    if not pipeline.decode.finds_unknown_fields():
        raise ConfigurationError(
            f"decode.format {pipeline.decode.format} does not look for fields that the schema does not have",
            next_step="json and json_schema do; leave out --drift",
            pipeline=pipeline.name,
        )
    with _of_no_manifest(pipeline.name):
        pipeline, batch = _read(pipeline, open_source(pipeline.name, pipeline.source), selection)
    fields = proposed_fields(pipeline.decode.record_order(), batch)
    return Drift(batch.num_rows, fields[:NAMED_FIELDS], len(fields[NAMED_FIELDS:]))


def _read(pipeline: Pipeline, source: Source, selection: RecordSelection) -> tuple[Pipeline, pa.RecordBatch]:
    """Return the pipeline with its schemas pinned, and the records as Spark gives them."""
    pipeline = pinned(pipeline, from_environment, {})
    rows = [input_row(record) for record in _records(pipeline, source, selection)]
    return pipeline, pa.RecordBatch.from_pylist(rows, schema=READ)


@contextmanager
def _of_no_manifest(pipeline_name: str) -> Iterator[None]:
    """Make an error of these records name no manifest, and say that another peek, not a retry, repeats the work."""
    try:
        yield
    except TidemarkError as error:
        error.context.pop("manifest", None)
        error.within(pipeline=pipeline_name)
        error.is_repeated_by(f"peek {pipeline_name}")
        raise


def _without_transforms(order: Order) -> Order:
    """Return the order up to its decoder. The time of a row may be known only after the transforms, so a row gets the
    timestamp of its record.
    """
    lenient = {**EventTimeSettings().order(), "on_invalid": OnError.DEAD_LETTER.value}
    return replace(order, transforms=(), event_time=lenient, expectations=())


def _place(row: Mapping[str, Any]) -> tuple[str, int, int]:
    return row["topic"], row["partition"], row["offset"]


def _sorted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=_place)


def _order(pipeline: Pipeline, source: Source) -> Order:
    return Order(
        pipeline_name=pipeline.name, manifest_id=0, attempt=0, ranges=(), sinks=(),
        source=SourceOrder(pipeline.source.kind, source.order()), decode=pipeline.decode.record_order(),
        transforms=pipeline.transforms(), event_time=pipeline.event_time.order(), on_error=pipeline.on_error.value,
        storable=pipeline.storable(), expectations=pipeline.expectations(),
    )  # fmt: skip


# selecting records


def _records(pipeline: Pipeline, source: Source, selection: RecordSelection) -> list[Record]:
    bounds = source.bounds(_places(pipeline, source, selection))
    if selection.start is not None:
        [(place, log)] = bounds.items()
        if not log.log_start <= selection.start < log.last_stable:
            raise NotFound(
                f"there is no offset {selection.start} to read: {source.title} holds "
                f"[{log.log_start}, {log.last_stable})",
                next_step="name an offset in this range, or leave --from out",
                pipeline=pipeline.name, topic=place.topic, partition=place.partition,
            )  # fmt: skip
        return list(islice(source.records(Range(place, selection.start, log.last_stable)), selection.count))
    shares = spread({place: log.last_stable - log.log_start for place, log in bounds.items()}, selection.count)
    records: list[Record] = []
    for place, share in shares.items():
        records += _newest(source, place, bounds[place], share)
    return records


def _places(pipeline: Pipeline, source: Source, selection: RecordSelection) -> list[TopicPartition]:
    topics = source.selected()
    if selection.topic is not None and selection.topic not in topics:
        known = f"{nearest(selection.topic, topics)} it reads: {', '.join(topics)}".strip()
        raise NotFound(f"the pipeline does not read topic {selection.topic}; {known}",
                       next_step="name one of these topics", pipeline=pipeline.name)  # fmt: skip
    topics = [selection.topic] if selection.topic else topics
    refuse_undecoded(pipeline, topics)
    places, missing = source.partitions(topics)
    if missing:
        raise source.missing_topic(missing[0])
    chosen = [place for place in places if selection.partition in (None, place.partition)]
    if not chosen:
        raise NotFound(f"there is no partition {selection.partition}", pipeline=pipeline.name,
                       next_step=f"partitions go from 0 to {max(place.partition for place in places)}")  # fmt: skip
    if selection.start is not None and len(chosen) > 1:
        raise ConfigurationError("--from OFFSET needs one partition", pipeline=pipeline.name,
                                 next_step="add --partition, and --topic when there are several topics")  # fmt: skip
    return chosen


def spread(available: Mapping[TopicPartition, int], count: int) -> dict[TopicPartition, int]:
    """Return how many of ``count`` records to take from each partition: evenly, as far as each has enough."""
    shares: dict[TopicPartition, int] = {}
    remaining = count
    smallest_first = sorted((span, place) for place, span in available.items())
    for number, (span, place) in enumerate(smallest_first):
        shares[place] = min(span, -(-remaining // (len(available) - number)))
        remaining -= shares[place]
    return {place: share for place, share in sorted(shares.items()) if share}


def _newest(source: Source, place: TopicPartition, log: Bounds, share: int) -> Iterable[Record]:
    """Return the last ``share`` records before the last stable offset. Reads further back if there are gaps."""
    window = share
    while True:
        start = max(log.log_start, log.last_stable - window)
        records = deque(source.records(Range(place, start, log.last_stable)), maxlen=share)
        if len(records) == share or start == log.log_start:
            return records
        window *= WIDENING


# collecting rows and dead letters


@dataclass
class _Collected(RowTaker):
    """A sink that keeps rows in memory, each with the places where the pipeline's sinks would put it."""

    pipeline: Pipeline
    rows: list[dict[str, Any]] = field(default_factory=list)
    letters: list[dict[str, Any]] = field(default_factory=list)

    def write(self, rows: pa.RecordBatch, event_time: pa.Array) -> None:
        lateness = self.pipeline.event_time.allowed_lateness
        timestamps = rows.column("_timestamp").to_pylist()
        for line, when, timestamp in zip(json_lines(rows).to_pylist(), event_time.to_pylist(), timestamps, strict=True):
            row = json.loads(line)
            is_late = bool(lateness) and timestamp - when > lateness
            placed = {"event_time": when, "late": is_late, "targets": self._targets(row, when)}
            self.rows.append({**row, **placed})

    def write_dead_letters(self, rows: pa.RecordBatch) -> None:
        letters = [json.loads(line) for line in json_lines(rows).to_pylist()]
        self.letters += [{**letter, "targets": self._targets(letter, None)} for letter in letters]

    def close(self) -> list[StagedPart]:
        return []

    def abort(self) -> None:
        pass

    def _targets(self, row: dict[str, Any], when: datetime | None) -> list[str]:
        """Return the folders and tables of a row; without ``when``, those of a dead letter."""
        return [sink.place_of(self.pipeline.name, row["topic"], when) for sink in self.pipeline.sinks]
