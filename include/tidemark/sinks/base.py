"""The three interfaces of a sink for the process that publishes; ``tests/behaviours/test_sinks.py`` checks them for
every kind.

The *ledger* says who owns the target and which attempts have written a record of each manifest. *Staging* is where
attempts write and no reader looks. The *output* is what readers see. An attempt that has put its output writes a record
into the target: readers without the manifest database use it, and so do retries after a crash.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, ClassVar, Protocol

from tidemark.database.session import Session
from tidemark.errors import ForeignLake
from tidemark.model.dataset import Dataset
from tidemark.model.findings import Finding
from tidemark.model.manifest import Counts, Manifest, Publication
from tidemark.model.offsets import Range, TopicPartition
from tidemark.model.order import TransformOrder
from tidemark.model.problem import Problem
from tidemark.model.receipt import ObjectKind, PublishedObject, Receipt
from tidemark.model.storable import Storable
from tidemark.paths import RecordName
from tidemark.sinks.dead_letters import DeadLetter
from tidemark.sinks.located import Located
from tidemark.storage.base import ObjectStore

Fence = Callable[[], None]
Mark = Callable[[], None]  # sets the mark: from then on readers of the database see the output of the attempt
Record = Mapping[str, Any]  # all that another database needs to adopt the output of an attempt, as values for JSON


class WriteMode(StrEnum):
    """The way in which output is put into a target; it decides what a replay does."""

    REPLACE = "replace"  # replaces only the manifest's own objects, which can be removed again (``TakesBack``)
    UPSERT = "upsert"  # replaces rows, or the manifest's own contribution, in one step together with the evidence
    APPEND = "append"  # adds output, which is never removed


@dataclass(frozen=True)
class Owner:
    """The manifest database that owns a target, and those that owned it before it was adopted."""

    database: str
    before: tuple[str, ...] = ()


@dataclass(frozen=True)
class Position:
    """The position of a target that may be restored from a copy on its own, such as a database.

    The identity is created with the target; the number grows with each publication. ``hint`` is added to the message if
    the number is too low. ``table_id`` is created with the table, so a table that was dropped and created again has
    another one. It is empty while there is no table, and None for a kind whose identity covers the table. The part of
    it before a ``/`` names the database that numbers the tables: one that was restored from a dump numbers them anew.
    ``columns`` has an id for each column, so that a column that was created again differs; None for a kind without
    columns.
    """

    identity: str
    number: int
    hint: str = ""
    table_id: str | None = None
    columns: Mapping[str, str] | None = None


class Ledger(ABC):
    """The owner of a target, and the records of manifests in it.

    ``target`` is the name of the place in the database and in messages. It never changes for a sink, and contains no
    secret.
    """

    record_word: ClassVar[str | None] = "a marker"  # an audit's word for a record; None if ``differences`` reports them

    def __init__(self, pipeline_name: str, name: str, target: str) -> None:
        self.pipeline_name = pipeline_name
        self.name = name
        self.target = target

    @abstractmethod
    def owner(self) -> Owner | None:
        """Return the owner of the target; None if it has no owner."""

    def refuse_foreign(self, database_id: str) -> None:
        """Raise ``ForeignLake`` unless this manifest database owns the target."""
        owner = self.owner()
        if owner is None or owner.database != database_id:
            raise self.not_owned(owner, database_id)

    def not_owned(self, owner: Owner | None, database_id: str) -> ForeignLake:
        """Return the error for a manifest database that does not own the target."""
        if owner is not None and database_id in owner.before:
            return ForeignLake(
                f"{self.target} was adopted by the manifest database {owner.database}; this one, {database_id}, owned "
                "it before",
                next_step="nothing was written; work with the database that adopted it (TIDEMARK_DB), and stop all "
                "that still uses this one",
                sink=self.name,
            )
        return ForeignLake(
            f"{self.target} belongs to another manifest database ({owner and owner.database}), this one is "
            f"{database_id}",
            next_step="check TIDEMARK_DB and where the sink writes; two databases in one target would mix. "
            f"To bring the records into an empty database: tidemark db adopt {self.pipeline_name} --why TEXT",
            sink=self.name,
        )

    @abstractmethod
    def claim(self, database_id: str) -> None:
        """Make the database the owner, unless the target has an owner; may be repeated. The caller then checks who owns
        it."""

    @abstractmethod
    def hand_over(self, owner: Owner) -> None:
        """Make another database the owner, as a decision says."""

    def position(self) -> Position | None:
        """Return the present position of the target; None if it has no position, or nothing was published yet."""
        return None

    def forget_lost_rows(self) -> None:  # noqa: B027 - most targets lose their evidence together with their rows
        """Remove the evidence in a target that has lost its rows, after you have accepted the loss."""

    def registered_targets(self) -> set[str]:
        """Return the ``target`` of each sink that has noted in the place itself that it writes there.

        A place may have two names, such as a folder and a link to it. Only a note in the place shows that.
        """
        return set()

    def is_at(self, target: str) -> bool:
        """Return whether a target of another name is this place, as far as that is known without asking the target."""
        return target == self.target

    def note_target(self) -> None:  # noqa: B027 - a kind whose targets have only one name needs no note
        """Note ``target`` in the place, for sinks that write there by another name; may be repeated."""

    @abstractmethod
    def records(self, *, own: bool = True, above: int = 0) -> list[RecordName]:
        """Return the records of manifests with ids above ``above``, in no order.

        Without ``own`` also those of other pipelines that share the target.
        """

    @abstractmethod
    def recorded_attempt(self, manifest_id: int) -> int | None:
        """Return the highest attempt that has written a record of this manifest."""

    @abstractmethod
    def record(self, name: RecordName) -> dict[str, Any] | None:
        """Return the content of a record; None if it does not exist or is damaged."""

    def rename(self, old: str) -> None:  # noqa: B027 - most targets do not name their sinks
        """Take over what the target holds under the old name of this sink; may be repeated after a kill at any point.

        No attempt is alive meanwhile, and dead or paused ones are fenced.
        """

    def rename_pipeline(self, old: str) -> None:  # noqa: B027 - some targets do not name their pipelines
        """Take over what the target holds under the old name of the pipeline, as ``rename`` does. The target has
        nothing under the new name yet, except what an earlier call took over."""

    def evidence(self, above: int = 0) -> dict[int, int]:
        """Return the highest attempt with a record for each manifest of this pipeline with an id above ``above``.
        Readers use that record."""
        return {name.manifest_id: name.attempt for name in newest(self.records(above=above)).values()}

    def has(self, receipt: Receipt) -> bool:
        """Return whether the record of the receipt's attempt exists, with the same digest."""
        content = self.record(RecordName(self.pipeline_name, receipt.manifest_id, receipt.attempt))
        return content is not None and content.get("digest") == receipt.digest(self.name)


