"""Event time: the moment a record belongs to, from a field of its data, a header, or the source's timestamp.

A field is a column, or a path into structs such as ``meta.created.at``. A text is RFC 3339, or fits a pattern
(``time_pattern.py``), or is a whole number if a unit is given. A header is such a text; of several headers with the
name, the last one counts.

A date is midnight in the pipeline's zone. A time without a zone is local time there, read with Python's ``fold=0``: of
an hour that occurs twice, the first is meant. A time that the clocks skip is read with the offset from before the
change (02:30 in New York on 2013-03-10 is 07:30 UTC). Digits beyond the microsecond are cut off.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.errors import ConfigurationError
from tidemark.model.order import OnInvalid, TimeUnit
from tidemark.model.positions import positions
from tidemark.times.time_pattern import MONTHS, TimePattern

INSTANT = pa.timestamp("us", "UTC")
MICROSECONDS = 1_000_000
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(2200, 1, 1, tzinfo=UTC)  # exclusive: a later time comes from a wrong unit, not from an event

_YEAR_1 = int(datetime(1, 1, 1, tzinfo=UTC).timestamp()) * MICROSECONDS
_YEAR_10000 = (int(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()) + 1) * MICROSECONDS
_ZONED = r"^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$"
_ZONED_OR_LOCAL = r"^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)?$"
_BEYOND_MICROSECONDS = r"(\.\d{6})\d+"
_HAS_ZONE = r"(Z|[+-]\d\d:\d\d)$"
_OFFSET_WITHOUT_COLON = r"^([+-]\d\d)(\d\d)$"
_WHOLE_NUMBER = r"^-?\d{1,19}$"
_LARGEST = 2**63 - 1


def instants(text: pa.Array, zone: str | None) -> pa.Array:
    """Return RFC 3339 texts as ``timestamp[us, UTC]``; null for a null, and for a text that is no time in the years 1
    to 9999.

    With a ``zone``, a text may lack its offset (then it is local time there) and may have a space instead of the ``T``.
    A leap second (``:60``) is null: no timestamp can hold it.
    """
    fits = pc.match_substring_regex(text, _ZONED if zone is None else _ZONED_OR_LOCAL)
    exact = pc.ascii_upper(pc.replace_substring_regex(pc.if_else(fits, text, None), _BEYOND_MICROSECONDS, r"\1"))
    local = pc.invert(pc.match_substring_regex(exact, _HAS_ZONE))
    zoned = _cast_or_null(pc.if_else(local, None, exact), INSTANT)
    if zone is None or not pc.any(local).as_py():
        return _within_years(zoned)
    naive = _cast_or_null(pc.if_else(local, exact, None), pa.timestamp("us"))
    return _within_years(pc.coalesce(zoned, localised(naive, zone)))


def parse_by_pattern(text: pa.Array, pattern: TimePattern, zone: str) -> pa.Array:
    """Return texts of a pattern as ``timestamp[us, UTC]``; null for a text that is no time. Texts without a zone are
    in ``zone``."""
    parts = pc.extract_regex(text, pattern.regex)

    def part(name: str, default: str = "00") -> Any:
        return pc.struct_field(parts, name) if name in pattern.names else pa.scalar(default)

    if "month_name" in pattern.names:
        short = [month[:3] for month in MONTHS]
        index = pc.index_in(pc.utf8_slice_codeunits(pc.ascii_lower(part("month_name")), 0, 3), pa.array(short))
        month = pc.add(index, 1).cast(pa.string())
    else:
        month = part("month")
    if "half" in pattern.names:
        of_12 = part("hour_of_12").cast(pa.int32())
        known = pc.and_(pc.greater_equal(of_12, 1), pc.less_equal(of_12, 12))
        from_midnight = pc.if_else(pc.equal(of_12, 12), 0, of_12)
        after_noon = pc.equal(pc.ascii_upper(part("half")), "PM")
        hour = pc.if_else(known, pc.add(from_midnight, pc.if_else(after_noon, 12, 0)), None).cast(pa.string())
    else:
        hour = part("hour")
    day = pc.binary_join_element_wise(part("year"), _two(month), _two(part("day")), "-")
    clock = pc.binary_join_element_wise(_two(hour), part("minute"), part("second"), ":")
    if "fraction" in pattern.names:
        clock = pc.binary_join_element_wise(clock, part("fraction"), ".")
    offset = pc.replace_substring_regex(part("zone", ""), _OFFSET_WITHOUT_COLON, r"\1:\2")
    stamp = pc.binary_join_element_wise(pc.binary_join_element_wise(day, clock, "T"), offset, "")
    return instants(stamp, zone)


def _two(digits: Any) -> Any:
    return pc.utf8_lpad(digits, 2, "0")


def localised(naive: pa.Array, zone: str) -> pa.Array:
    """Return local times of ``zone`` as ``timestamp[us, UTC]``, by the module's rule for skipped and repeated hours."""
    if zone == "UTC":
        return pc.assume_timezone(naive, "UTC")
    before, after = (
        pc.assume_timezone(naive, zone, ambiguous="earliest", nonexistent=side).cast(INSTANT)
        for side in ("earliest", "latest")
    )
    skipped = pc.indices_nonzero(pc.fill_null(pc.not_equal(before, after), False))
    if not len(skipped):
        return before
    counts = before.cast(pa.int64()).to_pylist()  # as numbers: an offset may lead into the year 10000, beyond datetime
    for index in skipped.to_pylist():
        moment = naive[index].as_py().replace(tzinfo=ZoneInfo(zone))
        counts[index] = (moment - EARLIEST) // timedelta(microseconds=1)
    return pa.array(counts, pa.int64()).cast(INSTANT)


