"""Reads Avro records one at a time, by Avro's rules of schema resolution."""

import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import BadRecord, Decoded
from tidemark.decoders.batch_parts import joined, leave_out
from tidemark.decoders.one_by_one import Misfit, Undecodable, decode_each, misfits
from tidemark.model.positions import positions, rows_holding
from tidemark.providers.avro.resolution import resolved
from tidemark.providers.avro.types import TIMESTAMP, AvroColumn, AvroRows

# The years 1 to 9999, which all sinks and Python can store, in microseconds and in days.
_INSTANTS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
_DAYS = (-719_162, 2_932_896)


class RecordReader:
    """Reads records of one writer as rows of one reader; raises ``NotResolved`` if no record can fit."""

    def __init__(self, writer: Any, rows: AvroRows, *, any_name: bool = False) -> None:
        self._value = resolved(writer, rows.schema, any_name=any_name)
        self._rows = rows

    def read(self, data: Sequence[bytes]) -> Decoded:
        """Read every record. The content of a record never makes it raise."""
        columns, schema = self._columns, self._rows.arrow
        decoded, _ = decode_each(data, schema, self._parsed, columns, partial(misfits, columns))
        return joined(schema, [within_years(decoded.rows).at(decoded.good)], decoded.errors)

    def _parsed(self, record: bytes) -> dict[str, Any]:
        try:
            value, end = self._value(record, 0)
        except (IndexError, EOFError, struct.error):
            raise Undecodable("it ends before the record does") from None
        except UnicodeDecodeError:
            raise Undecodable("it holds text that is not UTF-8") from None
        if rest := len(record) - end:
            raise Undecodable(f"{rest} bytes follow the record")
        return value if self._rows.is_record else {self._rows.columns[0].field.name: value}

    def _columns(self, values: list[dict[str, Any]]) -> list[pa.Array]:
        return [_array([value[column.field.name] for value in values], column) for column in self._rows.columns]


def _array(values: list[Any], column: AvroColumn) -> pa.Array:
    try:
        if column.convert is not None:
            convert: Callable[[Any], Any] = column.convert
            values = [None if value is None else convert(value) for value in values]
        array = pa.array(values, column.field.type)
    except Exception as problem:  # Arrow, Decimal and the conversions raise different classes
        raise Misfit(f"field {column.field.name}: {problem}") from problem
    if array.null_count and not column.field.nullable:
        raise Misfit(f"field {column.field.name}: it is null")
    return array


def within_years(rows: pa.RecordBatch) -> Decoded:
    """Return the good rows; rows that hold a time or a date outside the years 1 to 9999 become errors."""
    reasons: dict[int, str] = {}
    for field, array in zip(rows.schema, rows.columns, strict=True):
        for row in rows_holding(array, _is_beyond):
            reasons.setdefault(row, f"field {field.name}: a time outside the years 1 to 9999")
    good = positions(rows.num_rows)
    if not reasons:
        return Decoded(rows, good, ())
    good = leave_out(good, pa.array(reasons, pa.int64()))
    return Decoded(rows.take(good), good, tuple(BadRecord(row, reasons[row]) for row in sorted(reasons)))


def _is_beyond(array: pa.Array) -> pa.Array | None:
    if array.type == TIMESTAMP:
        numbers, (first, last) = array.cast(pa.int64()), _INSTANTS
    elif array.type == pa.date32():
        numbers, (first, last) = array.cast(pa.int32()), _DAYS
    else:
        return None
    return pc.or_(pc.less(numbers, first), pc.greater(numbers, last))
