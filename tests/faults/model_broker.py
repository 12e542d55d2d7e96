"""A Kafka broker in memory that never forgets: what it serves now, and every record that ever was at an offset.

It is a real ``KafkaCluster``, so checks before reading and second reads are the code under test. What it models is
what a ``read_committed`` client can see: log start, last stable offset, high watermark, topic ids, transactions.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

import pyarrow as pa

from tests.worlds.arrow_stage import SCHEMA
from tidemark.answers import OpenTransaction
from tidemark.errors import Unavailable, WorkFailed
from tidemark.kafka import KafkaCluster, Watermarks
from tidemark.offsets import Range, TopicPartition

Place = tuple[str, int]  # topic id, partition


class Fate(StrEnum):
    """What became of a transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass
class Transaction:
    fate: Fate = Fate.OPEN


@dataclass(frozen=True)
class Entry:
    """What one offset holds: a record with its serial number, or (``serial`` None) the end mark of a transaction."""

    serial: int | None
    stamp: datetime
    value: bytes
    transaction: Transaction | None = None
    rewritten: bool = False  # it took the offset of a record that a truncation removed

    @property
    def visible(self) -> bool:
        """Whether ``read_committed`` returns it, once the last stable offset is past it."""
        return self.serial is not None and (self.transaction is None or self.transaction.fate is Fate.COMMITTED)


