"""Finds the rows that a sink of the pipeline cannot store, in the pass and before anything is staged."""

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import BadRecord
from tidemark.model.positions import rows_holding
from tidemark.model.storable import YEAR_1, YEAR_10000, Storable
from tidemark.processing.long_keys import rows_with_long_key

Test = Callable[[pa.Array], pa.Array | None]
_DAY: Final = 86_400_000_000
_PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000}


def rows_not_storable(rows: pa.RecordBatch, limits: Sequence[Storable]) -> list[BadRecord]:
    """The rows with a value that no sink or that one of the sinks cannot store, ascending; each with its first reason,
    which names sink, column and value."""
    reasons: dict[int, str] = {}
    for limit in limits:
        for bad in () if limit.key is None else rows_with_long_key(rows, limit.key):
            reasons.setdefault(bad.index, bad.reason)
    for field, column in zip(rows.schema, rows.columns, strict=True):
        for test, what in _tests(field.type, tuple(limits)):
            for row in rows_holding(column, test):
                reasons.setdefault(row, f"field {field.name}: {what}")
    return [BadRecord(row, reason) for row, reason in sorted(reasons.items())]


def with_years(times: pa.Array) -> pa.Array:
    """The times of the years 1 to 9999; others are null."""
    return pc.if_else(_is_far_time(times), None, times)


@lru_cache(maxsize=4096)
def _tests(kind: pa.DataType, limits: tuple[Storable, ...]) -> tuple[tuple[Test, str], ...]:
    """The tests that a column of a type needs, with what is wrong with a value that one finds."""
    inside = tuple(_scalars(kind))
    tests: list[tuple[Test, str]] = []
    if any(pa.types.is_timestamp(scalar) or pa.types.is_date32(scalar) for scalar in inside):
        tests.append((_is_far_time, "is a time outside the years 1 to 9999, which no sink can store"))
    if any(pa.types.is_decimal128(scalar) for scalar in inside):
        tests.append((_is_long_decimal, "has more digits than its type, which no sink can store"))
    for limit in limits:
        if not limit.nul and any(map(pa.types.is_string, inside)):
            tests.append((_is_with_nul, f"holds the character NUL, which {limit.sink} cannot store"))
        if not limit.nested_nan and pa.types.is_nested(kind) and any(map(pa.types.is_floating, inside)):
            tests.append((_is_not_finite, f"holds NaN or an infinity, which {limit.sink} cannot store inside of JSON"))
    return tuple(dict.fromkeys(tests))


def _scalars(kind: pa.DataType) -> list[pa.DataType]:
    """The types of the values of a column, also inside of lists, structs and maps."""
    if not pa.types.is_nested(kind):
        return [kind]
    return [scalar for at in range(kind.num_fields) for scalar in _scalars(kind.field(at).type)]


def _is_with_nul(column: pa.Array) -> pa.Array | None:
    return pc.match_substring(column, "\0") if pa.types.is_string(column.type) else None


def _is_not_finite(column: pa.Array) -> pa.Array | None:
    return pc.invert(pc.is_finite(column)) if pa.types.is_floating(column.type) else None


def _is_far_time(column: pa.Array) -> pa.Array | None:
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit in _PER_SECOND:
        factor = 1_000_000 // _PER_SECOND[kind.unit]
        return _outside(column.view(pa.int64()), pa.int64(), YEAR_1 // factor, YEAR_10000 // factor - 1)
    if pa.types.is_date32(kind):
        return _outside(column.view(pa.int32()), pa.int32(), YEAR_1 // _DAY, YEAR_10000 // _DAY - 1)
    return None


def _is_long_decimal(column: pa.Array) -> pa.Array | None:
    """A decimal is 128 bits, and these may hold more digits than its type says."""
    kind = column.type
    if not pa.types.is_decimal128(kind):
        return None
    unscaled = 10**kind.precision - 1
    widest = pa.decimal128(kind.precision, 0)
    plain = pa.Array.from_buffers(widest, len(column), column.buffers(), offset=column.offset)
    bounds = pa.array([Decimal(-unscaled), Decimal(unscaled)], widest)
    return pc.or_(pc.less(plain, bounds[0]), pc.greater(plain, bounds[1]))


def _outside(values: pa.Array, kind: pa.DataType, lowest: int, highest: int) -> pa.Array:
    return pc.or_(pc.less(values, pa.scalar(lowest, kind)), pc.greater(values, pa.scalar(highest, kind)))
