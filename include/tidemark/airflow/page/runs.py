"""The newest runs of a pipeline: a strip of their words, and figures of each. No I/O; templates and uPlot draw them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from math import ceil
from typing import Self

from tidemark.airflow.page.state_words import ManifestWords
from tidemark.database.statements import Row
from tidemark.lifecycle.failed_tasks import Task
from tidemark.model.manifest import count_of
from tidemark.operations.status import STATES, Retry, State

NOTHING_NEW = "nothing new"
SIGNS = {
    NOTHING_NEW: "·", State.OK: "✓", State.WORKING: "▶", State.WAITING: "○", State.RETRYING: "↻", State.UNKNOWN: "?",
}  # fmt: skip
PROBLEM = "✕"
RUNS = 20  # of a strip
COUNTABLE = 50  # manifests of a run, up to which its files are counted: that reads the receipt of each
LINE_WIDTH, LINE_HEIGHT = 100, 20  # of the line of lags in the list


@dataclass(frozen=True)
class DrawnRun:
    """A run with the worst word of its manifests; ``manifest_id`` is the first one with it. ``id`` is None for a failed
    plan, which has stored no run.
    """

    id: int | None
    planned_at: datetime
    word: str
    manifests: int
    manifest_id: int | None

    @property
    def sign(self) -> str:
        return SIGNS.get(self.word, PROBLEM)


@dataclass(frozen=True)
class RunFigures:
    """Figures of a run: records, seconds from its plan to its last publication, number and mean size of the data files
    in all sinks. None if the run is not done, if nothing is published, or if it has too many files to count.
    """

    records: int | None
    seconds: int | None
    files: int | None
    file_bytes: int | None


def drawn_runs(rows: Sequence[Row], words: ManifestWords) -> list[DrawnRun]:
    return [_drawn(row, words) for row in rows]


def _drawn(row: Row, words: ManifestWords) -> DrawnRun:
    manifests = list(zip(row["ids"], row["states"], strict=True))
    states = [STATES.index(words.of_state(*manifest).state) for manifest in manifests]
    if not states:
        return DrawnRun(row["id"], row["planned_at"], NOTHING_NEW, 0, None)
    worst = min(states)
    manifest_id, _ = manifests[states.index(worst)]
    return DrawnRun(row["id"], row["planned_at"], STATES[worst].value, len(manifests), manifest_id)


def with_failed_plan(runs: Sequence[DrawnRun], tasks: Sequence[Row], retries: Sequence[Retry]) -> list[DrawnRun]:
    """Return the same runs, and after them the plan that has failed since, which is newer than each of them."""
    retried = {retry.at for retry in retries if retry.manifest_id is None}
    failed = [
        DrawnRun(None, row["at"], State.RETRYING if row["retry_at"] in retried else State.FAILED, 0, None)
        for row in tasks
        if row["task"] == Task.PLAN and row["times"]
    ]
    return [*runs, *failed][-RUNS:]


def figures_of(
    rows: Sequence[Row], records: Mapping[int, int], files: Mapping[int, tuple[int, int]]
) -> dict[int | None, RunFigures]:
    """Return the figures by run; ``files`` has number and bytes of the files of a run."""
    return {row["id"]: _figures(row, records.get(row["id"]), *files.get(row["id"], (None, 0))) for row in rows}


def _figures(row: Row, records: int | None, files: int | None, size: int) -> RunFigures:
    done = row["ids"] and row["first_undone"] is None
    return RunFigures(
        records,
        seconds=ceil((row["done_at"] - row["planned_at"]).total_seconds()) if done else None,
        files=files,
        file_bytes=round(size / files) if files else None,
    )


def countable(rows: Sequence[Row]) -> list[int]:
    """Return the runs whose files are counted."""
    return [row["id"] for row in rows if len(row["ids"]) <= COUNTABLE]


def strip_words(runs: Sequence[DrawnRun]) -> str:
    """Return all of a strip in one sentence, the worst first, for a screen reader."""
    numbers = Counter(run.word for run in runs)
    states = [f"{numbers[state]} {state}" for state in (*State, NOTHING_NEW) if state in numbers]
    return f"the last {count_of(len(runs), 'run')}: {', '.join(states)}"


@dataclass(frozen=True)
class LagLine:
    """The lags that the newest runs found, as ``points`` of a line from 0 to the largest, ``top``, and in ``words``."""

    points: str
    top: int
    words: str


def lag_line(rows: Sequence[Row]) -> LagLine | None:
    """Return the line of lags; None for fewer than two lags: there is nothing to compare."""
    lags = [row["lag"] for row in rows if row["lag"] is not None]
    if len(lags) < 2:
        return None
    step, top = LINE_WIDTH / (len(lags) - 1), max(*lags, 1)
    points = (f"{number * step:.0f},{LINE_HEIGHT * (1 - lag / top):.0f}" for number, lag in enumerate(lags))
    words = (
        f"lag when the last {len(lags)} runs were planned, in offsets: {lags[0]:,} first, at most {max(lags):,}, "
        f"{lags[-1]:,} last"
    )
    return LagLine(" ".join(points), max(lags), words)


class LagWindow(StrEnum):
    """The time that the lines of lag and age cover."""

    DAY = "24h"
    WEEK = "7d"

    @property
    def length(self) -> timedelta:
        return timedelta(days=1) if self is LagWindow.DAY else timedelta(weeks=1)

    @property
    def step(self) -> timedelta:
        """Return the time between two points: a line has at most 169."""
        return self.length / 144 if self is LagWindow.DAY else timedelta(hours=1)

    @property
    def words(self) -> str:
        return "the last 24 hours" if self is LagWindow.DAY else "the last 7 days"


@dataclass(frozen=True)
class LagPoint:
    """The lag and the age of the published data at a time: when a run was planned, or now."""

    at: datetime
    lag: int | None
    age_s: int | None

    @classmethod
    def of(cls, at: datetime, lag: int | None, published_before: datetime | None) -> Self:
        """Return the point; ``published_before`` is None if no run says up to which time all is published."""
        age = None if published_before is None else max(timedelta(0), at - published_before)
        return cls(at, lag, None if age is None else ceil(age.total_seconds()))
