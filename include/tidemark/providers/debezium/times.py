"""Makes columns of dates and times from the numbers that Debezium writes for them."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.providers.debezium.units import Unit
from tidemark.times.event_time import INSTANT

EARLIEST_US: Final = -62_135_596_800_000_000  # year 1
LATEST_US: Final = 253_402_300_799_999_999  # year 9999
_INFINITE_US: Final = (9_223_372_036_825_200_000, -9_223_372_036_832_400_000)
# Infinity in nanoseconds has more than 64 bits: connectors wrote the lowest 64 bits (debezium/dbz#1833).
_OVERFLOWED_NS: Final = {(us * 1_000 + 2**63) % 2**64 - 2**63: us for us in _INFINITE_US}
BEYOND: Final = "outside the years 1 to 9999 (Debezium also writes such a number for infinity)"
_MS: Final = (631_152_000_000, 2_524_608_000_000)  # the years 1990 to 2049
_US: Final = (_MS[0] * 1_000, _MS[1] * 1_000)
_OTHERS: Final = {Unit.MICROSECONDS: (_MS,), Unit.NANOSECONDS: (_MS, _US)}
_US_OF: Final = {Unit.DAYS: 86_400_000_000, Unit.MILLISECONDS: 1_000, Unit.MICROSECONDS: 1}


def microseconds(number: int, unit: Unit) -> int:
    """Return a number of a unit as microseconds. Digits beyond microseconds are cut."""
    if unit is Unit.NANOSECONDS:
        return _OVERFLOWED_NS.get(number, number // 1_000)
    return number * _US_OF[unit]


def is_within_years(moment: int) -> bool:
    """Return whether a number of microseconds lies in the years 1 to 9999."""
    return EARLIEST_US <= moment <= LATEST_US


def is_of_another_unit(number: int, unit: Unit) -> bool:
    """Return whether a number has probably another unit than the file says.

    In the file's unit it is in January 1970, and in a larger unit in the years 1990 to 2049. Debezium writes
    ``timestamp(0)`` to ``timestamp(3)`` in milliseconds, and others in microseconds.
    """
    return any(first <= number <= last for first, last in _OTHERS.get(unit, ()))


def of_another_unit(numbers: pa.Array, unit: Unit) -> list[int]:
    """Return the positions of numbers for which ``is_of_another_unit`` is true."""
    inside = [
        pc.and_(pc.greater_equal(numbers, first), pc.less_equal(numbers, last)) for first, last in _OTHERS.get(unit, ())
    ]
    return [at for marks in inside for at in pc.indices_nonzero(pc.fill_null(marks, False)).to_pylist()]


def type_of(unit: Unit) -> pa.DataType:
    """Return the type of a column of numbers in this unit."""
    return pa.date32() if unit is Unit.DAYS else INSTANT


def times_of_numbers(numbers: pa.Array, unit: Unit) -> pa.Array:
    """Return whole numbers as dates or times; null for those outside the years 1 to 9999."""
    numbers = numbers.cast(pa.int64())
    if unit is Unit.NANOSECONDS:
        numbers = pc.if_else(pc.is_in(numbers, value_set=pa.array([*_OVERFLOWED_NS], pa.int64())), None, numbers)
        numbers, unit = _floor_divided(numbers, 1_000), Unit.MICROSECONDS
    per_us = _US_OF[unit]
    within = pc.and_(pc.greater_equal(numbers, -(-EARLIEST_US // per_us)), pc.less_equal(numbers, LATEST_US // per_us))
    kept = pc.if_else(within, numbers, None)
    if unit is Unit.DAYS:
        return kept.cast(pa.int32()).cast(pa.date32())
    return pc.multiply(kept, per_us).cast(INSTANT)


def _floor_divided(numbers: pa.Array, divisor: int) -> pa.Array:
    """Divide, rounding down. Arrow rounds towards 0, which would cut moments before 1970 in the other direction."""
    cut = pc.divide(numbers, divisor)
    inexact = pc.not_equal(pc.multiply(cut, divisor), numbers)
    return pc.if_else(pc.and_(inexact, pc.less(numbers, 0)), pc.subtract(cut, 1), cut)
