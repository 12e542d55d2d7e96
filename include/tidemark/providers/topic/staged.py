"""Staged messages: Arrow IPC files, one per task, topic and partition, in the order of the source's offsets.

Executors write them and the publishing process reads them, so this imports only the standard library and pyarrow.
"""

from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa

from tidemark.errors import WorkFailed
from tidemark.sinks.staging.grouping import HASH_COLUMNS, digest_of
from tidemark.sinks.staging.staged_file import StagedFile
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


class MessagesFile(StagedFile):
    def __init__(self, store: ObjectStore, key: str) -> None:
        super().__init__(store, key)
        self._writer = self._messages = pa.ipc.new_file(self._file, MESSAGES, options=_OPTIONS)

    def append(self, measured: pa.Table) -> None:
        """Write messages, which also have the columns of ``HASH_COLUMNS``."""
        rows = measured.drop_columns(HASH_COLUMNS.names)
        self._messages.write_table(rows)
        self._measure(rows, digest_of(measured))

    def _counted(self, file: BinaryIO) -> int:
        rows = int(pa.ipc.open_file(file).count_rows())
        if rows != self.rows:
            raise WorkFailed(
                f"a staged file has {rows:,} messages of {self.rows:,}", next_step="tidemark retry {pipeline}"
            )
        return rows


def staged_messages(store: ObjectStore, key: str) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a staged file; ``WorkFailed`` if it is missing or damaged."""
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
