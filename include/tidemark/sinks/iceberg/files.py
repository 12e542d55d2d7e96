"""The data files of a publication: those that come into the table, and those of the same manifest that leave it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo
from pyiceberg.io.pyarrow import (
    ArrowScan,
    _dataframe_to_data_files,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import FileScanTask, Table
from pyiceberg.typedef import Record
from pyiceberg.types import LongType

from tidemark.errors import SinkRefused, WorkFailed
from tidemark.offsets import TopicPartition
from tidemark.sinks.base import NamedFile
from tidemark.sinks.iceberg.columns import TOPIC_PARTITION
from tidemark.sinks.iceberg.staged import PARTITION, SPEC, root_of

MANIFEST_ID = "_manifest_id"


def staged_files(table: Table, sizes: Mapping[str, int]) -> list[DataFile]:
    """The staged files as the table takes them, each with its own statistics; ``sizes`` are their bytes, by key.

    Raises ``WorkFailed`` when one is not there as it was staged, or was staged for another partitioning.
    """
    return [_staged_file(table, f"{table.location().rstrip('/')}/{key}", size) for key, size in sizes.items()]


def _staged_file(table: Table, path: str, size: int) -> DataFile:
    file = table.io.new_input(path)
    try:
        with file.open() as opened:
            footer = pq.read_metadata(opened) if len(file) == size else None
    except FileNotFoundError:
        footer = None
    if footer is None:
        raise WorkFailed(
            f"the staged file {path} is not there, or has another size",
            next_step="nothing was published; programs that remove files which no snapshot names must leave files "
            "alone that are younger than an attempt takes. Then: tidemark retry {pipeline}",
        )
    of_file = footer.metadata or {}
    spec_id = table.metadata.default_spec_id
    if of_file.get(SPEC) != str(spec_id).encode():
        raise WorkFailed(
            "the partitioning of the table was changed since the rows were staged",
            next_step="nothing was published; tidemark retry {pipeline}",
        )
    schema = table.schema()
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=footer,
        stats_columns=compute_statistics_plan(schema, table.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA, file_path=path, file_format=FileFormat.PARQUET,
        partition=Record(*json.loads(of_file[PARTITION])), file_size_in_bytes=size, sort_order_id=None,
        spec_id=spec_id, equality_ids=None, key_metadata=None, **statistics.to_serialized_dict(),
    )  # fmt: skip


@dataclass
class Replaced:
    """The files with rows of a manifest, and the rows of other manifests in them, which stay."""

    files: list[DataFile] = field(default_factory=list)
    kept: list[pa.Table] = field(default_factory=list)

    def rewritten(self, table: Table) -> Iterator[DataFile]:
        """New files with the rows that stay."""
        for rows in self.kept:
            yield from _dataframe_to_data_files(table.metadata, rows, table.io)


def replaced(table: Table, manifest_id: int) -> Replaced:
    """What leaves the table when a manifest is published again, wherever others have compacted its rows to."""
    replacement = Replaced()
    for task in _tasks(table, _equal(MANIFEST_ID, manifest_id)):
        if _bounds(table, task.file) == (manifest_id, manifest_id):
            replacement.files.append(task.file)
            continue
        rows = _rows_of_file(table, task)
        kept = rows.filter(pc.not_equal(rows.column(MANIFEST_ID), manifest_id))
        if kept.num_rows < rows.num_rows:
            replacement.files.append(task.file)
            if kept.num_rows:
                replacement.kept.append(kept)
    return replacement


def rows_of_manifest(table: Table, manifest_id: int, columns: Sequence[str] = ("*",)) -> pa.Table:
    """All rows of a manifest; in memory."""
    return table.scan(_equal(MANIFEST_ID, manifest_id), selected_fields=tuple(columns)).to_arrow()


def has_row(table: Table, manifest_id: int, at: TopicPartition, offset: int) -> bool:
    place = And(
        _equal(MANIFEST_ID, manifest_id),
        _equal("_topic", at.topic),
        _equal(TOPIC_PARTITION, at.partition),
        _equal("_offset", offset),
    )
    rows: pa.Table = table.scan(place, selected_fields=("_offset",)).to_arrow()
    return bool(rows.num_rows)


def manifests_in(table: Table) -> set[int]:
    """The manifests that have rows in the table; reads one column of the files that others have compacted."""
    manifests: set[int] = set()
    for task in _tasks(table, AlwaysTrue()):
        bounds = _bounds(table, task.file)
        if bounds is not None and bounds[0] == bounds[1]:
            manifests.add(bounds[0])
        else:
            manifests |= set(pc.unique(_rows_of_file(table, task, (MANIFEST_ID,)).column(MANIFEST_ID)).to_pylist())
    return manifests - {None}


def named_files(table: Table) -> list[NamedFile]:
    """The files of the current snapshot, by manifest and path.

    Raises ``SinkRefused`` when another program has deleted rows without rewriting their files: who reads files sees
    those rows.
    """
    tasks = _tasks(table, AlwaysTrue())
    if any(task.delete_files for task in tasks):
        raise SinkRefused(
            "another program has deleted rows of the table and left them in its files, so the files alone are not "
            "what the table shows",
            next_step="read the table with an engine, or let Spark rewrite its files, where CATALOG is Spark's name of "
            f"the table's catalog: CALL CATALOG.system.rewrite_data_files(table => '{'.'.join(table.name())}', "
            "options => map('delete-file-threshold', '1'))",
        )
    tasks.sort(key=lambda task: ((_bounds(table, task.file) or (0, 0))[0], task.file.file_path))
    return [
        NamedFile(root_of(task.file.file_path), task.file.record_count, task.file.file_size_in_bytes) for task in tasks
    ]


def _equal(column: str, value: int | str) -> BooleanExpression:
    make: Any = EqualTo  # pydantic's plugin does not know its arguments
    same: BooleanExpression = make(column, value)
    return same


def _tasks(table: Table, rows: BooleanExpression) -> list[FileScanTask]:
    return [task for task in table.scan(rows).plan_files() if isinstance(task, FileScanTask)]


def _rows_of_file(table: Table, task: FileScanTask, columns: Sequence[str] = ("*",)) -> pa.Table:
    """The rows of a file, without those that delete files take away."""
    schema = table.schema() if "*" in columns else table.schema().select(*columns)
    return ArrowScan(table.metadata, table.io, schema, AlwaysTrue()).to_table([task])


def _bounds(table: Table, file: DataFile) -> tuple[Any, Any] | None:
    """The lowest and the highest manifest of a file; None when its statistics do not say it, or a row has none."""
    field_id = table.schema().find_field(MANIFEST_ID).field_id
    lower, upper = (file.lower_bounds or {}).get(field_id), (file.upper_bounds or {}).get(field_id)
    if lower is None or upper is None or (file.null_value_counts or {}).get(field_id):
        return None
    return from_bytes(LongType(), lower), from_bytes(LongType(), upper)
