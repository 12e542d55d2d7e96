"""Event hours: which may be complete, and which of them other DAGs are told. An hour is its first moment, in UTC."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

HOUR = timedelta(hours=1)
HOURS_OF_A_DAY = 24
MOST_TOLD = 240  # at once, as Airflow stores each of them when the task ends; the others follow with the next run


@dataclass(frozen=True)
class HourState:
    """An hour, how often it was complete, whether it is now, and the revision that others were told (0: none)."""

    start: datetime
    revision: int
    complete: bool
    told: int


@dataclass(frozen=True)
class HourSelection:
    """The hours that a list has: with ``newest`` only that many of the newest, and those that are open; with ``limit``
    at most so many, the last ones ``before`` a time."""

    incomplete: bool = False
    newest: int | None = None
    before: datetime | None = None
    limit: int | None = None


ALL_HOURS = HourSelection()


def due(start: datetime, lateness: timedelta) -> datetime:
    """The earliest cut with which an hour is complete."""
    return start + HOUR + lateness


def last_due(cut: datetime, lateness: timedelta) -> datetime:
    """A time from which on no hour may be complete with a cut: hours that begin later are not due."""
    return cut - lateness - HOUR


def key(start: datetime) -> str:
    """An hour as the key of a partition of Airflow, in the form that its mappers read by default."""
    return f"{start.astimezone(UTC):%Y-%m-%dT%H:%M:%S}"


def hours_to_tell(hours: Iterable[HourState]) -> list[datetime]:
    """The hours to tell now, so that a DAG that waits for the hours of a day starts when all of them are complete.

    Airflow never forgets an hour that it was told, until a run has started with it. So while an hour that was told is
    open again, nothing of its day is told: the last one missing would start a run without it. And when a whole day was
    told before, a new revision tells all of its hours, because the next run waits for each of them again.
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
    """From rows of (hour, revision, complete, told)."""
    return [HourState(row["hour"], row["revision"], row["complete"], row["told"]) for row in rows]


def window(cut: datetime, length: timedelta) -> datetime:
    """The first hour that is kept without gaps and told: days are whole."""
    return (cut - length).astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
