"""Manifests as the database knows them: states, counts, what is published. Frozen and plain."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Self

from tidemark.model.json_values import NOT_IN_JSON, in_json
from tidemark.model.offsets import Range, TopicPartition
from tidemark.model.partitions import LastRecord


class ManifestState(StrEnum):
    """The work that a manifest still needs. What readers see depends on its publications only."""

    PLANNED = "planned"
    RUNNING = "running"
    FAILED = "failed"
    BLOCKED = "blocked"
    DONE = "done"


class AttemptState(StrEnum):
    """The states of one attempt at a manifest."""

    RUNNING = "running"
    PUBLISHED = "published"
    UNCHANGED = "unchanged"  # its digest equals the published one, nothing was moved
    FAILED = "failed"
    FENCED = "fenced"
    BLOCKED = "blocked"


class RangeKind(StrEnum):
    ANCHOR = "anchor"
    DATA = "data"
    LOST = "lost"


class RunKind(StrEnum):
    SCHEDULED = "scheduled"
    BACKFILL = "backfill"
    MANUAL = "manual"


@dataclass(frozen=True)
class ManifestSelection:
    """The manifests that a list has: all of this is true of them; None leaves nothing out.

    ``since`` and ``until`` (UTC when they have no zone): of the runs that read up to a time in ``(since, until]``, as a
    period of the timeline has them. ``topic`` and ``partition``: with offsets of them. ``lacks``: done, and not in the
    sink of this name, which ``fill`` would change.
    """

    state: ManifestState | None = None
    since: datetime | None = None
    until: datetime | None = None
    topic: str | None = None
    partition: int | None = None
    lacks: str | None = None


ALL_MANIFESTS = ManifestSelection()
LISTED = 10  # ids of manifests in a line
COUNTED = 1_000  # manifests that a list counts: there may be millions


def listed(values: Sequence[int] | Sequence[str]) -> str:
    """The first ids or names, for a line of text."""
    return ", ".join(map(str, values[:LISTED])) + (" .." if len(values) > LISTED else "")


def count_of(number: int, what: str) -> str:
    """``1 record``, ``2,000 records``: for a line of text, of words that have their plural by an s."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def counted(number: int) -> str:
    """A number of manifests that were counted up to ``COUNTED + 1``, for a line of text."""
    return f"more than {COUNTED:,}" if number > COUNTED else f"{number:,}"


@dataclass(frozen=True)
class Decision:
    """The result of a decision, in a dry run the one it would have: lines for people, and the ids of the changed and
    new manifests."""

    lines: tuple[str, ...]
    manifests: tuple[int, ...] = ()
    dry_run: bool = False


@dataclass(frozen=True)
class Counts:
    """Records, each term measured: ``invisible`` is the only remainder (``span - read``).

    ``written`` counts rows. A record may have several: ``exploded`` are those beyond the first of each.
    Of the rows ``written`` to a table, ``superseded`` ones had a later row of the same key in the manifest, and
    ``stale`` ones had a newer row in the table; the others are in the table. ``unknown_fields`` counts the fields of
    records that the schema does not have; a record with two of them counts twice. ``unmet`` counts the rows that do not
    meet an expectation; a row that does not meet two of them counts twice.
    """

    read: int = 0
    invisible: int = 0
    written: int = 0
    dead_lettered: int = 0
    filtered: int = 0
    deduplicated: int = 0
    exploded: int = 0
    superseded: int = 0
    stale: int = 0
    unknown_fields: int = 0
    unmet: int = 0

    def described(self) -> str:
        """Return in words what became of the records read: written and dead-lettered ones always, the others where
        there are some."""
        rare = {
            "filtered": self.filtered, "deduplicated": self.deduplicated, "exploded": self.exploded,
            "superseded": self.superseded, "stale": self.stale, "fields not in the schema": self.unknown_fields,
            "expectations not met": self.unmet,
        }  # fmt: skip
        parts = [f"written {self.written:,}", f"dead-lettered {self.dead_lettered:,}"]
        return ", ".join([*parts, *(f"{word} {count:,}" for word, count in rare.items() if count)])

    @property
    def adds_up(self) -> bool:
        """Return whether each record read became rows, or was kept as a dead letter, filtered or deduplicated."""
        return self.read + self.exploded == self.written + self.dead_lettered + self.filtered + self.deduplicated

    def __add__(self, other: Self) -> "Counts":
        return Counts(*(a + b for a, b in zip(asdict(self).values(), asdict(other).values(), strict=True)))


