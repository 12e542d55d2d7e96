"""Offsets and ranges of them: always half-open, ``[start, end)``."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

from tidemark.model.json_values import INLINE, NOT_IN_JSON


@dataclass(frozen=True, order=True)
class TopicPartition:
    """One partition of one topic, until the topic is deleted.

    ``topic_id`` is the broker's id. A topic that was deleted and created again has another id, and its offsets must
    never be compared with those of the old topic.
    """

    topic: str
    topic_id: str
    partition: int

    @property
    def name(self) -> str:
        """Return topic and partition as messages name them, such as ``flights-0``."""
        return f"{self.topic}-{self.partition}"

    @property
    def context(self) -> dict[str, object]:
        """Return topic and partition for the context of an error."""
        return {"topic": self.topic, "partition": self.partition}


@dataclass(frozen=True, order=True)
class Range:
    """Offsets ``[start, end)`` of one partition; ``span`` is an upper bound of the records in it, not a count.

    ``generation`` is the number of its log generation: a new one begins with another topic id or a truncated log.
    ``anchor`` is where the chain of this generation begins. Both are set in ranges from the database or a record.
    """

    at: TopicPartition = field(metadata=INLINE)
    start: int
    end: int
    generation: int = field(default=1, compare=False, metadata=NOT_IN_JSON)
    anchor: int = field(default=0, compare=False, metadata=NOT_IN_JSON)

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end:
            raise ValueError(f"not a range: [{self.start}, {self.end})")

    def __str__(self) -> str:
        """Return the range as messages name it, such as ``flights-0 [0, 1000)``; an offset is copied, so it has no
        commas."""
        return f"{self.at.name} [{self.start}, {self.end})"

    @property
    def context(self) -> dict[str, object]:
        """Return the partition and the offsets for the context of an error."""
        return {**self.at.context, "offsets": f"[{self.start},{self.end})"}

    @property
    def span(self) -> int:
        return self.end - self.start


def split(ranges: list[Range], parts: int) -> list[list[Range]]:
    """Cut every range into ``parts`` consecutive pieces whose sizes differ by at most one offset; a list per part.

    Empty pieces are left out, so a part may have fewer ranges. Together, the pieces are exactly the ranges.
    """
    pieces: list[list[Range]] = [[] for _ in range(parts)]
    for range_ in ranges:
        bounds = [range_.start + range_.span * part // parts for part in range(parts + 1)]
        for part, (start, end) in enumerate(pairwise(bounds)):
            if start < end:
                pieces[part].append(Range(range_.at, start, end))
    return pieces


def range_content(range_: Range) -> dict[str, Any]:
    """Return a range as records and orders store it. The log generation has the key ``incarnation``, as in the records
    that release 0.2.0 wrote into targets."""
    content = asdict(range_)
    content["incarnation"] = content.pop("generation")
    return content


def range_from(raw: Mapping[str, Any]) -> Range:
    """Return the range that ``range_content`` wrote; raises ``KeyError``, ``TypeError`` or ``ValueError`` if it is
    damaged."""
    return Range(TopicPartition(**raw["at"]), raw["start"], raw["end"], raw["incarnation"], raw["anchor"])
