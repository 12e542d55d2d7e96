"""Event time: from text, dates, numbers and Kafka's timestamp to one moment in UTC."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.errors import ConfigurationError
from tidemark.model.order import OnInvalid, TimeUnit
from tidemark.model.record_schema import HEADERS
from tidemark.times.event_time import INSTANT, EventTime, instants, last_header, parse_by_pattern
from tidemark.times.time_pattern import TimePattern

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
    expected = local.replace(tzinfo=ZoneInfo(zone), fold=0).astimezone(UTC)
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


def test_the_source_timestamp_is_the_default() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([b"x", b"y"])], ["value"])
    stamps = pa.array([NOON, datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)], INSTANT)
    placed = EventTime().place(rows, stamps)
    assert placed.when.to_pylist() == [NOON, None]
    assert placed.invalid == ((1, "event time: the timestamp of the source is not within 1970-01-01 and 2200-01-01"),)


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
    end = 7_258_118_400 * unit.per_second
    numbers = pa.array([-1, 0, end - 1, end, 2**63 - 1, -(2**63), None], pa.int64())
    when, invalid = place(numbers, unit=unit)
    last = datetime(2200, 1, 1, tzinfo=UTC) - timedelta(microseconds=max(1, 1_000_000 // unit.per_second))
    assert when == [None, datetime(1970, 1, 1, tzinfo=UTC), last, None, None, None, None]
    assert [at for at, _ in invalid] == [0, 3, 4, 5, 6]


def test_no_rows_are_no_problem() -> None:
    for kind in (pa.string(), pa.int64(), pa.date32(), INSTANT, pa.timestamp("us")):
        assert place(pa.array([], kind), timezone=NEW_YORK) == ([], [])


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"timezone": "Mars/Olympus"}, "Mars"),
        ({"unit": "h"}, "'h'"),
        ({"on_invalid": "skip"}, "skip"),
        ({"pattern": "%Q"}, "%Q"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(config: dict[str, object], word: str) -> None:
    with pytest.raises(ConfigurationError, match=word):
        EventTime.of(config)


def test_settings_are_read_from_an_order() -> None:
    order = {"field": "at", "timezone": NEW_YORK, "unit": "s", "on_invalid": "fail", "allowed_lateness_s": 60}
    assert EventTime.of(order) == EventTime("at", NEW_YORK, TimeUnit.SECONDS, OnInvalid.FAIL, 60)


def test_a_field_that_cannot_hold_a_time_is_refused() -> None:
    schema = pa.schema({"at": pa.float64(), "ok": pa.string()})
    with pytest.raises(ConfigurationError, match="double"):
        EventTime("at").check(schema)
    with pytest.raises(ConfigurationError, match="no field when"):
        EventTime("when").check(schema)
    EventTime("ok").check(schema)
    EventTime().check(schema)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("%d/%b/%Y:%H:%M:%S %z", "01/Jan/2013:13:00:00 +0100", NOON),
        ("%d/%b/%Y:%H:%M:%S %z", "01/jan/2013:12:00:00 Z", NOON),
        ("%B %-d, %Y %-I%p", "January 1, 2013 12pm", NOON),
        ("%B %-d, %Y %-I%p", "January 1, 2013 12AM", NOON.replace(hour=0)),
        ("%m/%d/%Y %I:%M:%S %p", "01/01/2013 01:00:00 PM", NOON.replace(hour=13)),
        ("%Y%m%d%H%M%S%f", "20130101120000000001", NOON.replace(microsecond=1)),
        ("%Y-%m-%d", "2013-01-01", NOON.replace(hour=0)),
        ("100%% %Y (%m) %d", "100% 2013 (01) 01", NOON.replace(hour=0)),
        ("%Y-%m-%d %H:%M", "2013-02-30 12:00", None),
        ("%Y-%m-%d %H:%M", "2013-01-01 24:00", None),
        ("%Y-%m-%d %H:%M", "2013-01-01 12:00 ", None),
        ("%Y-%m-%d %H:%M", "2013-1-1 12:00", None),
        ("%Y-%m-%d %I%p", "2013-01-01 13PM", None),
        ("%Y.%m.%d", "2013x01x01", None),
        ("%d %b %Y", "01 Jän 2013", None),
    ],
)
def test_a_text_is_read_by_its_pattern(pattern: str, text: str, expected: datetime | None) -> None:
    assert parse_by_pattern(pa.array([text, None]), TimePattern(pattern), "UTC").to_pylist() == [expected, None]


def test_a_pattern_without_a_zone_is_local_time() -> None:
    when = parse_by_pattern(pa.array(["2013-03-10 02:30", "2013-01-01 07:00"]), TimePattern("%Y-%m-%d %H:%M"), NEW_YORK)
    assert when.to_pylist() == [datetime(2013, 3, 10, 7, 30, tzinfo=UTC), NOON]


@given(st.datetimes(datetime(1000, 1, 1), datetime(9999, 12, 30)))  # noqa: DTZ001 - local times are made of them
def test_patterns_agree_with_the_standard_library(moment: datetime) -> None:
    for pattern in ("%Y-%m-%d %H:%M:%S.%f", "%d %B %Y %I:%M:%S.%f %p", "%Y%m%dT%H%M%S,%f", "%b %d %Y %H-%M-%S %f"):
        text = moment.strftime(pattern)
        assert parse_by_pattern(pa.array([text]), TimePattern(pattern), "UTC").to_pylist() == [
            moment.replace(tzinfo=UTC)
        ]


@pytest.mark.parametrize(
    ("pattern", "word"),
    [
        ("%Y-%m", "must have year, month and day"), ("%Y-%m-%d %Q", "%Q, which is not known"), ("%Y-%m-%d %", "has %,"),
        ("%Y-%m-%d %d", "the day twice"), ("%Y-%m-%d %M", "the minute without the hour"),
        ("%Y-%m-%d %I", "the hour of 12 without the half"), ("%Y-%m-%b-%d", "in two ways"),
    ],
)  # fmt: skip
def test_a_pattern_that_cannot_be_used_is_refused_with_what_is_wrong(pattern: str, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        TimePattern(pattern)


def test_a_path_leads_into_structs() -> None:
    inner = pa.struct([("at", pa.string())])
    column = pa.array([{"m": {"at": "2013-01-01T12:00:00Z"}}, {"m": None}, None], pa.struct([("m", inner)]))
    rows = pa.RecordBatch.from_arrays([column, pa.array([1, 2, 3])], ["meta", "a.b"])
    event_time = EventTime("meta.m.at")
    event_time.check(rows.schema)
    placed = event_time.place(rows, pa.nulls(3, INSTANT))
    assert placed.when.to_pylist() == [NOON, None, None]
    assert placed.invalid[1] == (2, "event time: field meta.m.at is null")
    EventTime("a.b").check(rows.schema)  # a name with a dot is a name first
    for path in ("meta.x.at", "meta.m.at.x", "a.c"):
        with pytest.raises(ConfigurationError, match=f"no field {path}"):
            EventTime(path).check(rows.schema)


def test_the_last_header_of_the_name_holds_the_time() -> None:
    headers = pa.array(
        [
            [("at", b"2013-01-01T11:00:00Z"), ("x", b"1"), ("at", b"2013-01-01T12:00:00Z")],
            None, [], [("at", None)], [("at", b"\xff")], [("x", b"2")], [("at", b"2013-01-01T12:00:00Z")],
        ],
        HEADERS,
    )  # fmt: skip
    text = "2013-01-01T12:00:00Z"
    assert last_header(headers, "at").to_pylist() == [text, None, None, None, None, None, text]
    assert last_header(headers[5:], "at").to_pylist() == [None, text]
    assert last_header(headers[:0], "at").to_pylist() == []
    rows = pa.RecordBatch.from_arrays([pa.nulls(7)], ["n"])
    placed = EventTime(header="at").place(rows, pa.nulls(7, INSTANT), headers)
    assert placed.when.to_pylist() == [NOON, None, None, None, None, None, NOON]
    assert placed.invalid[0] == (1, "event time: there is no header at")


def test_a_text_is_a_whole_number_only_with_a_unit() -> None:
    texts = pa.array(
        [str(int(NOON.timestamp()) * 1_000_000_000 + 999), "12.5", "99999999999999999999", "-1", "x", None]
    )
    when, invalid = place(texts, unit=TimeUnit.NANOSECONDS)
    assert when == [NOON, None, None, None, None, None]
    assert invalid[0] == (1, "event time: field at is not a whole number of ns")
    assert place(texts)[0] == [None] * 6


def test_nanoseconds_before_1970_are_rounded_towards_the_past_like_all_digits() -> None:
    early = datetime(1969, 1, 1, tzinfo=UTC)
    when, _ = place(pa.array([-1, -1000, -1001, -(2**63)]), unit=TimeUnit.NANOSECONDS, earliest=early)
    epoch, microsecond = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
    assert when == [epoch - microsecond, epoch - microsecond, epoch - 2 * microsecond, None]


def test_an_unsigned_number_beyond_the_signed_ones_is_no_time() -> None:
    assert place(pa.array([2**64 - 1, 0], pa.uint64()))[0] == [None, datetime(1970, 1, 1, tzinfo=UTC)]


def test_a_time_outside_of_the_bounds_is_invalid_and_the_bound_ahead_is_that_of_the_records_own_timestamp() -> None:
    hour = timedelta(hours=1)
    times = [NOON - hour, NOON, NOON + hour, NOON + hour + timedelta(microseconds=1), NOON + 3 * hour]
    stamps = [NOON, NOON, NOON, NOON, NOON + 2 * hour]
    rows = pa.RecordBatch.from_arrays([pa.array(times, INSTANT)], ["at"])
    placed = EventTime("at", earliest=NOON, max_ahead=hour).place(rows, pa.array(stamps, INSTANT))
    assert placed.when.to_pylist() == [None, NOON, NOON + hour, None, NOON + 3 * hour]
    assert placed.invalid == (
        (0, "event time: field at is not within 2013-01-01 and 2200-01-01"),
        (3, "event time: field at is more than 1:00:00 ahead of the timestamp of the source"),
    )


def test_an_invalid_time_may_be_replaced_by_the_source_timestamp_when_that_is_usable() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array(["soon", None, "2013-01-01T12:00:00Z"])], ["at"])
    stamps = pa.array([NOON + timedelta(hours=1), datetime(1969, 1, 1, tzinfo=UTC), NOON], INSTANT)
    placed = EventTime("at", on_invalid=OnInvalid.SOURCE_TIMESTAMP).place(rows, stamps)
    assert placed.when.to_pylist() == [NOON + timedelta(hours=1), None, NOON]
    assert placed.invalid == ((1, "event time: field at is null"),)
