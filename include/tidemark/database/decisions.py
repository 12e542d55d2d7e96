"""Stores what people have decided, and why."""

from collections.abc import Sequence

from psycopg.types.json import Jsonb

from tidemark.database.statements import Part, Row
from tidemark.model.manifest import Decision


class Decisions(Part):
    def note(self, pipeline_name: str, verb: str, decision: Decision) -> None:
        """Add a decision to the history; must be called inside ``because``, which sets who and why."""
        lines, manifests = list(decision.lines), list(decision.manifests)
        self._sql.rows(
            "note_decision", pipeline_name=pipeline_name, verb=verb, lines=Jsonb(lines), manifests=Jsonb(manifests)
        )

    def of_pipeline(self, pipeline_name: str) -> list[Row]:
        """The decisions of people: at, actor, decision, why, lines, manifests; oldest first."""
        return self._sql.rows("decisions", pipeline_name=pipeline_name)

    def accept_loss(self, chain_id: int, start: int, end: int) -> list[int]:
        """Give up offsets after the chain's end or in unpublished ranges; returns the manifests that lost some."""
        return self._sql.ids("accept_loss", chain_id=chain_id, start=start, end=end)

    def accept_damage(self, manifest_id: int, sink: str, attempt: int, paths: Sequence[str]) -> None:
        """From here on these objects of a publication are not missed; with an empty path nothing of the sink is, until
        a higher attempt is published there. The hours of the manifest are open from here on."""
        with self._sql.transaction():
            self._sql.rows("accept_damage", manifest_id=manifest_id, sink=sink, attempt=attempt, paths=list(paths))
            self._sql.rows("lock_hours_of", manifest_id=manifest_id)
            self._sql.rows("reopen_shown_hours", manifest_id=manifest_id)

    def accept_expectations(self, manifest_id: int, questions: Sequence[str]) -> None:
        """From here on these expectations (``ExpectationOrder.question``) do not block the manifest."""
        self._sql.rows("accept_expectations", manifest_id=manifest_id, questions=list(questions))

    def accepted_expectations(self, manifest_id: int) -> frozenset[str]:
        rows = self._sql.rows("accepted_expectations", manifest_id=manifest_id)
        return frozenset(row["question"] for row in rows)

    def accepted_damage(self, manifest_id: int, sink: str, attempt: int) -> frozenset[str]:
        rows = self._sql.rows("accepted_damage", manifest_id=manifest_id, sink=sink, attempt=attempt)
        return frozenset(row["path"] for row in rows)
