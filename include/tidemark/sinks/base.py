"""The three faces of a sink for the process that publishes; ``tests/behaviours/test_sinks.py`` checks them for every
kind.

The *ledger* says who owns the target and which attempt has left a record of each manifest. *Staging* is where attempts
write and no reader looks. The *output* is what readers see. An attempt that has put its output leaves a record in the
target: readers without the manifest database use it, and so do retries after a crash.
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
Mark = Callable[[], None]  # sets the mark: readers of the database see the output of the caller's attempt
Record = Mapping[str, Any]  # all that another database needs to adopt the output of an attempt, as values for JSON


class WriteMode(StrEnum):
    """The way in which output is put; it decides what a replay does."""

    REPLACE = "replace"  # a manifest's own objects are replaced, no others; they can be removed again: ``TakesBack``
    UPSERT = "upsert"  # rows, or a manifest's own contribution, are replaced in one step together with the evidence
    APPEND = "append"  # output is added and never removed


@dataclass(frozen=True)
class Owner:
    """The manifest database that owns a target, and those that owned it before, until it was adopted."""

    database: str
    before: tuple[str, ...] = ()


@dataclass(frozen=True)
class Position:
    """The position of a target that may be restored from a copy by itself, such as a database.

    The identity is made with the target; the number grows with each publication. ``hint`` is what to add when the
    number is too low. ``table_id`` is made with the table, so one that was dropped and created again has another; empty
    while there is no table, and None for a kind whose identity says it. Before a ``/`` in it is who numbers tables: a
    database that was restored from a dump numbers them anew. ``columns``: of each column of the table what tells it
    from a later one of its name; None for a kind without columns.
    """

    identity: str
    number: int
    hint: str = ""
    table_id: str | None = None
    columns: Mapping[str, str] | None = None


class Ledger(ABC):
    """The owner of a target, and the records of manifests in it.

    ``target`` is the place as the database and people know it; it never changes for a pipeline, and holds no secret.
    """

    record_word: ClassVar[str | None] = "a marker"  # how an audit calls a record; None where ``differences`` tells them

    def __init__(self, pipeline_name: str, name: str, target: str) -> None:
        self.pipeline_name = pipeline_name
        self.name = name
        self.target = target

    @abstractmethod
    def owner(self) -> Owner | None:
        """Return who owns the target; None when it has no owner."""

    def refuse_foreign(self, database_id: str) -> None:
        """Raise ``ForeignLake`` unless this manifest database owns the target."""
        owner = self.owner()
        if owner is None or owner.database != database_id:
            raise self.not_owned(owner, database_id)

    def not_owned(self, owner: Owner | None, database_id: str) -> ForeignLake:
        """Return the error of a manifest database that does not own the target."""
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
        """Make the database the owner, unless the target has an owner; may be repeated. Then the caller asks who owns
        it."""

    @abstractmethod
    def hand_over(self, owner: Owner) -> None:
        """Make another database the owner; a person has decided it."""

    def position(self) -> Position | None:
        """Return the position of the target now; None when it keeps no position, or nothing was published yet."""
        return None

    def forget_lost_rows(self) -> None:  # noqa: B027 - what most targets say of manifests is gone with their rows
        """Forget what the target says of manifests when it has no rows any more; a person has accepted that."""

    def registered_targets(self) -> set[str]:
        """The ``target`` of each sink that has noted in the place itself that it writes there.

        A place may be reached by two names, such as a folder and a link to it: only the place knows then.
        """
        return set()

    def is_at(self, target: str) -> bool:
        """Return whether a target of another name is seen to be this place, without asking it."""
        return target == self.target

    def note_target(self) -> None:  # noqa: B027 - a kind whose targets have one name only needs no note
        """Note ``target`` in the place, so that it is there when a sink comes by another name; may be repeated."""

    @abstractmethod
    def records(self, *, own: bool = True, above: int = 0) -> list[RecordName]:
        """The records of manifests with ids above ``above``, in no order.

        Without ``own`` also those of other pipelines that share the target.
        """

    @abstractmethod
    def recorded_attempt(self, manifest_id: int) -> int | None:
        """The highest attempt that left a record of this manifest."""

    @abstractmethod
    def record(self, name: RecordName) -> dict[str, Any] | None:
        """The content of a record; None when it does not exist, or is damaged."""

    def rename(self, old: str) -> None:  # noqa: B027 - most targets do not name their sinks
        """Take over what the target holds under the old name of this sink; may be repeated after it died anywhere.

        No attempt is alive meanwhile, and those that are dead or paused are fenced.
        """

    def rename_pipeline(self, old: str) -> None:  # noqa: B027 - some targets do not name their pipelines
        """As ``rename``, for the old name of the pipeline. Nothing of this name is there yet, except what an earlier
        call took over."""

    def evidence(self, above: int = 0) -> dict[int, int]:
        """Return, for each manifest of this pipeline with an id above ``above``, the highest attempt that left a
        record, which is the record that readers use."""
        return {name.manifest_id: name.attempt for name in newest(self.records(above=above)).values()}

    def has(self, receipt: Receipt) -> bool:
        """Return whether the record of the receipt's attempt exists, with the same digest."""
        content = self.record(RecordName(self.pipeline_name, receipt.manifest_id, receipt.attempt))
        return content is not None and content.get("digest") == receipt.digest(self.name)


