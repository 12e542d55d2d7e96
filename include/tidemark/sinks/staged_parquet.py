"""A staged Parquet file of one task, with the digest and the offsets of what is in it."""

from contextlib import ExitStack, suppress

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemark.digest import Digest
from tidemark.errors import TidemarkError
from tidemark.sinks.grouping import digest_of
from tidemark.sinks.held_rows import GROUP_ROWS
from tidemark.storage.base import ObjectStore


class _Abandoned(Exception):
    """Tells the store that the file is not to get its name."""


class StagedParquet:
    """Rows are appended; then it is finished or abandoned, also after an error. The store names it when finished."""

    def __init__(self, store: ObjectStore, key: str, schema: pa.Schema) -> None:
        self.key = key
        self.rows = 0
        self.digest = Digest.zero()
        self.offsets: list[int] = []
        self._stack = ExitStack()
        self._out = self._stack.enter_context(store.create(key))
        self._writer = pq.ParquetWriter(self._out, schema, compression="zstd")

    @property
    def bytes(self) -> int:
        return self._out.tell()

    def append(self, rows: pa.Table, measured: pa.Table | None = None) -> None:
        """``measured`` are the rows that decide digest and offsets, with the columns of ``BESIDE``."""
        self._writer.write_table(rows, row_group_size=GROUP_ROWS)
        self.rows += rows.num_rows
        if measured is not None:
            self.digest += digest_of(measured)
            self.offsets += pc.min_max(measured.column("_offset")).as_py().values()

    def finish(self) -> tuple[int, int]:
        """(rows, bytes) of the file; the rows are counted in its footer, before it gets its name."""
        with self._stack:
            self._writer.close()
            size = self._out.seek(0, 2)
            self._out.seek(0)
            return pq.read_metadata(self._out).num_rows, size

    def abandon(self) -> None:
        """Remove the file, if possible; never raises."""
        with suppress(Exception):
            self._writer.close()
        with suppress(_Abandoned, OSError, TidemarkError), self._stack:
            raise _Abandoned
