"""The receipt: what one attempt made, measured by its Spark tasks. It is frozen and can be written as JSON."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import Any

from tidemark.errors import Blocked
from tidemark.model.digest import Digest
from tidemark.model.expectations import ExpectationCount, expectation_from, expectations_together
from tidemark.model.manifest import Counts
from tidemark.model.offsets import Range
from tidemark.model.order import Order
from tidemark.model.partitions import LastRecord
from tidemark.model.reasons import ReasonCount, reasons_together
from tidemark.model.unknown_fields import UnknownField, fields_together
from tidemark.paths import ObjectName, dead_letter_folder


class ObjectKind(StrEnum):
    DATA = "data"
    DEAD_LETTER = "dead_letter"


@dataclass(frozen=True)
class PartitionCount:
    """The numbers that one attempt measured on one partition; ``first`` and ``last`` are None if nothing was read.

    ``last_timestamp_ms``, ``last_digest`` (of key and value) and ``last_epoch`` (the leader epoch, None if it is not
    known) are of the record at offset ``last``. ``bytes`` counts keys and values. ``distinct`` counts the records whose
    offset is higher than the one before; if it is not ``read``, records came twice, and ``counting.py`` blocks the
    attempt. ``gaps`` has the first gaps between the offsets, half open; ``gap_count`` counts all of them.
    """

    topic: str
    partition: int
    read: int
    bytes: int
    distinct: int
    first: int | None
    last: int | None
    last_timestamp_ms: int | None
    last_digest: str | None
    decoded: int
    dead_lettered: int
    filtered: int
    deduplicated: int
    exploded: int
    gap_count: int
    gaps: tuple[tuple[int, int], ...]
    last_epoch: int | None = None

    @property
    def last_record(self) -> LastRecord | None:
        if self.last is None or self.last_timestamp_ms is None or self.last_digest is None:
            return None
        return LastRecord(self.last, self.last_timestamp_ms, self.last_digest, self.last_epoch)


@dataclass(frozen=True)
class PublishedObject:
    """One object of an attempt, with its staged path and its final key, both relative to the root of its sink.

    Rows of a table have no key: ``staged`` names the Spark task that staged them, and ``path`` is empty. ``spans`` has
    (partition, lowest offset, highest offset) of each partition of the topic, ascending; offsets are inclusive.
    """

    sink: str
    kind: ObjectKind
    staged: str
    path: str
    topic: str
    spans: tuple[tuple[int, int, int], ...]
    rows: int
    bytes: int
    digest: str

    def may_hold(self, topic: str, partition: int, offset: int) -> bool:
        """Return whether a record lies inside the spans, so that this object may have it."""
        return topic == self.topic and any(
            partition == number and first <= offset <= last for number, first, last in self.spans
        )

    @property
    def places(self) -> str:
        """Return the offsets for a message: ``flights-0 [5, 9], flights-1 [0, 4]``."""
        return ", ".join(f"{self.topic}-{number} [{first}, {last}]" for number, first, last in self.spans)


MALFORMED = (KeyError, TypeError, ValueError)  # raised if our own JSON is damaged or of another version


def object_from(raw: Mapping[str, Any]) -> PublishedObject:
    raw = dict(raw)
    if "spans" not in raw:  # written by release 0.3, where each object was of one partition
        raw["spans"] = [[raw.pop(name) for name in ("partition", "first_offset", "last_offset")]]
    spans = tuple((number, first, last) for number, first, last in raw["spans"])
    return PublishedObject(**{**raw, "kind": ObjectKind(raw["kind"]), "spans": spans})


def _count_from(raw: Mapping[str, Any]) -> PartitionCount:
    return PartitionCount(**{**raw, "gaps": tuple((start, end) for start, end in raw["gaps"])})


@dataclass(frozen=True)
class Receipt:
    """The report of all that one attempt wrote for its ``sinks``: measured counts, and every object with its final key.

    ``hours`` maps an event hour (``2013-01-01T10``, UTC) to ``[written, late]``. ``reasons`` count the dead letters,
    ``unknown_fields`` the fields of other records that the schema does not have, ``expectations`` the rows that fail an
    expectation. ``schemas`` are those of a schema registry, by question (``providers/registry/schemas.py``); a replay
    uses them again. ``follows`` maps a sink that appends to the published attempt after which you allow other rows.
    """

    manifest_id: int
    attempt: int
    sinks: tuple[str, ...]
    partitions: tuple[PartitionCount, ...]
    objects: tuple[PublishedObject, ...]
    hours: dict[str, list[int]] = field(default_factory=dict)
    reasons: tuple[ReasonCount, ...] = ()
    schemas: dict[str, Any] = field(default_factory=dict)
    follows: dict[str, int] = field(default_factory=dict)
    unknown_fields: tuple[UnknownField, ...] = ()
    expectations: tuple[ExpectationCount, ...] = ()

    def counts(self, sink: str, ranges: Iterable[Range]) -> Counts:
        """Return the terms of both equations for one sink; ``written`` counts only rows of its data objects."""
        read = sum(count.read for count in self.partitions)
        return Counts(
            read=read,
            invisible=sum(range_.span for range_ in ranges) - read,
            written=sum(part.rows for part in self.objects_of(sink) if part.kind is ObjectKind.DATA),
            dead_lettered=sum(count.dead_lettered for count in self.partitions),
            filtered=sum(count.filtered for count in self.partitions),
            deduplicated=sum(count.deduplicated for count in self.partitions),
            exploded=sum(count.exploded for count in self.partitions),
            unknown_fields=sum(unknown.count for unknown in self.unknown_fields),
            unmet=sum(count.unmet for count in self.expectations),
        )

    def with_epochs(self, epochs: Mapping[tuple[str, int], int | None]) -> "Receipt":
        """Return this receipt with the leader epoch of the last record of each (topic, partition)."""
        counts = [replace(count, last_epoch=epochs.get((count.topic, count.partition))) for count in self.partitions]
        return replace(self, partitions=tuple(counts))

    def joined(self, other: "Receipt | None") -> "Receipt":
        """Return this receipt, plus the sinks that only ``other`` has, with their objects. Both are of one attempt."""
        if other is None:
            return self
        sinks = tuple(sink for sink in other.sinks if sink not in self.sinks)
        objects = tuple(part for part in other.objects if part.sink in sinks)
        return replace(self, sinks=self.sinks + sinks, objects=self.objects + objects)

    def objects_of(self, sink: str) -> tuple[PublishedObject, ...]:
        return tuple(part for part in self.objects if part.sink == sink)

    def digest(self, sink: str) -> str:
        """Return the digest of all rows that this attempt wrote for one sink; order and files of rows do not matter."""
        return str(sum((Digest.parse(part.digest) for part in self.objects_of(sink)), Digest.zero()))

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Receipt":
        return cls.from_raw(json.loads(text))

    @classmethod
    def from_raw(cls, raw: Mapping[str, Any]) -> "Receipt":
        """Return the receipt from its JSON; raises one of ``MALFORMED`` if it is damaged."""
        return cls(
            manifest_id=raw["manifest_id"],
            attempt=raw["attempt"],
            sinks=tuple(raw["sinks"]),
            partitions=tuple(_count_from(count) for count in raw["partitions"]),
            objects=tuple(object_from(part) for part in raw["objects"]),
            hours=raw["hours"],
            reasons=tuple(ReasonCount(**count) for count in raw["reasons"]),
            schemas=raw["schemas"],
            follows=raw["follows"],
            unknown_fields=tuple(
                UnknownField(**unknown) for unknown in raw.get("unknown_fields", ())
            ),  # older ones: none
            expectations=tuple(expectation_from(count) for count in raw.get("expectations", ())),
        )


@dataclass(frozen=True)
class StoredReceipt:
    """A receipt as the database stores it, with the fingerprint of the code that made the output. In the sinks of
    ``taken_back`` the output may have been removed, as was declared before."""

    receipt: Receipt
    fingerprint: str
    taken_back: frozenset[str] = frozenset()


def receipt_of_tasks(order: Order, tasks: Iterable[Mapping[str, Any]]) -> Receipt:
    """Join the reports of the Spark tasks (format: ``processing/processor.py``) into one receipt with final keys.

    Parts are numbered in the order of folder and spans, so the same files get the same keys. A file that already got
    its final key from its task keeps it.
    """
    tasks = list(tasks)
    ranges = {(range_.at.topic, range_.at.partition): range_ for range_ in order.ranges}
    parts = sorted(
        (part for task in tasks for part in task["parts"]),
        key=lambda part: (part["sink"], part["kind"], part["folder"], part["topic"], part["spans"]),
    )
    objects = []
    for number, part in enumerate(parts):
        raw = {name: value for name, value in part.items() if name not in ("folder", "format")} | {"path": ""}
        if part["format"] is not None:
            [first, *others] = part["spans"]
            covered = None if others else ranges[part["topic"], first[0]]
            raw |= _places(order, covered, part, number)
        objects.append(object_from(raw))
    if any(transform.whole_partitions for transform in order.transforms):
        _refuse_split(order, tasks)
    return Receipt(
        order.manifest_id,
        order.attempt,
        tuple(sink.name for sink in order.sinks),
        tuple(_count_of(range_, tasks) for range_ in order.ranges),
        tuple(objects),
        sum_of_hours(task["hours"] for task in tasks),
        reasons_together(ReasonCount(**count) for task in tasks for count in task["reasons"]),
        _schemas_of(order, tasks),
        unknown_fields=fields_together(UnknownField(**unknown) for task in tasks for unknown in task["unknown_fields"]),
        expectations=expectations_together(expectation_from(count) for task in tasks for count in task["expectations"]),
    )


def _schemas_of(order: Order, tasks: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Return all schemas that were pinned or fetched, for values and for keys."""
    decodes = [entry["decode"] for entry in order.decode.get("by_topic", [])] or [order.decode]
    pinned = [part.get("schemas", {}) for decode in decodes for part in (decode, decode.get("key", {}))]
    pinned += [sink.options.get("schemas", {}) for sink in order.sinks]
    schemas: dict[str, Any] = {}
    for used in (*pinned, *(task["schemas"] for task in tasks)):
        schemas |= used
    return schemas