class Staging(ABC):
    """The place where attempts write and no reader looks. It may lie in the target, or in a folder of its own: then it
    belongs to one manifest database too, and has the name of its sink."""

    @abstractmethod
    def order(self, manifest_id: int, attempt: int) -> dict[str, Any]:
        """Return what the executors need beside the settings: the place where this attempt stages. No secrets."""

    @abstractmethod
    def manifests(self) -> list[int]:
        """The ids of manifests with staged output, also of other pipelines that share the target."""

    @abstractmethod
    def attempts(self, manifest_id: int) -> list[int]:
        """The attempts of a manifest with staged output."""

    @abstractmethod
    def clear(self, manifest_id: int, attempt: int) -> None:
        """Remove the staged output of an attempt; may be repeated."""

    def places(self) -> list[ObjectStore]:
        """The folders that belong to the sink, or to the lake that it writes with others; none for most kinds."""
        return []

    def claim(self, database_id: str) -> None:  # noqa: B027 - staging in the target belongs to who owns that
        """Make a database the owner of the place, or raise ``ForeignLake``; may be repeated."""

    def refuse_foreign(self, database_id: str) -> None:  # noqa: B027
        """Raise ``ForeignLake`` when another database owns the place; it may have no owner yet."""

    def hand_over(self, owner: Owner) -> None:  # noqa: B027
        """Make another database the owner; raises ``ForeignLake`` when the place belongs to a third one."""

    def rename(self, pipeline_name: str, sink_name: str, owner: Owner) -> None:  # noqa: B027
        """Take over what the place of an old name keeps; may be repeated after it died anywhere. ``owner`` is that of
        the target."""


@dataclass(frozen=True)
class MarkSession:
    """The session by which the mark is set: a target in the same database puts its rows in the same transaction.

    ``lock`` gives the number of the advisory lock that the session holds for the attempt.
    """

    session: Session
    transaction: Callable[[], AbstractContextManager[None]]
    user: Callable[[], str]
    lock: Callable[[], int]


@dataclass(frozen=True)
class Work:
    """The output that an attempt is about to write: ``decode`` and ``transforms`` decide the columns, as an order has
    them.

    ``generations`` gives topic, partition and log generation of each range. ``may_have_put`` tells whether a lower
    attempt may have put something of the manifest.
    """

    manifest_id: int
    attempt: int
    decode: Mapping[str, Any]
    transforms: Sequence[TransformOrder]
    generations: Callable[[], list[tuple[str, int, int]]]
    may_have_put: Callable[[], bool]
    marks: MarkSession


class Expected(Protocol):
    """The output that one target should hold, by the manifest database: an audit compares it with the target.

    It is asked each time, so a caller that has read the target before knows what was published meanwhile.
    """

    manifests: Sequence[Manifest]  # those that are compared, of this pipeline

    def published(self) -> list[tuple[Manifest, Publication]]:
        """Those of them that are published in this sink."""
        ...

    def receipt(self, manifest_id: int, attempt: int) -> Receipt | None: ...

    def given_up(self, manifest_id: int, attempt: int) -> frozenset[str]:
        """The paths of objects of a publication that a person has given up; an empty path stands for rows."""
        ...

    def unknown(self, manifest_ids: Iterable[int]) -> set[int]:
        """Those of the ids that no pipeline of the database has."""
        ...

    def own(self) -> dict[int, Manifest]:
        """All manifests of this pipeline by id."""
        ...

    def not_own(self, manifest_ids: Iterable[int]) -> set[int]:
        """Those of the ids that are no manifests of this pipeline."""
        ...

    def newest_attempt(self, manifest_id: int) -> int: ...

    def pipeline_names(self) -> set[str]:
        """The name of this pipeline, and those that it had before."""
        ...

    def objects(self, manifest_id: int | None = None) -> list[tuple[int, PublishedObject]]:
        """(manifest id, object) of every object that is published in this sink, or of those of one manifest."""
        ...

    def published_by_retired(self) -> set[tuple[str, str]]:
        """(root, key) of every object and record that retired sinks of this pipeline have published."""
        ...


