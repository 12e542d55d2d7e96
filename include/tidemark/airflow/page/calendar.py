"""Event hours as a calendar: a row for each day, a column for each of its 24 hours. No I/O; the page makes a table of
it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from tidemark.airflow.page.state_words import ManifestWords
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
    """The newest ``days`` with hours, newest first, and the hours before them that are ``still_open``."""

    days: tuple[CalendarDay, ...]
    still_open: tuple[CalendarHour, ...]


def calendar_of(hours: Sequence[Hour], words: ManifestWords, days: int = DAYS) -> Calendar:
    """Return the calendar of these hours, which may come in any order."""
    by_day: dict[date, dict[int, CalendarHour]] = {}
    for hour in hours:
        start = hour.start.astimezone(UTC)
        by_day.setdefault(start.date(), {})[start.hour] = calendar_hour(hour, words)
    newest = max(by_day, default=date.min)
    rows, still_open = [], list[CalendarHour]()
    for day, known in sorted(by_day.items(), reverse=True):
        if newest - day < timedelta(days=days):
            rows.append(CalendarDay(day, tuple(map(known.get, range(HOURS_OF_A_DAY)))))
        else:
            still_open += [hour for _, hour in sorted(known.items(), reverse=True) if not hour.hour.complete]
    return Calendar(tuple(rows), tuple(still_open))


def calendar_hour(hour: Hour, words: ManifestWords) -> CalendarHour:
    """Return an hour as a cell. It is damaged or unknown if the output of its manifests is, whatever else holds."""
    output = words.of_output(hour.manifests)
    return CalendarHour(hour, _kind(hour) if output is State.OK else output, _words(hour, output))


def _kind(hour: Hour) -> str:
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


def _words(hour: Hour, output: State) -> str:
    state = f"complete{hour.lacks}" if hour.complete else "open"
    parts = [state if output is State.OK else output, count_of(hour.rows, "row")]
    if hour.late:
        parts.append(f"{hour.late:,} late")
    if hour.without_rows.described():
        parts.append(hour.without_rows.described())
    if hour.revision > 1:
        parts.append(f"revision {hour.revision}")
    return f"{name_of(hour.start)}: {', '.join(parts)}"


def name_of(start: datetime) -> str:
    return f"{start.astimezone(UTC):%Y-%m-%d %H:%M}"
