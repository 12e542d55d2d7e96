"""The capabilities that only some outputs have; who needs one asks: ``isinstance(sink.output, ShowsHours)``."""

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
    """An event hour, in UTC, that is complete: the rows that a sink shows of all topics, and those that are late.

    The revision counts how often it has become complete. ``without_rows`` is of the runs that read what arrived from
    its begin until it was due.
    """

    start: datetime
    revision: int
    rows: int
    late: int
    without_rows: WithoutRows


class NamedFile(NamedTuple):
    """A file that a target names to its readers; ``path`` is absolute, or begins with ``s3://``."""

    path: str
    rows: int
    bytes: int


class TakesBack(Output):
    """It can be removed after it was put; in the others only a higher attempt can replace it."""

    write_mode = WriteMode.REPLACE

    @abstractmethod
    def write_record(self, name: RecordName, record: Record) -> None:
        """Write a record, complete and durable: from then on readers of records see the objects that it names."""

    @abstractmethod
    def remove_record(self, name: RecordName) -> None:
        """Remove a record; may be repeated."""

    @abstractmethod
    def leftovers(self, expected: Expected) -> list[Leftover]:
        """Find what dead attempts left and nobody needs; ``remove`` takes the keys."""

    @abstractmethod
    def remove(self, keys: Sequence[str]) -> None:
        """Remove leftovers by their keys; may be repeated."""


class KeepsDeadLetterFiles(Output):
    """Its dead letters are files, each by its path in the receipt."""

    @abstractmethod
    def dead_letter_store(self) -> ObjectStore:
        """Return the store that holds them; ``FileNotFoundError`` when that is not there."""

    def dead_letters(self, receipt: Receipt, *, values: bool) -> Iterator[DeadLetter]:
        yield from dead_letters_in(self.dead_letter_store(), self.parts(receipt, ObjectKind.DEAD_LETTER), values=values)


class DerivesTotals(Output):
    """The target derives something from the output of manifests, such as totals."""

    @abstractmethod
    def refuse_other_definition(self) -> None:
        """Raise ``SinkRefused`` when the target derives something else than these settings say; changes nothing."""

    @abstractmethod
    def derive_again(self, *, dry_run: bool) -> Iterator[str]:
        """Derive it again; one line if it differs.

        ``adopt`` asks for it, since the parts of a target may have been restored from different copies. From then on
        they count as one target. Only after ``refuse_other_definition``; may be repeated.
        """


class ServesCopy(Output):
    """Readers find a copy of its output elsewhere."""

    @abstractmethod
    def serve(self) -> None:
        """Put what the copy lacks of all that was committed, of whatever manifest.

        ``put`` does so before the mark; whoever finds that only the mark is missing does so too. May be repeated, also
        by several processes at once.
        """


class WritesTopics(Output):
    @abstractmethod
    def topic_ids(self) -> set[str]:
        """The ids of the topics that it writes to, as sources of their cluster have them."""


class NamesFiles(Output):
    @abstractmethod
    def named_files(self) -> list[NamedFile]:
        """All files with rows that the target shows now."""


class MayBeRolledBack(Output):
    """Another program may take the target back to what it was, with the evidence in it."""

    @abstractmethod
    def orphaned_manifests(self, expected: Expected) -> dict[int, dict[str, Any] | None]:
        """The manifests of this pipeline that the target has rows and no evidence of, and that the database does not
        know; with the newest record that is left of each. Their offsets must not be planned again."""


class ShowsHours(Output):
    """Readers of folders may be shown which event hours are complete."""

    @abstractmethod
    def shows_hours(self) -> bool:
        """Return whether the settings ask for it."""

    @abstractmethod
    def show_complete(self, topics: Sequence[str], hour: CompleteHour) -> None:
        """Show readers that an hour is complete, unless they are shown a higher revision; may be repeated."""

    @abstractmethod
    def hide(self, topics: Sequence[str], hour: datetime) -> None:
        """Show readers no longer that an hour is complete; may be repeated."""

    @abstractmethod
    def is_of_hour(self, path: str, topic: str, hour: datetime) -> bool:
        """Return whether ``path``, an object that this sink published, is in the folder of this topic and hour."""
