"""Closes event hours, and notes which were announced to other DAGs. An hour is its first moment, in UTC."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from tidemark.database.statements import Part, Row
from tidemark.model.event_hours import ALL_HOURS, HourSelection
from tidemark.model.manifest import WithoutRows


class Hours(Part):
    def lock(self, pipeline_name: str) -> None:
        """Lock the hours: until the transaction ends, others store no receipt, publish nothing and close no hour."""
        self._sql.rows("lock_hours", pipeline_name=pipeline_name)

    def fill(self, pipeline_name: str, since: datetime, until: datetime) -> None:
        """Insert the hours without records, from the day of the first hour at or after ``since`` up to ``until``."""
        self._sql.rows("fill_hours", pipeline_name=pipeline_name, since=since, until=until)

    def held(self, pipeline_name: str, behind: Sequence[int]) -> list[Row]:
        """Return hour, manifest_id and at_work of the hours that cannot be closed now. ``behind`` are manifests that a
        replay has not brought to every sink."""
        return self._sql.rows("held_hours", pipeline_name=pipeline_name, behind=list(behind))

    def close(self, pipeline_name: str, last: datetime, held: Sequence[datetime]) -> list[datetime]:
        """Close the open hours up to ``last``, except those ``held``; return them in order."""
        rows = self._sql.rows("close_hours", pipeline_name=pipeline_name, last=last, held=list(held))
        return sorted(row["hour"] for row in rows)

    def open(self, pipeline_name: str) -> list[datetime]:
        """Return the oldest 100 hours that are not complete."""
        return [row["hour"] for row in self._sql.rows("open_hours", pipeline_name=pipeline_name)]

    def closable_since(self, pipeline_name: str, dues: Mapping[datetime, datetime]) -> datetime | None:
        """Return the time since which a run could have closed the hour that waits longest; None without hours.

        ``dues`` maps each hour to the earliest cut with which it may be complete.
        """
        values = {"hours": list(dues), "dues": list(dues.values())}
        row = self._sql.row("closable_since", pipeline_name=pipeline_name, **values)
        return None if row is None else row["since"]

    def find(self, pipeline_name: str, selection: HourSelection = ALL_HOURS, damaged: Sequence[int] = ()) -> list[Row]:
        """Return hour, revision, rows, late, complete_at, manifests (ids) and given_up (sinks in which output of the
        manifests was given up); oldest first. Hours with rows of ``damaged`` manifests are incomplete."""
        return self._sql.rows("hours", pipeline_name=pipeline_name, damaged=list(damaged), **vars(selection))

    def since(self, pipeline_name: str, since: datetime) -> list[Row]:
        """Return hour, revision, complete and told of each hour from ``since`` on."""
        return self._sql.rows("hours_since", pipeline_name=pipeline_name, since=since)

    def sums(self, pipeline_name: str) -> Row:
        """Return the number of ``late`` rows, and of ``incomplete`` hours."""
        return self._sql.rows("sums_of_hours", pipeline_name=pipeline_name)[0]

    def without_rows(
        self, pipeline_name: str, times: Sequence[tuple[datetime, datetime]], sink: str | None = None
    ) -> list[WithoutRows]:
        """Return for each ``(since, until)`` the counts of records that became no rows, for one sink or for all.

        They count in the runs that read what arrived between these times.
        """
        values = {"since": [since for since, _ in times], "until": [until for _, until in times], "sink": sink}
        rows = self._sql.rows("without_rows", pipeline_name=pipeline_name, **values)
        return [WithoutRows(row["dead_lettered"], row["filtered"], row["deduplicated"], row["lost"]) for row in rows]

    def given_up(self, pipeline_name: str, since: datetime, until: datetime) -> tuple[str, ...]:
        """Return the sinks in which output was given up, of records that arrived between these times."""
        rows = self._sql.rows("given_up", pipeline_name=pipeline_name, since=since, until=until)
        return tuple(row["sink"] for row in rows)

    def tellers(self, pipeline_name: str) -> list[str]:
        """Return the DAG runs of which it is not known whether they announced their hours."""
        return [row["told_by"] for row in self._sql.rows("tellers", pipeline_name=pipeline_name)]

    def settle_told(self, pipeline_name: str, dag_run: str, *, told: bool) -> None:
        """Note whether a DAG run has announced its hours."""
        self._sql.changed("settle_told", pipeline_name=pipeline_name, dag_run=dag_run, told=told)

    def tell(self, pipeline_name: str, dag_run: str, hours: Sequence[datetime]) -> None:
        """Note that a DAG run is about to announce the present revisions of these hours."""
        self._sql.changed("tell_hours", pipeline_name=pipeline_name, dag_run=dag_run, hours=list(hours))
