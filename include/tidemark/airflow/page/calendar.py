"""Event hours as a calendar: a row for each day, a column for each of its 24 hours. No I/O; the page makes a table of
it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from tidemark.model.event_hours import HOURS_OF_A_DAY
from tidemark.model.manifest import count_of
from tidemark.operations.hours import Hour
from tidemark.operations.status import State

DAYS = 14
# What a cell shows, the first that holds of its hour; a sign, so that it is no matter of colour alone.
SIGNS = {
    "damaged": "✕", "unknown": "?", "lacking": "✕", "dead letters": "d", "open": "○", "late": "l", "revised": "r",
    "empty": "·", "complete": "",
}  # fmt: skip


WORST_FIRST = tuple(SIGNS)


@dataclass(frozen=True)
class CalendarHour:
    """An hour of the calendar; ``kind`` is a key of ``SIGNS``, and ``words`` say all that is known of the hour."""

    hour: Hour
    kind: str
    words: str

    @property
    def key(self) -> str:
        """Return the hour as it is written in the address of its page."""
        return f"{self.hour.start.astimezone(UTC):%Y-%m-%dT%H:%MZ}"

    @property
    def sign(self) -> str:
        return SIGNS[self.kind]


@dataclass(frozen=True)
class CalendarDay:
    """A day of the calendar with its 24 ``hours``; None for an hour that no run has counted."""

    day: date
    hours: tuple[CalendarHour | None, ...]


@dataclass(frozen=True)
class Calendar:
    """The newest ``days`` with hours, newest first, and the hours before them that are not complete, the worst
    first."""

    days: tuple[CalendarDay, ...]
    incomplete: tuple[CalendarHour, ...]


def calendar_of(hours: Sequence[Hour], days: int = DAYS) -> Calendar:
    """Return the calendar of these hours, which may come in any order."""
    by_day: dict[date, dict[int, CalendarHour]] = {}
    for hour in hours:
        start = hour.start.astimezone(UTC)
        by_day.setdefault(start.date(), {})[start.hour] = calendar_hour(hour)
    newest = max(by_day, default=date.min)
    rows, incomplete = [], list[CalendarHour]()
    for day, known in sorted(by_day.items(), reverse=True):
        if newest - day < timedelta(days=days):
            rows.append(CalendarDay(day, tuple(map(known.get, range(HOURS_OF_A_DAY)))))
        else:
            incomplete += [hour for _, hour in sorted(known.items(), reverse=True) if not hour.hour.complete]
    return Calendar(tuple(rows), tuple(sorted(incomplete, key=lambda hour: WORST_FIRST.index(hour.kind))))


def calendar_hour(hour: Hour) -> CalendarHour:
    """Return an hour as a cell. It is damaged or unknown if its output is, whatever else holds."""
    return CalendarHour(hour, _kind(hour), _words(hour))


def _kind(hour: Hour) -> str:
    if hour.output is not State.OK:
        return hour.output
    if hour.given_up or hour.without_rows.lost:
        return "lacking"
    if hour.without_rows.dead_lettered:
        return "dead letters"
    if not hour.complete:
        return "open"
    if hour.late:
        return "late"
    if hour.revision > 1:
        return "revised"
    return "complete" if hour.rows else "empty"


def _words(hour: Hour) -> str:
    parts = [hour.state, count_of(hour.rows, "row")]
    if hour.late:
        parts.append(f"{hour.late:,} late")
    if hour.without_rows.described():
        parts.append(hour.without_rows.described())
    if hour.revision > 1:
        parts.append(f"revision {hour.revision}")
    return f"{name_of(hour.start)}: {', '.join(parts)}"


def name_of(start: datetime) -> str:
    return f"{start.astimezone(UTC):%Y-%m-%d %H:%M}"
