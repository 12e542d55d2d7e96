"""Finds the rows that a sink of the pipeline cannot store, during the pass and before they are staged."""

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache
from importlib import import_module
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import BadRecord
from tidemark.model.partitions import FIRST_TIMESTAMP, NO_TIMESTAMP
from tidemark.model.positions import positions, rows_holding
from tidemark.model.storable import YEAR_1, YEAR_10000, Storable

Test = Callable[[pa.Array], pa.Array | None]
_DAY: Final = 86_400_000_000
_PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000}


def rows_not_storable(rows: pa.RecordBatch, limits: Sequence[Storable]) -> list[BadRecord]:
    """Return the rows with a value that one of the sinks, or any sink, cannot store; ascending, each with its first
    reason. ``rows`` are as sinks get them, with their metadata."""
    reasons: dict[int, str] = {}
    for limit in limits:
        for check in limit.checks:
            for bad in import_module(check.module).bad_rows(rows, **check.options):
                reasons.setdefault(bad.index, bad.reason)
    without_nul = tuple(limit.sink for limit in limits if not limit.nul)
    for field, column in zip(rows.schema, rows.columns, strict=True):
        for test, what in _tests(field.type, without_nul):
            for row in rows_holding(column, test):
                reasons.setdefault(row, f"field {field.name}: {what}")
    return [BadRecord(row, reason) for row, reason in sorted(reasons.items())]


def stamps(times: pa.Array) -> pa.Array:
    """Return the timestamps of records, with null for those outside the years 1582 to 9999 and for -1 ms, which means
    no timestamp.

    Some producers count in microseconds, which gives a year such as 55840.
    """
    counts = times.view(pa.int64())
    told = pc.and_(
        pc.not_equal(counts, NO_TIMESTAMP * 1_000),
        pc.invert(_outside(counts, pa.int64(), FIRST_TIMESTAMP * 1_000, YEAR_10000 - 1)),
    )
    return pc.if_else(told, times, None)


@lru_cache(maxsize=4096)
def _tests(kind: pa.DataType, without_nul: tuple[str, ...]) -> tuple[tuple[Test, str], ...]:
    """Return the tests that a column of a type needs, each with the problem of a value that it finds. ``without_nul``:
    the sinks that cannot store NUL."""
    inside = tuple(_scalars(kind))
    tests: list[tuple[Test, str]] = []
    if any(pa.types.is_timestamp(scalar) or pa.types.is_date32(scalar) for scalar in inside):
        tests.append((_is_far_time, "is a time outside the years 1 to 9999, which no sink can store"))
    if any(pa.types.is_decimal128(scalar) for scalar in inside):
        tests.append((_is_long_decimal, "has more digits than its type, which no sink can store"))
    if _has_map(kind):
        tests.append((_has_key_twice, "holds a map that has a key twice, which no sink can store"))
    if any(map(pa.types.is_string, inside)):
        nul = "holds the character NUL, which {} cannot store"
        tests += [(_is_with_nul, nul.format(sink)) for sink in without_nul]
    return tuple(dict.fromkeys(tests))


def _scalars(kind: pa.DataType) -> list[pa.DataType]:
    """Return the types of the values of a column, also inside lists, structs and maps."""
    if not pa.types.is_nested(kind):
        return [kind]
    return [scalar for at in range(kind.num_fields) for scalar in _scalars(kind.field(at).type)]


def _is_with_nul(column: pa.Array) -> pa.Array | None:
    return pc.match_substring(column, "\0") if pa.types.is_string(column.type) else None


def _has_map(kind: pa.DataType) -> bool:
    return bool(pa.types.is_map(kind)) or any(_has_map(kind.field(at).type) for at in range(kind.num_fields))


def _has_key_twice(column: pa.Array) -> pa.Array | None:
    """Return for each map whether it has a key twice: many readers refuse such a map, and others differ in the value
    that they keep."""
    kind = column.type
    if not pa.types.is_map(kind) or pa.types.is_nested(kind.key_type):
        return None
    pairs = column.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
    keys = pa.table({"map": pc.list_parent_indices(pairs), "key": pairs.flatten().field("key")})
    counts = keys.group_by(["map", "key"], use_threads=False).aggregate([([], "count_all")])
    twice = counts.column("map").filter(pc.greater(counts.column("count_all"), 1))
    return pc.is_in(positions(len(column)), value_set=twice.combine_chunks().cast(pa.int64()))


def _is_far_time(column: pa.Array) -> pa.Array | None:
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit in _PER_SECOND:
        factor = 1_000_000 // _PER_SECOND[kind.unit]
        return _outside(column.view(pa.int64()), pa.int64(), YEAR_1 // factor, YEAR_10000 // factor - 1)
    if pa.types.is_date32(kind):
        return _outside(column.view(pa.int32()), pa.int32(), YEAR_1 // _DAY, YEAR_10000 // _DAY - 1)
    return None


def _is_long_decimal(column: pa.Array) -> pa.Array | None:
    """Return for each decimal whether it has more digits than its type: its 128 bits can hold more."""
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
