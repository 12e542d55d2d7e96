"""``schedule``, ``start_date`` and ``catchup`` of a pipeline file: when runs are due, and which Airflow starts next."""

from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile

from croniter import croniter  # type: ignore[import-untyped]

from tidemark.config.values import cron

MOST = 10_000  # times that are counted: a minute's schedule since 2024 has a million


@dataclass(frozen=True)
class Schedule:
    """The times at which a schedule is due, in UTC as the DAG has them."""

    text: str

    def after(self, moment: datetime) -> datetime:
        return self._cron(moment).get_next(datetime)  # type: ignore[no-any-return]

    def before(self, moment: datetime) -> datetime:
        return self._cron(moment).get_prev(datetime)  # type: ignore[no-any-return]

    def from_(self, moment: datetime) -> datetime:
        """The moment itself when the schedule is due then, else the next time."""
        return moment if self.has(moment) else self.after(moment)

    def newest(self, moment: datetime) -> datetime:
        """The moment itself when the schedule is due then, else the last time before."""
        return moment if self.has(moment) else self.before(moment)

    def has(self, moment: datetime) -> bool:
        return self.before(self.after(moment)) == moment

    def times(self, first: datetime, until: datetime) -> list[datetime]:
        """The times of [first, until], at most ``MOST``; ``first`` is one of them."""
        if first > until:
            return []
        cron_ = self._cron(first)
        later = takewhile(lambda due: due <= until, (cron_.get_next(datetime) for _ in range(MOST - 1)))
        return [first, *later]

    def _cron(self, moment: datetime) -> croniter:
        return croniter(cron(self.text), moment)


@dataclass(frozen=True)
class NextRuns:
    """The first run that is not there yet, by its time, and those of them that are due by now."""

    first: datetime
    due: list[datetime]


def next_runs(
    schedule: Schedule, start: datetime, newest: datetime | None, now: datetime, *, catchup: bool
) -> NextRuns:
    """As Airflow's timetable finds them; ``newest``: the cut of the newest scheduled run, None when there is none.

    With catch-up Airflow looks at ``start`` only while there is no run; without it, it never goes back behind now.
    """
    if catchup:
        first = schedule.from_(start) if newest is None else schedule.after(newest)
        return NextRuns(first, schedule.times(first, now))
    after = [] if newest is None else [schedule.after(newest)]
    first = max([schedule.newest(now), schedule.from_(start), *after])
    return NextRuns(first, schedule.times(first, now))
