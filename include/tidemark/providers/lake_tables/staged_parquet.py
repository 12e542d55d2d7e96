"""A staged Parquet file of one task, with the digest and the offsets of its rows."""

from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.sinks.staging.grouping import digest_of
from tidemark.sinks.staging.held_rows import GROUP_ROWS
from tidemark.sinks.staging.staged_file import StagedFile
from tidemark.storage.base import ObjectStore


class StagedParquet(StagedFile):
    def __init__(self, store: ObjectStore, key: str, schema: pa.Schema) -> None:
        super().__init__(store, key)
        self._writer = self._parquet = pq.ParquetWriter(self._file, schema, compression="zstd")

    def append(self, rows: pa.Table, measured: pa.Table | None = None) -> None:
        """Write ``rows``. Digest and offsets are computed from ``measured``, which also has the columns of
        ``HASH_COLUMNS``."""
        self._parquet.write_table(rows, row_group_size=GROUP_ROWS)
        if measured is None:
            self.rows += rows.num_rows
        else:
            self._measure(measured, digest_of(measured))

    def _counted(self, file: BinaryIO) -> int:
        return int(pq.read_metadata(file).num_rows)
