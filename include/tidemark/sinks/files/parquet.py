"""Parquet files: the footer has the number of rows, and columns keep their types."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.digest import Digest, row_digest
from tidemark.sinks.files.formats import PLACES, Format, unreadable
from tidemark.sinks.files.repetition import repeating_columns

ROW_GROUP_ROWS = 256 * 1024


class Parquet(Format):
    def write(self, rows: pa.Table, measured: Digest, out: BinaryIO) -> Digest:
        pq.write_table(
            rows,
            out,
            compression=self._compression,
            row_group_size=ROW_GROUP_ROWS,
            use_dictionary=repeating_columns(rows),
        )
        return measured

    def count(self, file: BinaryIO) -> int:
        with unreadable(pa.ArrowException, OSError):
            return int(pq.read_metadata(file).num_rows)

    def digest(self, file: BinaryIO) -> Digest:
        with unreadable(pa.ArrowException, OSError):
            return row_digest(pq.read_table(file))

    def dead_letters(self, file: BinaryIO, columns: Sequence[str], page: int) -> Iterator[Mapping[str, Any]]:
        with unreadable(pa.ArrowException, OSError):
            for batch in pq.ParquetFile(file).iter_batches(page, columns=list(columns)):
                yield from batch.to_pylist()

    def places(self, file: BinaryIO) -> pa.Table:
        with unreadable(pa.ArrowException, OSError):
            return pq.read_table(file, columns=PLACES.names)