def _refuse_split(order: Order, tasks: Sequence[Mapping[str, Any]]) -> None:
    """Raise ``Blocked`` if several tasks read parts of one range: each knows only the rows of its own part."""
    readers = Counter((count["topic"], count["partition"]) for task in tasks for count in task["partitions"])
    for (topic, partition), number in readers.items():
        if number > 1:
            raise Blocked(
                f"{number} tasks of Spark read one partition, and a transform needs all its records in one task",
                next_step="nothing is published; remove what makes Spark split it from spark.conf, then: "
                f"tidemark retry {order.pipeline_name} --manifest {order.manifest_id}",
                pipeline=order.pipeline_name,
                manifest=order.manifest_id,
                topic=topic,
                partition=partition,
            )


def _places(order: Order, covered: Range | None, part: Mapping[str, Any], number: int) -> dict[str, str]:
    """Return the path of a staged file and its final key."""
    staged = f"{order.staging}/{part['staged']}"
    if part["path"] is not None:
        return {"staged": staged, "path": part["path"]}
    dead = part["kind"] == ObjectKind.DEAD_LETTER
    folder = dead_letter_folder(part["topic"]) if dead else part["folder"]
    return {"staged": staged, "path": final_key(order, covered, folder, number, part["format"])}


def final_key(order: Order, covered: Range | None, folder: str, part: int, suffix: str) -> str:
    """Return the key of a file with rows of one range of an order, or of several (None). No other attempt uses it."""
    span = None if covered is None else (covered.at.partition, covered.start, covered.end)
    name = ObjectName(order.manifest_id, order.attempt, span, part, suffix)
    return f"{folder}/{name}"


