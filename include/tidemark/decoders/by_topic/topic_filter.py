"""Selects the topics that an entry of ``decode`` is for."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TopicFilter:
    """Topics by their names, and all whose whole name matches ``pattern``."""

    names: tuple[str, ...]
    pattern: str | None

    def has(self, topic: str) -> bool:
        return topic in self.names or (self.pattern is not None and re.fullmatch(self.pattern, topic) is not None)

    def order(self) -> dict[str, Any]:
        return {"topics": list(self.names), "topics_regex": self.pattern}

    @classmethod
    def of_order(cls, raw: Mapping[str, Any]) -> "TopicFilter":
        return cls(tuple(raw["topics"]), raw["topics_regex"])


def problem_with_topic(topic: str, entries: Sequence[TopicFilter]) -> str | None:
    """Return the reason why not exactly one entry is for a topic, as a sentence about it; else None."""
    matching = [f"decode[{index}]" for index, entry in enumerate(entries) if entry.has(topic)]
    if not matching:
        return "matches no entry of decode"
    return None if len(matching) == 1 else f"matches {len(matching)} entries of decode: {', '.join(matching)}"
