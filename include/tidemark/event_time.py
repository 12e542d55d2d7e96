"""Event time: the moment a record belongs to, from a column of its data or from Kafka.

A date is midnight in the pipeline's zone. A time without a zone is local time there, read with Python's ``fold=0``: of
an hour that occurs twice the first one is meant, and a time that the clocks skip is read with the offset from before
the change (so 02:30 in New York on 2013-03-10 is 07:30 UTC). Digits beyond the microsecond are cut off.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.errors import ConfigurationError
from tidemark.order import OnError, TimeUnit

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


def instants(text: pa.Array, zone: str | None) -> pa.Array:
    """RFC 3339 texts as ``timestamp[us, UTC]``; null where a text is null or is not a time of the years 1 to 9999.

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


def localised(naive: pa.Array, zone: str) -> pa.Array:
    """Local times of ``zone`` as ``timestamp[us, UTC]``, by the rule of this module for skipped and repeated hours."""
    if zone == "UTC":
        return pc.assume_timezone(naive, "UTC")
    before, after = (
        pc.assume_timezone(naive, zone, ambiguous="earliest", nonexistent=side).cast(INSTANT)
        for side in ("earliest", "latest")
    )
    skipped = pc.indices_nonzero(pc.fill_null(pc.not_equal(before, after), False))
    if not len(skipped):
        return before
    counts = before.cast(pa.int64()).to_pylist()  # numbers: a datetime cannot hold year 10000, where an offset may lead
    for index in skipped.to_pylist():
        moment = naive[index].as_py().replace(tzinfo=ZoneInfo(zone))
        counts[index] = (moment - EARLIEST) // timedelta(microseconds=1)
    return pa.array(counts, pa.int64()).cast(INSTANT)


def _cast_or_null(text: pa.Array, to: pa.DataType) -> pa.Array:
    """Cast, with null for texts that fail (a 30th of February); halving finds k failures of n in k log n casts."""
    try:
        return text.cast(to)
    except pa.ArrowInvalid:
        if len(text) == 1:
            return pa.nulls(1, to)
        middle = len(text) // 2
        return pa.concat_arrays([_cast_or_null(text[:middle], to), _cast_or_null(text[middle:], to)])


def _within_years(moments: pa.Array) -> pa.Array:
    count = moments.cast(pa.int64())
    inside = pc.and_(pc.greater_equal(count, _YEAR_1), pc.less(count, _YEAR_10000))
    return pc.if_else(inside, moments, None)


@dataclass(frozen=True)
class Placed:
    """``when`` has one ``timestamp[us, UTC]`` per row; it is null exactly where ``invalid`` has (row, reason)."""

    when: pa.Array
    invalid: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class EventTime:
    """Where the event time of a pipeline's records comes from; ``field`` None means the record's Kafka timestamp.

    ``unit`` applies to integer columns only. A time before 1970-01-01 or not before 2200-01-01 is invalid.
    """

    field: str | None = None
    timezone: str = "UTC"
    unit: TimeUnit = TimeUnit.MILLISECONDS
    on_invalid: OnError = OnError.DEAD_LETTER
    allowed_lateness_s: float = 0

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "EventTime":
        """From the ``event_time`` of an order; ``ConfigurationError`` for an unknown zone, unit or word."""
        try:
            ZoneInfo(config.get("timezone", "UTC"))
            return cls(
                config.get("field"),
                config.get("timezone", "UTC"),
                TimeUnit(config.get("unit", TimeUnit.MILLISECONDS)),
                OnError(config.get("on_invalid", OnError.DEAD_LETTER)),
                config.get("allowed_lateness_s", 0),
            )
        except (ValueError, KeyError, OSError) as error:
            raise ConfigurationError(
                f"event_time: {error}",
                next_step="timezone is an IANA name (Europe/Berlin), unit s or ms, on_invalid fail or dead_letter",
            ) from error

    def check(self, schema: pa.Schema) -> None:
        """Raise ``ConfigurationError`` unless the field is a column of ``schema`` that can hold a time."""
        if self.field is None:
            return
        if schema.get_field_index(self.field) < 0:
            raise ConfigurationError(
                f"event_time: the records have no field {self.field}",
                next_step=f"name one of {', '.join(schema.names)}, or leave field out for the Kafka timestamp",
            )
        data_type = schema.field(self.field).type
        usable = (pa.types.is_timestamp, pa.types.is_date32, pa.types.is_string, pa.types.is_signed_integer)
        if not any(test(data_type) for test in usable):
            raise ConfigurationError(
                f"event_time: field {self.field} is {data_type}, which holds no time",
                next_step="use a timestamp, date, RFC 3339 text or integer field, or declare this one as such",
            )

    def place(self, rows: pa.RecordBatch, kafka_timestamps: pa.Array) -> Placed:
        """The event time of each row; both arguments have one entry per row, in the same order."""
        source = kafka_timestamps if self.field is None else rows.column(self.field)
        parsed = self._parsed(source)
        earliest, latest = pa.scalar(EARLIEST, INSTANT), pa.scalar(LATEST, INSTANT)
        inside = pc.and_(pc.greater_equal(parsed, earliest), pc.less(parsed, latest))
        when = pc.if_else(inside, parsed, None)
        if not when.null_count:
            return Placed(when, ())
        return Placed(when, tuple((index, self._why(source, parsed, index)) for index in _nulls(when)))

    def _parsed(self, source: pa.Array) -> pa.Array:
        if pa.types.is_string(source.type):
            return instants(source, self.timezone)
        if pa.types.is_signed_integer(source.type):
            factor = self.unit.microseconds
            count = source.cast(pa.int64())
            last = int(LATEST.timestamp()) * MICROSECONDS // factor
            safe = pc.max_element_wise(pc.min_element_wise(count, last, skip_nulls=False), -1, skip_nulls=False)
            return pc.multiply(safe, factor).cast(INSTANT)
        if pa.types.is_timestamp(source.type) and source.type.tz is not None:
            return source.cast(INSTANT, safe=False)
        return localised(source.cast(pa.timestamp("us"), safe=False), self.timezone)

    def _why(self, source: pa.Array, parsed: pa.Array, index: int) -> str:
        origin = "the Kafka timestamp" if self.field is None else f"field {self.field}"
        if not source[index].is_valid:
            return f"event time: {origin} is null"
        if not parsed[index].is_valid:
            return f"event time: {origin} is not an RFC 3339 time"
        return f"event time: {origin} is not within 1970-01-01 and 2200-01-01"


def _nulls(values: pa.Array) -> list[int]:
    indices: list[int] = pc.indices_nonzero(pc.is_null(values)).to_pylist()
    return indices
