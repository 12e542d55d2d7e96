"""A changed ``schedule`` is told beside the newest runs."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.unit.pipeline_text import GOOD
from tidemark.operations.change import Change
from tidemark.operations.changes_against_history import changes_of_schedule
from tidemark.pipeline.loader import load

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
TEN = datetime(2024, 3, 10, 10, tzinfo=UTC)
MIDNIGHT = datetime(2024, 3, 10, tzinfo=UTC)


def told(folder: Path, settings: str, cuts: Sequence[datetime]) -> list[Change]:
    file = folder / "p.yaml"
    file.write_text(f"{GOOD}\n{settings}\n")
    return changes_of_schedule(load(file, {}), cuts)


def each(newest: datetime, step: timedelta, number: int = 10) -> list[datetime]:
    return [newest - step * back for back in range(number)]


@pytest.mark.parametrize(
    ("settings", "cuts"),
    [
        ("schedule: '@hourly'", each(TEN, HOUR)),
        ("schedule: '@hourly'", each(TEN - HOUR, HOUR)),
        ("schedule: '@hourly'\nstart_date: 2024-03-01\ncatchup: true", [*each(TEN, HOUR), MIDNIGHT - 9 * DAY]),
        ("schedule: '@hourly'", [TEN, TEN - HOUR, TEN - 9 * HOUR, TEN - 20 * HOUR]),
        ("schedule: '@daily'", each(MIDNIGHT, DAY)),
        ("schedule: null", []),
        ("trigger: {lag: 1_000}", each(TEN, HOUR)),
        ("schedule: '@daily'\ncatchup: true", []),
        ("schedule: '@daily'\nairflow: {own_dag: true}", each(TEN, HOUR)),
    ],
)  # fmt: skip
def test_a_schedule_that_is_as_it_was_is_no_change_and_of_a_dag_of_ones_own_nothing_is_said(
    tmp_path: Path, settings: str, cuts: list[datetime]
) -> None:
    assert told(tmp_path, settings, cuts) == []


@pytest.mark.parametrize(
    ("schedule", "cuts"),
    [
        ("@daily", each(TEN, HOUR)),
        ("30 * * * *", each(TEN, HOUR)),
        ("@hourly", each(MIDNIGHT + 10 * HOUR, DAY)),
        ("@daily", [MIDNIGHT, MIDNIGHT - HOUR]),
    ],
)
def test_other_times_of_runs_say_that_the_next_one_goes_on(tmp_path: Path, schedule: str, cuts: list[datetime]) -> None:
    [change] = told(tmp_path, f"schedule: '{schedule}'", cuts)
    assert f'schedule is "{schedule}", and the newest scheduled runs, those of' in change.what
    assert "the next one reads on where the last one ended" in change.what
    assert change.next_step is not None
    assert "max_age" in change.next_step


def test_without_a_schedule_a_person_must_start_runs(tmp_path: Path) -> None:
    [change] = told(tmp_path, "schedule: null", each(TEN, HOUR))
    assert "the scheduled run of 2024-03-10T10:00:00+00:00 was the last one" in change.what
    assert "tidemark run flights" in str(change.next_step)
