"""The schema of a Delta table for columns of rows, and the differences between a table and what an attempt needs."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable, Field, Schema

from tidemark.errors import THEN_RETRY, SinkRefused
from tidemark.providers.lake_tables import evolution
from tidemark.providers.lake_tables.evolution import MissingField, extended, missing_fields, nullable

Context = Mapping[str, Any]
# Delta has signed numbers only.
_SIGNED: Final = {
    pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)
}  # fmt: skip
_OTHER_TYPE: Final = (
    "write the table again with another type of it, or give the column another name in a transform and let auto_create "
    "add it" + THEN_RETRY
)
_NEXT_STEPS: Final = {
    "type": _OTHER_TYPE,
    "null": "let it be null: ALTER TABLE .. ALTER COLUMN {name} DROP NOT NULL" + THEN_RETRY,
}


def schema_for(columns: pa.Schema, context: Context) -> Schema:
    """Return the schema of a table with these columns. All columns and all fields inside are nullable, so that others
    can be added."""
    fields = [pa.field(column.name, nullable(_SIGNED.get(column.type, column.type))) for column in columns]
    try:
        return Schema.from_arrow(pa.schema(fields))
    except Exception as unfit:  # deltalake raises no narrower class
        text = " ".join(str(unfit).split())[:200]
        raise SinkRefused(
            f"a Delta table cannot hold a column of the rows: {text}",
            next_step="give the column another type in the schema, or cast it in a transform" + THEN_RETRY,
            **context,
        ) from None


def arrow_columns(table: DeltaTable) -> pa.Schema:
    """Return the columns of a table as Arrow fields."""
    return arrow_of(table.schema())


def arrow_of(schema: Schema) -> pa.Schema:
    return pa.schema(schema.to_arrow())


def described(fields: Sequence[tuple[str, pa.DataType]]) -> str:
    """Return columns with their types as a text for the one who adds them."""
    return ", ".join(f"{name} {_described(kind)}" for name, kind in fields)


def missing_columns(table: DeltaTable, wanted: Schema) -> list[MissingField]:
    return missing_fields(arrow_columns(table), arrow_of(wanted))


def columns_to_add(table: DeltaTable, wanted: Schema) -> list[Field]:
    """Return the missing columns, and those of the table that lack fields inside, with these fields."""
    actual, needed = arrow_columns(table), arrow_of(wanted)
    names = {part.path[0] for part in missing_fields(actual, needed)}
    known = {field.name: field.type for field in actual}
    fields = [
        pa.field(field.name, extended(known[field.name], field.type) if field.name in known else field.type)
        for field in needed
        if field.name in names
    ]
    return Schema.from_arrow(pa.schema(fields)).fields


def refuse_misfits(table: DeltaTable, wanted: Schema, context: Context) -> None:
    """Raise ``SinkRefused`` if a column, or a field inside one, has another type."""
    evolution.refuse_misfits(arrow_columns(table), arrow_of(wanted), _described, _NEXT_STEPS, context)


def refuse_other_partitioning(table: DeltaTable, partition: str, context: Context) -> None:
    """Raise ``SinkRefused`` unless the table is partitioned by ``partition`` alone."""
    actual = table.metadata().partition_columns
    if actual != [partition]:
        raise SinkRefused(
            f"the table is partitioned by {', '.join(actual) or 'nothing'}, and the sink needs {partition}",
            next_step="give the sink a table of its own (sinks.delta.location), and let auto_create make it",
            **context,
        )


def _described(kind: pa.DataType) -> str:
    [field] = Schema.from_arrow(pa.schema([("column", kind)])).fields
    return _type_text(json.loads(field.to_json())["type"])


def _type_text(kind: Any) -> str:
    """Return a type as Spark writes it."""
    if not isinstance(kind, dict):
        return str(kind)
    if kind["type"] == "array":
        return f"array<{_type_text(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{_type_text(kind['keyType'])},{_type_text(kind['valueType'])}>"
    return f"struct<{','.join(field['name'] + ':' + _type_text(field['type']) for field in kind['fields'])}>"
