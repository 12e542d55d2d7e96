"""Reads the rows of a data file with the columns that the table has now, and writes such rows again.

PyIceberg's own reader and writer turn a null list or map of structs into an empty one, so they are not used here.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    ArrowAccessor,
    ArrowProjectionVisitor,
    _get_column_projection_values,
    _get_file_format,
    pyarrow_to_schema,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema, prune_columns, visit_with_partner
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import ListType, MapType

from tidemark.model.positions import positions
from tidemark.providers.iceberg.position_deletes import deleted_positions
from tidemark.providers.iceberg.staged import PARTITION, SPEC
from tidemark.providers.iceberg.writer import plain
from tidemark.providers.lake_tables.nested import conformed_table, is_list, with_elements, with_entries
from tidemark.providers.tables.column_names import MANIFEST_ID

_PLACE = "\0place"  # no partition has this name
_READ_AHEAD = 8 * 2**20  # bytes, PyIceberg's own value


class _Projection(ArrowProjectionVisitor):
    """Maps columns of a file to those of the table, by the ids of fields. A null list or map stays null."""

    def list(self, list_type: ListType, list_array: pa.Array | None, value_array: pa.Array | None) -> pa.Array | None:
        if list_array is None or value_array is None or not is_list(list_array.type):
            return super().list(list_type, list_array, value_array)
        elements = self._cast_if_needed(list_type.element_field, value_array)
        kind = pa.list_(self._construct_field(list_type.element_field, elements.type))
        return with_elements(list_array, elements, kind)

    def map(
        self, map_type: MapType, map_array: pa.Array | None, key_result: pa.Array | None, value_result: pa.Array | None
    ) -> pa.Array | None:
        if not isinstance(map_array, pa.MapArray) or key_result is None or value_result is None:
            return super().map(map_type, map_array, key_result, value_result)
        keys = self._cast_if_needed(map_type.key_field, key_result)
        values = self._cast_if_needed(map_type.value_field, value_result)
        kind = pa.map_(
            self._construct_field(map_type.key_field, keys.type),
            self._construct_field(map_type.value_field, values.type),
        )
        return with_entries(map_array, keys, values, kind)


def batches_of(
    table: Table, file: DataFile, columns: Sequence[str] | None = None, manifest_id: int | None = None
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of a file, deleted ones too, as batches, each with the position of its first row.

    Without ``columns`` all columns are read. With ``manifest_id`` only rows of that manifest; then positions mean
    nothing.
    """
    metadata = table.metadata
    wanted = table.schema() if columns is None else table.schema().select(*columns)
    with table.io.new_input(file.file_path).open() as opened:
        form = _get_file_format(file.file_format, pre_buffer=True, buffer_size=_READ_AHEAD)
        fragment = form.make_fragment(opened)
        physical = fragment.physical_schema
        of_file = pyarrow_to_schema(
            physical, metadata.name_mapping(), downcast_ns_timestamp_to_us=True, format_version=metadata.format_version
        )
        spec = metadata.specs().get(file.spec_id)
        of_partition = _get_column_projection_values(file, wanted, table.schema(), spec, of_file.field_ids)
        project = _Projection(
            of_file, downcast_ns_timestamp_to_us=True, projected_missing_fields=of_partition,
            allow_timestamp_tz_mismatch=True,
        )  # fmt: skip
        leaves = {number for number in wanted.field_ids if not isinstance(wanted.find_type(number), ListType | MapType)}
        read = [column.name for column in prune_columns(of_file, leaves, select_full_types=False).columns]
        scanner = ds.Scanner.from_fragment(
            fragment, schema=physical, columns=read, filter=_of_manifest(table, of_file, manifest_id)
        )
        first = 0
        for batch in scanner.to_batches():
            rows = visit_with_partner(wanted, batch, project, ArrowAccessor(of_file))
            yield first, pa.RecordBatch.from_struct_array(rows)
            first += batch.num_rows


def _of_manifest(table: Table, of_file: Schema, manifest_id: int | None) -> Any:
    """Return the filter for rows of a manifest. Files of other programs may lack the column; then no row matches."""
    if manifest_id is None:
        return None
    name = of_file.find_column_name(table.schema().find_field(MANIFEST_ID).field_id)
    return ds.scalar(False) if name is None else ds.field(name) == manifest_id


def rows_of_file(
    table: Table, task: FileScanTask, columns: Sequence[str] | None = None, manifest_id: int | None = None
) -> pa.Table:
    """Return the rows of a data file, or only those of one manifest, without the rows that Iceberg's delete files mark
    as deleted."""
    schema = table.schema() if columns is None else table.schema().select(*columns)
    of_table = schema_to_pyarrow(schema, include_field_ids=False)
    if not task.delete_files:
        batches = [batch for _, batch in batches_of(table, task.file, columns, manifest_id)]
        return conformed_table(pa.Table.from_batches(batches), of_table) if batches else of_table.empty_table()
    deleted = deleted_positions(table, task, task.delete_files)
    kept = []
    read = None if columns is None else list(dict.fromkeys([*columns, MANIFEST_ID]))
    for first, batch in batches_of(table, task.file, read):
        stays = pc.invert(pc.is_in(pc.add(positions(batch.num_rows), first), value_set=deleted))
        if manifest_id is not None:
            stays = pc.and_(stays, pc.fill_null(pc.equal(batch.column(MANIFEST_ID), manifest_id), fill_value=False))
        kept.append(batch.filter(stays))
    return conformed_table(pa.Table.from_batches(kept), of_table) if kept else of_table.empty_table()


def write_again(table: Table, file: DataFile, rows: pa.Table) -> Iterator[tuple[str, int]]:
    """Write rows of a file into new files, one for each partition of the table's current partitioning.

    Yields path and size of each new file, which has the footer of a staged file.
    """
    if file.spec_id == table.metadata.default_spec_id:
        parts = [([file.partition[at] for at in range(len(file.partition))], rows)]
    else:
        parts = _by_partition(table, rows)
    columns = schema_to_pyarrow(table.schema(), include_field_ids=True)
    for values, part in parts:
        path = f"{table.location().rstrip('/')}/data/{uuid4().hex}.parquet"
        footer = {PARTITION: json.dumps(values).encode(), SPEC: str(table.metadata.default_spec_id).encode()}
        stored = conformed_table(part, columns).replace_schema_metadata(footer)
        output = table.io.new_output(path)
        with output.create() as opened, pq.ParquetWriter(opened, stored.schema, compression="zstd") as writer:
            writer.write_table(stored)
        yield path, len(output)


def _by_partition(table: Table, rows: pa.Table) -> list[tuple[list[Any], pa.Table]]:
    """Return the rows grouped by the partition values of the table's current partitioning."""
    schema, fields = table.schema(), table.spec().fields
    if not fields:
        return [([], rows)]
    columns: dict[str, Any] = {}
    for field in fields:
        source = schema.find_field(field.source_id)
        columns[field.name] = field.transform.pyarrow_transform(source.field_type)(rows.column(source.name))
    names = [*columns]
    places = pa.table(columns).append_column(_PLACE, positions(rows.num_rows))
    groups = places.group_by(names, use_threads=False).aggregate([(_PLACE, "list")])
    chosen = groups.column(f"{_PLACE}_list").to_pylist()
    values = zip(*(groups.column(name).to_pylist() for name in names), strict=True)
    return [
        ([plain(value) for value in partition], rows.take(pa.array(at_places, pa.int64())))
        for partition, at_places in zip(values, chosen, strict=True)
    ]
