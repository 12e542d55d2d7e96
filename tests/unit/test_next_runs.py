"""What schedule, start_date and catchup of a changed file do: which scheduled runs Airflow starts next."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.unit.pipeline_text import GOOD
from tidemark.operations.change import Change
from tidemark.operations.next_runs import changes_of_runs
from tidemark.pipeline.loader import load

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
NOW = datetime(2024, 3, 10, 10, 30, tzinfo=UTC)
TEN = datetime(2024, 3, 10, 10, tzinfo=UTC)
MIDNIGHT = datetime(2024, 3, 10, tzinfo=UTC)


def told(folder: Path, settings: str, cuts: Sequence[datetime], now: datetime = NOW) -> list[Change]:
    file = folder / "p.yaml"
    file.write_text(f"{GOOD}\n{settings}\n")
    return changes_of_runs(load(file, {}), cuts, now)


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
        ("schedule: '@daily'\nairflow: {own_dag: true}", each(TEN, HOUR)),
    ],
)  # fmt: skip
def test_a_schedule_that_is_as_it_was_is_no_change_and_of_a_dag_of_ones_own_nothing_is_said(
    tmp_path: Path, settings: str, cuts: list[datetime]
) -> None:
    assert told(tmp_path, settings, cuts) == []


@pytest.mark.parametrize(
    ("schedule", "cuts", "first"),
    [
        ("@daily", each(TEN, HOUR), "2024-03-11T00:00:00+00:00"),
        ("30 * * * *", each(TEN, HOUR), "2024-03-10T10:30:00+00:00"),
        ("@hourly", each(MIDNIGHT + 10 * HOUR, DAY), "2024-03-10T11:00:00+00:00"),
        ("@daily", [MIDNIGHT, MIDNIGHT - HOUR], "2024-03-11T00:00:00+00:00"),
    ],
)
def test_other_times_of_runs_say_where_the_next_one_goes_on(
    tmp_path: Path, schedule: str, cuts: list[datetime], first: str
) -> None:
    [change] = told(tmp_path, f"schedule: '{schedule}'", cuts)
    assert f'schedule is "{schedule}", and the newest scheduled runs, those of' in change.what
    assert f"the next is that of {first}. It reads on where the last one ended" in change.what
    assert change.next_step is not None
    assert "max_age" in change.next_step


def test_without_a_schedule_a_person_must_start_runs(tmp_path: Path) -> None:
    [change] = told(tmp_path, "schedule: null", each(TEN, HOUR))
    assert "the scheduled run of 2024-03-10T10:00:00+00:00 was the last one" in change.what
    assert "tidemark run flights" in str(change.next_step)


def test_a_schedule_without_runs_says_how_many_there_will_be(tmp_path: Path) -> None:
    [change] = told(tmp_path, "schedule: '@daily'\nstart_date: 2024-03-01", [])
    assert change.what == "no scheduled run was planned yet: the first is that of 2024-03-10T00:00:00+00:00"
    [change] = told(tmp_path, "schedule: '@daily'\nstart_date: 2025-01-01", [])
    assert change.what.endswith("the first is that of 2025-01-01T00:00:00+00:00")
    [change] = told(tmp_path, "schedule: '@daily'\nstart_date: 2024-03-01\ncatchup: true", [])
    runs = "10 runs, those of 2024-03-01T00:00:00+00:00 to 2024-03-10T00:00:00+00:00, one after the other"
    assert f"with catchup: true Airflow starts {runs}." in change.what
    assert "catchup: false" in str(change.next_step)
    [change] = told(tmp_path, "schedule: '* * * * *'\ncatchup: true\nmax_active_runs: 3", [])
    assert "10,000 or more runs, those of 2024-01-01T00:00:00+00:00 on, 3 at a time" in change.what


def test_a_later_start_date_says_until_when_nothing_is_read(tmp_path: Path) -> None:
    [change] = told(tmp_path, "schedule: '@hourly'\nstart_date: 2024-04-01", each(TEN, HOUR))
    assert "no scheduled run before that of 2024-04-01T00:00:00+00:00" in change.what
    assert "an earlier start_date, or now and then: tidemark run flights" in str(change.next_step)
    past = told(tmp_path, "schedule: '@hourly'\nstart_date: 2024-03-10", each(TEN, HOUR))
    assert past == [], "Airflow goes on from the newest run"


def test_a_later_start_date_with_catchup_has_runs_without_tasks_before(tmp_path: Path) -> None:
    [empty] = told(tmp_path, "schedule: '@daily'\nstart_date: 2024-03-10\ncatchup: true", each(MIDNIGHT - 3 * DAY, DAY))
    assert "gives 2 runs, those of 2024-03-08T00:00:00+00:00 to 2024-03-09T00:00:00+00:00 no task" in empty.what
    assert "The run of 2024-03-10T00:00:00+00:00 reads all that has arrived since the last one" in empty.what


def test_catchup_switched_on_says_which_runs_it_makes_and_which_not(tmp_path: Path) -> None:
    cuts = each(MIDNIGHT - 3 * DAY, DAY, 3)
    made, missing = told(tmp_path, "schedule: '@daily'\nstart_date: 2024-03-01\ncatchup: true", cuts)
    runs = "3 runs, those of 2024-03-08T00:00:00+00:00 to 2024-03-10T00:00:00+00:00, one after the other"
    assert f"with catchup: true Airflow starts {runs}." in made.what
    assert "no run for what lies before its first one, that of 2024-03-05T00:00:00+00:00" in missing.what
    assert "4 runs, those of 2024-03-01T00:00:00+00:00 to 2024-03-04T00:00:00+00:00 are left out" in missing.what
    command = "--dag-id flights --from-date 2024-03-01T00:00:00+00:00 --to-date 2024-03-04T00:00:00+00:00"
    assert f"airflow backfill create {command}" in str(missing.next_step)


def test_without_catchup_one_run_reads_what_several_would_have(tmp_path: Path) -> None:
    [change] = told(tmp_path, "schedule: '@daily'\nstart_date: 2024-03-01", each(MIDNIGHT - 3 * DAY, DAY))
    assert "was due 3 times since the newest scheduled run" in change.what
    assert "starts one run, that of 2024-03-10T00:00:00+00:00. It reads what arrived in all of that time" in change.what
    assert "catchup: true" in str(change.next_step)
