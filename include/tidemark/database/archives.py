"""Folds old manifests away, so that the database stays small."""

from collections.abc import Sequence
from datetime import datetime

from tidemark.database.statements import Part, Row
from tidemark.model.manifest import Archive


class Archives(Part):
    def of_pipeline(self, pipeline_name: str) -> list[Archive]:
        """What was archived of a pipeline, oldest first."""
        return [Archive(**row) for row in self._sql.rows("archives", pipeline_name=pipeline_name)]

    def count_manifests(self, pipeline_name: str) -> int:
        """How many manifests are archived."""
        return int(self._sql.rows("count_archived", pipeline_name=pipeline_name)[0]["manifests"])

    def at(self, chain_id: int, offset: int) -> Row:
        """The range that holds an archived offset of a chain: id of its manifest (None: it is lost) and offsets."""
        return self._sql.rows("archived_at", chain_id=chain_id, offset=offset)[0]

    def below(self, chains: Sequence[int]) -> dict[int, int]:
        """By chain id: the first offset that is not archived; chains without an archive have no entry."""
        return {row["chain_id"]: row["end_offset"] for row in self._sql.rows("archived_below", chains=list(chains))}

    def lacking(self, pipeline_name: str, sink: str) -> Row:
        """How many archived ``manifests`` a sink has nothing of, and the ids of the ``first`` and the ``last``."""
        return self._sql.rows("archived_lacking", pipeline_name=pipeline_name, sink=sink)[0]

    def oldest_ranges(self, pipeline_name: str, limit: int | None) -> list[Row]:
        """At most ``limit`` ranges with a manifest of each chain, from its anchor on, and those between them: chain_id,
        offsets, kind, manifest_id."""
        return self._sql.rows("oldest_ranges", pipeline_name=pipeline_name, limit=limit)

    def may_be_archived(self, manifests: Sequence[int], before: datetime) -> list[Row]:
        """id, why not (None: it may be) and number of ranges of manifests."""
        return self._sql.rows("may_be_archived", manifests=list(manifests), before=before)

    def begin(self, pipeline_name: str, before: datetime, why: str) -> int:
        """The id of a new archive, without manifests yet; needs an open transaction."""
        values = {"before": before, "why": why, "actor": self._sql.actor}
        return int(self._sql.rows("begin_archive", pipeline_name=pipeline_name, **values)[0]["id"])

    def fold(self, archive_id: int, manifests: Sequence[int]) -> None:
        """Fold these manifests with their ranges and the lost ranges between; needs an open transaction."""
        self._sql.rows("archive", archive_id=archive_id, manifests=list(manifests))
