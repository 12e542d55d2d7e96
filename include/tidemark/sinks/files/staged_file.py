"""One file of an attempt while a task writes it: it grows by groups of rows, and gets its name when it is finished."""

from contextlib import ExitStack, suppress

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.digest import Digest
from tidemark.errors import TidemarkError
from tidemark.sinks.files.formats import Format
from tidemark.sinks.grouping import BESIDE, digest_of
from tidemark.storage.base import ObjectStore


class _Abandoned(Exception):
    """Tells the store that the file is not to get its name."""


class StagedFile:
    """Rows with the columns of ``BESIDE`` are appended; then it is finished or abandoned, also after an error.

    ``rows``, ``digest`` and the offsets (inclusive) are of what was appended.
    """

    def __init__(self, store: ObjectStore, key: str, format_: Format, schema: pa.Schema, sample: pa.Table) -> None:
        self.key = key
        self.rows = 0
        self.digest = Digest.zero()
        self.first_offset: int | None = None
        self.last_offset = 0
        self._format = format_
        self._stack = ExitStack()
        self._file = self._stack.enter_context(store.create(key))
        self._writer = format_.writer(self._file, schema, sample)

    @property
    def bytes(self) -> int:
        """The size so far, without what the format adds at the end."""
        return self._file.tell()

    def append(self, measured: pa.Table) -> None:
        rows = measured.drop_columns(BESIDE.names)
        self.digest += self._writer.write(rows, digest_of(measured))
        self.rows += rows.num_rows
        offsets = pc.min_max(rows.column("_offset")).as_py()
        self.first_offset = offsets["min"] if self.first_offset is None else min(self.first_offset, offsets["min"])
        self.last_offset = max(self.last_offset, offsets["max"])

    def finish(self) -> tuple[int, int]:
        """(rows, bytes) of the file; the rows are counted in the file, before it gets its name."""
        with self._stack:
            self._writer.close()
            size = self._file.seek(0, 2)
            self._file.seek(0)
            return self._format.count(self._file), size

    def abandon(self) -> None:
        """Remove the file, if possible; never raises."""
        with suppress(Exception):
            self._writer.close()
        with suppress(_Abandoned, OSError, TidemarkError), self._stack:
            raise _Abandoned
