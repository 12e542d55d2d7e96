"""A schedule is taken here exactly when Airflow takes it; Airflow itself is asked."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import CronTriggerTimetable
from airflow.sdk.definitions.timetables._cron import CRON_PRESETS
from airflow.sdk.exceptions import AirflowTimetableInvalid
from pydantic_core import PydanticCustomError

from tidemark.airflow.runs import interval_start
from tidemark.config import values
from tidemark.lifecycle.plan import Tick

FIELDS = [
    "*", "0", "1", "5", "23", "24", "31", "32", "59", "60", "-1", "*/2", "*/0", "*/99", "5-1", "1-5/2", "/3", "1,",
    "1,2", "l", "L5", "w", "15w", "?", "h", "r", "h(1-3)", "1#2", "1#6", "mon", "feb", "mon-fri", "sat-sun", "1.5",
    "0x1", "²", "2024", "99999999999",
]  # fmt: skip


def airflow_takes(expression: str) -> bool:
    try:
        CronTriggerTimetable(expression, timezone="UTC").validate()
    except AirflowTimetableInvalid:
        return False
    return True


def taken(expression: str) -> bool:
    try:
        values.schedule(expression)
    except PydanticCustomError as refused:
        return "is never due" in str(refused)  # Airflow notices when it looks for the next run
    return True


@pytest.mark.parametrize("fields", [5, 6, 7])
@pytest.mark.parametrize("field", FIELDS)
def test_a_cron_expression_is_taken_exactly_when_airflow_takes_it(fields: int, field: str) -> None:
    for index in range(fields):
        parts = ["*"] * fields
        parts[index] = field
        expression = " ".join(parts)
        assert taken(expression) == airflow_takes(expression), expression


@pytest.mark.parametrize("preset", [*values.PRESETS, "@midnight", "@annually", "@Daily", "@Quarterly", "@hourli", "@"])
def test_a_preset_is_taken_exactly_when_airflow_takes_it(preset: str) -> None:
    assert taken(preset) == airflow_takes(preset)


def test_presets_mean_what_they_mean_in_airflow() -> None:
    assert values.PRESETS == CRON_PRESETS


@pytest.mark.parametrize(
    ("schedule", "begin"),
    [("@quarterly", datetime(2024, 1, 1, tzinfo=UTC)), ("@midnight", datetime(2024, 2, 29, tzinfo=UTC)),
     ("0 */6 * * *", datetime(2024, 2, 29, 18, tzinfo=UTC))],
)  # fmt: skip
def test_an_interval_begins_where_the_schedule_was_due_before(schedule: str, begin: datetime) -> None:
    cut = datetime(2024, 3, 1, tzinfo=UTC)
    run: Any = {"dag_run": SimpleNamespace(data_interval_start=cut)}
    pipeline: Any = SimpleNamespace(schedule=schedule)
    assert interval_start(pipeline, run, Tick("r", None, cut)) == begin  # type: ignore[arg-type]
