"""The data files of a publication: those that it adds to the table, and those of the same manifest that it removes."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry, ManifestFile
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import Record
from pyiceberg.types import LongType
from pyiceberg.utils.concurrent import ExecutorFactory

from tidemark.errors import THEN_RETRY, SinkRefused, WorkFailed
from tidemark.model.offsets import TopicPartition
from tidemark.model.receipt import PublishedObject
from tidemark.providers.iceberg.reading import rows_of_file, write_again
from tidemark.providers.iceberg.staged import PARTITION, SPEC, root_of
from tidemark.providers.lake_tables.lost_files import ANY_MANIFEST, NO_MANIFEST, LostFile, wrong_file, wrong_files
from tidemark.providers.tables.column_names import MANIFEST_ID, TOPIC_PARTITION
from tidemark.sinks.capabilities import NamedFile
from tidemark.storage.base import ObjectStore


def staged_files(table: Table, parts: Iterable[PublishedObject]) -> list[DataFile]:
    """Return the staged files as Iceberg data files, each with its own statistics.

    Raises ``WorkFailed`` if a file is missing or has another size, or was staged for another partitioning.
    """
    root = table.location().rstrip("/")
    return [_staged_file(table, f"{root}/{part.staged}", part.bytes) for part in parts]


def _staged_file(table: Table, path: str, size: int) -> DataFile:
    file = table.io.new_input(path)
    try:
        with file.open() as opened:
            footer = pq.read_metadata(opened) if len(file) == size else None
    except FileNotFoundError:
        footer = None
    if footer is None:
        raise WorkFailed(
            f"a staged file is missing, or does not have its expected size of {size:,} bytes: {path}",
            next_step="nothing was published; programs that remove files which no snapshot names must leave files "
            "alone that are younger than an attempt takes" + THEN_RETRY,
        )
    of_file = footer.metadata or {}
    spec_id = table.metadata.default_spec_id
    if of_file.get(SPEC) != str(spec_id).encode():
        raise WorkFailed(
            "the partitioning of the table was changed after the rows were staged",
            next_step="nothing was published; tidemark retry {pipeline}",
        )
    schema = table.schema()
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=footer,
        stats_columns=compute_statistics_plan(schema, table.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    for aggregate in statistics.column_aggregates.values():
        try:
            aggregate.max_as_bytes()
        except UnicodeEncodeError:  # PyIceberg increments U+D7FF to a surrogate; a bound may be left out
            aggregate.current_max = None
    staged = DataFile.from_args(
        content=DataFileContent.DATA, file_path=path, file_format=FileFormat.PARQUET,
        partition=Record(*json.loads(of_file[PARTITION])), file_size_in_bytes=size, sort_order_id=None,
        equality_ids=None, key_metadata=None, **statistics.to_serialized_dict(),
    )  # fmt: skip
    staged.spec_id = spec_id
    return staged


@dataclass
class Replaced:
    """The files with rows of a manifest, and the rows of other manifests in them, which must be kept."""

    files: list[DataFile] = field(default_factory=list)
    kept: list[tuple[DataFile, pa.Table]] = field(default_factory=list)

    def rewritten(self, table: Table) -> Iterator[DataFile]:
        """Write the kept rows into new files, and yield these."""
        for file, rows in self.kept:
            for path, size in write_again(table, file, rows):
                yield _staged_file(table, path, size)


def replaced(table: Table, manifest_id: int, lost: Collection[str] = ()) -> Replaced:
    """Find the rows to remove when a manifest is published again, even if others have compacted them into other files.

    Skips files whose paths are in ``lost``, which the caller removes.
    """
    replacement = Replaced()
    for task in tasks_of_manifest(table, manifest_id):
        if task.file.file_path in lost:
            continue
        if bounds(table, task.file) == (manifest_id, manifest_id):
            replacement.files.append(task.file)
            continue
        rows = rows_of_file(table, task)
        # Rows without a manifest were added by others, so Tidemark keeps them.
        kept = rows.filter(pc.fill_null(pc.not_equal(rows.column(MANIFEST_ID), manifest_id), fill_value=True))
        if kept.num_rows < rows.num_rows:
            replacement.files.append(task.file)
            if kept.num_rows:
                replacement.kept.append((task.file, kept))
    return replacement


def lost_files(table: Table, store: ObjectStore, manifest_id: int | None = None) -> list[LostFile[DataFile]]:
    """Return the lost files, as ``TableRows.lost_files`` demands. If a delete file is lost, its data files count as
    lost."""
    tasks = tasks_of(table) if manifest_id is None else tasks_of_manifest(table, manifest_id)
    sizes = {file.file_path: file.file_size_in_bytes for task in tasks for file in (task.file, *task.delete_files)}
    root = f"{root_of(table.location())}/"
    keys = {root_of(path).removeprefix(root): path for path in sizes if root_of(path).startswith(root)}
    wrong = wrong_files(store, {key: sizes[path] for key, path in keys.items()}, listed=manifest_id is None)
    what = {keys[key]: text for key, text in wrong.items()}
    for path in sizes.keys() - keys.values():
        actual = _size_of(table, path)
        if actual != sizes[path]:
            what[path] = wrong_file(path, sizes[path], actual)
    return [
        LostFile(task.file, what[file.file_path], _manifests_of(table, task.file))
        for task in tasks
        for file in (task.file, *sorted(task.delete_files, key=lambda file: file.file_path))
        if file.file_path in what
    ]


def _size_of(table: Table, path: str) -> int | None:
    try:
        return len(table.io.new_input(path))
    except FileNotFoundError:
        return None


def _manifests_of(table: Table, file: DataFile) -> tuple[int, int]:
    """Return the lowest and the highest manifest that may have rows in a file."""
    if MANIFEST_ID not in table.schema().column_names:
        return NO_MANIFEST
    nulls = (file.null_value_counts or {}).get(table.schema().find_field(MANIFEST_ID).field_id)
    return bounds(table, file) or (NO_MANIFEST if nulls == file.record_count else ANY_MANIFEST)


def manifests_with_files(table: Table) -> Callable[[int], bool]:
    """Return a function that says whether some file may have rows of a manifest; reads no data file."""
    spans = {_manifests_of(table, task.file) for task in tasks_of(table)}
    own = {first for first, last in spans if first == last}
    joined = [(first, last) for first, last in spans if first != last]
    return lambda manifest_id: manifest_id in own or any(first <= manifest_id <= last for first, last in joined)


def rows_of_manifest(table: Table, manifest_id: int, columns: Sequence[str] | None = None) -> pa.Table:
    """Return all rows of a manifest, in memory."""
    tasks = tasks_of_manifest(table, manifest_id)
    rows = ExecutorFactory.get_or_create().map(lambda task: rows_of_file(table, task, columns, manifest_id), tasks)
    schema = table.schema() if columns is None else table.schema().select(*columns)
    return pa.concat_tables([schema_to_pyarrow(schema, include_field_ids=False).empty_table(), *rows])


def rows_at(
    table: Table, manifest_id: int, at: TopicPartition, offset: int, columns: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the rows of one record of a manifest."""
    place = And(
        _equal(MANIFEST_ID, manifest_id),
        _equal("_topic", at.topic),
        _equal(TOPIC_PARTITION, at.partition),
        _equal("_offset", offset),
    )
    rows: list[dict[str, Any]] = table.scan(place, selected_fields=tuple(columns)).to_arrow().to_pylist()
    return rows


