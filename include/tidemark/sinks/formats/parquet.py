"""Parquet files: the footer has the number of rows, and columns keep their types."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.model.digest import Digest, row_digest
from tidemark.sinks.formats.base import PLACES, Format, FormatWriter, unreadable
from tidemark.sinks.formats.repetition import repeating_columns

ROW_GROUP_ROWS = 256 * 1024
READ_ROWS = 64 * 1024  # in memory at a time


class _Writer:
    """A writer that turns each table into row groups of its own."""

    def __init__(self, out: BinaryIO, schema: pa.Schema, compression: str, dictionaries: list[str]) -> None:
        self._writer = pq.ParquetWriter(out, schema, compression=compression, use_dictionary=dictionaries)

    def write(self, rows: pa.Table, measured: Digest) -> Digest:
        self._writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)
        return measured

    def close(self) -> None:
        self._writer.close()


class Parquet(Format):
    def writer(self, out: BinaryIO, sample: pa.Table) -> FormatWriter:
        return _Writer(out, sample.schema, self._compression, repeating_columns(sample))

    def count(self, file: BinaryIO) -> int:
        with unreadable(pa.ArrowException, OSError):
            return int(pq.read_metadata(file).num_rows)

    def digest(self, file: BinaryIO) -> Digest:
        with unreadable(pa.ArrowException, OSError):
            batches = pq.ParquetFile(file).iter_batches(READ_ROWS)
            return sum(map(row_digest, batches), Digest.zero())

    def dead_letters(self, file: BinaryIO, columns: Sequence[str], page: int) -> Iterator[Mapping[str, Any]]:
        with unreadable(pa.ArrowException, OSError):
            for batch in pq.ParquetFile(file).iter_batches(page, columns=list(columns)):
                yield from batch.to_pylist()

    def places(self, file: BinaryIO) -> pa.Table:
        with unreadable(pa.ArrowException, OSError):
            return pq.read_table(file, columns=PLACES.names)