def mended_by_replay(manifest: Manifest, what: str) -> Problem:
    """Return the problem of a published manifest that is mended by doing it once more there."""
    return Problem(manifest.id, what, f"tidemark replay {manifest.pipeline_name} --manifest {manifest.id}")


Contents = dict[str, set[int]]  # ids of manifests by what a target has of them, such as "rows"


class Output(ABC):
    """The output that readers of a target see."""

    write_mode: ClassVar[WriteMode]
    written_columns: Collection[str] = ()  # those of ``Position.columns`` that the prepared attempt writes

    def __init__(self, pipeline_name: str, name: str) -> None:
        self.pipeline_name = pipeline_name
        self.name = name

    @abstractmethod
    def dataset(self) -> Dataset:
        """Return the name of the target in tools for lineage; the target may be asked."""

    @abstractmethod
    def exists(self) -> bool:
        """Return whether the target is there; a lake always is, as a folder without files is an empty one."""

    def storable(self, declared: Storable) -> Storable:
        """The values that the target can store: those that the settings declare, unless the target knows more."""
        return declared

    def note_settings(self) -> None:  # noqa: B027 - most targets need not remember any
        """Note in the target, which is this database's, what it must remember of the settings; may be repeated. Raises
        ``SinkRefused`` when it was made by others."""

    def prepare(self, work: Work) -> None:  # noqa: B027 - some targets have nothing to prepare
        """Prepare the target for the output of an attempt; raises errors that a person must correct first."""

    def wait_for_lower(self, manifest_id: int) -> None:  # noqa: B027 - most sinks have nobody to wait for
        """Wait until no lower attempt is about to make its output visible; one that tries later meets its fence.

        Only for sinks that make it visible in a transaction of their own, which a paused process may still commit.
        """

    @abstractmethod
    def put(self, receipt: Receipt, record: Record, fence: Fence, mark: Mark) -> None:
        """Make the output of an attempt visible, write its record, then call ``mark``; may be repeated.

        ``fence`` raises when a newer attempt has started, or somebody has taken back what was put. A sink that appends
        leaves equal output of a lower attempt as it is, and takes over its record.
        """

    @abstractmethod
    def has(self, receipt: Receipt) -> bool:
        """Return whether all objects of the receipt are in the target; compares sizes only."""

    def damaged(self, receipt: Receipt) -> list[PublishedObject]:
        """The objects of the receipt that are missing, or hold other rows than were written; reads them all."""
        parts = receipt.objects_of(self.name)
        return [part for part in parts if not self.has(replace(receipt, objects=(part,)))]

    @abstractmethod
    def same(self, before: Receipt, now: Receipt) -> bool:
        """Return whether all published rows of ``before``, which has its record, are in the target; then ``now``, of
        the same digest, is not put."""

    def discard(self, receipt: Receipt) -> None:  # noqa: B027 - what only a higher attempt replaces is not removed
        """Remove what an attempt that is not published has put; may be repeated. The caller clears its staging after
        that, so that ``sweep`` finds an attempt that dies in between."""

    def counts(self, receipt: Receipt, ranges: Sequence[Range]) -> Counts:
        """The counts of an attempt that has put its output here."""
        return receipt.counts(self.name, ranges)

    @abstractmethod
    def differences(self, expected: Expected, contents: Contents, *, deep: bool) -> Iterator[Problem]:
        """Find what is in the target, which exists, and should not be, or is missing; ``deep`` reads all rows.

        The caller looks itself at staging, at files with dead letters, and for manifests in ``contents`` that no
        pipeline has: there this adds what it has seen of which manifests.
        """

    @abstractmethod
    def locate(
        self, manifest: Manifest, published: Publication, receipt: Receipt, at: TopicPartition, offset: int
    ) -> Located:
        """The place of the record at an offset of a published manifest; the offset is in no gap of the receipt."""

    @abstractmethod
    def dead_letters(self, receipt: Receipt, *, values: bool) -> Iterator[DeadLetter]:
        """The dead letters of a published attempt, as many in memory as ``sinks/dead_letters.py`` says.

        Without ``values`` keys, values and headers are not read. Raises ``OSError`` when an object is not there or
        cannot be read, for instance since a replay has replaced it.
        """

    @abstractmethod
    def rehearse(self, decode: Mapping[str, Any], transforms: Sequence[TransformOrder]) -> Iterator[Finding]:
        """Try what an attempt does before Spark starts, and undo it; raises errors that a person must correct."""

    def parts(self, receipt: Receipt, kind: ObjectKind) -> list[PublishedObject]:
        """The objects of a receipt in this sink, of one kind."""
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
        """Return whether all objects of the receipt are in the target, except those at the paths ``without``."""
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
