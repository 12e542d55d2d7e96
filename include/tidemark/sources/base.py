"""The protocol of a source for the process that plans; ``tests/behaviours/test_sources.py`` checks it for every kind.

The protocol for Spark is in ``sources/spark.py``. Offsets of a partition only grow, and a record never changes.
Retention may remove the oldest records. Only committed records are read.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

from tidemark.errors import DataLost, NotFound, TopicChanged, Unavailable
from tidemark.model.dataset import Dataset
from tidemark.model.offsets import Range, TopicPartition
from tidemark.model.partitions import Bounds, OpenTransaction, Record
from tidemark.planner import acceptance
from tidemark.sources.settings import SourceSettings
from tidemark.text import with_nearest


class Source(ABC):
    """The source of one pipeline. Every method answers within seconds, or raises ``Unavailable``.

    ``title`` is the name of this kind of source in messages, ``address`` its address. Neither contains a secret.
    """

    title: ClassVar[str]
    address: str

    def __init__(self, pipeline_name: str, settings: SourceSettings) -> None:
        self.pipeline_name = pipeline_name
        self.settings = settings

    def trouble(self) -> str:
        """Return the newest reason why a request has no answer yet; empty if none is known. Asks nobody."""
        return ""

    @abstractmethod
    def dataset(self, topic: str) -> Dataset:
        """Return the name of a topic in lineage tools."""

    @abstractmethod
    def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""

    def selected(self, *also: str) -> list[str]:
        """Return the topics to read: those that the pipeline file names, those that its rule selects now, and ``also``.

        Raises ``NotFound`` if a rule is set and no topic results.
        """
        names, rule = [*self.settings.topics, *also], self.settings.rule
        if rule is not None:
            known = self.topics()
            names += [topic for topic in known if self.settings.reads(topic)]
            if not names:
                raise self.nothing_selected(rule, known)
        return list(dict.fromkeys(names))

    def nothing_selected(self, rule: str, known: Sequence[str]) -> NotFound:
        """Return the error for a rule that selects none of the existing topics."""
        return NotFound(
            with_nearest(f"no topic matches {rule}", rule, known),
            next_step=f"create a topic, or correct source.{self.settings.kind}.topics_regex",
            pipeline=self.pipeline_name,
            source=self.address,
        )

    def name_topics(self, planned: Collection[str]) -> None:
        """If the source has no topic ids of its own, store an id for each selected topic that is not in ``planned``.

        Called before a plan, but not before a plan that only shows what it would do.
        """
        del planned

    def cluster_id(self) -> str | None:
        """Return the id that tells one cluster of the source from another; None if the source has no such id."""
        return None

    @abstractmethod
    def partitions(self, topics: Sequence[str]) -> tuple[list[TopicPartition], list[str]]:
        """Return (every partition of the topics that exist, with the topic's id; the names of the others), both
        sorted."""

    @abstractmethod
    def bounds(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, Bounds]:
        """Return the current start and ends of each partition.

        Records that were written before the call lie below ``log_end``. ``last_stable`` is of the same moment or a
        later one.
        """

    @abstractmethod
    def offsets_at(
        self, places: Sequence[TopicPartition], when: datetime
    ) -> dict[TopicPartition, tuple[int, datetime] | None]:
        """Return, for each partition, the first offset whose timestamp is at or after ``when``, with that timestamp;
        None if no record is that late.

        Timestamps may be in any order. Use the offset only as a place to cut: later records may have earlier
        timestamps.
        """

    @abstractmethod
    def starting_offsets(self, bounds: Mapping[TopicPartition, Bounds]) -> dict[TopicPartition, int]:
        """Return the first offset to read of every partition. Called when the pipeline is planned for the first time.

        Raises ``PlanRefused`` if the pipeline file does not define it for every partition.
        """

    @abstractmethod
    def records(self, covered: Range) -> Iterator[Record]:
        """Yield the committed records of a range in ascending order. Reading changes nothing in the source."""

    def records_from(
        self, offsets: Collection[tuple[TopicPartition, int]]
    ) -> dict[tuple[TopicPartition, int], Record | None]:
        """Return the first record at or after each offset; None if the log has none up to its end.

        An offset outside the log has no entry, and neither has one that was not read within seconds. Of each partition,
        the offsets are read in the given order. Records of open or aborted transactions may be among the answers. A
        source of many partitions should read them all at once.
        """
        bounds = self.bounds(sorted({place for place, _ in offsets}))
        return {
            (place, offset): next(self.records(Range(place, offset, bounds[place].last_stable)), None)
            for place, offset in offsets
            if bounds[place].log_start <= offset < bounds[place].last_stable
        }

    @abstractmethod
    def order(self) -> dict[str, Any]:
        """Return what the Spark side needs beside the ranges, as values for JSON. No secrets."""

    def endpoints(self) -> list[str]:
        """Return ``host:port`` of every server that executors connect to; empty for a source without servers."""
        return []

    def jars(self) -> Collection[str]:
        """Return the names of the jars that Spark needs for this connection beside its connector."""
        return ()

    def compacted(self, topics: Sequence[str]) -> list[str]:
        """Return the compacted topics, in which records between others may be removed. A source without compaction has
        none."""
        del topics
        return []

    def open_transactions(self, bounds: Mapping[TopicPartition, Bounds]) -> dict[TopicPartition, OpenTransaction]:
        """Return, by partition, the transaction that keeps ``last_stable`` below ``log_end``; others have no entry."""
        del bounds
        return {}

    @property
    def reports_progress(self) -> bool:
        """Return whether the pipeline file asks to ``report_progress``."""
        return False

    def report_progress(
        self, ends: Mapping[TopicPartition, int], database_id: str, former_names: Collection[str] = ()
    ) -> None:
        """Store in the source, for its own tools, the offset of each partition up to which all is published.

        Raises if another pipeline, or a pipeline of another manifest database, reports progress in the same place.
        ``former_names`` are the names that this pipeline had before.
        """
        del ends, database_id, former_names

    def warnings(self) -> list[str]:
        """Return, as sentences, the settings that are allowed but not safe."""
        return []

    def missing_topic(self, topic: str) -> NotFound:
        """Return the error for a topic that does not exist."""
        return NotFound(
            with_nearest(f"topic {topic} does not exist", topic, self.topics()),
            next_step=f"create the topic, or correct source.{self.settings.kind}.topics",
            pipeline=self.pipeline_name,
            source=self.address,
            topic=topic,
        )

    def first_record_in(self, place: TopicPartition, gaps: Sequence[tuple[int, int]]) -> int | None:
        """Return the first offset inside the gaps that holds a record; None if the gaps hold no record."""
        return next((record.offset for gap in gaps for record in self.records(Range(place, *gap))), None)

    def count_records(self, covered: Range) -> int:
        """Return the number of records in a range; reads them all."""
        return sum(1 for _ in self.records(covered))

    def check(self, manifest_id: int, ranges: Sequence[Range], *, before_reading: bool) -> None:
        """Raise unless the topics still have the ids of the plan and, before reading, still hold the ranges."""
        places, _ = self.partitions(sorted({covered.at.topic for covered in ranges}))
        ids = {place.topic: place.topic_id for place in places}
        for covered in ranges:
            if ids.get(covered.at.topic) != covered.at.topic_id:
                raise self._topic_changed(manifest_id, covered, ids.get(covered.at.topic))
        if before_reading:
            self.refuse_lost(manifest_id, ranges)

    def _topic_changed(self, manifest_id: int, covered: Range, now_id: str | None) -> TopicChanged:
        topic = covered.at.topic
        changed = f"was recreated, or is of another cluster: planned on id {covered.at.topic_id}, now {now_id}"
        return TopicChanged(
            f"topic {topic} {changed if now_id else 'no longer exists'}",
            next_step="nothing of this attempt is published; check first that the pipeline file names the right "
            "cluster, which may still have the records; if the topic was recreated on purpose: "
            f"{acceptance(self.pipeline_name, topic, cut=None)}, then tidemark retry {self.pipeline_name}",
            **self._context(manifest_id, covered),
        )

    def _context(self, manifest_id: int, covered: Range) -> dict[str, object]:
        return {
            "pipeline": self.pipeline_name, "manifest": manifest_id, "topic": covered.at.topic,
            "partition": covered.at.partition, "offsets": f"[{covered.start},{covered.end})",
        }  # fmt: skip

    def refuse_lost(self, manifest_id: int, ranges: Sequence[Range]) -> None:
        """Raise ``DataLost`` if retention took offsets of the ranges, ``Unavailable`` if a log ends before its range
        does."""
        bounds = self.bounds([covered.at for covered in ranges])
        for covered in ranges:
            if bounds[covered.at].log_start > covered.start:
                raise self._lost(manifest_id, covered, bounds[covered.at].log_start)
            if bounds[covered.at].last_stable < covered.end:
                raise self._ends_early(manifest_id, covered, bounds[covered.at].last_stable)

    def _lost(self, manifest_id: int, covered: Range, log_start: int) -> DataLost:
        return DataLost(
            f"retention took offsets [{covered.start}, {min(log_start, covered.end)}) of {covered.at.name} before they "
            "were read",
            next_step="restore the topic, or give up what is not published: "
            f"tidemark accept loss {self.pipeline_name} --why TEXT; what is published stays",
            **self._context(manifest_id, covered),
        )

    def _ends_early(self, manifest_id: int, covered: Range, last_stable: int) -> Unavailable:
        return Unavailable(
            f"the last stable offset of {covered.at.name} is {last_stable}, but the range ends at {covered.end}: its "
            "log was cut, or a replica lags",
            next_step=f"try again; if it repeats: tidemark lag {self.pipeline_name}",
            **self._context(manifest_id, covered),
        )
