"""The protocol of a sink for the process that publishes; ``tests/behaviours/test_sinks.py`` checks it for every kind.

An attempt that has put its output leaves a record in the target: ranges, counts, digest, attempt and database. Readers
without the manifest database use these records, and so do retries after a crash.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple

from tidemark.database.client import ManifestDatabase
from tidemark.dataset import Dataset
from tidemark.digest import Digest
from tidemark.errors import DatabaseBehindLake, ForeignLake
from tidemark.findings import Finding
from tidemark.manifest import Counts, Manifest, Publication, WithoutRows, listed
from tidemark.offsets import Range, TopicPartition, range_from
from tidemark.order import TransformOrder
from tidemark.paths import RecordName
from tidemark.receipt import MALFORMED, PublishedObject, Receipt
from tidemark.sinks.dead_letters import DeadLetter
from tidemark.sinks.difference import Difference
from tidemark.sinks.located import Located
from tidemark.verdict import Shown

Fence = Callable[[], None]
Mark = Callable[[], None]  # sets the mark: readers of the database see the output of the caller's attempt


class Way(StrEnum):
    """How output is put; it decides what a replay does, and whether output can be removed again."""

    REPLACES = "replaces"  # a manifest's own objects are replaced, no others
    SWAPS = "swaps"  # the same, in one commit together with the evidence: there is nothing half done to take back
    MERGES = "merges"  # the newest version of each key is kept
    SUMS = "sums"  # the manifest's own contribution is replaced
    APPENDS = "appends"  # output is added and never removed

    @property
    def takes_back(self) -> bool:
        """Whether output that was put can be removed; if not, only a higher attempt can replace it."""
        return self is Way.REPLACES


@dataclass(frozen=True)
class Owner:
    """The manifest database that owns a target, and those that owned it before, until it was adopted."""

    database: str
    before: tuple[str, ...] = ()


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


@dataclass(frozen=True)
class Position:
    """Where a target stands that may be restored from a copy by itself, such as a database.

    The identity is made with the target; the number grows with each publication.
    """

    identity: str
    number: int


class NamedFile(NamedTuple):
    """A file that a target names to its readers; ``path`` is absolute, or begins with ``s3://``."""

    path: str
    rows: int
    bytes: int