class Staging(ABC):
    """The place where attempts write and no reader looks. It lies in the target, or in a folder of its own. Such a
    folder belongs to one manifest database, too, and is named after its sink."""

    @abstractmethod
    def order(self, manifest_id: int, attempt: int) -> dict[str, Any]:
        """Return what executors need besides the settings: the place where this attempt stages. No secrets."""

    @abstractmethod
    def manifests(self) -> list[int]:
        """Return the ids of manifests with staged output, also of other pipelines that share the target."""

    @abstractmethod
    def attempts(self, manifest_id: int) -> list[int]:
        """Return the attempts of a manifest that have staged output."""

    @abstractmethod
    def clear(self, manifest_id: int, attempt: int) -> None:
        """Remove the staged output of an attempt; may be repeated."""

    def places(self) -> list[ObjectStore]:
        """Return the folders of the sink, or of the lake that it shares with others; none for most kinds."""
        return []

    def claim(self, database_id: str) -> None:  # noqa: B027 - staging in the target belongs to the target's owner
        """Make a database the owner of the place, or raise ``ForeignLake``; may be repeated."""

    def refuse_foreign(self, database_id: str) -> None:  # noqa: B027
        """Raise ``ForeignLake`` if another database owns the place; it may have no owner yet."""

    def hand_over(self, owner: Owner) -> None:  # noqa: B027
        """Make another database the owner; raises ``ForeignLake`` if the place belongs to a third one."""

    def rename(self, pipeline_name: str, sink_name: str, owner: Owner) -> None:  # noqa: B027
        """Take over what the place of an old name holds; may be repeated after a kill at any point. ``owner`` is the
        owner of the target."""


@dataclass(frozen=True)
class MarkSession:
    """The database session that sets the mark. A target in the same database puts its rows in the same transaction.

    ``lock`` returns the number of the advisory lock that the session holds for the attempt.
    """

    session: Session
    transaction: Callable[[], AbstractContextManager[None]]
    user: Callable[[], str]
    lock: Callable[[], int]


