"""Offsets and ranges of them: always half-open, ``[start, end)``."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, order=True)
class TopicPartition:
    """One partition of one topic in one life of that topic.

    ``topic_id`` is the broker's id: a topic that was deleted and created again has another one, and its offsets must
    never be compared with the old ones.
    """

    topic: str
    topic_id: str
    partition: int


@dataclass(frozen=True, order=True)
class Range:
    """Offsets ``[start, end)`` of one partition; ``span`` is an upper bound of the records in it, not a count.

    ``incarnation`` counts the lives of the partition that its chains tell of (another topic id, a truncated log), and
    ``anchor`` is where the chain of this one begins: both are known of ranges that the database or a record holds.
    """

    at: TopicPartition
    start: int
    end: int
    incarnation: int = field(default=1, compare=False)
    anchor: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end:
            raise ValueError(f"not a range: [{self.start}, {self.end})")

    @property
    def span(self) -> int:
        return self.end - self.start


def split(ranges: list[Range], parts: int) -> list[list[Range]]:
    """Cut every range into ``parts`` consecutive pieces of equal size (to one offset), part by part.

    Empty pieces are left out, so a part may hold fewer ranges; joined again the pieces are exactly the ranges.
    """
    return [
        [
            Range(one.at, one.start + one.span * part // parts, one.start + one.span * (part + 1) // parts)
            for one in ranges
            if one.span * part // parts < one.span * (part + 1) // parts
        ]
        for part in range(parts)
    ]


def range_from(raw: Mapping[str, Any]) -> Range:
    """A range as JSON holds it; ``KeyError``, ``TypeError`` or ``ValueError`` when it is damaged."""
    return Range(TopicPartition(**raw["at"]), raw["start"], raw["end"], raw["incarnation"], raw["anchor"])
