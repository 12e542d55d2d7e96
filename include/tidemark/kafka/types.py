"""What Kafka answers beyond offsets: transactions that have not ended, consumer groups, and records."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidemark.offsets import TopicPartition


@dataclass(frozen=True)
class OpenTransaction:
    """The oldest transaction of a partition that has not ended: nothing from ``first_offset`` on can be read.

    ``held_back`` counts offsets of all producers up to the log end. ``since`` is the timestamp of its first record,
    which the producer sets unless the topic says otherwise; None when that record did not come in time. Its producer
    is not named: librdkafka's administrator cannot ask for it.
    """

    at: TopicPartition
    first_offset: int
    held_back: int
    since: datetime | None

    def described(self, now: datetime) -> str:
        """One line for people, without a full stop."""
        age = "for an unknown time"
        if self.since is not None:
            stamped = self.since.isoformat(timespec="seconds")
            age = f"for {duration(now - self.since)}, by the timestamp of its first record ({stamped})"
        offsets = f"{self.held_back:,} offset{'' if self.held_back == 1 else 's'}"
        return (
            f"{self.at.topic}-{self.at.partition}: an open transaction holds back {offsets} "
            f"from offset {self.first_offset} on, {age}"
        )


@dataclass(frozen=True)
class ConsumerGroup:
    """A consumer group as it stands: ``committed`` has no entry for a partition it has committed nothing for.

    ``unsettled`` are partitions for which a transaction that commits offsets has not ended. ``active`` is false for
    consumers that assign partitions by themselves, whether they run or not: Kafka does not know them.
    """

    name: str
    exists: bool
    active: bool
    committed: Mapping[TopicPartition, int]
    unsettled: tuple[TopicPartition, ...]


@dataclass(frozen=True)
class Record:
    """A record as it lies in Kafka; ``timestamp_ms`` counts from 1970, -1 when it has none."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] | None


def duration(age: timedelta) -> str:
    """Whole seconds, minutes, hours or days, rounded down, such as ``14 min``; a negative one counts as 0 s."""
    seconds = max(0, int(age.total_seconds()))
    units = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    length, unit = next(((length, unit) for length, unit in units if seconds >= length), units[-1])
    return f"{seconds // length} {unit}"
