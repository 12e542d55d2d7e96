"""Keeps the batches of a task on the local disk, to read them a second time."""

from collections.abc import Iterator
from tempfile import TemporaryFile
from typing import Self

import pyarrow as pa


class Spool:
    """A temporary file without a name, so nothing remains if the process dies. It is about as large as the records."""

    def __enter__(self) -> Self:
        self._file = TemporaryFile(prefix="tidemark-")
        self._writer: pa.ipc.RecordBatchStreamWriter | None = None
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def put(self, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            self._writer = pa.ipc.new_stream(pa.PythonFile(self._file, "w"), batch.schema, options=options)
        self._writer.write_batch(batch)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all batches in their order; ``put`` must not be called afterwards."""
        if self._writer is None:
            return
        self._writer.close()
        self._file.seek(0)
        yield from pa.ipc.open_stream(pa.PythonFile(self._file, "r"))
