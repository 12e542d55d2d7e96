"""The schema of a table for columns of rows, and the differences between a table and what an attempt needs."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table
from pyiceberg.transforms import parse_transform
from pyiceberg.types import IcebergType

from tidemark.errors import THEN_RETRY, SinkRefused
from tidemark.providers.iceberg.partitioning import AVRO_NAME, Term
from tidemark.providers.lake_tables import evolution
from tidemark.providers.lake_tables.evolution import nullable

_SMALL = {pa.int8(): pa.int32(), pa.int16(): pa.int32()}
_NEXT_STEPS: Final = {
    "type": "change its type with another engine, or rename it and let auto_create add the right one; "
    "then: tidemark retry {pipeline}. With auto_create: true int becomes long, float double, and a decimal gets more "
    "digits before its point",
    "null": "let it be null: ALTER COLUMN {name} DROP NOT NULL" + THEN_RETRY,
}


def schema_for(columns: pa.Schema) -> Schema:
    """Return the schema of a table with these columns. All columns and all fields inside are optional, so that others
    can be added."""
    optional = [pa.field(column.name, nullable(_SMALL.get(column.type, column.type))) for column in columns]
    return assign_fresh_schema_ids(Catalog._convert_schema_if_needed(pa.schema(optional)))


def type_of(kind: pa.DataType) -> IcebergType:
    """Return the type of a table's column for an Arrow type."""
    return schema_for(pa.schema([("column", kind)])).fields[0].field_type


def described(kind: pa.DataType) -> str:
    """Return a type as text without the ids of its fields, which differ from table to table."""
    return re.sub(r"\b\d+: (optional|required) ", "", str(type_of(kind)))


def arrow_columns(schema: Schema) -> pa.Schema:
    """Return the columns of a table as Arrow fields."""
    return schema_to_pyarrow(schema, include_field_ids=False)


def partitioning(schema: Schema, terms: Sequence[Term]) -> PartitionSpec:
    """Return the partitioning of a new table."""
    fields = []
    for position, term in enumerate(terms):
        source = schema.find_field(term.column).field_id
        fields.append(PartitionField(source, 1000 + position, parse_transform(term.transform), term.name))
    return PartitionSpec(*fields)


def refuse_other_version(table: Table, context: Mapping[str, Any]) -> None:
    """Raise ``SinkRefused`` for a table that is not of format version 2."""
    version = table.metadata.format_version
    if version < 2:  # version 1 has no sequence numbers, by which Tidemark notices expired snapshots
        raise SinkRefused(
            f"the table has format version {version}",
            next_step="ALTER TABLE .. SET TBLPROPERTIES ('format-version' = '2')" + THEN_RETRY,
            **context,
        )
    if version > 2:  # PyIceberg reads version 3, but cannot write its manifest lists and deletion vectors
        raise SinkRefused(
            f"the table has format version {version}, and Tidemark can write only version 2",
            next_step="write another table: no table goes back to an older version",
            **context,
        )


def refuse_misfits(
    table: Table, wanted: Schema, terms: Sequence[Term], context: Mapping[str, Any], *, widens: bool
) -> None:
    """Raise ``SinkRefused`` for a column of another type, a required column that rows do not have, or a partitioning
    other than ``terms``.

    With ``widens`` a column may get a wider type.
    """
    actual_columns, needed = arrow_columns(table.schema()), arrow_columns(wanted)
    evolution.refuse_misfits(actual_columns, needed, described, _NEXT_STEPS, context, widens=widens)
    actual = [(table.schema().find_column_name(field.source_id), str(field.transform)) for field in table.spec().fields]
    if actual != [(term.column, term.transform) for term in terms]:
        written = ", ".join(str(Term(str(column), transform)) for column, transform in actual) or "nothing"
        raise SinkRefused(
            f"the table is partitioned by {written}, but the pipeline file says "
            f"{', '.join(map(str, terms)) or 'nothing'}",
            next_step="correct partition_by, or change the partitioning of the table (ALTER TABLE .. REPLACE PARTITION "
            "FIELD)" + THEN_RETRY,
            **context,
        )
    for field in table.spec().fields:
        if not AVRO_NAME.fullmatch(field.name):  # PyIceberg writes the name into manifest files unchanged
            raise SinkRefused(
                f"the partition {field.name} of the table has a name that Avro does not allow, so readers could not "
                "read manifest files with it",
                next_step=f"give it another name: ALTER TABLE .. REPLACE PARTITION FIELD {field.name} WITH .. AS NAME"
                + THEN_RETRY,
                **context,
            )
