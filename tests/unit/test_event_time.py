"""Event time: from text, dates, numbers and Kafka's timestamp to one moment in UTC."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.errors import ConfigurationError
from tidemark.event_time import INSTANT, EventTime, instants
from tidemark.order import OnError, TimeUnit

NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)
NEW_YORK = "America/New_York"


def read(text: str, zone: str | None = None) -> datetime | None:
    moment: datetime | None = instants(pa.array([text]), zone)[0].as_py()
    return moment


@pytest.mark.parametrize(
    "text",
    [
        "2013-01-01T12:00:00Z",
        "2013-01-01t12:00:00z",
        "2013-01-01T12:00:00.000Z",
        "2013-01-01T12:00:00.000000999Z",
        "2013-01-01T13:00:00+01:00",
        "2013-01-01T06:30:00-05:30",
        "2013-01-01T12:00:00-00:00",
    ],
)
def test_rfc_3339_is_read(text: str) -> None:
    assert read(text) == NOON == read(text, "Asia/Tokyo")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2013-01-01",
        "2013-01-01T12:00Z",
        "2013-02-30T12:00:00Z",
        "2013-01-01T24:00:00Z",
        "2013-01-01T23:59:60Z",
        "2013-01-01T12:00:00+24:00",
        "2013-01-01T12:00:00+0100",
        "2013-01-01T12:00:00.Z",
        "2013-01-01T12:00:00Z ",
        "2013-01-01T12:00:00Z\n",
        "٢٠١٣-01-01T12:00:00Z",
        "0000-01-01T12:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
        "12013-01-01T12:00:00Z",
    ],
)
def test_what_is_not_a_moment_is_null(text: str) -> None:
    assert read(text) is None
    assert read(text, "UTC") is None


def test_local_time_is_read_only_when_a_zone_is_given() -> None:
    for text in ("2013-01-01T07:00:00", "2013-01-01 07:00:00"):
        assert read(text) is None
        assert read(text, NEW_YORK) == NOON


def test_good_texts_among_bad_ones_keep_their_places() -> None:
    texts = ["2013-01-01T12:00:00Z", "bad", None, "2013-02-30T00:00:00Z", "2013-01-01T07:00:00"] * 50
    assert instants(pa.array(texts), NEW_YORK).to_pylist() == [NOON, None, None, None, NOON] * 50


@pytest.mark.parametrize(
    ("local", "expected"),
    [
        ("2013-03-10T02:30:00", datetime(2013, 3, 10, 7, 30, tzinfo=UTC)),  # skipped: the offset before, -05:00
        ("2013-11-03T01:30:00", datetime(2013, 11, 3, 5, 30, tzinfo=UTC)),  # twice: the first, -04:00
    ],
)
def test_skipped_and_repeated_hours_follow_fold_zero(local: str, expected: datetime) -> None:
    assert read(local, NEW_YORK) == expected


def test_times_at_the_ends_of_the_calendar_stop_nothing() -> None:
    texts = ["0001-01-01T00:00:00", "2013-03-10T02:30:00", "9999-12-31T23:59:59", None]
    skipped = datetime(2013, 3, 10, 7, 30, tzinfo=UTC)
    assert instants(pa.array(texts), NEW_YORK).to_pylist()[1:] == [skipped, None, None]
    assert instants(pa.array(texts[:1]), "Asia/Tokyo").to_pylist() == [None]


@given(
    st.datetimes(NOON.replace(year=1971, tzinfo=None), NOON.replace(year=2037, tzinfo=None)),
    st.sampled_from([NEW_YORK, "Europe/Berlin", "Asia/Kolkata"]),
)
def test_local_times_agree_with_the_standard_library(local: datetime, zone: str) -> None:
    expected = local.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    assert read(local.isoformat(timespec="microseconds"), zone) == expected


def place(values: pa.Array, **settings: object) -> tuple[list[datetime | None], list[tuple[int, str]]]:
    rows = pa.RecordBatch.from_arrays([values], ["at"])
    placed = EventTime("at", **settings).place(rows, pa.nulls(len(values), INSTANT))  # type: ignore[arg-type]
    assert placed.when.type == INSTANT
    return placed.when.to_pylist(), list(placed.invalid)


@pytest.mark.parametrize(
    ("values", "settings"),
    [
        (pa.array([NOON], INSTANT), {}),
        (pa.array([NOON.replace(tzinfo=None)], pa.timestamp("ms")), {}),
        (pa.array([NOON.replace(hour=7, tzinfo=None)], pa.timestamp("us")), {"timezone": NEW_YORK}),
        (pa.array([int(NOON.timestamp())], pa.int64()), {"unit": TimeUnit.SECONDS}),
        (pa.array([int(NOON.timestamp())], pa.int32()), {"unit": TimeUnit.SECONDS}),
        (pa.array([int(NOON.timestamp()) * 1000], pa.int64()), {}),
        (pa.array(["2013-01-01T07:00:00"]), {"timezone": NEW_YORK}),
    ],
)
def test_each_type_of_column_gives_the_moment(values: pa.Array, settings: dict[str, object]) -> None:
    assert place(values, **settings) == ([NOON], [])


def test_a_date_is_midnight_in_the_zone() -> None:
    when, _ = place(pa.array([date(2013, 1, 1)], pa.date32()), timezone=NEW_YORK)
    assert when == [datetime(2013, 1, 1, 5, tzinfo=UTC)]


def test_the_kafka_timestamp_is_the_default() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([b"x", b"y"])], ["value"])
    stamps = pa.array([NOON, datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)], INSTANT)
    placed = EventTime().place(rows, stamps)
    assert placed.when.to_pylist() == [NOON, None]
    assert placed.invalid == ((1, "event time: the Kafka timestamp is not within 1970-01-01 and 2200-01-01"),)


def test_invalid_times_are_named_with_their_reason() -> None:
    when, invalid = place(
        pa.array(["2013-01-01T12:00:00Z", None, "soon", "1969-12-31T23:59:59Z", "2200-01-01T00:00:00Z"])
    )
    assert when == [NOON, None, None, None, None]
    assert invalid == [
        (1, "event time: field at is null"),
        (2, "event time: field at is not an RFC 3339 time"),
        (3, "event time: field at is not within 1970-01-01 and 2200-01-01"),
        (4, "event time: field at is not within 1970-01-01 and 2200-01-01"),
    ]


@pytest.mark.parametrize("unit", list(TimeUnit))
def test_bounds_are_half_open_for_numbers(unit: TimeUnit) -> None:
    per_second = 1_000_000 // unit.microseconds
    end = 7_258_118_400 * per_second
    numbers = pa.array([-1, 0, end - 1, end, 2**63 - 1, -(2**63), None], pa.int64())
    when, invalid = place(numbers, unit=unit)
    last = datetime(2200, 1, 1, tzinfo=UTC) - timedelta(microseconds=unit.microseconds)
    assert when == [None, datetime(1970, 1, 1, tzinfo=UTC), last, None, None, None, None]
    assert [at for at, _ in invalid] == [0, 3, 4, 5, 6]


def test_no_rows_are_no_problem() -> None:
    for kind in (pa.string(), pa.int64(), pa.date32(), INSTANT, pa.timestamp("us")):
        assert place(pa.array([], kind), timezone=NEW_YORK) == ([], [])


@pytest.mark.parametrize(
    ("config", "word"),
    [({"timezone": "Mars/Olympus"}, "Mars"), ({"unit": "h"}, "'h'"), ({"on_invalid": "skip"}, "skip")],
)
def test_a_wrong_setting_is_refused_by_name(config: dict[str, object], word: str) -> None:
    with pytest.raises(ConfigurationError, match=word):
        EventTime.of(config)


def test_settings_are_read_from_an_order() -> None:
    order = {"field": "at", "timezone": NEW_YORK, "unit": "s", "on_invalid": "fail", "allowed_lateness_s": 60}
    assert EventTime.of(order) == EventTime("at", NEW_YORK, TimeUnit.SECONDS, OnError.FAIL, 60)


def test_a_field_that_cannot_hold_a_time_is_refused() -> None:
    schema = pa.schema({"at": pa.float64(), "ok": pa.string()})
    with pytest.raises(ConfigurationError, match="double"):
        EventTime("at").check(schema)
    with pytest.raises(ConfigurationError, match="no field when"):
        EventTime("when").check(schema)
    EventTime("ok").check(schema)
    EventTime().check(schema)