def _count_of(covered: Range, tasks: list[Mapping[str, Any]]) -> PartitionCount:
    """Return the count of one range, added up over the tasks that read it; zeros if no task did."""
    place = (covered.at.topic, covered.at.partition)
    counts = [count for task in tasks for count in task["partitions"] if (count["topic"], count["partition"]) == place]
    counts = sorted((count for count in counts if count["read"]), key=lambda count: count["first"])
    gaps = _gaps_of(covered, counts)
    overlap = any(a["last"] >= b["first"] for a, b in pairwise(counts))
    return PartitionCount(
        topic=covered.at.topic,
        partition=covered.at.partition,
        read=sum(count["read"] for count in counts),
        bytes=sum(count["bytes"] for count in counts),
        distinct=0 if overlap else sum(count["distinct"] for count in counts),
        first=counts[0]["first"] if counts else None,
        last=counts[-1]["last"] if counts else None,
        last_timestamp_ms=counts[-1]["last_timestamp_ms"] if counts else None,
        last_digest=counts[-1]["last_digest"] if counts else None,
        decoded=sum(count["decoded"] for count in counts),
        dead_lettered=sum(count["dead_lettered"] for count in counts),
        filtered=sum(count["filtered"] for count in counts),
        deduplicated=sum(count["deduplicated"] for count in counts),
        exploded=sum(count["exploded"] for count in counts),
        gap_count=len(gaps) + sum(count["gap_count"] - len(count["gaps"]) for count in counts),
        gaps=tuple(gaps),
    )


def _gaps_of(covered: Range, counts: list[Mapping[str, Any]]) -> list[tuple[int, int]]:
    """Return the gaps inside the counts, between them, and at both ends of the range."""
    gaps: list[tuple[int, int]] = []
    expected = covered.start
    for count in counts:
        if count["first"] > expected:
            gaps.append((expected, count["first"]))
        gaps += [(start, end) for start, end in count["gaps"]]
        expected = count["last"] + 1
    if expected < covered.end:
        gaps.append((expected, covered.end))
    return gaps


def sum_of_hours(parts: Iterable[Mapping[str, Sequence[int]]]) -> dict[str, list[int]]:
    """Return ``[written, late]`` by event hour, added up over parts, hours ascending."""
    hours: dict[str, list[int]] = {}
    for part in parts:
        for hour, (written, late) in part.items():
            total = hours.setdefault(hour, [0, 0])
            total[0] += written
            total[1] += late
    return dict(sorted(hours.items()))