class Sink(ABC):
    """One sink of one pipeline, for the process that publishes.

    ``target`` is the place of its output; it never changes for a pipeline, and holds no secret.
    """

    target: str
    way: ClassVar[Way]

    def __init__(self, pipeline_name: str, name: str) -> None:
        self.pipeline_name = pipeline_name
        self.name = name

    @abstractmethod
    def dataset(self) -> Dataset:
        """What tools for lineage call the target; the target may be asked."""

    @abstractmethod
    def claim(self, database_id: str) -> None:
        """Register the database as owner of the target, or raise ``ForeignLake``; may be repeated."""

    @abstractmethod
    def owner(self) -> Owner | None:
        """Who owns the target; None when it has no owner."""

    def position(self) -> Position | None:
        """Where the target stands now; None when it keeps no position, or nothing was published yet."""
        return None

    @abstractmethod
    def hand_over(self, owner: Owner) -> None:
        """Make another database the owner; a person has decided it."""

    def noted_targets(self) -> set[str]:
        """The ``target`` of each sink that has noted in the place itself that it writes there.

        A place may be reached by two names, such as a folder and a link to it: only the place knows then.
        """
        return set()

    def is_at(self, target: str) -> bool:
        """Whether a target of another name is seen to be this place, without asking it."""
        return target == self.target

    def note_target(self) -> None:  # noqa: B027 - a kind whose targets have one name only needs no note
        """Note ``target`` in the place, so that it is there when a sink comes by another name; may be repeated."""

    @abstractmethod
    def order(self, manifest_id: int, attempt: int) -> dict[str, Any]:
        """What the executors need beside the settings: the place where this attempt stages. No secrets."""

    def prepare(  # noqa: B027 - most sinks have nothing to prepare
        self,
        manifest_id: int,
        attempt: int,
        decode: Mapping[str, Any],
        transforms: Sequence[TransformOrder],
        database: ManifestDatabase,
    ) -> None:
        """Prepare the target for the output of an attempt; raises errors that a person must correct before Spark reads.

        ``decode`` and ``transforms`` are as an order has them; they decide the columns.
        """

    def wait_for_lower(self, manifest_id: int) -> None:  # noqa: B027 - most sinks have nobody to wait for
        """Wait until no lower attempt is about to make its output visible; one that tries later meets its fence.

        Only for sinks that make it visible in a transaction of their own, which a paused process may still commit.
        """

    @abstractmethod
    def put(self, receipt: Receipt, ranges: Sequence[Range], database_id: str, fence: Fence, mark: Mark) -> None:
        """Make the output of an attempt visible, write its record, then call ``mark``; may be repeated.

        ``fence`` raises when a newer attempt has started, or somebody has taken back what was put. A sink that appends
        leaves equal output of a lower attempt as it is, and takes over its record.
        """

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

    def write_record(
        self, receipt: Receipt, ranges: Sequence[Range], database_id: str, gone: frozenset[str] = frozenset()
    ) -> None:
        """Write the record of an attempt, complete and durable: from then on readers of records see its output.

        ``gone`` are the paths of objects that a person has given up; the record names them apart from the others. Only
        for sinks that take back: the others write it in the transaction that writes the rows.
        """
        del receipt, ranges, database_id, gone
        raise AssertionError(f"{self.target}: a record is never written without its rows")

    @abstractmethod
    def has_objects(self, receipt: Receipt) -> bool:
        """Whether all objects of the receipt are in the target; compares sizes only."""

    def damaged(self, receipt: Receipt) -> list[PublishedObject]:
        """The objects of the receipt that are missing, or hold other rows than were written; reads them all."""
        parts = receipt.objects_of(self.name)
        return [part for part in parts if not self.has_objects(replace(receipt, objects=(part,)))]

    def named_files(self) -> list[NamedFile]:
        """All files with rows that the target shows now; none unless its settings have ``names_files``."""
        return []

    @abstractmethod
    def alike(self, before: Receipt, now: Receipt) -> bool:
        """Whether all published rows of ``before`` are in the target; then ``now``, of the same digest, is not put."""

    def withdraw(self, receipt: Receipt) -> None:  # noqa: B027 - in other sinks a record comes with its output
        """Remove the record of an attempt when its output was taken back before the record was written.

        For an attempt that has lost its session, so that the database cannot be asked. May be repeated.
        """

    @abstractmethod
    def discard(self, receipt: Receipt) -> None:
        """Remove all output of an attempt that is not published, its staging last; may be repeated."""

    def forget(self, manifest_id: int, attempt: int) -> None:  # noqa: B027 - others hold an attempt whole, or not at all
        """Remove what lower attempts have put of a manifest that ended half way, and that the sink stays without.

        May be repeated. Raises ``Fenced`` when ``attempt`` or a higher one has begun to put something.
        """

    def refuse_other_definition(self) -> None:  # noqa: B027 - others derive nothing
        """Raise ``SinkRefused`` when the target derives something else from the output of manifests than these settings
        say; changes nothing."""

    def derive_again(self, *, dry_run: bool) -> Iterator[str]:
        """Make again what the target derives from the output of manifests, such as totals; one line if it differs.

        ``adopt`` asks for it, since the parts of a target may have been restored from different copies. From then on
        they count as one target. Only after ``refuse_other_definition``; may be repeated.
        """
        del dry_run
        return iter(())

    @abstractmethod
    def staged_manifests(self) -> list[int]:
        """The ids of manifests with staged output, also of other pipelines that share the target."""

    @abstractmethod
    def staged_attempts(self, manifest_id: int) -> list[int]:
        """The attempts of a manifest with staged output."""

    @abstractmethod
    def clear_staging(self, manifest_id: int, attempt: int) -> None:
        """Remove the staged output of an attempt."""

    @abstractmethod
    def audit(self, database: ManifestDatabase, manifests: Sequence[Manifest], *, deep: bool) -> Iterator[Difference]:
        """What is in the target and should not be, or is missing; ``deep`` reads all rows.

        ``manifests`` are those of this pipeline. The caller compares records with receipts.
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

    def take_name(self, database_id: str) -> None:  # noqa: B027 - most targets have no place of that name
        """Take the place of the new name before anything is renamed, or raise ``ForeignLake``; may be repeated."""

    def rename(self, old: str) -> None:  # noqa: B027 - most targets do not name their sinks
        """Take over what the target holds under the old name of this sink; may be repeated after it died anywhere.

        No attempt is alive meanwhile, and those that are dead or paused are fenced.
        """

    def rename_pipeline(self, old: str) -> None:  # noqa: B027 - some targets do not name their pipelines
        """Take over what the target holds under the old name of the pipeline; may be repeated after it died anywhere.

        No attempt is alive meanwhile, and those that are dead or paused are fenced. Nothing of this name is there yet,
        except what an earlier call took over.
        """

    @abstractmethod
    def rehearse(self, decode: Mapping[str, Any], transforms: Sequence[TransformOrder]) -> Iterator[Finding]:
        """Try what an attempt does before Spark starts, and undo it; raises errors that a person must correct."""

    def topic_ids(self) -> set[str]:
        """The ids of the topics that it writes to, as sources of their cluster have them."""
        return set()

    def shows_hours(self) -> bool:
        """Whether the sink wants to be told which hours are complete."""
        return False

    def show_complete(self, topics: Sequence[str], hour: CompleteHour) -> None:
        """Show readers that an hour is complete, unless they are shown a higher revision; may be repeated."""
        raise AssertionError(f"{self.target}: it shows no hours; {topics} {hour}")

    def hide(self, topics: Sequence[str], hour: datetime, whose: Collection[str | None]) -> None:
        """Show readers no longer that an hour is complete, under any of these names; may be repeated."""
        raise AssertionError(f"{self.target}: it shows no hours; {topics} {hour} {whose}")

    def is_of_hour(self, path: str, topic: str, hour: datetime) -> bool:
        """Whether an object that it has published is where those of a topic's hour are."""
        raise AssertionError(f"{self.target}: it shows no hours; {path} {topic} {hour}")

    def name_shown(self, folder: str, whose: str, names: Collection[str]) -> None:
        """Give the file that shows an hour of the pipeline ``whose`` as complete, in a folder with its root, the name
        of the pipeline that it speaks of; ``names`` are all that write there. May be repeated."""
        raise AssertionError(f"{self.target}: it shows no hours; {folder} {whose} {names}")

    def leftovers(self, database: ManifestDatabase) -> list[Leftover]:
        """(key, manifest id or None) of what dead attempts left and nobody needs; ``remove`` takes the keys."""
        del database
        return []

    def remove(self, keys: Sequence[str]) -> None:
        """Remove leftovers by their keys."""
        assert not keys, "a sink with leftovers removes them"

    def is_whole(self, receipt: Receipt, without: frozenset[str] = frozenset()) -> bool:
        """Whether all objects of the receipt are in the target, except those at the paths ``without``."""
        expected = tuple(object_ for object_ in receipt.objects if object_.path not in without)
        return self.has_objects(replace(receipt, objects=expected) if without else receipt)

    def counts(self, receipt: Receipt, ranges: Sequence[Range]) -> Counts:
        """The counts of an attempt that has put its output here."""
        return receipt.counts(self.name, ranges)

    def evidence(self, above: int = 0) -> dict[int, int]:
        """Of each manifest of this pipeline with an id above ``above`` the highest attempt that left a record, which is
        the record that readers use."""
        return {name.manifest_id: name.attempt for name in newest(self.records(above=above)).values()}

    def unvouched(self, database: ManifestDatabase) -> dict[int, dict[str, Any] | None]:
        """The manifests of this pipeline that the target has rows and no evidence of, and that the database does not
        know; with the newest record that is left of each. Their offsets must not be planned again."""
        del database
        return {}

    def has_record(self, receipt: Receipt) -> bool:
        """Whether the record of the receipt's attempt exists, with the same digest."""
        content = self.record(RecordName(self.pipeline_name, receipt.manifest_id, receipt.attempt))
        return content is not None and content.get("digest") == receipt.digest(self.name)

    def holds(self, receipt: Receipt) -> bool:
        """Whether the record and all objects of the receipt are in the target."""
        return self.has_record(receipt) and self.has_objects(receipt)

    def shown(
        self,
        manifest: Manifest,
        evidence: int | None,
        receipts: Mapping[int, Receipt],
        accepted: frozenset[str] = frozenset(),
        *,
        objects: bool = True,
    ) -> Shown:
        """What the target shows of a manifest: ``evidence`` is the highest attempt with a record.

        Objects whose paths are ``accepted`` are not missed. Without ``objects`` those of a published attempt that has
        its record are not looked at.
        """
        published = manifest.published(self.name)
        digest = None if evidence is None else self._digest_of_record(manifest, evidence)
        if published is not None and evidence == published.attempt and not objects:
            return Shown(evidence, digest, whole=True, published_whole=True)
        newest_receipt = receipts.get(evidence or 0)
        whole = newest_receipt is not None and self.is_whole(newest_receipt)
        if published is None:
            return Shown(evidence, digest, whole=whole)
        receipt = receipts.get(published.attempt)
        published_whole = receipt is not None and self.is_whole(receipt, accepted)
        return Shown(evidence, digest, whole=whole, published_whole=published_whole)

    def _digest_of_record(self, manifest: Manifest, attempt: int) -> str | None:
        """The digest in a record; None when it cannot be read, or is not that of the objects it names.

        Also when it covers other ranges than a manifest that is not published: a person gave some of them up since.
        """
        published = manifest.published(self.name)
        content = self.record(RecordName(self.pipeline_name, manifest.id, attempt)) or {}
        try:
            ranges = tuple(range_from(range_) for range_ in content["ranges"])
            objects = (*content["objects"], *content["gone"])
            digest = sum((Digest.parse(part["digest"]) for part in objects), Digest.zero())
            covers = ranges == manifest.ranges or (published is not None and published.attempt == attempt)
            return str(digest) if covers and str(digest) == content["digest"] else None
        except MALFORMED:
            return None

    def content_of_record(
        self, receipt: Receipt, ranges: Sequence[Range], database_id: str, gone: frozenset[str] = frozenset()
    ) -> dict[str, Any]:
        """All that another database needs to adopt this output, as values for JSON."""
        objects = [
            {name: value for name, value in asdict(object_).items() if name not in ("sink", "staged")}
            for object_ in receipt.objects_of(self.name)
        ]
        return {
            "pipeline": self.pipeline_name,
            "manifest": receipt.manifest_id,
            "attempt": receipt.attempt,
            "database": database_id,
            "ranges": [asdict(range_) for range_ in ranges],
            "counts": asdict(receipt.counts(self.name, ranges)),
            "digest": receipt.digest(self.name),
            "partitions": [asdict(partition) for partition in receipt.partitions],
            "hours": receipt.hours,
            "reasons": [asdict(reason) for reason in receipt.reasons],
            "schemas": receipt.schemas,
            "objects": [object_ for object_ in objects if object_["path"] not in gone],
            "gone": [object_ for object_ in objects if object_["path"] in gone],
        }

    def refuse_foreign(self, database_id: str) -> None:
        """Raise when another database owns the target: manifests of the two would have the same ids."""
        owner = self.owner()
        if owner is None or owner.database != database_id:
            raise self.foreign(owner, database_id)

    def belongs_to(self, database_id: str) -> bool:
        """Whether this sink may list and remove there what attempts have left: the place is of the database, and of no
        sink that comes there by another name."""
        try:
            self.refuse_foreign(database_id)
        except ForeignLake:
            return False
        noted = self.noted_targets()
        return not noted or self.target in noted

    def foreign(self, owner: Owner | None, database_id: str) -> ForeignLake:
        """The error of a database that does not own the target."""
        if owner is not None and database_id in owner.before:
            return ForeignLake(
                f"{self.target} was adopted by the manifest database {owner.database}; this one, {database_id}, owned "
                "it before",
                next_step="nothing was written; work with the database that adopted it (TIDEMARK_DB), and stop all "
                "that still uses this one",
                pipeline=self.pipeline_name,
                sink=self.name,
            )
        return ForeignLake(
            f"{self.target} belongs to another manifest database ({owner and owner.database}), this one is "
            f"{database_id}",
            next_step="check TIDEMARK_DB and where the sink writes; two databases in one target would mix. "
            f"To bring the records into an empty database: tidemark adopt {self.pipeline_name} --why TEXT",
            pipeline=self.pipeline_name,
            sink=self.name,
        )

    def refuse_records_beyond(self, manifest_id: int, names: Iterable[RecordName]) -> None:
        """Raise when the target has records of higher manifests: the database was restored from an older copy."""
        last = max(names, key=lambda name: name.manifest_id, default=None)
        if last is not None and last.manifest_id > manifest_id:
            raise DatabaseBehindLake(
                f"{self.target} holds a record of manifest {last.manifest_id}, this database ends at {manifest_id}",
                next_step="nothing was planned; the database was restored from an older copy. Read the records back "
                f"with: tidemark adopt {last.pipeline_name} --why TEXT",
                pipeline=self.pipeline_name,
                sink=self.name,
            )

    def refuse_unvouched(self, database: ManifestDatabase) -> None:
        """Raise when the target has rows of manifests that nobody vouches for: they were published, and rolled back."""
        unvouched = sorted(self.unvouched(database))
        if unvouched:
            raise DatabaseBehindLake(
                f"{self.target} has rows of the manifests {listed(unvouched)}, which this database does not know: they "
                "came back when another program rolled it back",
                next_step="nothing was planned, as their offsets would be there twice. Enter them, or learn how to "
                f"remove their rows: tidemark adopt {self.pipeline_name} --why TEXT",
                pipeline=self.pipeline_name,
                sink=self.name,
            )


def newest(names: Iterable[RecordName]) -> dict[int, RecordName]:
    """Of each manifest the record with the highest attempt."""
    highest: dict[int, RecordName] = {}
    for name in names:
        if name.manifest_id not in highest or highest[name.manifest_id].attempt < name.attempt:
            highest[name.manifest_id] = name
    return highest
