"""How what Kafka answers is said."""

from datetime import UTC, datetime, timedelta

import pytest

from tidemark.model.offsets import TopicPartition
from tidemark.model.partitions import OpenTransaction, rounded_duration

NOW = datetime(2024, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0 s"), (0, "0 s"), (59.9, "59 s"), (60, "1 min"), (869, "14 min"), (3600, "1 h"), (86_399, "23 h"),
     (10 * 86_400, "10 d")],
)  # fmt: skip
def test_a_duration_is_said_in_its_largest_whole_unit(seconds: float, text: str) -> None:
    assert rounded_duration(timedelta(seconds=seconds)) == text


def test_an_open_transaction_is_said_with_its_age_and_where_the_age_is_from() -> None:
    since = NOW - timedelta(minutes=14, seconds=20)
    held = OpenTransaction(TopicPartition("flights", "A", 0), 4000, 12_345, since)
    assert held.described(NOW) == (
        "flights-0: an open transaction holds back 12,345 offsets from offset 4000 on, for 14 min, "
        "by the timestamp of its first record (2024-01-01T11:45:40+00:00)"
    )


def test_an_open_transaction_whose_first_record_did_not_come_has_no_age() -> None:
    held = OpenTransaction(TopicPartition("flights", "A", 0), 4000, 5, None)
    assert held.described(NOW) == (
        "flights-0: an open transaction holds back 5 offsets from offset 4000 on, for an unknown time"
    )
