"""A Kafka broker in memory that keeps everything: what it serves now, and every record that ever had an offset.

It is a real ``Source``, so the checks before reading are the code under test. It models what a ``read_committed``
client can see: log start, last stable offset, high watermark, topic ids, transactions.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, cast

import pyarrow as pa

from tidemark.errors import Unavailable, WorkFailed
from tidemark.model.dataset import Dataset
from tidemark.model.offsets import Range, TopicPartition
from tidemark.model.partitions import Bounds, OpenTransaction, Record
from tidemark.model.record_schema import INPUT
from tidemark.sources.base import Source
from tidemark.sources.kafka.settings import Settings as KafkaSettings
from tidemark.sources.settings import SourceSettings

Place = tuple[str, int]  # topic id, partition
BAD = b"{bad"  # how records begin that are no JSON


class Fate(StrEnum):
    """The state of a transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass
class Transaction:
    fate: Fate = Fate.OPEN


@dataclass(frozen=True)
class Entry:
    """The content of an offset: a record with its serial number, or (``serial`` None) the end marker of a
    transaction."""

    serial: int | None
    stamp: datetime
    value: bytes
    transaction: Transaction | None = None
    leader_epoch: int = 0
    rewritten: bool = False  # whether it has the offset of a record that a truncation removed
    arrived: datetime = field(default_factory=lambda: datetime.now(UTC))  # by the clock of the processes

    @property
    def bad(self) -> bool:
        """Whether it cannot be decoded."""
        return self.value.startswith(BAD)

    @property
    def visible(self) -> bool:
        """Whether ``read_committed`` returns it, when the last stable offset is behind it."""
        return self.serial is not None and (self.transaction is None or self.transaction.fate is Fate.COMMITTED)


