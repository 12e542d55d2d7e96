"""Writes the rows of one Spark task as Parquet files below the location of the table, each for one partition.

No snapshot names these files before they are published, so no reader sees them.
"""

import json
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema

from tidemark.model.order import Order, SinkOrder
from tidemark.model.receipt import ObjectKind
from tidemark.providers.iceberg.staged import PARTITION, SPEC, data_folder
from tidemark.providers.lake_tables.table_writer import LakeTableWriter
from tidemark.providers.tables.column_names import EVENT_TIME, stored_names
from tidemark.sinks.staging.grouping import HASH_COLUMNS, grouped
from tidemark.sinks.staging.partitioned_writer import Target, store_of
from tidemark.sinks.staging.staged_file import has_complete_file

_EPOCH = date(1970, 1, 1)


class Writer(LakeTableWriter):
    """Collects rows by topic and partition of the table."""

    fewer_files = "partition by day instead of by hour, or into fewer buckets, or raise sinks.iceberg.max_objects"
    unfit_row = "the table has changed since the attempt began"

    def __init__(self, order: Order, sink: SinkOrder, task: str) -> None:
        self._schema = Schema.model_validate_json(sink.options["schema"])
        super().__init__(order, sink, task, schema_to_pyarrow(self._schema, include_field_ids=True))
        self._spec = PartitionSpec.model_validate_json(sink.options["spec"])
        self._data = data_folder(order.manifest_id, order.attempt)

    @classmethod
    def has_staged(cls, order: Order, sink: SinkOrder) -> bool:
        return has_complete_file(store_of(sink), data_folder(order.manifest_id, order.attempt))

    def write(self, rows: pa.RecordBatch, event_time: pa.Array) -> None:
        rows = rows.append_column(EVENT_TIME, event_time)
        columns = [(part, self._partitioned(part, _as_in_table(rows))) for part in self._spec.fields]
        key = pc.binary_join_element_wise(*(_apart(column) for _, column in columns), "") if columns else None
        for topic, _, _, piece in grouped(rows, key):
            first = _as_in_table(piece.slice(0, 1).drop_columns(HASH_COLUMNS.names).to_batches()[0])
            values = [plain(self._partitioned(part, first)[0].as_py()) for part in self._spec.fields]
            self._hold(Target(ObjectKind.DATA, topic, json.dumps(values)), piece)

    def write_dead_letters(self, rows: pa.RecordBatch) -> None:
        for topic, _, _, piece in grouped(rows):
            self._hold(Target(ObjectKind.DEAD_LETTER, topic, ""), piece)

    def _partitioned(self, part: PartitionField, rows: pa.RecordBatch) -> pa.Array:
        source = self._schema.find_field(part.source_id)
        of_table = self._columns.field(source.name).type
        transformed = part.transform.pyarrow_transform(source.field_type)(rows.column(source.name).cast(of_table))
        return transformed.combine_chunks() if isinstance(transformed, pa.ChunkedArray) else transformed

    def _folder_of(self, target: Target) -> str:
        return self._data if target.kind is ObjectKind.DATA else self._folder

    def _with_footer(self, stored: pa.Table, rows: pa.Table, target: Target) -> pa.Table:
        del rows
        footer = {PARTITION: target.place.encode(), SPEC: str(self._spec.spec_id).encode()}
        return stored.replace_schema_metadata(footer)


def _apart(column: pa.Array) -> pa.Array:
    """Return the texts of a column, each after its length. So joined texts differ if any of their parts differ."""
    texts = column.cast(pa.string())
    marked = pc.binary_join_element_wise(pc.binary_length(texts).cast(pa.string()), texts, ":")
    return pc.fill_null(marked, "-")


def _as_in_table(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.rename_columns(stored_names(rows.schema.names))


def plain(value: Any) -> Any:
    """Return a partition value for JSON: a date becomes the number of its day, as in Iceberg."""
    return (value - _EPOCH).days if isinstance(value, date) else value
