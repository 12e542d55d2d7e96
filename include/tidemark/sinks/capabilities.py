"""The capabilities that only some outputs have. Callers check for one with ``isinstance(sink.output, ShowsHours)``."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from tidemark.model.manifest import WithoutRows
from tidemark.model.receipt import ObjectKind, Receipt
from tidemark.paths import RecordName
from tidemark.sinks.base import Expected, Output, Record, WriteMode
from tidemark.sinks.dead_letters import DeadLetter
from tidemark.sinks.object_store.leftovers import Leftover
from tidemark.sinks.object_store.published_files import dead_letters_in
from tidemark.storage.base import ObjectStore


@dataclass(frozen=True)
class CompleteHour:
    """A complete event hour, in UTC, with the rows that a sink shows of all topics, and the late ones of them.

    The revision counts how often it became complete. ``without_rows`` counts the records without rows in the runs that
    read what arrived from the begin of the hour until it was due.
    """

    start: datetime
    revision: int
    rows: int
    late: int
    without_rows: WithoutRows


class NamedFile(NamedTuple):
    """A file that a target names to its readers; ``path`` is absolute, or an address in a store."""

    path: str
    rows: int
    bytes: int


class TakesBack(Output):
    """An output that can be removed after it was put. Other outputs can only be replaced by a higher attempt."""

    write_mode = WriteMode.REPLACE

    @abstractmethod
    def write_record(self, name: RecordName, record: Record) -> None:
        """Write a record completely and durably: from then on readers of records see the objects that it names."""

    @abstractmethod
    def remove_record(self, name: RecordName) -> None:
        """Remove a record; may be repeated."""

    @abstractmethod
    def leftovers(self, expected: Expected) -> list[Leftover]:
        """Return the leftovers of dead attempts that are no longer needed; ``remove`` takes their keys."""

    @abstractmethod
    def remove(self, keys: Sequence[str]) -> None:
        """Remove leftovers by their keys; may be repeated."""


class KeepsDeadLetterFiles(Output):
    """An output that keeps its dead letters in files; the receipt has their paths."""

    @abstractmethod
    def dead_letter_store(self) -> ObjectStore:
        """Return the store with the files; raises ``FileNotFoundError`` if it does not exist."""

    def dead_letters(self, receipt: Receipt, *, values: bool) -> Iterator[DeadLetter]:
        yield from dead_letters_in(self.dead_letter_store(), self.parts(receipt, ObjectKind.DEAD_LETTER), values=values)


class DerivesTotals(Output):
    """An output whose target derives something from the output of manifests, such as totals."""

    @abstractmethod
    def refuse_other_definition(self) -> None:
        """Raise ``SinkRefused`` if the target derives something else than these settings say; changes nothing."""

    @abstractmethod
    def derive_again(self, *, dry_run: bool) -> Iterator[str]:
        """Derive it again; yield one line if the result differs.

        ``adopt`` calls this, because the parts of a target may have been restored from different copies. From then on
        they count as one target. Must be called after ``refuse_other_definition``; may be repeated.
        """


class ServesCopy(Output):
    """An output of which readers use a copy elsewhere."""

    @abstractmethod
    def serve(self) -> None:
        """Put into the copy what it lacks of all committed output, of any manifest.

        ``put`` calls this before the mark; so does an attempt that finds only the mark missing. May be repeated, also
        by several processes at once.
        """


class WritesTopics(Output):
    @abstractmethod
    def topic_ids(self) -> set[str]:
        """Return the ids of the topics that it writes to, the same ids that a source of that cluster has."""


class NamesFiles(Output):
    @abstractmethod
    def named_files(self) -> list[NamedFile]:
        """Return all files with rows that the target shows now."""


class MayBeRolledBack(Output):
    """An output that another program may roll back to an older state, together with its evidence."""

    @abstractmethod
    def orphaned_manifests(self, expected: Expected) -> dict[int, dict[str, Any] | None]:
        """Return the manifests of this pipeline of which the target has rows but no evidence, and which the database
        does not know; each with the newest record of it that still exists. Their offsets must not be planned again."""


class ShowsHours(Output):
    """An output that can show readers of folders which event hours are complete."""

    @abstractmethod
    def shows_hours(self) -> bool:
        """Return whether the settings ask for it."""

    @abstractmethod
    def show_complete(self, topics: Sequence[str], hour: CompleteHour) -> None:
        """Show that an hour is complete, unless a higher revision is shown; may be repeated."""

    @abstractmethod
    def hide(self, topics: Sequence[str], hour: datetime) -> None:
        """Stop showing that an hour is complete; may be repeated."""

    @abstractmethod
    def is_of_hour(self, path: str, topic: str, hour: datetime) -> bool:
        """Return whether ``path``, an object that this sink published, is in the folder of this topic and hour."""
