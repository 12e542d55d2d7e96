"""Stores what audits have found, and checks the tables themselves."""

from collections.abc import Sequence
from datetime import datetime

from psycopg.types.json import Jsonb

from tidemark.database.statements import Part, Row


class Audits(Part):
    def store(self, pipeline_name: str, began: datetime, *, deep: bool, differences: int, first: Sequence[Row]) -> None:
        """Unless one that began later is stored; ``first``: manifest_id, what, next_step of some of the differences."""
        values = {"began": began, "differences": differences, "first_differences": Jsonb(list(first))}
        self._sql.rows("store_audit", pipeline_name=pipeline_name, deep=deep, actor=self._sql.actor, **values)

    def last(self, pipeline_name: str) -> list[Row]:
        """The last audit and the last ``deep`` one, newest first: at, actor, deep, differences, first_differences."""
        return self._sql.rows("last_audits", pipeline_name=pipeline_name)

    def broken_chains(self, pipeline_name: str) -> list[Row]:
        return self._sql.rows("broken_chains", pipeline_name=pipeline_name)

    def wrong_sums(self, pipeline_name: str) -> bool:
        """Whether the sums of what is done are not what the manifests add up to: somebody changed the tables."""
        return bool(self._sql.rows("wrong_sums", pipeline_name=pipeline_name))
