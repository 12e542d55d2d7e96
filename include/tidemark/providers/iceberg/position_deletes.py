"""Deletes rows of a table by their position in a file, and commits the deletes with other changes in one snapshot.

PyIceberg can read such deletes but not write them. Each delete file belongs to one data file, and shows this by equal
bounds of its path: then readers open it for that file alone, and a compaction drops both together.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import _read_deletes
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.table import FileScanTask, Table, Transaction
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _ManifestMergeManager, _OverwriteFiles
from pyiceberg.typedef import EMPTY_DICT
from pyiceberg.types import LongType, StringType
from pyiceberg.utils.concurrent import ExecutorFactory

from tidemark.errors import THEN_RETRY, SinkRefused

FILE_PATH: Final = 2147483546  # Iceberg's specification fixes the ids of a delete file's columns
POSITION: Final = 2147483545
SMALL_MANIFEST: Final = 2**20  # bytes; each commit merges smaller manifest files of deletes into one
MERGED_BYTES: Final = 8 * 2**20
MERGED_FROM: Final = 100  # manifest files of data files from which on they are merged, as in tables of all rows
_COLUMNS: Final = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(FILE_PATH)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(POSITION)}),
    ]
)


@dataclass(frozen=True)
class DeletedRows:
    """All rows of one data file that its own delete file deletes, in ascending order of position.

    ``before`` are the earlier delete files of this data file alone: the new one also deletes their rows.
    """

    file: DataFile
    positions: pa.Array
    before: Sequence[DataFile] = ()


def own_deletes(task: FileScanTask) -> list[DataFile]:
    """Return the delete files that belong to this data file alone."""
    path = task.file.file_path.encode()
    return [
        deletes for deletes in task.delete_files
        if (deletes.lower_bounds or {}).get(FILE_PATH) == path == (deletes.upper_bounds or {}).get(FILE_PATH)
    ]  # fmt: skip


def deleted_positions(table: Table, task: FileScanTask, deletes: Iterable[DataFile]) -> pa.Array:
    """Return the positions in a task's data file that these delete files delete, unsorted, and possibly with
    duplicates."""
    chunks: list[pa.Array] = [pa.array([], pa.int64())]
    for file in deletes:
        positions = _read_deletes(table.io, file).get(task.file.file_path)
        if positions is not None:
            chunks += [chunk.cast(pa.int64()) for chunk in positions.chunks]
    return pa.concat_arrays(chunks)


def refuse_equality_deletes(table: Table, context: Mapping[str, Any]) -> None:
    """Raise ``SinkRefused`` if other programs have deleted rows by their values: PyIceberg cannot read such delete
    files."""
    snapshot = table.current_snapshot()
    manifests = snapshot.manifests(table.io) if snapshot else []
    for manifest in manifests:
        if manifest.content is ManifestContent.DELETES:
            for entry in manifest.fetch_manifest_entry(table.io):
                if entry.data_file.content is DataFileContent.EQUALITY_DELETES:
                    raise SinkRefused(
                        "another program has deleted rows of the table by their values (equality deletes), which "
                        "Tidemark cannot read",
                        next_step="let Spark rewrite its files, where CATALOG is Spark's name of the table's catalog: "
                        f"CALL CATALOG.system.rewrite_data_files(table => '{'.'.join(table.name())}', options => "
                        "map('delete-file-threshold', '1'))" + THEN_RETRY,
                        **context,
                    )


def write_deletes(table: Table, folder: str, deleted: Sequence[DeletedRows]) -> list[DataFile]:
    """Write a new delete file for each data file, into a folder of the table's location; several at the same time."""
    prefix = f"{table.location().rstrip('/')}/{folder}/deletes-{uuid4().hex}"
    numbered = [(f"{prefix}-{number:05d}.parquet", rows) for number, rows in enumerate(deleted)]
    return list(ExecutorFactory.get_or_create().map(lambda each: _written(table, *each), numbered))


def _written(table: Table, path: str, deleted: DeletedRows) -> DataFile:
    of_file = deleted.file.file_path
    count = len(deleted.positions)
    rows = pa.Table.from_arrays([pa.repeat(of_file, count), deleted.positions], schema=_COLUMNS)
    content = BytesIO()
    pq.write_table(rows, content, compression="zstd")
    with table.io.new_output(path).create(overwrite=True) as file:  # no check for an old file, as the name is unique
        file.write(content.getvalue())
    first, last = (to_bytes(LongType(), deleted.positions[at].as_py()) for at in (0, count - 1))
    deletes = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES, file_path=path, file_format=FileFormat.PARQUET,
        partition=deleted.file.partition, record_count=count, file_size_in_bytes=len(content.getvalue()),
        value_counts={FILE_PATH: count, POSITION: count}, null_value_counts={FILE_PATH: 0, POSITION: 0},
        lower_bounds={FILE_PATH: to_bytes(StringType(), of_file), POSITION: first},
        upper_bounds={FILE_PATH: to_bytes(StringType(), of_file), POSITION: last},
        sort_order_id=None, equality_ids=None, key_metadata=None,
    )  # fmt: skip
    deletes.spec_id = deleted.file.spec_id
    return deletes


