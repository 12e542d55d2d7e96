"""Stores decisions and their reasons."""

from collections.abc import Sequence

from psycopg.types.json import Jsonb

from tidemark.database.statements import Part, Row
from tidemark.model.manifest import Decision


class Decisions(Part):
    def note(self, pipeline_name: str, verb: str, decision: Decision) -> None:
        """Add a decision to the history. Must be called inside ``because``, which sets actor and reason."""
        lines, manifests = list(decision.lines), list(decision.manifests)
        self._sql.rows(
            "note_decision", pipeline_name=pipeline_name, verb=verb, lines=Jsonb(lines), manifests=Jsonb(manifests)
        )

    def of_pipeline(self, pipeline_name: str) -> list[Row]:
        """Return the decisions about a pipeline: at, actor, decision, why, lines, manifests; oldest first."""
        return self._sql.rows("decisions", pipeline_name=pipeline_name)

    def accept_loss(self, chain_id: int, start: int, end: int) -> list[int]:
        """Give up offsets after the chain's end or in unpublished ranges; return the manifests that lost some."""
        return self._sql.ids("accept_loss", chain_id=chain_id, start=start, end=end)

    def accept_damage(self, manifest_id: int, sink: str, attempt: int, paths: Sequence[str]) -> None:
        """Accept that these objects of a publication are missing. An empty path accepts it for the whole sink, until a
        higher attempt is published there. Opens the hours of the manifest again."""
        with self._sql.transaction():
            self._sql.rows("accept_damage", manifest_id=manifest_id, sink=sink, attempt=attempt, paths=list(paths))
            self._sql.rows("lock_hours_of", manifest_id=manifest_id)
            self._sql.rows("reopen_shown_hours", manifest_id=manifest_id)

    def accept_expectations(self, manifest_id: int, questions: Sequence[str]) -> None:
        """Store that these expectations (``ExpectationOrder.question``) no longer block the manifest."""
        self._sql.rows("accept_expectations", manifest_id=manifest_id, questions=list(questions))

    def accepted_expectations(self, manifest_id: int) -> frozenset[str]:
        rows = self._sql.rows("accepted_expectations", manifest_id=manifest_id)
        return frozenset(row["question"] for row in rows)

    def accepted_damage(self, manifest_id: int, sink: str, attempt: int) -> frozenset[str]:
        rows = self._sql.rows("accepted_damage", manifest_id=manifest_id, sink=sink, attempt=attempt)
        return frozenset(row["path"] for row in rows)
