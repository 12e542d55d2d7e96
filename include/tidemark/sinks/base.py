"""The protocol of a sink for the process that publishes; ``tests/behaviours/test_sinks.py`` checks it for every kind.

An attempt that has put its output leaves a record in the target: ranges, counts, digest, attempt and database. Readers
without the manifest database use these records, and so do retries after a crash.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, ClassVar

from tidemark.database.client import ManifestDatabase
from tidemark.dataset import Dataset
from tidemark.digest import Digest
from tidemark.errors import ForeignLake
from tidemark.findings import Finding
from tidemark.manifest import Counts, Manifest, Publication
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


class WriteMode(StrEnum):
    """How output is put; it decides what a replay does."""

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
    """Where a target stands that may be restored from a copy by itself, such as a database.

    The identity is made with the target; the number grows with each publication.
    """

    identity: str
    number: int


class Sink(ABC):
    """One sink of one pipeline, for the process that publishes.

    ``target`` is the place of its output; it never changes for a pipeline, and holds no secret.
    """

    target: str
    write_mode: ClassVar[WriteMode]

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

    @abstractmethod
    def has_objects(self, receipt: Receipt) -> bool:
        """Whether all objects of the receipt are in the target; compares sizes only."""

    def damaged(self, receipt: Receipt) -> list[PublishedObject]:
        """The objects of the receipt that are missing, or hold other rows than were written; reads them all."""
        parts = receipt.objects_of(self.name)
        return [part for part in parts if not self.has_objects(replace(receipt, objects=(part,)))]

    @abstractmethod
    def same_output(self, before: Receipt, now: Receipt) -> bool:
        """Whether all published rows of ``before`` are in the target; then ``now``, of the same digest, is not put."""

    @abstractmethod
    def discard(self, receipt: Receipt) -> None:
        """Remove all output of an attempt that is not published, its staging last; may be repeated."""

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
            f"To bring the records into an empty database: tidemark db adopt {self.pipeline_name} --why TEXT",
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