def _cast_or_null(values: pa.Array, to: pa.DataType) -> pa.Array:
    """Cast, with null for values that fail, such as a 30th of February. Halving finds k failures among n values with
    about k log n casts."""
    try:
        return values.cast(to)
    except pa.ArrowInvalid:
        if len(values) == 1:
            return pa.nulls(1, to)
        middle = len(values) // 2
        return pa.concat_arrays([_cast_or_null(values[:middle], to), _cast_or_null(values[middle:], to)])


def _within_years(moments: pa.Array) -> pa.Array:
    count = moments.cast(pa.int64())
    inside = pc.and_(pc.greater_equal(count, _YEAR_1), pc.less(count, _YEAR_10000))
    return pc.if_else(inside, moments, None)


@dataclass(frozen=True)
class Placed:
    """The event times of rows. ``when`` has one ``timestamp[us, UTC]`` per row; it is null exactly for the rows in
    ``invalid``, which has (row, reason)."""

    when: pa.Array
    invalid: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class EventTime:
    """The source of the event time of a pipeline's records: a ``field``, a ``header``, or the source.

    ``unit`` is the unit of whole numbers, milliseconds by default; texts are read as whole numbers only if it is set. A
    time is invalid before ``earliest``, from 2200-01-01 on, and more than ``max_ahead`` after the source's timestamp
    (which is the same in a replay, unlike the clock).
    """

    field: str | None = None
    timezone: str = "UTC"
    unit: TimeUnit | None = None
    on_invalid: OnInvalid = OnInvalid.DEAD_LETTER
    allowed_lateness_s: float = 0
    header: str | None = None
    pattern: TimePattern | None = None
    earliest: datetime = EARLIEST
    max_ahead: timedelta | None = None

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "EventTime":
        """Return the event time for the ``event_time`` of an order; raises ``ConfigurationError`` for an unknown zone,
        unit, pattern or word."""
        ahead, earliest = config.get("max_ahead_s"), config.get("min")
        try:
            ZoneInfo(config.get("timezone", "UTC"))
            pattern = TimePattern(config["pattern"]) if config.get("pattern") else None
            return cls(
                config.get("field"),
                config.get("timezone", "UTC"),
                TimeUnit(config["unit"]) if config.get("unit") else None,
                OnInvalid(config.get("on_invalid", OnInvalid.DEAD_LETTER)),
                config.get("allowed_lateness_s", 0),
                config.get("header"),
                pattern,
                datetime.fromisoformat(earliest) if earliest else EARLIEST,
                None if ahead is None else timedelta(seconds=ahead),
            )
        except (ValueError, KeyError, OSError) as error:
            raise ConfigurationError(
                f"event_time: {error}",
                next_step="timezone is an IANA name (Europe/Berlin), unit s, ms, us or ns, on_invalid fail, "
                "dead_letter or source_timestamp, min an ISO date-time; for pattern, see the reason above",
            ) from error

    def check(self, schema: pa.Schema) -> None:
        """Raise ``ConfigurationError`` unless the field is in ``schema``, with a type that can hold a time."""
        if self.field is None:
            return
        data_type = _type_at(schema, self.field)
        if data_type is None:
            raise ConfigurationError(
                f"event_time: the records have no field {self.field}",
                next_step=f"name one of {', '.join(schema.names)}, or leave field out for the timestamp of the source",
            )
        usable = (pa.types.is_timestamp, pa.types.is_date32, pa.types.is_string, pa.types.is_integer)
        if not any(test(data_type) for test in usable):
            raise ConfigurationError(
                f"event_time: field {self.field} is {data_type}, which holds no time",
                next_step="use a timestamp, date, text or integer field, or declare this one as such",
            )

    def place(self, rows: pa.RecordBatch, source_timestamps: pa.Array, headers: pa.Array | None = None) -> Placed:
        """Return the event time of each row; all arguments have one entry per row, in the same order.

        ``headers`` are needed only if a header has the time.
        """
        source = self._source(rows, source_timestamps, headers)
        parsed = self._parsed(source)
        when = self._within_bounds(parsed, source_timestamps)
        if not when.null_count:
            return Placed(when, ())
        if self.on_invalid is OnInvalid.SOURCE_TIMESTAMP:
            when = pc.coalesce(when, self._within_bounds(source_timestamps, source_timestamps))
        reasons = tuple((index, self._reason_of(source, parsed, index)) for index in _nulls(when))
        return Placed(when, reasons)

    def _source(self, rows: pa.RecordBatch, source_timestamps: pa.Array, headers: pa.Array | None) -> pa.Array:
        if self.header is not None:
            assert headers is not None, "the caller has the headers"
            return last_header(headers, self.header)
        return source_timestamps if self.field is None else _column_at(rows, self.field)

    def _within_bounds(self, moments: pa.Array, source_timestamps: pa.Array) -> pa.Array:
        earliest, latest = pa.scalar(self.earliest, INSTANT), pa.scalar(LATEST, INSTANT)
        inside = pc.and_(pc.greater_equal(moments, earliest), pc.less(moments, latest))
        within = pc.if_else(inside, moments, None)
        if self.max_ahead is None:
            return within
        ahead = pc.subtract(within, source_timestamps.cast(INSTANT))
        return pc.if_else(pc.less_equal(ahead, pa.scalar(self.max_ahead, pa.duration("us"))), within, None)

    def _parsed(self, source: pa.Array) -> pa.Array:
        if pa.types.is_string(source.type):
            if self.pattern is not None:
                return parse_by_pattern(source, self.pattern, self.timezone)
            if self.unit is None:
                return instants(source, self.timezone)
            digits = pc.if_else(pc.match_substring_regex(source, _WHOLE_NUMBER), source, None)
            return self._counted(_cast_or_null(digits, pa.int64()))
        if pa.types.is_integer(source.type):
            if source.type == pa.uint64():
                source = pc.if_else(pc.greater(source, pa.scalar(_LARGEST, pa.uint64())), None, source)
            return self._counted(source.cast(pa.int64()))
        if pa.types.is_timestamp(source.type) and source.type.tz is not None:
            return source.cast(INSTANT, safe=False)
        return localised(source.cast(pa.timestamp("us"), safe=False), self.timezone)

    def _counted(self, count: pa.Array) -> pa.Array:
        """Return whole numbers as moments. Clamp a number outside the years 1 to 2199 to a moment just outside them, so
        that the later check of bounds refuses it."""
        unit = self.unit or TimeUnit.MILLISECONDS
        if unit is TimeUnit.NANOSECONDS:
            below = pc.subtract(pc.max_element_wise(count, -_LARGEST + 999, skip_nulls=False), 999)
            return pc.divide(pc.if_else(pc.less(count, 0), below, count), 1000).cast(INSTANT)  # towards the past
        factor = MICROSECONDS // unit.per_second
        first, last = _YEAR_1 // factor - 1, int(LATEST.timestamp()) * unit.per_second
        safe = pc.max_element_wise(pc.min_element_wise(count, last, skip_nulls=False), first, skip_nulls=False)
        return pc.multiply(safe, factor).cast(INSTANT)

    def _reason_of(self, source: pa.Array, parsed: pa.Array, index: int) -> str:
        origin = "the timestamp of the source" if self.field is None else f"field {self.field}"
        origin = origin if self.header is None else f"header {self.header}"
        if not source[index].is_valid:
            return f"event time: {origin} is null" if self.header is None else f"event time: there is no {origin}"
        if not parsed[index].is_valid:
            number = f"a whole number of {self.unit}" if self.unit else "an RFC 3339 time"
            return f"event time: {origin} is not {f'of the pattern {self.pattern.text}' if self.pattern else number}"
        if self.max_ahead is not None and self._within_bounds_alone(parsed, index):
            return f"event time: {origin} is more than {self.max_ahead} ahead of the timestamp of the source"
        return f"event time: {origin} is not within {self.earliest:%Y-%m-%d} and 2200-01-01"

    def _within_bounds_alone(self, parsed: pa.Array, index: int) -> bool:
        count = parsed[index].cast(pa.int64()).as_py()
        first, last = ((moment - EARLIEST) // timedelta(microseconds=1) for moment in (self.earliest, LATEST))
        return bool(first <= count < last)


def last_header(headers: pa.Array, name: str) -> pa.Array:
    """Return the last header with this name of each record, as text; null if there is none, or if it is not UTF-8."""
    pairs, records = pc.list_flatten(headers), pc.list_parent_indices(headers)
    named = pc.indices_nonzero(pc.fill_null(pc.equal(pc.struct_field(pairs, "key"), name), False))
    record, value = records.take(named), pc.struct_field(pairs, "value").take(named)
    if len(record) > 1:
        is_last = pc.not_equal(record, pa.concat_arrays([record[1:], pa.array([-1], record.type)]))
        record, value = record.filter(is_last), value.filter(is_last)
    places = pc.index_in(positions(len(headers)).cast(record.type), record)
    return _cast_or_null(value.take(places), pa.string())


def _type_at(schema: pa.Schema, path: str) -> pa.DataType | None:
    """Return the type of a column, or of a nested field by its path; None if it does not exist."""
    if schema.get_field_index(path) >= 0:
        return schema.field(path).type
    first, *members = path.split(".")
    if schema.get_field_index(first) < 0:
        return None
    data_type = schema.field(first).type
    for member in members:
        if not pa.types.is_struct(data_type) or data_type.get_field_index(member) < 0:
            return None
        data_type = data_type.field(member).type
    return data_type


def _column_at(rows: pa.RecordBatch, path: str) -> pa.Array:
    if rows.schema.get_field_index(path) >= 0:
        return rows.column(path)
    first, *members = path.split(".")
    return pc.struct_field(rows.column(first), members)


def _nulls(values: pa.Array) -> list[int]:
    indices: list[int] = pc.indices_nonzero(pc.is_null(values)).to_pylist()
    return indices
