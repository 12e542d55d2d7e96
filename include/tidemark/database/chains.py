"""Keeps the chains of partitions, one for each log generation."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from tidemark.database.statements import Part, Row
from tidemark.model.offsets import TopicPartition
from tidemark.model.partitions import HELD_BY_TRANSACTION
from tidemark.planner import Chain


class Chains(Part):
    def of_pipeline(self, pipeline_name: str) -> list[Chain]:
        """Return the chains of the pipeline that are not retired."""
        return [_chain(row) for row in self._sql.rows("chains", pipeline_name=pipeline_name)]

    def of_all_generations(self, pipeline_name: str) -> list[Chain]:
        """Return every chain, also retired ones, without the reason why it is blocked."""
        return [
            Chain(row["id"], place_from(row), row["generation"], row["anchor"], row["end_offset"])
            for row in self.lanes(pipeline_name)
        ]

    def of_manifest(self, manifest_id: int) -> list[Chain]:
        """Return the chain of each range of a manifest, as if the chain ended at the end of that range."""
        return [_chain(row) for row in self._sql.rows("chains_of", manifest_id=manifest_id)]

    def held_since(self, pipeline_name: str) -> dict[tuple[str, int], datetime]:
        """Return, by topic and partition, the time since which an open transaction may hold up the chain: when the
        chain last grew, or when a later run found no open transaction there."""
        rows = self._sql.rows("chains_held_since", pipeline_name=pipeline_name, held_by=HELD_BY_TRANSACTION)
        return {(row["topic"], row["partition"]): row["since"] for row in rows}

    def ended(self, pipeline_name: str) -> list[Chain]:
        """Return the newest retired chain of each partition."""
        return [_chain(row) for row in self._sql.rows("ended_chains", pipeline_name=pipeline_name)]

    def earlier_generations(self, chain_ids: Sequence[int]) -> dict[int, list[tuple[int, int, int]]]:
        """Return, by chain id, (chain id, anchor, end) of each earlier generation of the same log, the newest first."""
        generations: dict[int, list[tuple[int, int, int]]] = {}
        if chain_ids:
            for row in self._sql.rows("earlier_generations", chains=list(chain_ids)):
                generations.setdefault(row["later_id"], []).append((row["id"], row["anchor"], row["generation_end"]))
        return generations

    def insert(self, pipeline_name: str, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        rows = self._sql.rows("insert_chains", pipeline_name=pipeline_name, **arrays_of(places))
        return {place_from(row): row["id"] for row in rows}

    def extend_back(self, chain_id: int, anchor: int) -> None:
        """Move an anchor back. The caller must insert the ranges up to the old anchor in the same transaction."""
        self._sql.rows("extend_back", chain_id=chain_id, anchor=anchor)

    def block(self, chains: Sequence[int], reason: str, generation_end: int | None) -> None:
        """Store why planning was refused on the chains that are not blocked yet."""
        self._sql.changed("block_chains", chains=list(chains), reason=reason, generation_end=generation_end)

    def unblock(self, chains: Sequence[int]) -> None:
        self._sql.changed("unblock_chains", chains=list(chains))

    def retire(self, chains: Sequence[int]) -> None:
        self._sql.changed("retire_chains", chains=list(chains))

    def generations(self, manifest_id: int) -> list[tuple[str, int, int]]:
        """Return (topic, partition, generation) of each range of a manifest."""
        rows = self._sql.rows("generations", manifest_id=manifest_id)
        return [(row["topic"], row["partition"], row["generation"]) for row in rows]

    def lanes(self, pipeline_name: str) -> list[Row]:
        """Return every chain, also retired ones, with ``anchor`` and ``end_offset``."""
        return self._sql.rows("lanes", pipeline_name=pipeline_name)

    def topics(self, pipeline_name: str | None = None) -> list[str]:
        """Return the topics that have a chain."""
        return [row["topic"] for row in self._sql.rows("topics", pipeline_name=pipeline_name)]


def place_from(row: Row) -> TopicPartition:
    return TopicPartition(row["topic"], row["topic_id"], row["partition"])


def _chain(row: Row) -> Chain:
    names = ("generation", "anchor", "end_offset", "blocked", "blocked_end")
    return Chain(row["id"], place_from(row), *(row[name] for name in names))


def arrays_of(places: Sequence[TopicPartition]) -> dict[str, Any]:
    """Return partitions as the three array parameters that queries unnest."""
    return {
        "topics": [place.topic for place in places],
        "topic_ids": [place.topic_id for place in places],
        "partitions": [place.partition for place in places],
    }
