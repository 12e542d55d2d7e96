"""Enters into this database what targets of another database hold (``tidemark db adopt``)."""

from collections.abc import Sequence

from psycopg.types.json import Jsonb

from tidemark.database.chains import arrays_of, place_from
from tidemark.database.statements import Part, Row
from tidemark.model.offsets import Range, TopicPartition, range_from
from tidemark.model.receipt import Receipt


class Adoption(Part):
    def succeed(self, database_id: str) -> bool:
        """Note that this database takes over the targets of another one; False if it has manifests of its own."""
        return self._sql.changed("succeed", id=database_id) is not None

    def insert_manifest(self, run_id: int, pipeline_name: str, manifest_id: int, number: int, staged: int = 0) -> None:
        """Insert a manifest; if it exists and has lost its run, give it this one. ``staged`` is the highest attempt
        with staged output."""
        values = {"run_id": run_id, "pipeline_name": pipeline_name, "slice": number, "staged": staged}
        self._sql.rows("adopt_manifest", manifest_id=manifest_id, **values)

    def ranges_of(self, pipeline_name: str, manifest_ids: Sequence[int]) -> dict[int, tuple[Range, ...]]:
        """Return the ranges of manifests, also of those whose own row was deleted."""
        by_manifest: dict[int, tuple[Range, ...]] = {}
        for row in self._sql.rows("ranges_of_adopted", pipeline_name=pipeline_name, ids=list(manifest_ids)):
            range_ = range_from(row["covered"])
            by_manifest[row["manifest_id"]] = (*by_manifest.get(row["manifest_id"], ()), range_)
        return by_manifest

    def insert_chains(
        self, pipeline_name: str, generations: Sequence[tuple[TopicPartition, int]]
    ) -> dict[tuple[TopicPartition, int], int]:
        """Insert chains; return their ids by (partition, generation). Retires chains that have a newer generation."""
        values = arrays_of([at for at, _ in generations]) | {
            "generations": [generation for _, generation in generations]
        }
        rows = self._sql.rows("adopt_chains", pipeline_name=pipeline_name, **values)
        self._sql.rows("retire_earlier_generations", pipeline_name=pipeline_name)
        return {(place_from(row), row["generation"]): row["id"] for row in rows}

    def skip_attempts(self, manifest_id: int, attempt: int) -> None:
        """Give the next attempt at a manifest a number above this one."""
        self._sql.rows("skip_attempts", manifest_id=manifest_id, attempt=attempt)

    def insert_attempt(self, receipt: Receipt, raw: Row) -> None:
        """Insert a published attempt with its receipt; a manifest that is not done becomes running."""
        values = {"manifest_id": receipt.manifest_id, "attempt": receipt.attempt}
        self._sql.rows("adopt_attempt", **values, actor=self._sql.actor, receipt=Jsonb(raw))
        self._sql.rows("adopt_number", **values)
