"""The protocol of a sink for the process that publishes; ``tests/behaviours/test_sinks.py`` checks it for every kind.

An attempt that has put its output leaves a record in the target: ranges, counts, digest, attempt and database. Readers
without the manifest database use these records, and so do retries after a crash.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import Any, ClassVar

from tidemark.database.client import ManifestDatabase
from tidemark.errors import DatabaseBehindLake, ForeignLake
from tidemark.findings import Finding
from tidemark.manifest import Counts, Manifest, Publication
from tidemark.offsets import Range, TopicPartition, range_from
from tidemark.paths import RecordName
from tidemark.receipt import MALFORMED, Receipt
from tidemark.sinks.difference import Difference
from tidemark.sinks.located import Located

Fence = Callable[[], None]
Mark = Callable[[], None]


class Way(StrEnum):
    """How output is put; it decides what a replay does, and whether output can be removed again."""

    REPLACES = "replaces"  # a manifest's own objects are replaced, no others
    MERGES = "merges"  # the newest version of each key is kept
    SUMS = "sums"  # the manifest's own contribution is replaced
    APPENDS = "appends"  # output is added and never removed

    @property
    def takes_back(self) -> bool:
        """Whether output that was put can be removed; if not, only a higher attempt can replace it."""
        return self is Way.REPLACES


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
    def claim(self, database_id: str) -> None:
        """Register the database as owner of the target, or raise ``ForeignLake``; may be repeated."""

    @abstractmethod
    def owner(self) -> str | None:
        """The id of the database that owns the target; None when it has no owner."""

    @abstractmethod
    def order(self, manifest_id: int, attempt: int) -> dict[str, Any]:
        """What the executors need beside the settings: the place where this attempt stages. No secrets."""

    def prepare(  # noqa: B027 - most sinks have nothing to prepare
        self, manifest_id: int, attempt: int, decode: Mapping[str, Any], database: ManifestDatabase
    ) -> None:
        """Prepare the target for the output of an attempt; raises errors that a person must correct before Spark reads.

        ``decode`` is that section of the pipeline file, as an order has it.
        """

    @abstractmethod
    def put(self, receipt: Receipt, ranges: Sequence[Range], database_id: str, fence: Fence, mark: Mark) -> None:
        """Make the output of an attempt visible, write its record, then call ``mark``; may be repeated.

        ``fence`` raises when a newer attempt has started. An error before the record removes the attempt's own output.
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
    def write_record(self, receipt: Receipt, ranges: Sequence[Range], database_id: str) -> None:
        """Write the record of an attempt, complete and durable: from then on readers of records see its output."""

    @abstractmethod
    def has_objects(self, receipt: Receipt) -> bool:
        """Whether all objects of the receipt are in the target; compares sizes only."""

    @abstractmethod
    def alike(self, before: Receipt, now: Receipt) -> bool:
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
    def rehearse(self, decode: Mapping[str, Any]) -> Iterator[Finding]:
        """Try what an attempt does before Spark starts, and undo it; raises errors that a person must correct."""

    def leftovers(self, database: ManifestDatabase) -> list[tuple[str, int | None]]:
        """(key, manifest id or None) of what dead attempts left and nobody needs; ``remove`` takes the keys."""
        del database
        return []

    def remove(self, keys: Sequence[str]) -> None:
        """Remove leftovers by their keys."""
        assert not keys, "a sink with leftovers removes them"

    def counts(self, receipt: Receipt, ranges: Sequence[Range]) -> Counts:
        """The counts of an attempt that has put its output here."""
        return receipt.counts(self.name, ranges)

    def newest_records(self) -> dict[int, RecordName]:
        """Of each manifest of this pipeline the record with the highest attempt, which is the one that readers use."""
        return newest(self.records())

    def has_record(self, receipt: Receipt) -> bool:
        """Whether the record of the receipt's attempt exists, with the same digest."""
        content = self.record(RecordName(self.pipeline_name, receipt.manifest_id, receipt.attempt))
        return content is not None and content.get("digest") == receipt.digest(self.name)

    def is_displaced(self, manifest_id: int, attempt: int) -> bool:
        """Whether a higher attempt has the record while that of the published ``attempt`` is missing.

        In a table a replay that died before its mark leaves this state. In a lake it arises only when the database was
        restored from a copy older than the replay.
        """
        return (self.recorded_attempt(manifest_id) or 0) > attempt

    def recorded_ranges(self, receipt: Receipt) -> tuple[Range, ...]:
        """The ranges in the record of the receipt's attempt; none when the record is missing or damaged."""
        content = self.record(RecordName(self.pipeline_name, receipt.manifest_id, receipt.attempt))
        try:
            return tuple(range_from(range_) for range_ in (content or {}).get("ranges", ()))
        except MALFORMED:
            return ()

    def holds(self, receipt: Receipt) -> bool:
        """Whether the record and all objects of the receipt are in the target."""
        return self.has_record(receipt) and self.has_objects(receipt)

    def content_of_record(self, receipt: Receipt, ranges: Sequence[Range], database_id: str) -> dict[str, Any]:
        """All that another database needs to adopt this output, as values for JSON."""
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
            "objects": [
                {name: value for name, value in asdict(object_).items() if name not in ("sink", "staged")}
                for object_ in receipt.objects_of(self.name)
            ],
        }

    def refuse_foreign(self, database_id: str) -> None:
        """Raise when another database owns the target: manifests of the two would have the same ids."""
        owner = self.owner()
        if owner != database_id:
            raise ForeignLake(
                f"{self.target} belongs to another manifest database ({owner}), this one is {database_id}",
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
                next_step=f"nothing was planned; {_restored(last.pipeline_name)}",
                pipeline=self.pipeline_name,
                sink=self.name,
            )

    def refuse_attempts_beyond(self, manifest_id: int, attempt: int, recorded: int | None) -> None:
        """Raise when the target has a record of a higher attempt: the database would give out its number again."""
        if recorded is not None and recorded > attempt:
            raise DatabaseBehindLake(
                f"{self.target} holds a record of attempt {recorded}, this database ends at attempt {attempt}",
                next_step=f"nothing was started; {_restored(self.pipeline_name)}",
                pipeline=self.pipeline_name,
                manifest=manifest_id,
                sink=self.name,
            )


def _restored(pipeline_name: str) -> str:
    return (
        "the database was restored from an older copy. Read the records back with: "
        f"tidemark adopt {pipeline_name} --why TEXT"
    )


def newest(names: Iterable[RecordName]) -> dict[int, RecordName]:
    """Of each manifest the record with the highest attempt."""
    highest: dict[int, RecordName] = {}
    for name in names:
        if name.manifest_id not in highest or highest[name.manifest_id].attempt < name.attempt:
            highest[name.manifest_id] = name
    return highest