def manifests_in(table: Table) -> set[int]:
    """Return the manifests that have rows in the table.

    Reads one column of those files that others have compacted, or in which rows were deleted.
    """
    manifests: set[int] = set()
    if MANIFEST_ID not in table.schema().column_names:  # another program has created the table
        return manifests
    for task in tasks_of(table):
        within = bounds(table, task.file)
        if within is not None and within[0] == within[1] and not task.delete_files:
            manifests.add(within[0])
        else:
            manifests |= set(pc.unique(rows_of_file(table, task, (MANIFEST_ID,)).column(MANIFEST_ID)).to_pylist())
    return manifests - {None}


def named_files(table: Table) -> list[NamedFile]:
    """Return the files of the current snapshot, by manifest and path.

    Raises ``SinkRefused`` if another program has deleted rows without rewriting their files, because a reader of the
    files would see those rows.
    """
    tasks = tasks_of(table)
    if any(task.delete_files for task in tasks):
        raise SinkRefused(
            "another program has deleted rows of the table and left them in its files, so the files alone are not "
            "what the table shows",
            next_step="read the table with an engine, or let Spark rewrite its files, where CATALOG is Spark's name of "
            f"the table's catalog: CALL CATALOG.system.rewrite_data_files(table => '{'.'.join(table.name())}', "
            "options => map('delete-file-threshold', '1'))",
        )
    tasks.sort(key=lambda task: ((bounds(table, task.file) or (0, 0))[0], task.file.file_path))
    return [
        NamedFile(root_of(task.file.file_path), task.file.record_count, task.file.file_size_in_bytes) for task in tasks
    ]


