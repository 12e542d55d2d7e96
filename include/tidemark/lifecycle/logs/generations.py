"""Finds the generations of a log: a partition of one topic id has a chain for each, as a person may accept a cut of it.

A generation holds the offsets from its anchor up to where its log was cut; from there on they are of a later one. So
what is asked of the offsets of a log is asked of all its generations. A topic that was created again is another log.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemark.database.client import ManifestDatabase
from tidemark.model.offsets import TopicPartition
from tidemark.planner import Chain


@dataclass(frozen=True)
class Generation:
    """Offsets ``[start, end)`` of a log, and their chain; none, when the log was cut below where they begin."""

    chain_id: int
    start: int
    end: int


Logs = Mapping[TopicPartition, Sequence[Generation]]  # the newest generation first


def generations_of(database: ManifestDatabase, chains: Sequence[Chain]) -> dict[TopicPartition, list[Generation]]:
    """The generation of each chain, up to the chain's end, and those before it."""
    earlier = database.chains.earlier_generations([chain.id for chain in chains if chain.generation > 1])
    return {
        chain.at: [
            Generation(chain.id, chain.anchor, chain.end),
            *(Generation(chain_id, start, min(end, chain.end)) for chain_id, start, end in earlier.get(chain.id, [])),
        ]
        for chain in chains
    }


def parts_of(generations: Sequence[Generation], start: int, end: int) -> list[tuple[int, int, int]]:
    """(chain id, start, end) of each part of the offsets ``[start, end)`` of a log that one generation holds."""
    parts = [
        (generation.chain_id, max(start, generation.start), min(end, generation.end)) for generation in generations
    ]
    return [part for part in parts if part[1] < part[2]]


def start_of(generations: Sequence[Generation]) -> int:
    """Return the offset at which the generations of a log begin: what lies before that was never planned."""
    return min(generation.start for generation in generations)
