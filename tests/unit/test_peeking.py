"""How many records of each partition a person is shown."""

import pytest

from tidemark.model.offsets import TopicPartition
from tidemark.operations.peek import spread


@pytest.mark.parametrize(
    ("available", "count", "shares"),
    [
        ([100, 100, 100], 6, [2, 2, 2]),
        ([100, 100, 100], 7, [3, 2, 2]),
        ([100, 100, 100], 2, [1, 1, 0]),
        ([1, 100, 100], 9, [1, 4, 4]),
        ([0, 0, 5], 100, [0, 0, 5]),
        ([3, 4], 100, [3, 4]),
        ([0, 0], 10, [0, 0]),
        ([], 10, []),
    ],
)
def test_records_are_taken_evenly_and_no_more_than_there_are(
    available: list[int], count: int, shares: list[int]
) -> None:
    places = [TopicPartition("t", "id", number) for number in range(len(available))]
    counts = spread(dict(zip(places, available, strict=True)), count)
    assert [counts.get(place, 0) for place in places] == shares
