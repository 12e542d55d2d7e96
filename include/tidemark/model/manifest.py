"""Manifests as the database knows them: states, counts, publications. All classes are frozen."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Self

from tidemark.model.json_values import NOT_IN_JSON, in_json
from tidemark.model.offsets import Range, TopicPartition
from tidemark.model.partitions import LastRecord
from tidemark.paths import is_remote


class ManifestState(StrEnum):
    """The state of the work on a manifest. What readers see depends only on its publications."""

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
    """The manifests that a list shows: those that meet all these conditions; None is no condition.

    ``since`` and ``until`` (without a zone: UTC): manifests of runs that read up to a time in ``(since, until]``, like
    a period of the timeline. ``topic`` and ``partition``: manifests with offsets of them. ``lacks``: done manifests
    whose output is not in the sink of this name; ``fill`` would put it there.
    """

    state: ManifestState | None = None
    since: datetime | None = None
    until: datetime | None = None
    topic: str | None = None
    partition: int | None = None
    lacks: str | None = None


ALL_MANIFESTS = ManifestSelection()
LISTED = 10  # a line names at most so many ids
COUNTED = 1_000  # a list counts at most so many manifests, because there may be millions


def listed(values: Sequence[int] | Sequence[str]) -> str:
    """Return the first ids or names, for a line of text."""
    return ", ".join(map(str, values[:LISTED])) + (" .." if len(values) > LISTED else "")


def count_of(number: int, what: str) -> str:
    """Return ``1 record`` or ``2,000 records``, for a line of text. The plural of the word ends with s."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def counted(number: int) -> str:
    """Return a number of manifests for a line of text; it was counted up to ``COUNTED + 1``."""
    return f"more than {COUNTED:,}" if number > COUNTED else f"{number:,}"


@dataclass(frozen=True)
class Decision:
    """The result of a decision, or in a dry run the result that it would have: lines for the user, and the ids of
    changed and new manifests."""

    lines: tuple[str, ...]
    manifests: tuple[int, ...] = ()
    dry_run: bool = False


@dataclass(frozen=True)
class Counts:
    """The counts of records. Each is measured, except ``invisible``, which is the remainder ``span - read``.

    ``written`` counts rows. A record may become several rows: ``exploded`` counts those beyond the first of each.
    Of the rows ``written`` to a table, ``superseded`` ones had a later row of the same key in the manifest, and
    ``stale`` ones had a newer row in the table; the others are in the table. ``unknown_fields`` counts the fields of
    records that the schema does not have; a record with two of them counts twice. ``unmet`` counts the rows that fail
    an expectation; a row that fails two of them counts twice.
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
        """Return a text with the counts: ``written`` and ``dead-lettered`` always, the others if they are not 0."""
        rare = {
            "filtered": self.filtered, "deduplicated": self.deduplicated, "exploded": self.exploded,
            "superseded": self.superseded, "stale": self.stale, "fields not in the schema": self.unknown_fields,
            "expectations not met": self.unmet,
        }  # fmt: skip
        parts = [f"written {self.written:,}", f"dead-lettered {self.dead_lettered:,}"]
        return ", ".join([*parts, *(f"{word} {count:,}" for word, count in rare.items() if count)])

    @property
    def adds_up(self) -> bool:
        """Return whether each record that was read became rows, became a dead letter, was filtered or deduplicated."""
        return self.read + self.exploded == self.written + self.dead_lettered + self.filtered + self.deduplicated

    def __add__(self, other: Self) -> "Counts":
        return Counts(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))


@dataclass(frozen=True)
class WithoutRows:
    """The counts of records that became no rows (dead letters, filtered, deduplicated), and of lost offsets."""

    dead_lettered: int = 0
    filtered: int = 0
    deduplicated: int = 0
    lost: int = 0

    def described(self) -> str:
        """Return a text such as "3 dead letters, 5 lost offsets, 2 filtered"; empty if all counts are 0."""
        parts = [count_of(self.dead_lettered, "dead letter")] if self.dead_lettered else []
        parts += [count_of(self.lost, "lost offset")] if self.lost else []
        parts += [f"{self.filtered:,} filtered"] if self.filtered else []
        parts += [f"{self.deduplicated:,} deduplicated"] if self.deduplicated else []
        return ", ".join(parts)


@dataclass(frozen=True)
class Publication:
    """The attempt that readers see of one manifest in one sink.

    ``behind``: a newer attempt is published in another sink; it should have written to this one too.
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
    """The part ``[start, end)`` of a published range that still exists after the log was cut inside the range.

    Its last record is not known, only that no leader later than ``leader_epoch`` wrote it.
    """

    start: int
    end: int
    leader_epoch: int


