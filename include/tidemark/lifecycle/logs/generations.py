"""Finds the generations of a log, the partition of one topic id. Each cut that you accept begins a new generation with
a chain of its own.

A generation holds the offsets from its anchor up to the offset where the log was cut; a later generation holds those
after it. So a query about the offsets of a log goes to all its generations. A topic that was recreated is another log.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemark.database.client import ManifestDatabase
from tidemark.model.offsets import TopicPartition
from tidemark.planner import Chain


@dataclass(frozen=True)
class Generation:
    """The offsets ``[start, end)`` of a log that one chain holds; none if the log was cut below ``start``."""

    chain_id: int
    start: int
    end: int


Logs = Mapping[TopicPartition, Sequence[Generation]]  # the newest generation first


def generations_of(database: ManifestDatabase, chains: Sequence[Chain]) -> dict[TopicPartition, list[Generation]]:
    """Return by log the generation of each chain, up to the chain's end, then those before it, the newest first."""
    earlier = database.chains.earlier_generations([chain.id for chain in chains if chain.generation > 1])
    return {
        chain.at: [
            Generation(chain.id, chain.anchor, chain.end),
            *(Generation(chain_id, start, min(end, chain.end)) for chain_id, start, end in earlier.get(chain.id, [])),
        ]
        for chain in chains
    }


def parts_of(generations: Sequence[Generation], start: int, end: int) -> list[tuple[int, int, int]]:
    """Return (chain id, start, end) of each part of the offsets ``[start, end)`` of a log, one for each generation that
    holds some of them."""
    parts = [
        (generation.chain_id, max(start, generation.start), min(end, generation.end)) for generation in generations
    ]
    return [part for part in parts if part[1] < part[2]]


def start_of(generations: Sequence[Generation]) -> int:
    """Return the offset at which the generations of a log begin: offsets before it were never planned."""
    return min(generation.start for generation in generations)