@dataclass
class Log:
    """One partition; the index of an entry is its offset."""

    entries: list[Entry] = field(default_factory=list)
    start: int = 0
    removed: list[tuple[int, Entry]] = field(default_factory=list)  # by truncations
    longest: int = 0  # the highest end it ever had
    most_stable: int = 0  # the highest last stable offset it ever had
    leader_epoch: int = 0  # of the leader that takes records in now

    @property
    def end(self) -> int:
        return len(self.entries)

    @property
    def last_stable(self) -> int:
        pending = (
            at for at, entry in enumerate(self.entries) if entry.transaction and entry.transaction.fate is Fate.OPEN
        )
        return next(pending, self.end)

    def append(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.longest = max(self.longest, self.end)
        self.most_stable = max(self.most_stable, self.last_stable)

    def truncate(self, end: int) -> None:
        """Remove ``[end, ..)``, and any transaction that reaches into it: its end mark would be missing."""
        cut = {id(entry.transaction) for entry in self.entries[end:] if entry.transaction}
        while end and id(self.entries[end - 1].transaction) in cut:
            end -= 1
        self.removed += enumerate(self.entries[end:], end)
        del self.entries[end:]
        self.start = min(self.start, end)
        self.leader_epoch += 1

    def ever(self) -> dict[int, list[Entry]]:
        """All entries that each offset ever had, also those that retention or truncation removed. More than one
        only where a truncation removed an entry."""
        entries: dict[int, list[Entry]] = {}
        for at, entry in [*self.removed, *enumerate(self.entries)]:
            entries.setdefault(at, []).append(entry)
        return entries


@dataclass
class Topic:
    topic_id: str
    logs: list[Log]


class ModelBroker(Source):
    """Topics of one cluster. It calls ``notice`` with each request before the answer."""

    title = "Kafka"
    address = "model:9092"

    def __init__(self, pipeline: str, settings: SourceSettings, notice: Callable[[str], None] = lambda _: None) -> None:
        super().__init__(pipeline, settings)
        self.notice = notice
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[str, Topic] = {}
        self.serials = 0

    # what producers and administrators do

    def create(self, name: str, partitions: int) -> None:
        """Create a topic with a new id; it replaces a topic of the same name."""
        topic = Topic(f"{name}-{len(self.by_id) + 1}", [Log() for _ in range(partitions)])
        self.by_name[name] = self.by_id[topic.topic_id] = topic

    def produce(self, log: Log, stamp: datetime, *, transaction: Transaction | None = None, bad: bool = False) -> Entry:
        """Append a record; a ``bad`` record is no JSON and becomes a dead letter."""
        self.serials += 1
        value = BAD + b" %d" % self.serials if bad else b'{"n": %d, "name": "r%d"}' % (self.serials, self.serials)
        log.append(Entry(self.serials, stamp, value, transaction, log.leader_epoch, rewritten=log.end < log.longest))
        return log.entries[-1]

    def finish(self, log: Log, stamp: datetime, transaction: Transaction, fate: Fate) -> None:
        """End a transaction. Its end mark takes an offset."""
        transaction.fate = fate
        log.append(Entry(None, stamp, b"", leader_epoch=log.leader_epoch, rewritten=log.end < log.longest))

    def log(self, at: TopicPartition) -> Log:
        """The log of a topic by its id, also of a topic that was deleted."""
        return self.by_id[at.topic_id].logs[at.partition]

    # what clients ask

    def dataset(self, topic: str) -> Dataset:
        return Dataset(self.address, topic)

    def topics(self) -> list[str]:
        return sorted(self.by_name)

    def partitions(self, topics: Sequence[str]) -> tuple[list[TopicPartition], list[str]]:
        self.notice("kafka partitions")
        places = [
            TopicPartition(name, self.by_name[name].topic_id, partition)
            for name in topics
            if name in self.by_name
            for partition in range(len(self.by_name[name].logs))
        ]
        return sorted(places), sorted(set(topics) - set(self.by_name))

    def bounds(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, Bounds]:
        self.notice("kafka bounds")
        logs = {place: self._served(place.topic, place.partition) for place in places}
        return {place: Bounds(log.start, log.last_stable, log.end) for place, log in logs.items()}

    def open_transactions(self, bounds: Mapping[TopicPartition, Bounds]) -> dict[TopicPartition, OpenTransaction]:
        self.notice("kafka open_transactions")
        transactions = {}
        for place, held in bounds.items():
            log = self._served(place.topic, place.partition)
            if held.last_stable < held.log_end:
                stamp = log.entries[held.last_stable].stamp if held.last_stable < log.end else None
                transactions[place] = OpenTransaction(place, held.last_stable, held.log_end - held.last_stable, stamp)
        return transactions

    def offsets_at(
        self, places: Sequence[TopicPartition], when: datetime
    ) -> dict[TopicPartition, tuple[int, datetime] | None]:
        self.notice("kafka offsets_at")
        return {place: self._first_at(self._served(place.topic, place.partition), when) for place in places}

    @staticmethod
    def _first_at(log: Log, when: datetime) -> tuple[int, datetime] | None:
        stamped = ((at, entry.stamp) for at, entry in enumerate(log.entries) if at >= log.start and entry.stamp >= when)
        return next(stamped, None)

    def _served(self, topic: str, partition: int) -> Log:
        """The log by the topic's name, as brokers answer, whatever its id is now."""
        current = self.by_name.get(topic)
        if current is None or partition >= len(current.logs):
            raise Unavailable(f"no partition {partition} of topic {topic}", next_step="this is the model's broker")
        return current.logs[partition]

    def starting_offsets(self, bounds: Mapping[TopicPartition, Bounds]) -> dict[TopicPartition, int]:
        """``earliest`` or ``latest``; random schedules use no other starting point."""
        latest = cast("KafkaSettings", self.settings).starting_offsets == "latest"
        return {place: held.last_stable if latest else held.log_start for place, held in bounds.items()}

    def records(self, covered: Range) -> Iterator[Record]:
        self.notice("kafka read")
        for offset, entry in self._committed(covered):
            yield self._record(covered.at, offset, entry)

    @staticmethod
    def _record(at: TopicPartition, offset: int, entry: Entry) -> Record:
        stamp = int(entry.stamp.timestamp() * 1000)
        return Record(at.topic, at.partition, offset, stamp, b"k", entry.value, None, entry.leader_epoch)

    def records_from(
        self, offsets: Collection[tuple[TopicPartition, int]]
    ) -> dict[tuple[TopicPartition, int], Record | None]:
        self.notice("kafka records_from")
        answers: dict[tuple[TopicPartition, int], Record | None] = {}
        for at, offset in offsets:
            log = self._served(at.topic, at.partition)
            if log.start <= offset < log.end:
                entries = enumerate(log.entries[offset:], offset)
                records = (self._record(at, place, entry) for place, entry in entries if entry.serial is not None)
                answers[at, offset] = next(records, None)
        return answers

    def order(self) -> dict[str, Any]:
        return {}

    def _committed(self, covered: Range) -> list[tuple[int, Entry]]:
        log = self._served(covered.at.topic, covered.at.partition)
        if log.start > covered.start:
            raise Unavailable(f"offset {covered.start} is out of range", next_step="this is the model's broker")
        stop = min(covered.end, log.last_stable)
        return [(at, entry) for at, entry in enumerate(log.entries[:stop]) if at >= covered.start and entry.visible]

    def serials_of(self, covered: Range) -> dict[tuple[str, int, int], int]:
        """The serial numbers of the records of a range by topic, partition and offset."""
        where = (covered.at.topic, covered.at.partition)
        return {(*where, at): entry.serial for at, entry in self._committed(covered) if entry.serial is not None}

    def batch(self, covered: Range) -> pa.RecordBatch:
        """A range as Spark's source reads it: by name, at ``read_committed``. ``WorkFailed`` when a part is missing."""
        self.notice("kafka batch")
        log = self._served(covered.at.topic, covered.at.partition)
        if log.start > covered.start or log.last_stable < covered.end:
            raise WorkFailed(f"Kafka does not hold {covered}", next_step="this is the model's broker")
        rows = [
            {
                "key": b"k",
                "value": entry.value,
                "topic": covered.at.topic,
                "partition": covered.at.partition,
                "offset": at,
                "timestamp": entry.stamp,
                "headers": None,
            }
            for at, entry in self._committed(covered)
        ]
        return pa.RecordBatch.from_pylist(rows, schema=INPUT)
