"""Avro object container files. Each contains its Avro schema and also the Arrow schema, so that all types are kept."""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, BinaryIO

import fastavro
import pyarrow as pa

from tidemark.model.digest import Digest, row_digest
from tidemark.sinks.encoding.avro_types import avro_schema, avro_values
from tidemark.sinks.formats.base import PLACES, Format, FormatWriter, unreadable

BLOCK_BYTES = 256 * 1024  # before compression; fastavro's default of 16,000 compresses worse
CHUNK_ROWS = 16_384
ARROW_SCHEMA = "tidemark.arrow_schema"  # a key in the file's metadata
_CODECS = {"deflate": "deflate", "none": "null"}
_DAMAGED = Exception  # fastavro does not check what it reads, so a damaged file can raise anything


class _Writer:
    def __init__(self, out: BinaryIO, schema: pa.Schema, codec: str) -> None:
        arrow_schema = b64encode(schema.remove_metadata().serialize()).decode()
        self._writer = fastavro.write.Writer(out, avro_schema(schema), codec, BLOCK_BYTES, {ARROW_SCHEMA: arrow_schema})

    def write(self, rows: pa.Table, measured: Digest) -> Digest:
        for batch in rows.to_batches(CHUNK_ROWS):
            columns = [avro_values(column) for column in batch.columns]
            for row in zip(*columns, strict=True):
                self._writer.write(dict(zip(batch.schema.names, row, strict=True)))
        self._writer.flush()
        return measured

    def close(self) -> None:
        self._writer.flush()


class Avro(Format):
    def check(self, schema: pa.Schema) -> None:
        avro_schema(schema)

    def writer(self, out: BinaryIO, sample: pa.Table) -> FormatWriter:
        return _Writer(out, sample.schema, _CODECS[self._compression])

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


def _rows(reader: Iterable[Any]) -> list[dict[str, Any]]:
    """Return all rows; with our schemas each one is an Avro record, so a mapping."""
    return list(reader)


def _read(file: BinaryIO) -> Iterator[pa.RecordBatch]:
    """Yield all rows, ``CHUNK_ROWS`` in memory at a time."""
    reader = fastavro.reader(file)
    schema = pa.ipc.read_schema(pa.py_buffer(b64decode(reader.metadata[ARROW_SCHEMA])))
    while rows := _rows(islice(reader, CHUNK_ROWS)):
        columns = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
