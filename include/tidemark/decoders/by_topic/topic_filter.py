"""Selects the topics that an entry of ``decode`` applies to."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TopicFilter:
    """Matches topics by name, or by a ``pattern`` that must match the whole name."""

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
    """Return None if exactly one entry matches a topic; else the reason, as a sentence that continues "topic NAME"."""
    matching = [f"decode[{index}]" for index, entry in enumerate(entries) if entry.has(topic)]
    if not matching:
        return "matches no entry of decode"
    return None if len(matching) == 1 else f"matches {len(matching)} entries of decode: {', '.join(matching)}"
