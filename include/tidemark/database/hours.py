"""Closes event hours, and notes who was told. Times are aware: the first moment of an hour in UTC."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from tidemark.database.statements import Part, Row
from tidemark.model.event_hours import ALL_HOURS, HourSelection
from tidemark.model.manifest import WithoutRows


class Hours(Part):
    def lock(self, pipeline_name: str) -> None:
        """Until the transaction ends, no receipt is stored, nothing is published, and no hour is closed."""
        self._sql.rows("lock_hours", pipeline_name=pipeline_name)

    def fill(self, pipeline_name: str, since: datetime, until: datetime) -> None:
        """Insert the hours without records, from the day of the first hour at or after ``since`` up to ``until``."""
        self._sql.rows("fill_hours", pipeline_name=pipeline_name, since=since, until=until)

    def held(self, pipeline_name: str, behind: Sequence[int]) -> list[Row]:
        """hour, manifest_id, at_work of the hours that cannot be closed now; ``behind`` are half replayed manifests."""
        return self._sql.rows("held_hours", pipeline_name=pipeline_name, behind=list(behind))

    def close(self, pipeline_name: str, last: datetime, held: Sequence[datetime]) -> list[datetime]:
        """Close the open hours up to ``last``, except those ``held``; returns them in order."""
        rows = self._sql.rows("close_hours", pipeline_name=pipeline_name, last=last, held=list(held))
        return sorted(row["hour"] for row in rows)

    def open(self, pipeline_name: str) -> list[datetime]:
        """The oldest 100 hours that are not complete."""
        return [row["hour"] for row in self._sql.rows("open_hours", pipeline_name=pipeline_name)]

    def closable_since(self, pipeline_name: str, dues: Mapping[datetime, datetime]) -> datetime | None:
        """Since when a run could have closed the hour that waits longest; ``dues``: from which cut on each may be
        complete. None without hours."""
        values = {"hours": list(dues), "dues": list(dues.values())}
        row = self._sql.row("closable_since", pipeline_name=pipeline_name, **values)
        return None if row is None else row["since"]

    def find(self, pipeline_name: str, selection: HourSelection = ALL_HOURS) -> list[Row]:
        """hour, revision, rows, late, complete_at, manifests (ids), and the sinks in which a person has given up output
        of the manifests; oldest first."""
        return self._sql.rows("hours", pipeline_name=pipeline_name, **vars(selection))

    def since(self, pipeline_name: str, since: datetime) -> list[Row]:
        """hour, revision, complete, told of each hour from ``since`` on."""
        return self._sql.rows("hours_since", pipeline_name=pipeline_name, since=since)

    def sums(self, pipeline_name: str) -> Row:
        """``late`` rows, and how many hours are ``incomplete``."""
        return self._sql.rows("sums_of_hours", pipeline_name=pipeline_name)[0]

    def without_rows(
        self, pipeline_name: str, times: Sequence[tuple[datetime, datetime]], sink: str | None = None
    ) -> list[WithoutRows]:
        """For each ``(since, until)`` what the runs that read what arrived in between made no rows of; of what one sink
        shows, or of all."""
        values = {"since": [since for since, _ in times], "until": [until for _, until in times], "sink": sink}
        rows = self._sql.rows("without_rows", pipeline_name=pipeline_name, **values)
        return [WithoutRows(row["dead_lettered"], row["filtered"], row["deduplicated"], row["lost"]) for row in rows]

    def given_up(self, pipeline_name: str, since: datetime, until: datetime) -> tuple[str, ...]:
        """The sinks of which a person has accepted that they lack output of what arrived in between."""
        rows = self._sql.rows("given_up", pipeline_name=pipeline_name, since=since, until=until)
        return tuple(row["sink"] for row in rows)

    def tellers(self, pipeline_name: str) -> list[str]:
        """The runs of Airflow of which it is not known whether they told what they were about to tell."""
        return [row["told_by"] for row in self._sql.rows("tellers", pipeline_name=pipeline_name)]

    def settle_told(self, pipeline_name: str, dag_run: str, *, told: bool) -> None:
        """Note whether a run of Airflow has told what it was about to tell."""
        self._sql.changed("settle_told", pipeline_name=pipeline_name, dag_run=dag_run, told=told)

    def tell(self, pipeline_name: str, dag_run: str, hours: Sequence[datetime]) -> None:
        """Note that a run of Airflow is about to tell the present revisions of these hours."""
        self._sql.changed("tell_hours", pipeline_name=pipeline_name, dag_run=dag_run, hours=list(hours))
