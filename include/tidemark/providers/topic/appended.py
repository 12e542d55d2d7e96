"""The content of a marker: who sent the messages of its manifest, and where they are."""

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
    """By the attempt in the header of the messages, which is 0, no header, for those that came first. The last counts;
    before it is what stayed in the topic when a person had the manifest appended again."""
    parts = [Appended(**part) for part in marker["earlier"]]
    parts.append(Appended(_sent_by(marker), marker["digest"], marker["delivered"]))
    return {part.attempt if number else 0: part for number, part in enumerate(parts)}


def sent_now(transaction: Transaction, marker: Marker | None) -> dict[str, Any]:
    """Return the messages that were sent with a marker, behind those of the one before."""
    delivered = [[*place, part.count, part.first, part.last] for place, part in transaction.delivered.items()]
    earlier = [] if marker is None else [asdict(part) for part in appended_of(marker).values()]
    return {"delivered": sorted(delivered), "earlier": earlier}


def sent_before(marker: Marker) -> dict[str, Any]:
    """Return the messages of a marker that are the same as those of the one before: a lower attempt has sent them."""
    return {"delivered": marker["delivered"], "earlier": marker["earlier"], "sent_by": _sent_by(marker)}


def _sent_by(marker: Marker) -> int:
    """The attempt that sent the messages, which a later one may have found there."""
    return int(marker["sent_by"] if "sent_by" in marker else marker["attempt"])