@dataclass(frozen=True)
class StagedRecord:
    """The last record that an attempt has read of a partition, and that may still be published.

    The range of the attempt ends at ``end``; it read no record between this one and ``end``.
    """

    at: TopicPartition
    manifest_id: int
    attempt: int
    last: LastRecord
    end: int


@dataclass(frozen=True)
class KnownSink:
    """A sink as the database knows it, whether the pipeline file still has it or not.

    ``renamed_from`` is the name that its target still has while the sink is being renamed. The publications of a
    retired sink do not count. ``row_order`` is the column that decides which of two rows of a key is newer; None: the
    offset decides, or rows have no key. ``record_key``: the columns that ``key: record_key`` has meant since the first
    plan; None if the file lists the columns.
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
        """Return whether the target is a folder or a bucket; then the receipts name its files."""
        return self.target.startswith("/") or is_remote(self.target)

    @property
    def is_current(self) -> bool:
        return self.retired_at is None


@dataclass(frozen=True)
class AttemptProcess:
    """The process of an attempt that has not ended: who ran it on which machine (``actor``), when the attempt began,
    and its last entry in the history. It may have lived longer than that: nothing notes a death.
    """

    actor: str
    began_at: datetime
    last_entry_at: datetime

    def __str__(self) -> str:
        began, last = (f"{when:%Y-%m-%d %H:%M:%S} UTC" for when in (self.began_at, self.last_entry_at))
        since = "no entry in the history since" if last == began else f"last entry in the history {last}"
        return f"{self.actor}; began {began}, {since}"


@dataclass(frozen=True)
class Manifest:
    """A manifest as the database knows it; ``attempt`` is the number of the newest attempt (0 = never started).

    ``alive`` says whether the process of that attempt is running. ``unfilled`` names the known sinks without a
    publication of a done manifest: they were added later, or are not in the pipeline file. ``retry_at`` is the latest
    time at which Airflow tries a failed one again; None: it does not. ``process`` is that of a running one, dead or
    alive.
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
    retired: bool = field(metadata=NOT_IN_JSON)  # a decision has ended a log generation that it was planned on
    ranges: tuple[Range, ...]
    publications: tuple[Publication, ...]
    unfilled: tuple[str, ...] = ()
    given_up: tuple[str, ...] = field(default=(), metadata=NOT_IN_JSON)  # sinks whose lack of it was accepted
    dag_run: str | None = field(default=None, metadata=NOT_IN_JSON)  # the newest DAG run that had to process it
    retry_at: datetime | None = None
    silent: str | None = field(default=None, metadata=NOT_IN_JSON)  # the source that did not answer, so that it failed
    process: AttemptProcess | None = field(default=None, metadata=NOT_IN_JSON)

    @property
    def death(self) -> str:
        """Return the sentence about the dead process of a running manifest, with its machine and its last entry."""
        return f"the process of attempt {self.attempt} is dead: {self.process}"

    def published(self, sink: str) -> Publication | None:
        return next((publication for publication in self.publications if publication.sink == sink), None)

    @property
    @in_json
    def counts(self) -> Counts | None:
        """Return the counts of the first sink; None until something is published."""
        return self.publications[0].counts if self.publications else None

    @property
    def published_counts(self) -> Counts:
        """Return ``counts``; zeros until something is published."""
        return self.counts or Counts()

    @property
    @in_json
    def published_attempt(self) -> int | None:
        """Return the attempt that readers see, the lowest one over all sinks; None before the first publication."""
        return min((publication.attempt for publication in self.publications), default=None)

    @property
    def retry(self) -> str:
        """Return the command that finishes the manifest; a blocked one is finished only by its id."""
        by_id = f" --manifest {self.id}" if self.state is ManifestState.BLOCKED else ""
        return f"tidemark retry {self.pipeline_name}{by_id}"
