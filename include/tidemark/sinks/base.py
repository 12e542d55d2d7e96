"""What every sink promises to the process that publishes; ``tests/behaviours/test_sinks.py`` holds each kind to it.

An attempt that has put its output leaves a record where the output is: which ranges, counts and digest, by which
attempt of which database. Readers without the manifest database follow it, and so does whoever finds a crash.
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
    """How output is put, which decides what a replay does and what can be taken back."""

    REPLACES = "replaces"  # own objects are replaced, nobody else's
    MERGES = "merges"  # the newest version of a key stands
    SUMS = "sums"  # the manifest's own contribution is replaced
    APPENDS = "appends"  # what was appended stays

    @property
    def takes_back(self) -> bool:
        """Whether output that was put can be removed again; else only a higher attempt can replace it."""
        return self is Way.REPLACES


class Sink(ABC):
    """One sink of one pipeline, seen from the process that publishes.

    ``target`` says where its output is; it never changes for a pipeline, and holds no secret.
    """

    target: str
    way: ClassVar[Way]

    def __init__(self, pipeline_name: str, name: str) -> None:
        self.pipeline_name = pipeline_name
        self.name = name

    @abstractmethod
    def claim(self, database_id: str) -> None:
        """Make the target this database's own, or raise ``ForeignLake``; safe to repeat."""

    @abstractmethod
    def owner(self) -> str | None:
        """The database the target belongs to, None while it belongs to nobody."""

    @abstractmethod
    def order(self, manifest_id: int, attempt: int) -> dict[str, Any]:
        """What the executors must know beside the settings: where this attempt stages. No secret."""

    def prepare(  # noqa: B027 - most have nothing to prepare
        self, manifest_id: int, attempt: int, decode: Mapping[str, Any], database: ManifestDatabase
    ) -> None:
        """Get the target ready for what an attempt will stage; raises what a person must mend before reading.

        ``decode`` is the section of the pipeline file as an order has it.
        """

    @abstractmethod
    def put(self, receipt: Receipt, ranges: Sequence[Range], database_id: str, fence: Fence, mark: Mark) -> None:
        """Make one attempt's output visible, leave its record, then call ``mark``; may be repeated.

        ``fence`` raises when a newer attempt has started. Failing before the record, the attempt takes its own back.
        """

    @abstractmethod
    def records(self, *, own: bool = True, above: int = 0) -> list[RecordName]:
        """The records of this pipeline, or of every pipeline that shares the target, of manifests with higher ids
        than ``above``; in no order."""

    @abstractmethod
    def recorded_attempt(self, manifest_id: int) -> int | None:
        """The highest attempt that left a record of this manifest."""

    @abstractmethod
    def record(self, name: RecordName) -> dict[str, Any] | None:
        """What a record says; None when it is not there or is not what was written."""

    @abstractmethod
    def write_record(self, receipt: Receipt, ranges: Sequence[Range], database_id: str) -> None:
        """The record of an attempt, whole and durable: from here on a reader of records counts its output."""

    @abstractmethod
    def has_objects(self, receipt: Receipt) -> bool:
        """Whether what the receipt names is where it was put, as far as sizes tell."""

    @abstractmethod
    def alike(self, before: Receipt, now: Receipt) -> bool:
        """Whether the published rows, of the same digest, are all there still, so that nothing need move."""

    @abstractmethod
    def discard(self, receipt: Receipt) -> None:
        """Remove all that an attempt which is not published left here, staging last; safe to repeat."""

    @abstractmethod
    def staged_manifests(self) -> list[int]:
        """The manifests that have something in staging, also of other pipelines that share the target."""

    @abstractmethod
    def staged_attempts(self, manifest_id: int) -> list[int]:
        """The attempts at a manifest that have something in staging."""

    @abstractmethod
    def clear_staging(self, manifest_id: int, attempt: int) -> None:
        """Remove what an attempt staged and did not put."""

    @abstractmethod
    def audit(self, database: ManifestDatabase, manifests: Sequence[Manifest], *, deep: bool) -> Iterator[Difference]:
        """What the target holds and should not, and the other way round; ``deep`` reads all rows.

        ``manifests`` are those of this pipeline. Records and receipts are compared by the caller.
        """

    @abstractmethod
    def locate(
        self, manifest: Manifest, published: Publication, receipt: Receipt, at: TopicPartition, offset: int
    ) -> Located:
        """Where the record of an offset that a published manifest covers is; it is in none of the receipt's gaps."""

    @abstractmethod
    def rehearse(self, decode: Mapping[str, Any]) -> Iterator[Finding]:
        """Try what an attempt does before Spark starts, and take it back; raises what a person must mend."""

    def leftovers(self, database: ManifestDatabase) -> list[tuple[str, int | None]]:
        """(key, manifest or None) of what is certain to be of no use to anybody; ``remove`` takes the keys."""
        del database
        return []

    def remove(self, keys: Sequence[str]) -> None:
        """Remove leftovers."""
        assert not keys, "a sink with leftovers removes them"

    def counts(self, receipt: Receipt, ranges: Sequence[Range]) -> Counts:
        """What became of the records of an attempt that has put its output here."""
        return receipt.counts(self.name, ranges)

    def newest_records(self) -> dict[int, RecordName]:
        """Of each manifest of this pipeline the record with the highest attempt: what record readers follow."""
        return newest(self.records())

    def has_record(self, receipt: Receipt) -> bool:
        """Whether the record of the receipt's attempt is there and says the same."""
        content = self.record(RecordName(self.pipeline_name, receipt.manifest_id, receipt.attempt))
        return content is not None and content.get("digest") == receipt.digest(self.name)

    def is_displaced(self, manifest_id: int, attempt: int) -> bool:
        """Whether a higher attempt's record stands in the place of a published one's that is missing. A table's replay
        that died before its mark leaves it so; a lake is so only beside a database restored from before the replay."""
        return (self.recorded_attempt(manifest_id) or 0) > attempt

    def recorded_ranges(self, receipt: Receipt) -> tuple[Range, ...]:
        """The ranges that the record of the receipt's attempt says it covers; none where none can be read."""
        content = self.record(RecordName(self.pipeline_name, receipt.manifest_id, receipt.attempt))
        try:
            return tuple(range_from(one) for one in (content or {}).get("ranges", ()))
        except MALFORMED:
            return ()

    def holds(self, receipt: Receipt) -> bool:
        """Whether the record is there, and all that the receipt names."""
        return self.has_record(receipt) and self.has_objects(receipt)

    def content_of_record(self, receipt: Receipt, ranges: Sequence[Range], database_id: str) -> dict[str, Any]:
        """All that a database must know to count this output, ready for JSON."""
        return {
            "pipeline": self.pipeline_name,
            "manifest": receipt.manifest_id,
            "attempt": receipt.attempt,
            "database": database_id,
            "ranges": [asdict(one) for one in ranges],
            "counts": asdict(receipt.counts(self.name, ranges)),
            "digest": receipt.digest(self.name),
            "partitions": [asdict(one) for one in receipt.partitions],
            "hours": receipt.hours,
            "objects": [
                {name: value for name, value in asdict(one).items() if name not in ("sink", "staged")}
                for one in receipt.objects_of(self.name)
            ],
        }

    def refuse_foreign(self, database_id: str) -> None:
        """A target that belongs to another database: manifests of the two would have the same ids."""
        found = self.owner()
        if found != database_id:
            raise ForeignLake(
                f"{self.target} belongs to another manifest database ({found}), this one is {database_id}",
                next_step="check TIDEMARK_DB and where the sink writes; two databases in one target would mix. "
                f"To bring the records into an empty database: tidemark adopt {self.pipeline_name} --why TEXT",
                pipeline=self.pipeline_name,
                sink=self.name,
            )

    def refuse_records_beyond(self, manifest_id: int, names: Iterable[RecordName]) -> None:
        """A target that knows more manifests than the database means an older database was restored."""
        last = max(names, key=lambda one: one.manifest_id, default=None)
        if last is not None and last.manifest_id > manifest_id:
            raise DatabaseBehindLake(
                f"{self.target} holds a record of manifest {last.manifest_id}, this database ends at {manifest_id}",
                next_step=f"nothing was planned; {_restored(last.pipeline_name)}",
                pipeline=self.pipeline_name,
                sink=self.name,
            )

    def refuse_attempts_beyond(self, manifest_id: int, attempt: int, recorded: int | None) -> None:
        """An attempt that the database never gave out: its number would be given out again."""
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
    found: dict[int, RecordName] = {}
    for name in names:
        if name.manifest_id not in found or found[name.manifest_id].attempt < name.attempt:
            found[name.manifest_id] = name
    return found
