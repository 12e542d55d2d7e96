"""Event hours: which may be complete, and which are announced to other DAGs. An hour is its first moment, in UTC."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

HOUR = timedelta(hours=1)
HOURS_OF_A_DAY = 24
MOST_TOLD = 240  # hours announced at once: Airflow stores each when the task ends; the next run announces the others


@dataclass(frozen=True)
class HourState:
    """An event hour. ``revision``: how often it became complete. ``told``: the announced revision (0: none)."""

    start: datetime
    revision: int
    complete: bool
    told: int


@dataclass(frozen=True)
class HourSelection:
    """The hours that a list shows. ``newest``: only so many of the newest hours, and all incomplete ones. ``limit``: at
    most so many, the last ones ``before`` a time. ``incomplete``: only those."""

    incomplete: bool = False
    newest: int | None = None
    before: datetime | None = None
    limit: int | None = None


ALL_HOURS = HourSelection()


def due(start: datetime, lateness: timedelta) -> datetime:
    """Return the earliest cut with which an hour is complete."""
    return start + HOUR + lateness


def last_due(cut: datetime, lateness: timedelta) -> datetime:
    """Return the latest begin of an hour that may be complete with a cut: hours that begin later are not due."""
    return cut - lateness - HOUR


def key(start: datetime) -> str:
    """Return an hour as the key of an Airflow partition, in the form that Airflow's mappers read by default."""
    return f"{start.astimezone(UTC):%Y-%m-%dT%H:%M:%S}"


def hours_to_tell(hours: Iterable[HourState]) -> list[datetime]:
    """Return the hours to announce now, so that a DAG that waits for the hours of a day starts when all are complete.

    Airflow remembers an announced hour until a run has started with it. So while an announced hour is open again,
    nothing of its day is announced: the last missing hour would start a run without it. If a whole day was announced
    before, a new revision announces all its hours, because the next run waits for each of them again.
    """
    days: dict[date, list[HourState]] = {}
    for hour in hours:
        days.setdefault(hour.start.astimezone(UTC).date(), []).append(hour)
    told: list[datetime] = []
    for _, day in sorted(days.items()):
        of_the_day = _hours_of_day(day)
        if len(told) + len(of_the_day) > MOST_TOLD:
            break
        told += of_the_day
    return told


def _hours_of_day(day: list[HourState]) -> list[datetime]:
    news = [hour for hour in day if hour.complete and hour.revision > hour.told]
    if not news or any(hour.told and not hour.complete for hour in day):
        return []
    told_whole = len(day) == HOURS_OF_A_DAY and all(hour.told for hour in day)
    return [hour.start for hour in (day if told_whole else news)]


def states(rows: Iterable[Mapping[str, Any]]) -> list[HourState]:
    """Return the states from rows of (hour, revision, complete, told)."""
    return [HourState(row["hour"], row["revision"], row["complete"], row["told"]) for row in rows]


def window(cut: datetime, length: timedelta) -> datetime:
    """Return the first hour that is stored without gaps and announced: the begin of a day."""
    return (cut - length).astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