@dataclass
class Log:
    """One partition; the index of an entry is its offset."""

    entries: list[Entry] = field(default_factory=list)
    start: int = 0
    removed: list[tuple[int, Entry]] = field(default_factory=list)  # by truncations
    longest: int = 0  # the highest end it ever had
    most_stable: int = 0  # the highest last stable offset it ever had

    @property
    def end(self) -> int:
        return len(self.entries)

    @property
    def last_stable(self) -> int:
        pending = (at for at, one in enumerate(self.entries) if one.transaction and one.transaction.fate is Fate.OPEN)
        return next(pending, self.end)

    def append(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.longest = max(self.longest, self.end)
        self.most_stable = max(self.most_stable, self.last_stable)

    def truncate(self, end: int) -> None:
        """Remove ``[end, ..)``; not from the middle of a transaction, whose end mark would be missing."""
        cut = {id(one.transaction) for one in self.entries[end:] if one.transaction}
        while end and id(self.entries[end - 1].transaction) in cut:
            end -= 1
        self.removed += enumerate(self.entries[end:], end)
        del self.entries[end:]
        self.start = min(self.start, end)

    def ever(self) -> dict[int, list[Entry]]:
        """All that ever was at each offset, whatever retention or truncation did since; more than one entry only
        where a truncation removed one."""
        found: dict[int, list[Entry]] = {}
        for at, one in [*self.removed, *enumerate(self.entries)]:
            found.setdefault(at, []).append(one)
        return found


@dataclass
class Topic:
    topic_id: str
    logs: list[Log]


class ModelBroker(KafkaCluster):
    """Topics of one cluster; ``notice`` is called before every answer, with what is asked."""

    def __init__(self, notice: Callable[[str], None] = lambda _: None) -> None:  # no client: there is no network
        self.bootstrap_servers = "model:9092"
        self.notice = notice
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[str, Topic] = {}
        self.serials = 0

    # what producers and administrators do

    def create(self, name: str, partitions: int) -> None:
        """A topic with an id of its own; one of that name that was there before is gone."""
        topic = Topic(f"{name}-{len(self.by_id) + 1}", [Log() for _ in range(partitions)])
        self.by_name[name] = self.by_id[topic.topic_id] = topic

    def produce(self, log: Log, stamp: datetime, *, transaction: Transaction | None = None, bad: bool = False) -> Entry:
        """One record at the log's end; a ``bad`` one is no JSON and becomes a dead letter."""
        self.serials += 1
        value = b"{bad %d" % self.serials if bad else b'{"n": %d, "name": "r%d"}' % (self.serials, self.serials)
        log.append(Entry(self.serials, stamp, value, transaction, rewritten=log.end < log.longest))
        return log.entries[-1]

    def finish(self, log: Log, stamp: datetime, transaction: Transaction, fate: Fate) -> None:
        """End a transaction; its end mark takes an offset."""
        transaction.fate = fate
        log.append(Entry(None, stamp, b"", rewritten=log.end < log.longest))

    def log(self, at: TopicPartition) -> Log:
        """The log of one life of a topic, whether it is still there or not."""
        return self.by_id[at.topic_id].logs[at.partition]

    # what clients ask

    def topics(self) -> list[str]:
        return sorted(self.by_name)

    def partitions(self, topics: Sequence[str]) -> tuple[list[TopicPartition], list[str]]:
        self.notice("kafka partitions")
        found = [
            TopicPartition(name, self.by_name[name].topic_id, partition)
            for name in topics
            if name in self.by_name
            for partition in range(len(self.by_name[name].logs))
        ]
        return sorted(found), sorted(set(topics) - set(self.by_name))

    def compacted(self, topics: Sequence[str]) -> list[str]:
        del topics  # retention and truncation take records here, compaction does not
        return []

    def watermarks(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, Watermarks]:
        self.notice("kafka watermarks")
        logs = {one: self._served(one.topic, one.partition) for one in places}
        return {one: Watermarks(log.start, log.last_stable, log.end) for one, log in logs.items()}

    def open_transactions(self, marks: Mapping[TopicPartition, Watermarks]) -> dict[TopicPartition, OpenTransaction]:
        self.notice("kafka open_transactions")
        found = {}
        for one, mark in marks.items():
            log = self._served(one.topic, one.partition)
            if log.last_stable < mark.log_end:
                stamp = log.entries[log.last_stable].stamp if log.last_stable < log.end else None
                found[one] = OpenTransaction(one, log.last_stable, mark.log_end - log.last_stable, stamp)
        return found

    def offsets_at(
        self, places: Sequence[TopicPartition], when: datetime
    ) -> dict[TopicPartition, tuple[int, datetime] | None]:
        self.notice("kafka offsets_at")
        return {one: self._first_at(self._served(one.topic, one.partition), when) for one in places}

    @staticmethod
    def _first_at(log: Log, when: datetime) -> tuple[int, datetime] | None:
        stamped = ((at, one.stamp) for at, one in enumerate(log.entries) if at >= log.start and one.stamp >= when)
        return next(stamped, None)

    def _served(self, topic: str, partition: int) -> Log:
        """By name, as brokers answer: whatever life of the topic it is."""
        found = self.by_name.get(topic)
        if found is None or partition >= len(found.logs):
            raise Unavailable(f"no partition {partition} of topic {topic}", next_step="this is the model's broker")
        return found.logs[partition]

    def _read(self, covered: Range, *, first_only: bool = False) -> Iterator[int]:
        self.notice("kafka read")
        for number, (offset, _) in enumerate(self._committed(covered)):
            if first_only and number:
                return
            yield offset

    def _committed(self, covered: Range) -> list[tuple[int, Entry]]:
        log = self._served(covered.at.topic, covered.at.partition)
        if log.start > covered.start:
            raise Unavailable(f"offset {covered.start} is out of range", next_step="this is the model's broker")
        stop = min(covered.end, log.last_stable)
        return [(at, one) for at, one in enumerate(log.entries[:stop]) if at >= covered.start and one.visible]

    def batch(self, covered: Range) -> pa.RecordBatch:
        """A range as Spark's source reads it: by name, at ``read_committed``, failing when it is not all there."""
        self.notice("kafka batch")
        log = self._served(covered.at.topic, covered.at.partition)
        if log.start > covered.start or log.last_stable < covered.end:
            raise WorkFailed(f"Kafka does not hold {covered}", next_step="this is the model's broker")
        rows = [
            {
                "key": b"k",
                "value": one.value,
                "topic": covered.at.topic,
                "partition": covered.at.partition,
                "offset": at,
                "timestamp": one.stamp,
                "timestampType": 0,
                "headers": None,
            }
            for at, one in self._committed(covered)
        ]
        return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
