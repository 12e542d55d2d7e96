"""What a marker says of the messages of its manifest: who sent them, and where they are."""

from dataclasses import asdict, dataclass
from typing import Any

from tidemark.sinks.topic.markers import Marker


@dataclass(frozen=True)
class Appended:
    """The messages of one attempt; ``delivered`` has topic, partition, number, first and last offset of each place."""

    attempt: int
    digest: str
    delivered: list[list[Any]]


def appended_of(marker: Marker) -> dict[int, Appended]:
    """By the attempt in the header of the messages, which is 0, no header, for those that came first. The last counts;
    before it is what stayed in the topic when a person had the manifest appended again."""
    parts = [Appended(**part) for part in marker["earlier"]]
    parts.append(Appended(marker["attempt"], marker["digest"], marker["delivered"]))
    return {part.attempt if number else 0: part for number, part in enumerate(parts)}


def earlier_of(marker: Marker | None) -> list[dict[str, Any]]:
    """What the next marker of the manifest keeps of this one."""
    return [] if marker is None else [asdict(part) for part in appended_of(marker).values()]
