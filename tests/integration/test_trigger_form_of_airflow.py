"""What the trigger form hands over, before anything is planned."""

from datetime import UTC, datetime

import pytest

from tidemark.airflow.run_conf import PARAMS, moment
from tidemark.errors import ConfigurationError


@pytest.mark.parametrize(
    "text", ["2024-03-01T11:00", "2024-03-01T11:00:00Z", "2024-03-01T12:00+01:00", "2024-03-01T11:00:00.000000"]
)
def test_plan_until_without_a_zone_is_utc(text: str) -> None:
    assert moment(text) == datetime(2024, 3, 1, 11, tzinfo=UTC)


@pytest.mark.parametrize("text", ["tomorrow", "", "2024-13-01T00:00"])
def test_plan_until_that_is_no_time_is_refused_with_the_way_to_write_it(text: str) -> None:
    with pytest.raises(ConfigurationError, match="which is not a time"):
        moment(text)


def test_no_field_of_the_form_bears_the_red_star_of_a_required_one() -> None:
    assert all("null" in param.schema["type"] for param in PARAMS.values())
    assert [param.resolve() for param in PARAMS.values()] == [None, [], False, [], None, None, None, False]
