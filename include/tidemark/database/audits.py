"""Stores the findings of audits, plans and adoptions, and checks the tables themselves."""

from collections.abc import Sequence
from datetime import datetime

from psycopg.types.json import Jsonb

from tidemark.database.statements import Part, Row


class Audits(Part):
    def store(self, pipeline_name: str, began: datetime, *, deep: bool, differences: int, first: Sequence[Row]) -> None:
        """Store the result of an audit. ``first`` has manifest_id, what and next_step of the first differences."""
        values = {"began": began, "differences": differences, "first_differences": Jsonb(list(first))}
        self._sql.rows("store_audit", pipeline_name=pipeline_name, deep=deep, actor=self._sql.actor, **values)

    def last(self, pipeline_name: str) -> list[Row]:
        """Return the last audit and the last ``deep`` one, newest first: at, actor, deep, differences,
        first_differences."""
        return self._sql.rows("last_audits", pipeline_name=pipeline_name)

    def history(self, pipeline_name: str, limit: int) -> list[Row]:
        """Return the newest audits, newest first: at, actor, deep, differences. 100 of each depth are kept."""
        return self._sql.rows("audit_history", pipeline_name=pipeline_name, limit=limit)

    def note_missing(
        self,
        manifests: Sequence[int],
        sink: str,
        what: str,
        next_step: str,
        *,
        only_evidence: bool = False,
        lost_values: bool = False,
    ) -> None:
        """Store that a sink does not show what is published of these manifests, until it does; with ``lost_values``
        until a replay has written the rows again."""
        values = {"what": what, "next_step": next_step, "only_evidence": only_evidence, "lost_values": lost_values}
        self._sql.rows("note_missing", manifests=list(manifests), sink=sink, **values)

    def forget_missing_evidence(self, pipeline_name: str, sink: str, above: int, missing: Sequence[int]) -> None:
        """Forget what was missing above an id, except for ``missing``: the evidence of all others was found there."""
        values = {"above": above, "missing": list(missing)}
        self._sql.rows("forget_missing_evidence", pipeline_name=pipeline_name, sink=sink, **values)

    def forget_missing(self, pipeline_name: str, manifest_id: int | None = None) -> None:
        """Forget what was missing of a manifest, or of all."""
        self._sql.rows("forget_missing", pipeline_name=pipeline_name, manifest_id=manifest_id)

    def missing(self, pipeline_name: str) -> list[Row]:
        """Return what is missing of what is published: manifest_id, sink, lost_values, found_at, what, next_step."""
        return self._sql.rows("missing_outputs", pipeline_name=pipeline_name)

    def gone_rows(self, pipeline_name: str, newest: int | None) -> list[Row]:
        """Return which rows were deleted from the manifest database, of the ``newest`` runs and manifests or of all.

        Each has gone_from (the table), and manifest_id or chain_id, topic, partition, start_offset and end_offset. If
        the anchor is missing, start_offset is None.
        """
        return self._sql.rows("gone_rows", pipeline_name=pipeline_name, newest=newest)

    def wrong_sums(self, pipeline_name: str) -> bool:
        """Return whether the stored sums differ from what the manifests add up to: then the tables were changed by
        hand."""
        return bool(self._sql.rows("wrong_sums", pipeline_name=pipeline_name))
