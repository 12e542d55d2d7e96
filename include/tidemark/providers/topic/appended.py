"""The content of a marker: which attempt sent the messages of its manifest, and where they are."""

from dataclasses import asdict, dataclass
from typing import Any

from tidemark.providers.topic.markers import Marker
from tidemark.providers.topic.transaction import Transaction


@dataclass(frozen=True)
class Appended:
    """The messages of one attempt; ``delivered`` has topic, partition, number, first and last offset of each place."""

    attempt: int
    digest: str
    delivered: list[list[Any]]


def appended_of(marker: Marker) -> dict[int, Appended]:
    """Return the messages of each attempt, by the attempt in their header; 0 stands for no header, as in the first
    messages.

    The last attempt counts. The others are what stayed in the topic when you had the manifest appended again.
    """
    parts = [Appended(**part) for part in marker["earlier"]]
    parts.append(Appended(_sent_by(marker), marker["digest"], marker["delivered"]))
    return {part.attempt if number else 0: part for number, part in enumerate(parts)}


def sent_now(transaction: Transaction, marker: Marker | None) -> dict[str, Any]:
    """Return the messages that were sent with a marker, after those of the marker before it."""
    delivered = [[*place, part.count, part.first, part.last] for place, part in transaction.delivered.items()]
    earlier = [] if marker is None else [asdict(part) for part in appended_of(marker).values()]
    return {"delivered": sorted(delivered), "earlier": earlier}


def sent_before(marker: Marker) -> dict[str, Any]:
    """Return the messages of a marker whose messages are those of the marker before it, because a lower attempt sent
    them."""
    return {"delivered": marker["delivered"], "earlier": marker["earlier"], "sent_by": _sent_by(marker)}


def _sent_by(marker: Marker) -> int:
    """Return the attempt that sent the messages. A later attempt may have found them in the topic."""
    return int(marker["sent_by"] if "sent_by" in marker else marker["attempt"])
