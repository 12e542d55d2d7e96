"""A pipeline by time: when it was run, and its event hours."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from tidemark.manifest import WithoutRows
from tidemark.operations.hours import Hour
from tidemark.operations.timeline import Step, Timeline


@dataclass(frozen=True)
class PeriodView:
    """The ``runs`` that read up to a time in ``(start, end]``, and how many of their ``manifests`` are in which state:
    planned, running, abandoned (its process is dead), failed, blocked or done.

    ``first_undone`` is the first manifest that is not done; ``read`` counts the records that are published.
    """

    start: datetime
    end: datetime
    runs: int
    manifests: dict[str, int]
    first_undone: int | None
    read: int


@dataclass(frozen=True)
class TimelineView:
    """48 hours, days or weeks (``by``) of a pipeline, oldest first.

    A run stands at the time up to which it has read; one that ended before its cut, or has none, at its cut, or when it
    was planned. Of the runs before the first period ``undone_before`` manifests are not done.
    """

    by: Step
    periods: tuple[PeriodView, ...]
    undone_before: int
    first_undone_before: int | None


@dataclass(frozen=True)
class HourView:
    """An event hour, from ``start`` in UTC: its published ``rows``, of which ``late`` came after the allowed lateness.

    ``without_rows`` is of the runs that read what arrived from its begin until it was due.
    ``revision`` counts how often it has become complete. An hour that is not ``complete`` was never so (revision 0) or
    is open again, and ``waits_for`` says for what it waits. ``archived`` of the rows are of manifests that are
    archived, and not among ``manifests``. ``given_up`` are the sinks of which a person has accepted that they lack
    output of ``manifests``: they hold less than is counted.
    """

    start: datetime
    rows: int
    late: int
    without_rows: WithoutRows
    manifests: tuple[int, ...]
    archived: int
    given_up: tuple[str, ...]
    complete: bool
    complete_at: datetime | None
    revision: int
    waits_for: str | None

    @property
    def lacks(self) -> str:
        """What comes after the word "complete" when the hour lacks something that was read; empty when it does not."""
        if self.given_up:
            return f", given up in {', '.join(self.given_up)}"
        if self.without_rows.lost:
            return " with losses"
        return " with dead letters" if self.without_rows.dead_lettered else ""


def timeline_view(timeline: Timeline) -> TimelineView:
    periods = (PeriodView(**{**vars(period), "manifests": dict(period.manifests)}) for period in timeline.periods)
    return TimelineView(timeline.step, tuple(periods), timeline.undone_before, timeline.first_undone_before)


def hour_views(hours: Iterable[Hour]) -> list[HourView]:
    return [HourView(**vars(hour), complete=hour.complete_at is not None) for hour in hours]
