"""Records the ranges of chains, and finds what is published, staged, undone or lost of them."""

from collections.abc import Sequence

from tidemark.database.chains import place_from
from tidemark.database.statements import Part, Row
from tidemark.model.manifest import CutRange, PublishedRange, RangeKind, StagedRecord
from tidemark.model.offsets import Range, range_from
from tidemark.model.partitions import LastRecord


class Ranges(Part):
    def insert(self, kind: RangeKind, ranges: Sequence[tuple[int, int | None, int, int | None]]) -> None:
        """Rows of (chain id, start or None for an anchor, end, manifest id or None)."""
        chains, starts, ends, manifests = ([row[column] for row in ranges] for column in range(4))
        kinds = [kind.value] * len(ranges)
        self._sql.rows("insert_ranges", chains=chains, starts=starts, ends=ends, kinds=kinds, manifests=manifests)

    def newest_published(
        self, parts: Sequence[tuple[int, int]]
    ) -> tuple[dict[int, PublishedRange], dict[int, list[tuple[int, int]]]]:
        """By chain id: the newest published range with a record that ends at or below the offset of (chain id, offset),
        none where there is no such range; and the published offsets ``[start, end)`` behind those last records that
        held no record a reader may see."""
        newest: dict[int, PublishedRange] = {}
        empty: dict[int, list[tuple[int, int]]] = {}
        waiting = dict(parts)
        while waiting:
            chains, ends = list(waiting), list(waiting.values())
            waiting = {}
            for row in self._sql.rows("last_published", chains=chains, ends=ends):
                chain_id, start, end = row["chain_id"], row["start_offset"], row["end_offset"]
                if row["digest"] is None:  # no reader may see a record of this range: an older one has the last record
                    waiting[chain_id] = start
                    behind = start if row["read"] == 0 else end
                else:
                    last = LastRecord(row["last_offset"], row["timestamp_ms"], row["digest"], row["leader_epoch"])
                    newest[chain_id] = PublishedRange(chain_id, start, end, last)
                    behind = last.offset + 1
                if behind < end:
                    empty.setdefault(chain_id, []).append((behind, end))
        return newest, empty

    def cut_ranges(self, parts: Sequence[tuple[int, int]]) -> dict[int, CutRange]:
        """By chain id: what is left of a published range that reaches above the end of its log generation, given as
        (chain id, end); none where no leader epochs are known."""
        rows = self._sql.rows("cut_ranges", chains=[part[0] for part in parts], ends=[part[1] for part in parts])
        return {
            row["chain_id"]: CutRange(row["start_offset"], row["generation_end"], row["leader_epoch"]) for row in rows
        }

    def staged_below(self, manifest_id: int, attempt: int, sinks: Sequence[str]) -> list[StagedRecord]:
        """The last records that other attempts have read below a manifest's ranges and may still publish.

        Of the manifest itself those of attempts below ``attempt`` for sinks that are not among ``sinks``.
        """
        rows = self._sql.rows("staged_below", manifest_id=manifest_id, attempt=attempt, sinks=list(sinks))
        return [
            StagedRecord(
                place_from(row), row["manifest_id"], row["attempt"],
                LastRecord(row["last_offset"], row["timestamp_ms"], row["digest"], row["leader_epoch"]),
                row["end_offset"],
            )
            for row in rows
        ]  # fmt: skip

    def undone(self, pipeline_name: str) -> list[tuple[int, Range, int, int | None]]:
        """(chain id, range, manifest id, end of its log generation or None) of each range that is not done."""
        rows = self._sql.rows("undone_ranges", pipeline_name=pipeline_name)
        return [
            (row["chain_id"], range_from(row["covered"]), row["manifest_id"], row["generation_end"]) for row in rows
        ]

    def beyond_generation(self, manifest_id: int) -> list[Row]:
        """The ranges of a manifest that reach above the known end of their log generation."""
        return self._sql.rows("beyond_generation", manifest_id=manifest_id)

    def at(self, topic: str, partition: int, offset: int, pipeline_name: str | None = None) -> list[Row]:
        """For each chain, also retired ones, the range that holds an offset; ``kind`` is None without one."""
        return self._sql.rows("ranges_at", topic=topic, partition=partition, offset=offset, pipeline_name=pipeline_name)

    def unpublished(self, pipeline_name: str, sinks: Sequence[str], run_id: int | None) -> list[Row]:
        """Ranges below the ends of a run (None: all) that a sink lacks: manifest, state, sink, offsets."""
        return self._sql.rows("unpublished_parts", pipeline_name=pipeline_name, sinks=list(sinks), run_id=run_id)

    def lost(self, pipeline_name: str, run_id: int | None) -> list[Row]:
        """Lost ranges below the ends of a run (None: all)."""
        return self._sql.rows("lost_parts", pipeline_name=pipeline_name, run_id=run_id)

    def lost_offsets(self, pipeline_name: str) -> int:
        return int(self._sql.rows("lost_offsets", pipeline_name=pipeline_name)[0]["offsets"])

    def not_done(self, pipeline_name: str, cells: int | None = None) -> list[Row]:
        """Return what is lost or not done of each chain: chain_id, start, end, state, first_manifest, manifests and
        offsets (how many). With ``cells`` a chain has at most so many parts of each state."""
        return self._sql.rows("parts_not_done", pipeline_name=pipeline_name, cells=cells)

    def with_dead_letters(self, pipeline_name: str, manifests: int) -> list[Row]:
        """Return what has dead letters of each chain, of so many of the newest manifests that have some: chain_id,
        start, end, records, manifest_id."""
        return self._sql.rows("parts_with_dead_letters", pipeline_name=pipeline_name, manifests=manifests)
