"""Records the ranges of chains, and finds what is published, staged, undone or lost of them."""

from collections.abc import Sequence

from tidemark.database.chains import place_from
from tidemark.database.statements import Part, Row
from tidemark.model.manifest import CutRange, PublishedRange, RangeKind, StagedRecord
from tidemark.model.offsets import Range, range_from
from tidemark.model.partitions import LastRecord


class Ranges(Part):
    def insert(self, kind: RangeKind, ranges: Sequence[tuple[int, int | None, int, int | None]]) -> None:
        """Insert ranges: (chain id, start or None for an anchor, end, manifest id or None)."""
        chains, starts, ends, manifests = ([row[column] for row in ranges] for column in range(4))
        kinds = [kind.value] * len(ranges)
        self._sql.rows("insert_ranges", chains=chains, starts=starts, ends=ends, kinds=kinds, manifests=manifests)

    def newest_published(
        self, parts: Sequence[tuple[int, int]]
    ) -> tuple[dict[int, PublishedRange], dict[int, list[tuple[int, int]]]]:
        """Return two mappings by chain id, for ``parts`` of (chain id, offset).

        The first has the newest published range with a record that ends at or below the offset, if there is one. The
        second has the published offsets ``[start, end)`` behind that last record, which held no record for a reader.
        """
        newest: dict[int, PublishedRange] = {}
        empty: dict[int, list[tuple[int, int]]] = {}
        waiting = dict(parts)
        while waiting:
            chains, ends = list(waiting), list(waiting.values())
            waiting = {}
            for row in self._sql.rows("last_published", chains=chains, ends=ends):
                chain_id, start, end = row["chain_id"], row["start_offset"], row["end_offset"]
                if row["digest"] is None:  # no reader sees a record of this range: look in the one before it
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
        """Return, by chain id, the remaining part of a published range that reaches above the end of its generation;
        none if its leader epoch is not known. ``parts`` are (chain id, end of the generation)."""
        rows = self._sql.rows("cut_ranges", chains=[part[0] for part in parts], ends=[part[1] for part in parts])
        return {
            row["chain_id"]: CutRange(row["start_offset"], row["generation_end"], row["leader_epoch"]) for row in rows
        }

    def staged_below(self, manifest_id: int, attempt: int, sinks: Sequence[str]) -> list[StagedRecord]:
        """Return the last records that other attempts have read below a manifest's ranges and may still publish.

        For the manifest itself, these are records of attempts below ``attempt`` for sinks other than ``sinks``.
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
        """Return (chain id, range, manifest id, end of its log generation or None) of each range that is not done."""
        rows = self._sql.rows("undone_ranges", pipeline_name=pipeline_name)
        return [
            (row["chain_id"], range_from(row["covered"]), row["manifest_id"], row["generation_end"]) for row in rows
        ]

    def beyond_generation(self, manifest_id: int) -> list[Row]:
        """Return the ranges of a manifest that reach above the known end of their log generation."""
        return self._sql.rows("beyond_generation", manifest_id=manifest_id)

    def at(self, topic: str, partition: int, offset: int, pipeline_name: str | None = None) -> list[Row]:
        """Return for each chain, also retired ones, the range that holds an offset; ``kind`` is None if there is
        none."""
        return self._sql.rows("ranges_at", topic=topic, partition=partition, offset=offset, pipeline_name=pipeline_name)

    def unpublished(self, pipeline_name: str, sinks: Sequence[str], run_id: int | None) -> list[Row]:
        """Return the ranges below the ends of a run (None: all) that are not published in a sink: manifest, state,
        sink, offsets."""
        return self._sql.rows("unpublished_parts", pipeline_name=pipeline_name, sinks=list(sinks), run_id=run_id)

    def of_manifests(self, ids: Sequence[int], run_id: int | None) -> list[Row]:
        """Return the ranges of these manifests below the ends of a run (None: all): manifest, offsets."""
        return self._sql.rows("parts_of_manifests", ids=list(ids), run_id=run_id)

    def lost(self, pipeline_name: str, run_id: int | None) -> list[Row]:
        """Return the lost ranges below the ends of a run (None: all)."""
        return self._sql.rows("lost_parts", pipeline_name=pipeline_name, run_id=run_id)

    def lost_offsets(self, pipeline_name: str) -> int:
        return int(self._sql.rows("lost_offsets", pipeline_name=pipeline_name)[0]["offsets"])

    def not_done(self, pipeline_name: str, damaged: Sequence[int], cells: int | None = None) -> list[Row]:
        """Return the parts of each chain that are lost, not done or of ``damaged`` manifests: chain_id, start, end,
        state, first_manifest, and the numbers of manifests and offsets. With ``cells`` a chain has at most so many
        parts of each state."""
        return self._sql.rows("parts_not_done", pipeline_name=pipeline_name, damaged=list(damaged), cells=cells)

    def with_dead_letters(self, pipeline_name: str, manifests: int) -> list[Row]:
        """Return the parts of each chain with dead letters, for so many of the newest manifests with dead letters:
        chain_id, start, end, records, manifest_id."""
        return self._sql.rows("parts_with_dead_letters", pipeline_name=pipeline_name, manifests=manifests)
