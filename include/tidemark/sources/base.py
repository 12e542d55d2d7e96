"""What every source promises to the process that plans; ``tests/behaviours/test_sources.py`` holds each kind to it.

The face towards Spark is ``sources/spark.py``. Offsets of a partition only grow, and a record never changes; retention
may take the oldest ones. Only committed records are ever read.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

from tidemark.errors import DataLost, NotFound, TopicChanged, Unavailable
from tidemark.offsets import Range, TopicPartition
from tidemark.partitions import Bounds, OpenTransaction, Record
from tidemark.sources.settings import SourceSettings
from tidemark.suggestion import nearest


class Source(ABC):
    """The source of one pipeline. Every question is answered within seconds, or raises ``Unavailable``.

    ``title`` is how messages call this kind of source, ``address`` where it is; both hold no secret.
    """

    title: ClassVar[str]
    address: str

    def __init__(self, pipeline_name: str, settings: SourceSettings) -> None:
        self.pipeline_name = pipeline_name
        self.settings = settings

    @abstractmethod
    def topics(self) -> list[str]:
        """The names of all topics there are, sorted."""

    @abstractmethod
    def partitions(self, topics: Sequence[str]) -> tuple[list[TopicPartition], list[str]]:
        """(every partition of the topics that exist, with the topic's id; the names of those that do not), sorted."""

    @abstractmethod
    def bounds(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, Bounds]:
        """Where each partition starts and ends now."""

    @abstractmethod
    def offsets_at(
        self, places: Sequence[TopicPartition], when: datetime
    ) -> dict[TopicPartition, tuple[int, datetime] | None]:
        """The first offset stamped at or after ``when`` and its timestamp; None where there is none.

        Timestamps need not ascend: the answer is a hint where to cut, not a promise about time.
        """

    @abstractmethod
    def starting_offsets(self, bounds: Mapping[TopicPartition, Bounds]) -> dict[TopicPartition, int]:
        """The first offset to read of every partition, when the pipeline is planned for the first time.

        Raises ``PlanRefused`` where the pipeline file does not say it.
        """

    @abstractmethod
    def records(self, covered: Range) -> Iterator[Record]:
        """The committed records of a range, ascending; reading leaves nothing behind in the source."""

    @abstractmethod
    def order(self) -> dict[str, Any]:
        """What the Spark face must know beside the ranges, ready for JSON. No secret."""

    def compacted(self, topics: Sequence[str]) -> list[str]:
        """Those of the topics from whose middle records vanish; none in a source without compaction."""
        del topics
        return []

    def open_transactions(self, bounds: Mapping[TopicPartition, Bounds]) -> dict[TopicPartition, OpenTransaction]:
        """What holds ``last_stable`` below ``log_end``; a partition without it has no entry."""
        del bounds
        return {}

    def warnings(self) -> list[str]:
        """What is allowed and still unwise, as sentences."""
        return []

    def missing_topic(self, topic: str) -> NotFound:
        """The error for a topic that is not there."""
        return NotFound(
            " ".join(f"topic {topic} does not exist; {nearest(topic, self.topics())}".removesuffix("; ").split()),
            next_step=f"create the topic, or correct source.{self.settings.kind}.topics",
            pipeline=self.pipeline_name,
            source=self.address,
        )

    def first_record_in(self, place: TopicPartition, gaps: Sequence[tuple[int, int]]) -> int | None:
        """The first offset inside the gaps that holds a record; None when none does."""
        return next((record.offset for gap in gaps for record in self.records(Range(place, *gap))), None)

    def count_records(self, covered: Range) -> int:
        """How many records a range holds, by reading them all."""
        return sum(1 for _ in self.records(covered))

    def check(self, manifest_id: int, ranges: Sequence[Range], *, before_reading: bool) -> None:
        """Raise unless the topics are those a manifest was planned on and, before reading, still hold its ranges."""
        places, missing = self.partitions(sorted({covered.at.topic for covered in ranges}))
        if missing:
            raise self.missing_topic(missing[0])
        ids = {place.topic: place.topic_id for place in places}
        for covered in ranges:
            if ids[covered.at.topic] != covered.at.topic_id:
                raise TopicChanged(
                    f"topic {covered.at.topic} was recreated: planned on id {covered.at.topic_id}, "
                    f"now {ids[covered.at.topic]}",
                    next_step=f"nothing of this attempt is published; the old records are gone from {self.title}",
                    pipeline=self.pipeline_name,
                    manifest=manifest_id,
                    topic=covered.at.topic,
                    partition=covered.at.partition,
                )
        if before_reading:
            self.refuse_lost(manifest_id, ranges)

    def refuse_lost(self, manifest_id: int, ranges: Sequence[Range]) -> None:
        """Raise ``DataLost`` when retention took offsets of the ranges, ``Unavailable`` when they are not there yet."""
        bounds = self.bounds([covered.at for covered in ranges])
        for covered in ranges:
            held = bounds[covered.at]
            where: dict[str, object] = {
                "pipeline": self.pipeline_name, "manifest": manifest_id, "topic": covered.at.topic,
                "partition": covered.at.partition, "offsets": f"[{covered.start},{covered.end})",
            }  # fmt: skip
            if held.log_start > covered.start:
                raise DataLost(
                    f"retention took offsets [{covered.start}, {min(held.log_start, covered.end)}) of "
                    f"{covered.at.topic}-{covered.at.partition} before they were read",
                    next_step="restore the topic, or give up what is not published: "
                    f"tidemark accept-loss {self.pipeline_name} --why TEXT; what is published stays",
                    **where,
                )
            if held.last_stable < covered.end:
                raise Unavailable(
                    f"the last stable offset is {held.last_stable}, below the end of the range",
                    next_step="a replica lags, or the log was truncated; try again, then compare with: "
                    f"tidemark lag {self.pipeline_name}",
                    **where,
                )
