"""The receipt: what one attempt made, measured by the Spark tasks that made it. Frozen, plain, and readable as JSON."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import Any

from tidemark.digest import Digest
from tidemark.manifest import Counts
from tidemark.offsets import Range
from tidemark.order import Order
from tidemark.paths import ObjectName, dead_letter_folder


class ObjectKind(StrEnum):
    DATA = "data"
    DEAD_LETTER = "dead_letter"


@dataclass(frozen=True)
class PartitionCount:
    """What one attempt measured on one partition; ``first`` and ``last`` are None when nothing was read.

    ``bytes`` are those of keys and values; ``gaps`` lists the holes, cut short when ``gap_count`` says more.
    """

    topic: str
    partition: int
    read: int
    bytes: int
    distinct: int
    first: int | None
    last: int | None
    decoded: int
    dead_lettered: int
    filtered: int
    deduplicated: int
    gap_count: int
    gaps: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class PublishedObject:
    """One object of an attempt: where it was staged and its final key, both relative to the root of its sink.

    Rows of a table are staged by the Spark task that ``staged`` names, and have no key: their ``path`` is empty.
    """

    sink: str
    kind: ObjectKind
    staged: str
    path: str
    topic: str
    partition: int
    rows: int
    bytes: int
    digest: str
    first_offset: int
    last_offset: int


MALFORMED = (KeyError, TypeError, ValueError)  # what reading a record says that is damaged, or of another version


def object_from(raw: Mapping[str, Any]) -> PublishedObject:
    return PublishedObject(**{**raw, "kind": ObjectKind(raw["kind"])})


@dataclass(frozen=True)
class Receipt:
    """What one attempt made for the ``sinks`` it worked for: measured counts, and every object with its final key.

    ``hours`` maps an event hour (``2013-01-01T10``, UTC) to ``[written, late]``.
    """

    manifest_id: int
    attempt: int
    sinks: tuple[str, ...]
    partitions: tuple[PartitionCount, ...]
    objects: tuple[PublishedObject, ...]
    hours: dict[str, list[int]] = field(default_factory=dict)

    def counts(self, sink: str, ranges: Iterable[Range]) -> Counts:
        """The terms of both equations for one sink; ``written`` counts rows of its data objects only."""
        read = sum(one.read for one in self.partitions)
        return Counts(
            read=read,
            invisible=sum(one.span for one in ranges) - read,
            written=sum(one.rows for one in self.objects_of(sink) if one.kind is ObjectKind.DATA),
            dead_lettered=sum(one.dead_lettered for one in self.partitions),
            filtered=sum(one.filtered for one in self.partitions),
            deduplicated=sum(one.deduplicated for one in self.partitions),
        )

    def joined(self, other: "Receipt | None") -> "Receipt":
        """This one, and of the same attempt what ``other`` says of sinks that are not in this one."""
        more = tuple(sink for sink in other.sinks if sink not in self.sinks) if other else ()
        objects = tuple(one for one in other.objects if one.sink in more) if other else ()
        return replace(self, sinks=self.sinks + more, objects=self.objects + objects)

    def objects_of(self, sink: str) -> tuple[PublishedObject, ...]:
        return tuple(one for one in self.objects if one.sink == sink)

    def digest(self, sink: str) -> str:
        """The order-independent digest of all rows this attempt made for one sink, without attempt and file names."""
        total = Digest.zero()
        for one in self.objects_of(sink):
            total += Digest.parse(one.digest)
        return str(total)

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Receipt":
        return cls.from_raw(json.loads(text))

    @classmethod
    def from_raw(cls, raw: Mapping[str, Any]) -> "Receipt":
        return cls(
            manifest_id=raw["manifest_id"],
            attempt=raw["attempt"],
            sinks=tuple(raw["sinks"]),
            partitions=tuple(
                PartitionCount(**{**one, "gaps": tuple((start, end) for start, end in one["gaps"])})
                for one in raw["partitions"]
            ),
            objects=tuple(object_from(one) for one in raw["objects"]),
            hours=raw["hours"],
        )


def receipt_of_tasks(order: Order, tasks: Iterable[Mapping[str, Any]]) -> Receipt:
    """Join the reports of the Spark tasks (format: ``processing/processor.py``) into one receipt with final keys.

    Parts are numbered in the order of folder, partition and first offset, so the same files get the same keys.
    """
    tasks = list(tasks)
    ranges = {(one.at.topic, one.at.partition): one for one in order.ranges}
    parts = sorted(
        (one for task in tasks for one in task["parts"]),
        key=lambda one: (one["sink"], one["kind"], one["folder"], one["partition"], one["first_offset"]),
    )
    objects = []
    for number, one in enumerate(parts):
        covered = ranges[one["topic"], one["partition"]]
        placed: dict[str, Any] = {} if one["format"] is None else _placed(order, covered, one, number)
        kept = {name: value for name, value in one.items() if name not in ("folder", "format")}
        objects.append(PublishedObject(**{"path": "", **kept, "kind": ObjectKind(one["kind"]), **placed}))
    return Receipt(
        order.manifest_id,
        order.attempt,
        tuple(sink.name for sink in order.sinks),
        _joined(order, tasks),
        tuple(objects),
        sum_of_hours(task["hours"] for task in tasks),
    )


def _placed(order: Order, covered: Range, part: Mapping[str, Any], number: int) -> dict[str, str]:
    """Where a staged file lies, and where it goes."""
    name = ObjectName(
        order.manifest_id, order.attempt, part["partition"], covered.start, covered.end, number, part["format"]
    )
    dead = part["kind"] == ObjectKind.DEAD_LETTER
    folder = dead_letter_folder(part["topic"]) if dead else part["folder"]
    return {"staged": f"{order.staging}/{part['staged']}", "path": f"{folder}/{name}"}


def _joined(order: Order, tasks: list[Mapping[str, Any]]) -> tuple[PartitionCount, ...]:
    """One count per range of the order; a partition that several tasks read is added up, one that none read is zero."""
    joined = []
    for one in order.ranges:
        seen = sorted(
            (
                count
                for task in tasks
                for count in task["partitions"]
                if (count["topic"], count["partition"]) == (one.at.topic, one.at.partition) and count["read"]
            ),
            key=lambda count: count["first"],
        )
        gaps: list[tuple[int, int]] = []
        expected = one.start
        for count in seen:
            if count["first"] > expected:
                gaps.append((expected, count["first"]))
            gaps += [(start, end) for start, end in count["gaps"]]
            expected = count["last"] + 1
        if expected < one.end:
            gaps.append((expected, one.end))
        overlap = any(a["last"] >= b["first"] for a, b in pairwise(seen))
        joined.append(
            PartitionCount(
                topic=one.at.topic,
                partition=one.at.partition,
                read=sum(count["read"] for count in seen),
                bytes=sum(count["bytes"] for count in seen),
                distinct=0 if overlap else sum(count["distinct"] for count in seen),
                first=seen[0]["first"] if seen else None,
                last=seen[-1]["last"] if seen else None,
                decoded=sum(count["decoded"] for count in seen),
                dead_lettered=sum(count["dead_lettered"] for count in seen),
                filtered=sum(count["filtered"] for count in seen),
                deduplicated=sum(count["deduplicated"] for count in seen),
                gap_count=len(gaps) + sum(count["gap_count"] - len(count["gaps"]) for count in seen),
                gaps=tuple(gaps),
            )
        )
    return tuple(joined)


def sum_of_hours(parts: Iterable[Mapping[str, Sequence[int]]]) -> dict[str, list[int]]:
    """``[written, late]`` of each event hour, added up over parts, hours ascending."""
    hours: dict[str, list[int]] = {}
    for part in parts:
        for hour, (written, late) in part.items():
            total = hours.setdefault(hour, [0, 0])
            total[0] += written
            total[1] += late
    return dict(sorted(hours.items()))
