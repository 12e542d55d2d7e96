"""The order: all that Spark must know to do one attempt. It is frozen and can be written as JSON."""

import json
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from heapq import heappop, heappush
from typing import Any

from tidemark.model.expectations import ExpectationOrder
from tidemark.model.offsets import Range, range_content, range_from
from tidemark.model.storable import Storable, storable_from
from tidemark.paths import staging_folder

TASK_RANGES = 25  # ranges of one Spark task at most: Spark keeps a consumer for each until the task ends


class OnError(StrEnum):
    """The treatment of a record that cannot be decoded."""

    FAIL = "fail"
    DEAD_LETTER = "dead_letter"


class OnInvalid(StrEnum):
    """The treatment of a record without a valid event time."""

    FAIL = "fail"
    DEAD_LETTER = "dead_letter"
    SOURCE_TIMESTAMP = "source_timestamp"  # it takes the place of the event time


class TimeUnit(StrEnum):
    """The unit of an event time that is a whole number since 1970-01-01 UTC."""

    MILLISECONDS = "ms"
    SECONDS = "s"
    MICROSECONDS = "us"
    NANOSECONDS = "ns"

    @property
    def per_second(self) -> int:
        return {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[self.value]


@dataclass(frozen=True)
class SourceOrder:
    """The source of an order: its kind, and the options for the kind's module ``spark``."""

    kind: str
    options: dict[str, Any]


@dataclass(frozen=True)
class TransformOrder:
    """One transform of an order: its kind and the kind's options.

    ``whole_partitions``: one task must read all of a range, because the result for a row depends on earlier rows.
    ``fans_out``: it may make several rows of one.
    """

    kind: str
    options: dict[str, Any]
    whole_partitions: bool = False
    fans_out: bool = False


@dataclass(frozen=True)
class SinkOrder:
    """One sink of an order: its name, its kind and the kind's options."""

    name: str
    kind: str
    options: dict[str, Any]


@dataclass(frozen=True)
class Order:
    """All that Spark must know to do one attempt. Spark needs no database; the order contains no secret."""

    pipeline_name: str
    manifest_id: int
    attempt: int
    ranges: tuple[Range, ...]
    source: SourceOrder
    decode: dict[str, Any]
    event_time: dict[str, Any]
    on_error: str
    sinks: tuple[SinkOrder, ...]
    transforms: tuple[TransformOrder, ...] = ()  # applied in this order, between decoder and event time
    record_bytes: float | None = None  # of key and value, as measured on earlier manifests; None before the first
    max_dead_letters: int | str | None = None  # of the manifest: a number, or a share such as 0.1%; None: any number
    storable: tuple[Storable, ...] = ()  # the limits of all sinks of the pipeline, also of those not written here
    expectations: tuple[ExpectationOrder, ...] = ()  # checked on the rows that sinks get
    task_records: int = 1  # a Spark task reads whole ranges, with about so many records together; 1: one range
    before: tuple[Range, ...] = ()  # offsets right before some of the ranges: only transforms see their records

    @property
    def read(self) -> tuple[Range, ...]:
        """Return all offsets to read: each range together with the offsets before it."""
        starts = {earlier.at: earlier.start for earlier in self.before}
        return tuple(replace(covered, start=starts.get(covered.at, covered.start)) for covered in self.ranges)

    @property
    def span(self) -> int:
        """Return the number of offsets to read, so an upper bound of the records."""
        return sum(covered.span for covered in self.read)

    @property
    def tasks(self) -> tuple[tuple[Range, ...], ...]:
        """Return the ranges that each Spark task reads. They depend only on the order, not on the cluster.

        A range of ``task_records`` or more gets a task of its own. The others share tasks, at most ``TASK_RANGES`` in
        one: from the largest to the smallest, each goes to the task with the fewest records so far. The task with the
        most records comes first, because Spark begins with it; if it came last, all other cores would wait for it.
        """
        tasks = [[covered] for covered in self.read if covered.span >= self.task_records]
        small = [covered for covered in self.read if covered.span < self.task_records]
        number = max(sum(covered.span for covered in small) // self.task_records, -(-len(small) // TASK_RANGES))
        shared: list[list[Range]] = [[] for _ in range(number)]
        loads = [(0, task) for task in range(number)]  # records so far of the tasks that can take more ranges
        for covered in sorted(small, key=lambda covered: (-covered.span, covered.at)):
            records, task = heappop(loads)
            shared[task].append(covered)
            if len(shared[task]) < TASK_RANGES:
                heappush(loads, (records + covered.span, task))
        ordered = (tuple(sorted(task)) for task in (*tasks, *shared))
        return tuple(sorted(ordered, key=lambda task: (-sum(covered.span for covered in task), task)))

    @property
    def staging(self) -> str:
        """Return the attempt's private folder, relative to each sink's root."""
        return staging_folder(self.manifest_id, self.attempt)

    def to_json(self) -> str:
        offsets = {"ranges": list(map(range_content, self.ranges)), "before": list(map(range_content, self.before))}
        return json.dumps({**asdict(self), **offsets}, indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Order":
        raw = json.loads(text)
        return cls(
            **{
                **raw,
                "ranges": tuple(range_from(part) for part in raw["ranges"]),
                "before": tuple(range_from(part) for part in raw["before"]),
                "storable": tuple(map(storable_from, raw["storable"])),
                "expectations": tuple(ExpectationOrder(**each) for each in raw["expectations"]),
                "source": SourceOrder(**raw["source"]),
                "sinks": tuple(SinkOrder(**sink) for sink in raw["sinks"]),
                "transforms": tuple(TransformOrder(**transform) for transform in raw["transforms"]),
            }
        )