class _DeletesWriter(ManifestWriterV2):
    """Writes a manifest file that lists delete files."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class RowDelta(_OverwriteFiles):
    """One snapshot that adds and removes data files, and delete files for their rows."""

    def __init__(
        self,
        transaction: Transaction,
        table: Table,
        summary: dict[str, str],
        *,
        added: Sequence[DataFile],
        removed: Iterable[DataFile],
    ) -> None:
        """Build the snapshot; ``added`` and ``removed`` are delete files."""
        super().__init__(Operation.OVERWRITE, transaction, table.io, snapshot_properties=summary)
        self._added_deletes = list(added)
        self._removed_deletes = set(removed)

    def _existing_manifests(self) -> list[ManifestFile]:
        """Return the manifest files of data files, without those that only list files which an earlier snapshot
        removed."""
        return [
            manifest for manifest in super()._existing_manifests()
            if manifest.content is ManifestContent.DATA
            and (manifest.has_added_files() or manifest.has_existing_files())
        ]  # fmt: skip

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        merging = _ManifestMergeManager(MERGED_BYTES, MERGED_FROM, True, self)
        return [*merging.merge_manifests(manifests), *self._manifests_of_deletes()]

    def _manifests_of_deletes(self) -> list[ManifestFile]:
        """Return the manifest files of deletes.

        Large ones without changes are kept. The entries of all others are written into one new one for each
        partitioning.
        """
        entries = [self._entry(ManifestEntryStatus.ADDED, file) for file in self._added_deletes]
        unchanged: list[ManifestFile] = []
        for manifest in self._current_manifests_of_deletes():
            of_manifest = manifest.fetch_manifest_entry(self._io, discard_deleted=True)
            is_touched = any(entry.data_file in self._removed_deletes for entry in of_manifest)
            if manifest.manifest_length >= SMALL_MANIFEST and not is_touched:
                unchanged.append(manifest)
                continue
            for entry in of_manifest:
                is_removed = entry.data_file in self._removed_deletes
                status = ManifestEntryStatus.DELETED if is_removed else ManifestEntryStatus.EXISTING
                entries.append(self._entry(status, entry.data_file, entry))
        return [*unchanged, *self._written_manifests_of_deletes(entries)]

    def _current_manifests_of_deletes(self) -> Iterator[ManifestFile]:
        snapshot = self._transaction.table_metadata.snapshot_by_name(self._target_branch)
        for manifest in snapshot.manifests(self._io) if snapshot else []:
            if manifest.content is ManifestContent.DELETES and (
                manifest.has_added_files() or manifest.has_existing_files()
            ):
                yield manifest

    def _written_manifests_of_deletes(self, entries: Sequence[ManifestEntry]) -> Iterator[ManifestFile]:
        for spec_id in sorted({entry.data_file.spec_id for entry in entries}):
            output = self.new_manifest_output()
            with _DeletesWriter(
                self.spec(spec_id), self.schema(), output, self._snapshot_id, self._compression
            ) as writer:
                for entry in entries:
                    if entry.data_file.spec_id == spec_id:
                        writer.add_entry(entry)
            yield writer.to_manifest_file()

    def _entry(self, status: ManifestEntryStatus, file: DataFile, before: ManifestEntry | None = None) -> ManifestEntry:
        """Return the entry of a delete file. An existing one keeps its sequence numbers, which decide to which files it
        applies."""
        is_old = before is not None and status is ManifestEntryStatus.EXISTING
        return ManifestEntry.from_args(
            status=status,
            snapshot_id=before.snapshot_id if is_old and before else self._snapshot_id,
            sequence_number=before.sequence_number if before else None,
            file_sequence_number=before.file_sequence_number if before else None,
            data_file=file,
        )

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        """Return the summary. PyIceberg counts added and removed files by their content, so delete files are added to
        its lists."""
        added, removed = self._added_data_files, self._deleted_data_files
        self._added_data_files = [*added, *self._added_deletes]
        self._deleted_data_files = removed | self._removed_deletes
        try:
            return super()._summary(snapshot_properties)
        finally:
            self._added_data_files, self._deleted_data_files = added, removed
