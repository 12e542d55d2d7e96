"""Decodes records one at a time: each bad record gets its own reason and does not affect the others."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from tidemark.decoders.base import REASON_LIMIT, BadRecord, Decoded

Parsed = TypeVar("Parsed")
Value = TypeVar("Value")


class Undecodable(Exception):
    """One record is not as the schema describes it; the message is the reason of its dead letter."""


class Misfit(Exception):
    """Some value does not fit its column. It is a signal to the caller, who may know a better reason."""


def decode_each(
    values: Sequence[Any],
    schema: pa.Schema,
    parsed: Callable[[Any], Parsed],
    columns: Callable[[list[Parsed]], list[pa.Array]],
    problems: Callable[[list[Parsed]], Mapping[int, str]],
) -> tuple[Decoded, list[Parsed]]:
    """Return (the decoded values, the good records in parsed form).

    ``parsed`` raises ``Undecodable``. ``columns`` makes columns of all records at once, and raises ``Misfit`` if some
    do not fit. Then ``problems`` returns the positions of those records, each with its reason.
    """
    records: list[Parsed] = []
    good: list[int] = []
    reasons: dict[int, str] = {}
    for index, value in enumerate(values):
        try:
            records.append(parsed(value))
            good.append(index)
        except Undecodable as error:
            reasons[index] = str(error)
    try:
        built = columns(records)
    except Misfit:
        wrong = problems(records)
        reasons |= {good[position]: reason for position, reason in wrong.items()}
        records = [record for position, record in enumerate(records) if position not in wrong]
        good = [index for position, index in enumerate(good) if position not in wrong]
        built = columns(records)
    rows = pa.RecordBatch.from_arrays(built, schema=schema)
    errors = tuple(BadRecord(index, reasons[index][:REASON_LIMIT]) for index in sorted(reasons))
    return Decoded(rows, pa.array(good, pa.int64()), errors), records


def misfits(columns: Callable[[list[Value]], object], values: list[Value], start: int = 0) -> dict[int, str]:
    """Find the values for which ``columns`` raises ``Misfit``: return its message by position, counted from ``start``.

    It halves the list, and searches only halves that do not fit.
    """
    try:
        columns(values)
    except Misfit as misfit:
        if len(values) <= 1:
            return {start: str(misfit)}
        middle = len(values) // 2
        return misfits(columns, values[:middle], start) | misfits(columns, values[middle:], start + middle)
    return {}
