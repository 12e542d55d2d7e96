"""Event hours in the asset event are ranges: a year has 8,760 hours."""

from datetime import UTC, datetime

import pytest

from tidemark.lifecycle.close import ranges_of_hours


def hour(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("hours", "ranges"),
    [
        ([], []),
        (["2013-01-01T10"], [["2013-01-01T10:00Z", "2013-01-01T11:00Z"]]),
        (["2013-01-01T11", "2013-01-01T10"], [["2013-01-01T10:00Z", "2013-01-01T12:00Z"]]),
        (["2013-01-31T23", "2013-02-01T00"], [["2013-01-31T23:00Z", "2013-02-01T01:00Z"]]),
        (
            ["2013-01-01T10", "2013-01-01T12"],
            [["2013-01-01T10:00Z", "2013-01-01T11:00Z"], ["2013-01-01T12:00Z", "2013-01-01T13:00Z"]],
        ),
    ],
)
def test_neighbouring_hours_are_one_range(hours: list[str], ranges: list[list[str]]) -> None:
    assert ranges_of_hours(map(hour, hours)) == ranges
