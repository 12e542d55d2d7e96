"""Reads the data of Avro records with fastavro, the reference: one record at a time, by Avro's rules of resolution."""

import struct
from collections.abc import Callable, Sequence
from functools import partial
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from fastavro import schemaless_reader
from fastavro.read import SchemaResolutionError

from tidemark.decoders.base import BadRecord, Decoded
from tidemark.decoders.batch_parts import joined, leave_out
from tidemark.decoders.one_by_one import Misfit, Undecodable, decode_each, misfits
from tidemark.model.positions import positions, rows_holding
from tidemark.providers.avro.types import TIMESTAMP, AvroColumn, AvroSchema

# Numbers of microseconds and days of the years 1 to 9999: what all sinks and Python can hold.
_INSTANTS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
_DAYS = (-719_162, 2_932_896)


def read(data: Sequence[bytes], writer: AvroSchema, reader: AvroSchema) -> Decoded:
    """Read every record; never raises for what is in one."""
    resolved = None if writer.bare == reader.bare else reader.bare
    whole = None if reader.is_record else reader.columns[0].field.name

    def parsed(record: bytes) -> dict[str, Any]:
        stream = BytesIO(record)
        try:
            value: Any = schemaless_reader(stream, writer.bare, resolved)
        except Exception as problem:  # fastavro does not say which it raises for bytes that are no record
            raise Undecodable(reason_of(problem)) from problem
        if rest := len(record) - stream.tell():
            raise Undecodable(f"{rest} bytes follow the record")
        return value if whole is None else {whole: value}

    def columns(values: list[dict[str, Any]]) -> list[pa.Array]:
        try:
            return [_array([value[column.field.name] for value in values], column) for column in reader.columns]
        except Exception as problem:  # of Arrow, of Decimal, of a conversion
            raise Misfit(reason_of(problem)) from problem

    decoded, _ = decode_each(data, reader.arrow, parsed, columns, partial(misfits, columns))
    return joined(reader.arrow, [within_years(decoded.rows).at(decoded.good)], decoded.errors)


def reason_of(problem: Exception) -> str:
    match problem:
        case SchemaResolutionError():
            return f"does not resolve: {problem}"
        case EOFError() | IndexError() | struct.error():
            return "it ends before the record does"
        case UnicodeDecodeError():
            return "it holds text that is not UTF-8"
        case _:
            return f"it cannot be read: {type(problem).__name__}: {problem}"


def _array(values: list[Any], column: AvroColumn) -> pa.Array:
    if column.convert is not None:
        convert: Callable[[Any], Any] = column.convert
        values = [None if value is None else convert(value) for value in values]
    array = pa.array(values, column.field.type)
    if array.null_count and not column.field.nullable:
        raise ValueError(f"field {column.field.name} is null")
    return array


def within_years(rows: pa.RecordBatch) -> Decoded:
    """The rows of good records; those that hold a time or a date outside the years 1 to 9999 are errors."""
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
