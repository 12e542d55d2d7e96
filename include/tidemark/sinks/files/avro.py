"""Avro object container files. Each has its Avro schema, and the Arrow schema too, so that all types are kept.

A nullable column is a union with null. A nested record is named after its path, since Avro's names must be unique.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, BinaryIO

import fastavro
import pyarrow as pa

from tidemark.digest import Digest, row_digest
from tidemark.errors import ConfigurationError
from tidemark.sinks.files.formats import PLACES, Format, FormatWriter, unreadable

BLOCK_BYTES = 256 * 1024  # before compression; fastavro's own 16,000 compress worse
CHUNK_ROWS = 16_384
ARROW_SCHEMA = "tidemark.arrow_schema"  # key of the file's metadata
_CODECS = {"deflate": "deflate", "none": "null"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DAMAGED = Exception  # fastavro does not check what it reads: a damaged file can raise anything
_PLAIN: dict[pa.DataType, Any] = {
    pa.bool_(): "boolean", pa.int8(): "int", pa.int16(): "int", pa.int32(): "int", pa.int64(): "long",
    pa.float32(): "float", pa.float64(): "double", pa.string(): "string", pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.timestamp("us", "UTC"): {"type": "long", "logicalType": "timestamp-micros"},
}  # fmt: skip


class _Writer:
    def __init__(self, out: BinaryIO, schema: pa.Schema, codec: str) -> None:
        arrow_schema = b64encode(schema.remove_metadata().serialize()).decode()
        self._writer = fastavro.write.Writer(out, avro_schema(schema), codec, BLOCK_BYTES, {ARROW_SCHEMA: arrow_schema})

    def write(self, rows: pa.Table, measured: Digest) -> Digest:
        for batch in rows.to_batches(CHUNK_ROWS):
            columns = [_values(column) for column in batch.columns]
            for row in zip(*columns, strict=True):
                self._writer.write(dict(zip(batch.schema.names, row, strict=True)))
        self._writer.flush()
        return measured

    def close(self) -> None:
        self._writer.flush()


class Avro(Format):
    def check(self, schema: pa.Schema) -> None:
        avro_schema(schema)

    def writer(self, out: BinaryIO, schema: pa.Schema, sample: pa.Table) -> FormatWriter:
        del sample
        return _Writer(out, schema, _CODECS[self._compression])

    def count(self, file: BinaryIO) -> int:
        with unreadable(_DAMAGED):
            return sum(block.num_records for block in fastavro.block_reader(file))

    def digest(self, file: BinaryIO) -> Digest:
        with unreadable(_DAMAGED):
            return sum(map(row_digest, _read(file)), Digest.zero())

    def dead_letters(self, file: BinaryIO, columns: Sequence[str], page: int) -> Iterator[Mapping[str, Any]]:
        del page
        with unreadable(_DAMAGED):
            for row in fastavro.reader(file):
                yield {name: row[name] for name in columns}  # type: ignore[index,call-overload]

    def places(self, file: BinaryIO) -> pa.Table:
        with unreadable(_DAMAGED):
            rows = [{name: row[name] for name in PLACES.names} for row in _rows(fastavro.reader(file))]
            return pa.Table.from_pylist(rows, schema=PLACES)


def avro_schema(schema: pa.Schema) -> dict[str, Any]:
    """The Avro schema of rows; raises ``ConfigurationError`` with the column that Avro cannot hold."""
    return {"type": "record", "name": "Row", "fields": [_field(field, "Row") for field in schema]}


def _field(field: pa.Field, within: str) -> dict[str, Any]:
    path = f"{within}.{field.name}"
    if not _NAME.fullmatch(field.name):
        raise _refused(path, "its name has other characters than letters, digits and _ (or begins with a digit)")
    kind = _type(field.type, path)
    return {"name": field.name, "type": ["null", kind], "default": None} if field.nullable else {
        "name": field.name, "type": kind,
    }  # fmt: skip


def _type(kind: pa.DataType, path: str) -> Any:
    if kind in _PLAIN:
        return _PLAIN[kind]
    if pa.types.is_decimal128(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_map(kind):
        if not pa.types.is_string(kind.key_type):
            raise _refused(path, f"it is a map whose keys are {kind.key_type}, and Avro's are text")
        return {"type": "map", "values": ["null", _type(kind.item_type, path)]}
    if pa.types.is_list(kind):
        return {"type": "array", "items": ["null", _type(kind.value_type, path)]}
    if pa.types.is_struct(kind):
        return {"type": "record", "name": path, "fields": [_field(field, path) for field in kind]}
    raise _refused(path, f"it is {kind}")


def _refused(path: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"Avro cannot hold column {path.removeprefix('Row.')}: {why}",
        next_step="give the sink format: parquet or jsonl, or leave the column out",
    )


def _values(column: pa.Array) -> list[Any]:
    """Python values for fastavro; times and dates are numbers already, so that it need not convert them."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    values: list[Any] = column.to_pylist(maps_as_pydicts="strict" if pa.types.is_nested(column.type) else None)
    return values


def _rows(reader: Iterable[Any]) -> list[dict[str, Any]]:
    """All rows; with our schemas each is an Avro record, so a mapping."""
    return list(reader)


def _read(file: BinaryIO) -> Iterator[pa.RecordBatch]:
    """All rows, ``CHUNK_ROWS`` in memory at a time."""
    reader = fastavro.reader(file)
    schema = pa.ipc.read_schema(pa.py_buffer(b64decode(reader.metadata[ARROW_SCHEMA])))
    while rows := _rows(islice(reader, CHUNK_ROWS)):
        columns = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