@dataclass(frozen=True)
class Work:
    """The work of an attempt that is about to write. ``decode`` and ``transforms`` are as in an order, and decide the
    columns.

    ``generations`` returns topic, partition and log generation of each range. ``may_have_put`` returns whether a lower
    attempt may have put output of the manifest.
    """

    manifest_id: int
    attempt: int
    decode: Mapping[str, Any]
    transforms: Sequence[TransformOrder]
    generations: Callable[[], list[tuple[str, int, int]]]
    may_have_put: Callable[[], bool]
    marks: MarkSession


class Expected(Protocol):
    """The output that one target should hold according to the manifest database; an audit compares it with the target.

    Each call asks the database. So a caller that has read the target before sees what was published meanwhile.
    """

    manifests: Sequence[Manifest]  # the manifests of this pipeline that are compared

    def published(self) -> list[tuple[Manifest, Publication]]:
        """Return those of ``manifests`` that are published in this sink."""
        ...

    def receipt(self, manifest_id: int, attempt: int) -> Receipt | None: ...

    def given_up(self, manifest_id: int, attempt: int) -> frozenset[str]:
        """Return the paths of objects of a publication that were given up; an empty path stands for rows."""
        ...

    def unknown(self, manifest_ids: Iterable[int]) -> set[int]:
        """Return those of the ids that the database does not know in any pipeline."""
        ...

    def own(self) -> dict[int, Manifest]:
        """Return all manifests of this pipeline by id."""
        ...

    def not_own(self, manifest_ids: Iterable[int]) -> set[int]:
        """Return those of the ids that are no manifests of this pipeline."""
        ...

    def newest_attempt(self, manifest_id: int) -> int: ...

    def pipeline_names(self) -> set[str]:
        """Return the present and the former names of this pipeline."""
        ...

    def objects(self, manifest_id: int | None = None) -> list[tuple[int, PublishedObject]]:
        """Return (manifest id, object) of every object that is published in this sink, or of those of one manifest."""
        ...

    def published_by_retired(self) -> set[tuple[str, str]]:
        """Return (root, key) of every object and record that retired sinks of this pipeline have published."""
        ...


def mended_by_replay(manifest: Manifest, what: str) -> Problem:
    """Return the problem of a published manifest that a replay repairs."""
    return Problem(manifest.id, what, f"tidemark replay {manifest.pipeline_name} --manifest {manifest.id}")


Contents = dict[str, set[int]]  # the ids of manifests of which a target has "rows", for example, by that word


