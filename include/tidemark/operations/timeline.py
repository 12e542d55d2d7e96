"""Shows a pipeline along time: the hours, days or weeks that have manifests, and their states."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from tidemark.database.client import ManifestDatabase
from tidemark.operations.known_damage import Damage
from tidemark.operations.status import State

PERIODS = 48  # of a timeline, whatever their length
MONDAY = datetime(2001, 1, 1, tzinfo=UTC)  # periods of a week begin on Mondays
UNKNOWN = State.UNKNOWN.value
EARLIEST = datetime(1971, 1, 1, tzinfo=UTC)  # so that no window begins before Unix time


class Step(StrEnum):
    """The length of a period."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"

    @property
    def length(self) -> timedelta:
        return {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(weeks=1)}[self.value]

    def end(self, moment: datetime) -> datetime:
        """Return the end of the period that a moment lies in. A moment between two periods belongs to the earlier
        one.
        """
        return MONDAY - (MONDAY - moment) // self.length * self.length


@dataclass(frozen=True)
class Period:
    """The ``runs`` that read up to a time in ``(start, end]``, and the number of their ``manifests`` by state.

    A manifest is planned, running, abandoned (its process is dead), failed, blocked or done; or it is done and damaged,
    or unknown because an audit found more than it kept. ``first_undone`` is the first one that is not done, or damaged;
    ``read`` counts the published records.
    """

    start: datetime
    end: datetime
    runs: int
    manifests: Mapping[str, int]
    first_undone: int | None
    read: int


@dataclass(frozen=True)
class Timeline:
    """48 hours, days or weeks (``by``) of a pipeline, oldest first. ``undone_before`` counts the manifests of earlier
    runs that are not done; ``first_undone_before`` is the first of them.

    A run belongs to the time up to which it has read. If it ended before its cut, it belongs to its cut; without a cut,
    to the time at which it was planned.
    """

    by: Step
    periods: tuple[Period, ...]
    undone_before: int
    first_undone_before: int | None


def timeline(
    database: ManifestDatabase,
    pipeline_name: str,
    now: datetime,
    *,
    step: Step | None = None,
    until: datetime | None = None,
) -> Timeline:
    """Return the periods up to ``until``, or up to ``now``. Without ``step``, use the shortest step that shows the
    newest runs.
    """
    step = step or _step(now, database.runs.recent_cut(pipeline_name, PERIODS))
    end = step.end(min(max(until or now, EARLIEST + PERIODS * step.length), now))
    start = end - PERIODS * step.length
    by_period: dict[int, dict[str | None, Mapping[str, int]]] = {}
    seconds = int(step.length.total_seconds())
    damage = Damage.of_pipeline(database, pipeline_name)
    for row in database.runs.periods(pipeline_name, start, end, seconds, sorted(damage.of_manifest)):
        state = UNKNOWN if damage.unnamed and row["state"] == "done" else row["state"]
        by_period.setdefault(row["period"], {})[state] = row
    periods = (_period(start + number * step.length, step, by_period.get(number, {})) for number in range(PERIODS))
    before = database.manifests.undone_before(pipeline_name, start)
    return Timeline(step, tuple(periods), before["number"], before["first_manifest"])


def _step(now: datetime, since: datetime | None) -> Step:
    """Return the shortest step whose periods reach back to a time."""
    age = now - since if since else timedelta()
    return next((step for step in Step if PERIODS * step.length >= age), Step.WEEK)


def _period(start: datetime, step: Step, rows: Mapping[str | None, Mapping[str, int]]) -> Period:
    states = {state: row for state, row in rows.items() if state is not None}
    undone = [row["first_manifest"] for state, row in states.items() if state not in ("done", UNKNOWN)]
    return Period(
        start,
        start + step.length,
        rows[None]["number"] if rows else 0,
        {state: row["number"] for state, row in states.items()},
        min(undone, default=None),
        sum(row["read"] for row in states.values()),
    )