@dataclass(frozen=True)
class WithoutRows:
    """Records that became no rows: dead letters, filtered and deduplicated ones; and offsets that are lost."""

    dead_lettered: int = 0
    filtered: int = 0
    deduplicated: int = 0
    lost: int = 0

    def described(self) -> str:
        """Such as "3 dead letters, 5 lost offsets, 2 filtered"; empty when there are none."""
        parts = [count_of(self.dead_lettered, "dead letter")] if self.dead_lettered else []
        parts += [count_of(self.lost, "lost offset")] if self.lost else []
        parts += [f"{self.filtered:,} filtered"] if self.filtered else []
        parts += [f"{self.deduplicated:,} deduplicated"] if self.deduplicated else []
        return ", ".join(parts)


@dataclass(frozen=True)
class Publication:
    """The attempt that readers see of one manifest in one sink.

    ``behind``: a newer attempt, which was to write to this sink too, is published in another one.
    """

    sink: str
    attempt: int
    digest: str
    counts: Counts
    published_at: datetime
    behind: bool = False


@dataclass(frozen=True)
class PublishedRange:
    """A published range ``[start, end)`` of a chain, with the last record that was read of it."""

    chain_id: int
    start: int
    end: int
    last: LastRecord


@dataclass(frozen=True)
class CutRange:
    """The part of a published range that a cut of the log has left, offsets ``[start, end)``.

    Its last record is not known, only that no leader later than ``leader_epoch`` took it in.
    """

    start: int
    end: int
    leader_epoch: int


@dataclass(frozen=True)
class StagedRecord:
    """The last record that an attempt has read of a partition, and that may still be published.

    From there to ``end``, where its range ends, it has read no other.
    """

    at: TopicPartition
    manifest_id: int
    attempt: int
    last: LastRecord
    end: int


@dataclass(frozen=True)
class KnownSink:
    """A sink as the database knows it, whether the pipeline file still has it or not.

    ``renamed_from`` is the name that its target still has, while a renaming has not ended. The publications of a
    retired sink do not count. ``row_order`` is the column that decides which of two rows of a key is newer; None: the
    later offset does, or rows have no key. ``record_key``: the columns that ``key: record_key`` has meant since the
    first plan; None where the file lists them.
    """

    name: str
    target: str
    known_since: datetime
    renamed_from: str | None = None
    retired_at: datetime | None = None
    row_order: str | None = None
    record_key: Sequence[str] | None = None

    @property
    def has_files(self) -> bool:
        """Return whether the target is a folder or a bucket, whose files the receipts name."""
        return self.target.startswith(("/", "s3://"))

    @property
    def is_current(self) -> bool:
        return self.retired_at is None


@dataclass(frozen=True)
class Manifest:
    """A manifest as the database knows it; ``attempt`` is the number of the newest attempt (0 = never started).

    ``alive`` says whether the process of that attempt is running. ``unfilled`` names the known sinks that have no
    publication of it though it is done: they were added later, or are not in the pipeline file. ``retry_at``: when
    Airflow tries a failed one again, at the latest; None: nobody does by himself.
    """

    id: int
    pipeline_name: str
    run_key: str
    slice: int
    state: ManifestState
    attempt: int
    reason: str | None
    created_at: datetime
    done_at: datetime | None
    alive: bool
    retired: bool = field(metadata=NOT_IN_JSON)  # a person ended a log generation it was planned on
    ranges: tuple[Range, ...]
    publications: tuple[Publication, ...]
    unfilled: tuple[str, ...] = ()
    # Sinks of which a person has accepted that they lack it, and the run of Airflow that was to process it last.
    given_up: tuple[str, ...] = field(default=(), metadata=NOT_IN_JSON)
    dag_run: str | None = field(default=None, metadata=NOT_IN_JSON)
    retry_at: datetime | None = None
    silent: str | None = field(default=None, metadata=NOT_IN_JSON)  # the source that did not answer, when it failed

    def published(self, sink: str) -> Publication | None:
        return next((publication for publication in self.publications if publication.sink == sink), None)

    @property
    @in_json
    def counts(self) -> Counts | None:
        """Those of the first sink; None until something is published."""
        return self.publications[0].counts if self.publications else None

    @property
    def published_counts(self) -> Counts:
        """``counts``; zeros until something is published."""
        return self.counts or Counts()

    @property
    @in_json
    def published_attempt(self) -> int | None:
        """The attempt that readers see, with several sinks the lowest of them; None before the first publication."""
        return min((publication.attempt for publication in self.publications), default=None)

    @property
    def retry(self) -> str:
        """The command that finishes it: a blocked one is left out of all others, and is released by its id."""
        by_id = f" --manifest {self.id}" if self.state is ManifestState.BLOCKED else ""
        return f"tidemark retry {self.pipeline_name}{by_id}"
