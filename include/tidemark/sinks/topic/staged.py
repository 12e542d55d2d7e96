"""Staged messages: Arrow IPC files, one per task, topic and partition, in the order of the source's offsets.

Executors write them and the publishing process reads them, so this imports the standard library and pyarrow only.
"""

from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.digest import Digest
from tidemark.errors import TidemarkError, WorkFailed
from tidemark.sinks.grouping import BESIDE, digest_of
from tidemark.storage.base import ObjectStore

# ``row`` is the number of a row among those of its record, where a record may have several; ``about`` is JSON, of dead
# letters only.
MESSAGES = pa.schema(
    [
        ("_topic", pa.string()),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("row", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("about", pa.binary()),
    ]
)
SUFFIX = ".arrow"
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


class _Abandoned(Exception):
    """Tells the store that the file is not to get its name."""


class StagedFile:
    """Messages with the columns of ``BESIDE`` are appended; then it is finished or abandoned, also after an error."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        self.rows = 0
        self.digest = Digest.zero()
        self.offsets: list[int] = []  # the lowest and the highest of each piece
        self._stack = ExitStack()
        self._file = self._stack.enter_context(store.create(key))
        self._writer = pa.ipc.new_file(self._file, MESSAGES, options=_OPTIONS)

    def append(self, measured: pa.Table) -> None:
        rows = measured.drop_columns(BESIDE.names)
        self._writer.write_table(rows)
        self.digest += digest_of(measured)
        self.rows += rows.num_rows
        ends = pc.min_max(rows.column("_offset")).as_py()
        self.offsets += [ends["min"], ends["max"]]

    def finish(self) -> int:
        """The size in bytes; the rows are counted in the file, before it gets its name."""
        with self._stack:
            self._writer.close()
            size = self._file.seek(0, 2)
            self._file.seek(0)
            rows = pa.ipc.open_file(self._file).count_rows()
            if rows != self.rows:
                raise WorkFailed(
                    f"a staged file has {rows:,} messages of {self.rows:,}", next_step="retry the manifest"
                )
        return size

    def abandon(self) -> None:
        """Remove the file, if possible; never raises."""
        with suppress(_Abandoned, OSError, TidemarkError, pa.ArrowException), self._stack:
            raise _Abandoned


def staged_messages(store: ObjectStore, key: str) -> Iterator[pa.RecordBatch]:
    """The batches of a staged file; ``WorkFailed`` when it is gone or damaged."""
    try:
        with store.open(key) as file:
            reader = pa.ipc.open_file(file)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)
    except (pa.ArrowException, OSError) as error:
        raise WorkFailed(
            f"the staged messages {store.root}/{key} cannot be read: {error}",
            next_step="nothing of the manifest is visible; tidemark retry {pipeline}",
        ) from error
