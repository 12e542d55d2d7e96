"""The capabilities that only some kinds of sinks have; who needs one asks: ``isinstance(sink, ShowsHours)``."""

from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from tidemark.database.client import ManifestDatabase
from tidemark.manifest import WithoutRows
from tidemark.offsets import Range
from tidemark.receipt import Receipt
from tidemark.sinks.base import Sink, WriteMode


@dataclass(frozen=True)
class Leftover:
    """What a dead attempt left and nobody needs. Without a manifest id the database does not know the manifest."""

    key: str
    manifest_id: int | None
    attempt: int


@dataclass(frozen=True)
class CompleteHour:
    """An event hour, in UTC, that is complete: the rows that a sink shows of all topics, and those that are late.

    The revision counts how often it has become complete. ``without_rows`` is of the runs that read what arrived from
    its begin until it was due. ``whose`` is the pipeline where others write into the same
    folders, None where nobody else does; ``was_of`` has what it was when readers were shown it before, if that differs.
    """

    start: datetime
    revision: int
    rows: int
    late: int
    without_rows: WithoutRows
    whose: str | None = None
    was_of: tuple[str | None, ...] = ()


class NamedFile(NamedTuple):
    """A file that a target names to its readers; ``path`` is absolute, or begins with ``s3://``."""

    path: str
    rows: int
    bytes: int


class TakesBack(Sink):
    """Its output can be removed after it was put; in the others only a higher attempt can replace it."""

    write_mode = WriteMode.REPLACE

    @abstractmethod
    def write_record(
        self, receipt: Receipt, ranges: Sequence[Range], database_id: str, gone: frozenset[str] = frozenset()
    ) -> None:
        """Write the record of an attempt, complete and durable: from then on readers of records see its output.

        ``gone`` are the paths of objects that a person has given up; the record names them apart from the others.
        """

    @abstractmethod
    def drop_orphan_record(self, receipt: Receipt) -> None:
        """Remove the record of an attempt when its output was taken back before the record was written.

        For an attempt that has lost its session, so that the database cannot be asked. May be repeated.
        """

    @abstractmethod
    def leftovers(self, database: ManifestDatabase) -> list[Leftover]:
        """What dead attempts left and nobody needs; ``remove`` takes the keys."""

    @abstractmethod
    def remove(self, keys: Sequence[str]) -> None:
        """Remove leftovers by their keys."""


class EndsHalfWay(Sink):
    """Readers may see a part of a manifest, when its attempt ends in the middle."""

    @abstractmethod
    def undo_partial(self, manifest_id: int, attempt: int) -> None:
        """Remove what lower attempts have put of a manifest that ended half way, and that the sink stays without.

        May be repeated. Raises ``Fenced`` when ``attempt`` or a higher one has begun to put something.
        """


class DerivesTotals(Sink):
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


class WritesTopics(Sink):
    @abstractmethod
    def topic_ids(self) -> set[str]:
        """The ids of the topics that it writes to, as sources of their cluster have them."""


class NamesFiles(Sink):
    @abstractmethod
    def named_files(self) -> list[NamedFile]:
        """All files with rows that the target shows now."""


class MayBeRolledBack(Sink):
    """Another program may take the target back to what it was, with the evidence in it."""

    @abstractmethod
    def unvouched(self, database: ManifestDatabase) -> dict[int, dict[str, Any] | None]:
        """The manifests of this pipeline that the target has rows and no evidence of, and that the database does not
        know; with the newest record that is left of each. Their offsets must not be planned again."""


class ShowsHours(Sink):
    """Readers of folders may be shown which event hours are complete."""

    @abstractmethod
    def shows_hours(self) -> bool:
        """Whether the settings ask for it."""

    @abstractmethod
    def show_complete(self, topics: Sequence[str], hour: CompleteHour) -> None:
        """Show readers that an hour is complete, unless they are shown a higher revision; may be repeated."""

    @abstractmethod
    def hide(self, topics: Sequence[str], hour: datetime, whose: Collection[str | None]) -> None:
        """Show readers no longer that an hour is complete, under any of these names; may be repeated."""

    @abstractmethod
    def is_of_hour(self, path: str, topic: str, hour: datetime) -> bool:
        """Whether an object that it has published is where those of a topic's hour are."""

    @abstractmethod
    def name_shown(self, folder: str, whose: str, names: Collection[str]) -> None:
        """Give the file that shows an hour of the pipeline ``whose`` as complete, in a folder with its root, the name
        of the pipeline that it speaks of; ``names`` are all that write there. May be repeated."""