def live_files(table: Table, snapshots: Iterable[Snapshot], *, deletes: bool = False) -> Iterator[ManifestEntry]:
    """Yield the files with rows that some snapshots name. Snapshots share manifest files; each is read once.

    With ``deletes`` also yield the delete files.
    """
    listed = {manifest.manifest_path: manifest for snapshot in snapshots for manifest in snapshot.manifests(table.io)}
    for entry in _entries(table, listed.values()):
        if deletes or entry.data_file.content is DataFileContent.DATA:
            yield entry


def _entries(table: Table, manifests: Iterable[ManifestFile]) -> Iterator[ManifestEntry]:
    for manifest in manifests:
        yield from manifest.fetch_manifest_entry(table.io)


def named_keys(table: Table, keys: Collection[str]) -> set[str]:
    """Return which of these keys in the table's location any snapshot of any branch or tag names."""
    if not keys:
        return set()
    return _keys_of(table, live_files(table, table.metadata.snapshots, deletes=True)) & set(keys)


def keys_added_by(table: Table, snapshot: Snapshot) -> set[str]:
    """Return the keys of the files that a snapshot added to the table."""
    own = snapshot.snapshot_id
    manifests = [manifest for manifest in snapshot.manifests(table.io) if manifest.added_snapshot_id == own]
    return _keys_of(table, (entry for entry in _entries(table, manifests) if entry.snapshot_id == own))


def _keys_of(table: Table, entries: Iterable[ManifestEntry]) -> set[str]:
    root = f"{root_of(table.location())}/"
    return {root_of(entry.data_file.file_path).removeprefix(root) for entry in entries}


def _equal(column: str, value: int | str) -> BooleanExpression:
    make: Any = EqualTo  # pydantic's plugin does not know its arguments
    same: BooleanExpression = make(column, value)
    return same


def tasks_of(table: Table, rows: BooleanExpression | None = None) -> list[FileScanTask]:
    """Return the files of the current snapshot that may have matching rows; without ``rows`` all files."""
    planned = table.scan(AlwaysTrue() if rows is None else rows).plan_files()
    return [task for task in planned if isinstance(task, FileScanTask)]


def tasks_of_manifest(table: Table, manifest_id: int) -> list[FileScanTask]:
    """Return the files that may have rows of a manifest."""
    return tasks_of(table, _equal(MANIFEST_ID, manifest_id))


def bounds(table: Table, file: DataFile) -> tuple[int, int] | None:
    """Return the lowest and the highest manifest in a file; None if its statistics lack them, or if a row has no
    manifest."""
    lower, upper = _bound(table, file.lower_bounds), _bound(table, file.upper_bounds)
    field_id = table.schema().find_field(MANIFEST_ID).field_id
    if lower is None or upper is None or (file.null_value_counts or {}).get(field_id):
        return None
    return lower, upper


def _bound(table: Table, of_columns: Mapping[int, bytes] | None) -> int | None:
    value = (of_columns or {}).get(table.schema().find_field(MANIFEST_ID).field_id)
    return None if value is None else int(from_bytes(LongType(), value))
