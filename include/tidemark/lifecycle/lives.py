"""The lives of a log: a partition of one topic id has a chain for each, since a person may accept that it was cut.

A life holds the offsets from its anchor up to where its log was cut; from there on they are of a later life. So what is
asked of the offsets of a log is asked of all its lives. A topic that was created again is another log.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemark.database.client import ManifestDatabase
from tidemark.model.offsets import TopicPartition
from tidemark.planner import Chain


@dataclass(frozen=True)
class Life:
    """Offsets ``[start, end)`` of a log, and their chain; none, when the log was cut below where the life began."""

    chain_id: int
    start: int
    end: int


Logs = Mapping[TopicPartition, Sequence[Life]]  # the newest life first


def lives_of(database: ManifestDatabase, chains: Sequence[Chain]) -> dict[TopicPartition, list[Life]]:
    """The life of each chain, up to the chain's end, and those before it."""
    earlier = database.chains.earlier_lives([chain.id for chain in chains if chain.incarnation > 1])
    return {
        chain.at: [
            Life(chain.id, chain.anchor, chain.end),
            *(Life(chain_id, start, min(end, chain.end)) for chain_id, start, end in earlier.get(chain.id, [])),
        ]
        for chain in chains
    }


def parts_of(lives: Sequence[Life], start: int, end: int) -> list[tuple[int, int, int]]:
    """(chain id, start, end) of each part of the offsets ``[start, end)`` of a log that one life holds."""
    parts = [(life.chain_id, max(start, life.start), min(end, life.end)) for life in lives]
    return [part for part in parts if part[1] < part[2]]


def start_of(lives: Sequence[Life]) -> int:
    """Where the lives of a log begin: what lies before that was never planned."""
    return min(life.start for life in lives)
