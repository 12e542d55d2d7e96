"""The schema of a table for columns of rows, and the differences between a table and what an attempt needs."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table
from pyiceberg.transforms import parse_transform
from pyiceberg.types import DecimalType, DoubleType, FloatType, IcebergType, IntegerType, LongType, NestedField

from tidemark.errors import SinkRefused
from tidemark.providers.iceberg.partitioning import Term

_SMALL = {pa.int8(): pa.int32(), pa.int16(): pa.int32()}


def schema_for(columns: pa.Schema) -> Schema:
    """The schema of a table for these columns; every column may be null, so that others can be added."""
    nullable = [pa.field(column.name, _SMALL.get(column.type, column.type)) for column in columns]
    return assign_fresh_schema_ids(Catalog._convert_schema_if_needed(pa.schema(nullable)))


def partitioning(schema: Schema, terms: Sequence[Term]) -> PartitionSpec:
    """The partitioning of a new table."""
    fields = []
    for position, term in enumerate(terms):
        source = schema.find_field(term.column).field_id
        fields.append(PartitionField(source, 1000 + position, parse_transform(term.transform), term.name))
    return PartitionSpec(*fields)


def missing_columns(table: Table, wanted: Schema) -> list[NestedField]:
    existing = {field.name for field in table.schema().fields}
    return [field for field in wanted.fields if field.name not in existing]


def refuse_other_version(table: Table, context: Mapping[str, Any]) -> None:
    """Raise ``SinkRefused`` for a table that is not of format version 2."""
    version = table.metadata.format_version
    if version < 2:  # it has no sequence numbers, by which expired snapshots are noticed
        raise SinkRefused(
            f"the table has format version {version}",
            next_step="ALTER TABLE .. SET TBLPROPERTIES ('format-version' = '2'); then: tidemark retry {pipeline}",
            **context,
        )
    if version > 2:  # PyIceberg reads it, and writes neither its lists of manifests nor its vectors of deleted rows
        raise SinkRefused(
            f"the table has format version {version}, and tables of version 2 alone can be written",
            next_step="write another table: no table goes back to an older version",
            **context,
        )


def refuse_misfits(table: Table, wanted: Schema, terms: Sequence[Term], context: Mapping[str, Any]) -> None:
    """Raise ``SinkRefused`` for a column of another type, one that may not be null and that rows do not have, and for
    another partitioning than ``terms``."""
    types = {field.name: field.field_type for field in wanted.fields}
    for column in table.schema().fields:
        needed = types.get(column.name)
        if needed is not None and not _fits(column.field_type, needed):
            raise SinkRefused(
                f"column {column.name} of the table is {column.field_type}, the rows have {needed}",
                next_step="change its type with another engine, or rename it and let auto_create add the right one; "
                "then: tidemark retry {pipeline}",
                **context,
            )
        if needed is None and column.required:
            raise SinkRefused(
                f"column {column.name} of the table may not be null, and the rows do not have it",
                next_step=f"let it be null: ALTER COLUMN {column.name} DROP NOT NULL; then: tidemark retry "
                "{pipeline}",
                **context,
            )
    actual = [(table.schema().find_column_name(field.source_id), str(field.transform)) for field in table.spec().fields]
    if actual != [(term.column, term.transform) for term in terms]:
        written = ", ".join(str(Term(str(column), transform)) for column, transform in actual) or "nothing"
        raise SinkRefused(
            f"the table is partitioned by {written}, the pipeline file says {', '.join(map(str, terms)) or 'nothing'}",
            next_step="correct partition_by, or change the partitioning of the table (ALTER TABLE .. REPLACE PARTITION "
            "FIELD); then: tidemark retry {pipeline}",
            **context,
        )


def _fits(actual: IcebergType, needed: IcebergType) -> bool:
    """Whether values of the type ``needed`` can be stored, because it is the same or a wider one."""
    if isinstance(actual, DecimalType) and isinstance(needed, DecimalType):
        return actual.scale == needed.scale and actual.precision >= needed.precision
    wider = (isinstance(actual, LongType) and isinstance(needed, IntegerType)) or (
        isinstance(actual, DoubleType) and isinstance(needed, FloatType)
    )
    return wider or _shape(actual) == _shape(needed)


def _shape(kind: IcebergType) -> str:
    """A type as text without the ids of its fields, and whether they may be null: both differ from table to table."""
    return re.sub(r"\b\d+: (optional|required) ", "", str(kind))
