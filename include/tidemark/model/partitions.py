"""The answers of a source about partitions: bounds, records, open transactions."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from tidemark.model.offsets import TopicPartition

NO_TIMESTAMP: Final = -1
LAST_TIMESTAMP: Final = (2**63 - 1) // 1000  # in milliseconds, that fits into an Arrow timestamp in microseconds
FIRST_TIMESTAMP: Final = -12_219_292_800_000  # 1582-10-15: Spark reads earlier ones by the Julian calendar
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
HELD_BY_TRANSACTION = ": an open transaction "  # follows the partition in a note of a run: queries.sql looks for it


def bounded_timestamp(milliseconds: int) -> int:
    """Return a timestamp that ``Record`` can have, or -1 if it is out of bounds: some producers write nanoseconds."""
    return milliseconds if FIRST_TIMESTAMP <= milliseconds <= LAST_TIMESTAMP else NO_TIMESTAMP


def moment_of(milliseconds: int) -> datetime | None:
    """Return the time of a timestamp; None if there is none, or if it is outside the years 1 to 9999."""
    try:
        return None if milliseconds == NO_TIMESTAMP else EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None


@dataclass(frozen=True)
class Bounds:
    """The bounds of one partition: its first offset, the end of what may be read, and the end of its log.

    ``last_stable`` and ``log_end`` are exclusive; they differ only while a transaction is open. All records that were
    written before the bounds were asked for lie below ``log_end``.
    """

    log_start: int
    last_stable: int
    log_end: int


@dataclass(frozen=True)
class Record:
    """A record as it is in the source; ``timestamp_ms`` counts from 1970, -1 if there is no usable timestamp.

    ``leader_epoch`` is that of the broker that wrote the record; None if the source does not tell it. ``unreadable`` is
    the reason why the source has no message for the offset: then the record becomes a dead letter.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] | None
    leader_epoch: int | None = None
    unreadable: str | None = None

    @property
    def stamped_at(self) -> datetime | None:
        """Return the timestamp; None if there is none in the years 1 to 9999."""
        return moment_of(self.timestamp_ms)


@dataclass(frozen=True)
class LastRecord:
    """The last record of a range as it was when the range was read; ``digest`` is ``record_digest`` of key and value.

    ``leader_epoch`` is None if it is not known.
    """

    offset: int
    timestamp_ms: int
    digest: str
    leader_epoch: int | None


@dataclass(frozen=True)
class OpenTransaction:
    """The oldest open transaction of a partition: nothing from ``first_offset`` on can be read until it ends.

    ``held_back`` counts the offsets of all producers up to the log end. ``since`` is the timestamp of its first record,
    which the producer sets unless the topic says otherwise; None if that record could not be read in time.
    """

    at: TopicPartition
    first_offset: int
    held_back: int
    since: datetime | None

    def described(self, now: datetime) -> str:
        """Return one line for the user, without a full stop."""
        age = "for an unknown time"
        if self.since is not None:
            stamped = self.since.isoformat(timespec="seconds")
            age = f"for {rounded_duration(now - self.since)}, by the timestamp of its first record ({stamped})"
        offsets = f"{self.held_back:,} offset{'' if self.held_back == 1 else 's'}"
        return f"{self.at.name}{HELD_BY_TRANSACTION}holds back {offsets} from offset {self.first_offset} on, {age}"


def rounded_duration(age: timedelta) -> str:
    """Return a duration in whole seconds, minutes, hours or days, rounded down: ``14 min``; ``0 s`` if negative."""
    seconds = max(0, int(age.total_seconds()))
    units = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    length, unit = next(((length, unit) for length, unit in units if seconds >= length), units[-1])
    return f"{seconds // length} {unit}"