class Output(ABC):
    """The output that readers of a target see."""

    write_mode: ClassVar[WriteMode]
    written_columns: Collection[str] = ()  # the columns of ``Position.columns`` that the prepared attempt writes

    def __init__(self, pipeline_name: str, name: str) -> None:
        self.pipeline_name = pipeline_name
        self.name = name

    @abstractmethod
    def dataset(self) -> Dataset:
        """Return the name of the target for lineage tools; may ask the target."""

    @abstractmethod
    def exists(self) -> bool:
        """Return whether the target exists; a lake always does, because a missing folder counts as an empty lake."""

    def storable(self, declared: Storable) -> Storable:
        """Return the limits of the values that the target can store: those that the settings declare, unless the target
        knows more."""
        return declared

    def note_settings(self) -> None:  # noqa: B027 - most targets need not remember any
        """Note in the target what it must remember of the settings; may be repeated. This database owns the target.
        Raises ``SinkRefused`` if the target was made with other settings."""

    def prepare(self, work: Work) -> None:  # noqa: B027 - some targets have nothing to prepare
        """Prepare the target for the output of an attempt; raises errors that you must correct first."""

    def know(self, work: Work) -> None:  # noqa: B027 - some need to know nothing
        """Know what ``put`` needs of an attempt that another process has prepared; change nothing in the target."""

    def wait_for_lower(self, manifest_id: int) -> None:  # noqa: B027 - most sinks need not wait
        """Wait until no lower attempt can make its output visible; an attempt that tries later meets its fence.

        Only for sinks that make output visible in a transaction of their own, which a paused process may still commit.
        """

    @abstractmethod
    def put(self, receipt: Receipt, record: Record, fence: Fence, mark: Mark) -> None:
        """Make the output of an attempt visible, write its record, then call ``mark``; may be repeated.

        ``fence`` raises if a newer attempt has started, or if the output was taken back. A sink that appends keeps
        equal output of a lower attempt, and takes over its record.
        """

    @abstractmethod
    def has(self, receipt: Receipt) -> bool:
        """Return whether all objects of the receipt are in the target; compares sizes only."""

    def missing(self, receipt: Receipt) -> list[PublishedObject]:
        """Return the objects of the receipt that are missing, or have another size; compares what ``has`` compares."""
        parts = receipt.objects_of(self.name)
        return [part for part in parts if not self.has(replace(receipt, objects=(part,)))]

    def damaged(self, receipt: Receipt) -> list[PublishedObject]:
        """Return the objects of the receipt that are missing, or hold other rows than were written. Only a sink whose
        objects can be read compares their rows."""
        return self.missing(receipt)

    @abstractmethod
    def same(self, before: Receipt, now: Receipt) -> bool:
        """Return whether all published rows of ``before`` are in the target. If so, ``now``, which has the same digest,
        need not be put. The record of ``before`` is in the target."""

    def discard(self, receipt: Receipt) -> None:  # noqa: B027 - some output can only be replaced by a higher attempt
        """Remove the output of an attempt that is not published; may be repeated. The caller clears its staging after
        that, so that ``sweep`` finds an attempt if this dies in between."""

    def counts(self, receipt: Receipt, ranges: Sequence[Range]) -> Counts:
        """Return the counts of an attempt that has put its output here."""
        return receipt.counts(self.name, ranges)

    @abstractmethod
    def differences(self, expected: Expected, contents: Contents, *, deep: bool) -> Iterator[Problem]:
        """Yield what is in the target and should not be, and what is missing; ``deep`` reads all rows. The target
        exists.

        Adds to ``contents`` the manifests that it has seen; the caller looks for unknown manifests there. The caller
        also checks staging and files with dead letters.
        """

    @abstractmethod
    def locate(
        self, manifest: Manifest, published: Publication, receipt: Receipt, at: TopicPartition, offset: int
    ) -> Located:
        """Return where the record at this offset of a published manifest lies. The caller has checked that the offset
        is in no gap of the receipt."""

    @abstractmethod
    def dead_letters(self, receipt: Receipt, *, values: bool) -> Iterator[DeadLetter]:
        """Yield the dead letters of a published attempt; ``sinks/dead_letters.py`` limits how many are in memory.

        Without ``values``, keys, values and headers are not read. Raises ``OSError`` if an object is missing or cannot
        be read, for example because a replay has replaced it.
        """

    @abstractmethod
    def rehearse(self, decode: Mapping[str, Any], transforms: Sequence[TransformOrder]) -> Iterator[Finding]:
        """Try what an attempt does before Spark starts, and undo it; raises errors that you must correct."""

    def parts(self, receipt: Receipt, kind: ObjectKind) -> list[PublishedObject]:
        """Return the objects of a receipt in this sink, of one kind."""
        return [part for part in receipt.objects_of(self.name) if part.kind is kind]


@dataclass(frozen=True, eq=False)
class Sink:
    """One sink of one pipeline, for the process that publishes."""

    ledger: Ledger
    staging: Staging
    output: Output

    @property
    def pipeline_name(self) -> str:
        return self.ledger.pipeline_name

    @property
    def name(self) -> str:
        return self.ledger.name

    @property
    def target(self) -> str:
        return self.ledger.target

    @property
    def write_mode(self) -> WriteMode:
        return self.output.write_mode

    def is_whole(self, receipt: Receipt, without: frozenset[str] = frozenset()) -> bool:
        """Return whether all objects of the receipt are in the target, except for the paths in ``without``."""
        expected = tuple(object_ for object_ in receipt.objects if object_.path not in without)
        return self.output.has(replace(receipt, objects=expected) if without else receipt)

    def discard(self, receipt: Receipt) -> None:
        """Remove all output of an attempt that is not published, its staging last; may be repeated."""
        self.output.discard(receipt)
        self.staging.clear(receipt.manifest_id, receipt.attempt)


def newest(names: Iterable[RecordName]) -> dict[int, RecordName]:
    """Return the record with the highest attempt of each manifest."""
    highest: dict[int, RecordName] = {}
    for name in names:
        if name.manifest_id not in highest or highest[name.manifest_id].attempt < name.attempt:
            highest[name.manifest_id] = name
    return highest
