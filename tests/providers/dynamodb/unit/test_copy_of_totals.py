"""Totals as items of DynamoDB, and keys that are too long for them."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidemark.providers.dynamodb.copy import DynamoCopy
from tidemark.providers.dynamodb.items import digest_of, item_of, key_text, revision_of, rows_of
from tidemark.providers.dynamodb.settings import Settings
from tidemark.providers.postgres.long_keys import bad_rows
from tidemark.providers.postgres.totals.copies import Total

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)


def total(key: dict[str, Any], values: dict[str, Any] | None = None, rows: int = 1) -> Total:
    return Total(key, values or {}, rows, 7)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "[3]"),
        (Decimal("3.00"), "[3]"),
        (Decimal("-2.50"), "[-2.5]"),
        (Decimal("1E+2"), "[100]"),
        ("3.0", '["3.0"]'),
        ('é "', '["é \\""]'),
        (True, "[true]"),
        (b"3.0", '["My4w"]'),
        (date(2024, 3, 1), '["2024-03-01"]'),
        (NOON, '["2024-03-01T12:00:00.000000Z"]'),
        (NOON.astimezone(timezone(timedelta(hours=2))), '["2024-03-01T12:00:00.000000Z"]'),
    ],
)
def test_the_key_of_an_item_has_one_text_for_what_is_equal(value: Any, text: str) -> None:
    assert key_text(total({"k": value})) == text


def test_a_window_is_told_in_whole_seconds_and_a_null_value_has_no_attribute() -> None:
    item = item_of(total({"k": 42, "window_start": NOON}, {"least": None, "n_sum": Decimal("7.50")}, rows=2))
    assert item == {
        "_key": {"S": '[42, "2024-03-01T12:00:00Z"]'}, "k": {"N": "42"}, "window_start": {"S": "2024-03-01T12:00:00Z"},
        "n_sum": {"N": "7.5"}, "_rows": {"N": "2"}, "_revision": {"N": "7"},
    }  # fmt: skip


def test_a_digest_is_of_all_but_the_revision_and_not_of_the_text_of_a_number() -> None:
    item = item_of(total({"k": 1}, {"n_sum": Decimal(10) ** 41}))
    same = {**item, "n_sum": {"N": "1E+41"}, "_revision": {"N": "9"}}
    assert digest_of(item) == digest_of(same)
    assert digest_of(item) != digest_of({**item, "more": {"S": ""}})
    assert (rows_of({"_rows": {"S": "x"}}), revision_of({})) == (0, 0)


@pytest.mark.parametrize(
    ("key", "values", "problem"),
    [
        ({"k": "x" * 2_044}, {}, None),
        ({"k": "x" * 2_045}, {}, "the key of a total has 2,049 bytes, and DynamoDB takes 2,048"),
        ({"k": 1}, {"n_sum": Decimal("9" * 38)}, None),
        ({"k": 1}, {"n_sum": Decimal("0." + "0" * 30 + "9" * 38)}, None),
        ({"k": 1}, {"n_sum": Decimal("9" * 39)}, "n_sum of a total has more than the 38 digits that DynamoDB keeps"),
        ({"k": 1}, {"last": "x" * 409_700}, "a total has 409,729 bytes, and DynamoDB takes 409,600"),
    ],
    ids=["longest key", "long key", "most digits", "small", "many digits", "large"],
)
def test_what_dynamodb_has_no_room_for_is_known_before(
    key: dict[str, Any], values: dict[str, Any], problem: str | None
) -> None:
    copy = DynamoCopy(Settings(table="totals"), None, {})  # type: ignore[arg-type]  # it asks no service
    assert copy.problem_with(total(key, values)) == problem


@pytest.mark.parametrize("quote", ["x", '"', "\x01", "é", "\U0001f600"])
def test_a_key_that_the_pass_lets_through_fits_whatever_characters_it_has(quote: str) -> None:
    columns = ["name", "data", "k", "window_start", "_topic"]
    sizes = range(0, 2_100, 7)
    rows = pa.record_batch(
        {
            "name": pa.array([quote * size for size in sizes], pa.string()),
            "data": pa.array([b"\xff" * (size // 3) for size in sizes], pa.binary()),
            "k": pa.array([Decimal("-" + "9" * 38)] * len(sizes), pa.decimal128(38, 0)),
        }
    )
    long = {bad.index for bad in bad_rows(rows, "totals", columns, 2_048)}
    lengths = {}
    for at, row in enumerate(rows.to_pylist()):
        key = {**row, "window_start": NOON, "_topic": "t" * 249}
        lengths[at] = len(key_text(total(key)).encode())
    assert {at for at, length in lengths.items() if length > 2_048} <= long
    assert {at for at, length in lengths.items() if length <= 1_990} & long == set(), "few that would fit are refused"
    assert sorted(long) == [bad.index for bad in bad_rows(rows, "totals", columns, 2_048)]


def test_a_key_without_text_is_never_too_long() -> None:
    rows = pa.record_batch({"k": pa.array([1, 2])})
    assert bad_rows(rows, "totals", ["k"], 2_048) == []
