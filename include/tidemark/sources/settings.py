"""The keys of ``source`` in a pipeline file that every kind of source shares."""

import re
from abc import abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field, StrictInt, ValidationInfo, field_validator

from tidemark.config.base import Duration, OneKind, Pattern, Section, Size, Topic
from tidemark.config.values import wrong
from tidemark.kinds import SOURCES
from tidemark.model.address import Address
from tidemark.planner import OnDataLoss

SHORTEST_SPAN = timedelta(minutes=1)  # a plan asks the source once for each span that has records
INTERNAL = "__"  # prefix of the broker's own topics, such as __consumer_offsets


class Cut(StrEnum):
    """The place where a run stops reading: the first offset at or after the end of its interval, or the current end."""

    SCHEDULE = "schedule"
    LATEST = "latest"


class Gaps(StrEnum):
    """The offsets of a range at which a reader may find no record."""

    NONE = "none"
    TRANSACTIONS = "transactions"  # end marks of transactions, and aborted records; each gap is read a second time
    TRACKING = "tracking"  # entries of the server itself, such as stored offsets; each gap is read a second time
    COMPACTED = "compacted"


class Slice(Section):
    """The limits of one manifest; a larger backlog becomes several manifests, which run in parallel."""

    max_records: StrictInt = Field(
        default=5_000_000,
        ge=1,
        le=10**12,
        description="Offsets of one manifest, at most; a larger backlog becomes several.",
    )
    max_bytes: Size = Field(
        default=2**30,
        description="Bytes of one manifest, at most, by the record size of earlier ones.",
        json_schema_extra={"default": "1GiB"},
    )
    max_span: Duration | None = Field(
        default=None,
        description="Time of one manifest, at most, by the source's timestamps, in spans from 1970 in UTC; at least "
        "`60s`. A hint: timestamps may be in any order, and `plan` asks the source once for each span. "
        "`extend-back` ignores it.",
    )
    max_slices: StrictInt = Field(
        default=1000,
        ge=1,
        le=1000,
        description="Manifests of one run, at most; the next run goes on. Airflow stops at `[core] "
        "max_map_length`, 1024.",
    )

    @field_validator("max_span")
    @classmethod
    def _not_too_short(cls, span: timedelta | None) -> timedelta | None:
        if span is not None and span < SHORTEST_SPAN:
            raise wrong("must be at least 60s")
        return span


@dataclass(frozen=True)
class Connector:
    """The jars and properties that Spark needs to read a kind of source.

    ``jars`` lack their version, which is PySpark's. ``format`` is Spark's name of the source; the first of ``jars``
    contains it, and ``group`` publishes that jar.
    """

    name: str
    format: str
    group: str
    jars: tuple[str, ...]


class SourceSettings(Section):
    """The topics that a pipeline reads, and how. ``kind`` is the name of the source in the registry.

    ``connector`` is None for a source that Spark reads without further jars. ``gaps_advice`` says when offsets without
    a record are normal. ``selecting_keys`` are the keys that select topics; ``place_keys`` are those that say where the
    topics are.
    """

    kind: ClassVar[str]
    connector: ClassVar[Connector | None] = None
    gaps_advice: ClassVar[str]
    selecting_keys: ClassVar[frozenset[str]] = frozenset({"topics"})
    place_keys: ClassVar[frozenset[str]] = frozenset({"connection"})

    topics: tuple[Topic, ...] = Field(
        default=(),
        description="Topics. This or `topics_regex` is required; both may be set.",
        examples=[["flights"]],
    )
    cut: Cut = Field(
        default=Cut.SCHEDULE,
        description="`schedule`: a run reads up to the first offset stamped at or after the end of its interval; "
        "`latest`: up to what is there when it is planned.",
    )
    gaps: Gaps
    slice: Slice = Field(default_factory=Slice, description="How much one manifest may cover.")
    on_data_loss: OnDataLoss = Field(
        default=OnDataLoss.FAIL,
        description="When retention took offsets: stop and name them, or record them as lost and go on.",
    )

    @field_validator("topics")
    @classmethod
    def _unique_topics(cls, topics: tuple[str, ...]) -> tuple[str, ...]:
        twice = sorted({topic for topic in topics if topics.count(topic) > 1})
        if twice:
            raise wrong(f"must name each topic once, has twice: {', '.join(twice)}")
        return topics

    @property
    def rule(self) -> str | None:
        """The rule that selects further topics, also topics that are created later; None without a rule."""
        return None

    def reads(self, topic: str) -> bool:
        """Return whether a topic of this name is read."""
        return topic in self.topics

    @property
    def described(self) -> str:
        """The topics as a text, such as ``flights, delays, and all that match orders-.*``."""
        return ", ".join(self.topics)

    def address(self) -> Address | None:
        """Return the address of the topics; None if no sink writes topics of this kind."""
        return None

    @abstractmethod
    def connections(self) -> set[str]:
        """Return the ids of the Airflow connections that these settings name."""


class PatternSettings(SourceSettings):
    """The settings of a source whose topics may also be selected by a pattern."""

    selecting_keys = frozenset({"topics", "topics_regex"})
    gaps_advice = "if producers use transactions or the topic is compacted, write gaps: transactions or gaps: compacted"

    topics_regex: Pattern | None = Field(
        default=None,
        validate_default=True,
        description="Each topic whose whole name matches is read too, a later one from its beginning; none that "
        "begins with `__`. A planned topic that is gone is refused.",
        examples=["orders-.*"],
    )
    gaps: Literal[Gaps.NONE, Gaps.TRANSACTIONS, Gaps.COMPACTED] = Field(
        default=Gaps.NONE,
        description="Which offsets may hold no record: none; those that transactions leave (each gap is read a second "
        "time); any, which a compacted topic needs. Another gap blocks the manifest.",
    )

    @field_validator("topics_regex")
    @classmethod
    def _some_topics(cls, pattern: str | None, info: ValidationInfo) -> str | None:
        if pattern is None and not info.data.get("topics", True):
            raise wrong("is missing, and so is topics: one of them, or both, must say which topics are read")
        return pattern

    @property
    def rule(self) -> str | None:
        return self.topics_regex

    def reads(self, topic: str) -> bool:
        """Return whether a topic of this name is read. A pattern never matches the broker's own topics."""
        if super().reads(topic):
            return True
        internal = topic.startswith(INTERNAL)
        return self.topics_regex is not None and not internal and re.fullmatch(self.topics_regex, topic) is not None

    @property
    def described(self) -> str:
        names = list(self.topics)
        return ", ".join(names if self.topics_regex is None else [*names, f"all that match {self.topics_regex}"])


SourceEntry = Annotated[SourceSettings, OneKind(SOURCES)]
