"""The schema of a Delta table for columns of rows, and the differences between a table and what an attempt needs."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable, Field, Schema

from tidemark.errors import SinkRefused

Context = Mapping[str, Any]
# Delta has signed numbers only.
_SIGNED: Final = {
    pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)
}  # fmt: skip
_WIDER: Final = {
    ("byte", "short"), ("byte", "integer"), ("byte", "long"), ("short", "integer"), ("short", "long"),
    ("integer", "long"), ("float", "double"),
}  # fmt: skip
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")


def schema_for(columns: pa.Schema, context: Context) -> Schema:
    """The schema of a table for these columns; every column may be null, so that others can be added."""
    fields = [pa.field(column.name, _SIGNED.get(column.type, column.type)) for column in columns]
    try:
        return Schema.from_arrow(pa.schema(fields))
    except Exception as unfit:  # deltalake raises no narrower class
        text = " ".join(str(unfit).split())[:200]
        raise SinkRefused(
            f"a Delta table cannot hold a column of the rows: {text}",
            next_step="give the column another type in the schema, or cast it in a transform; then: tidemark retry "
            "{pipeline}",
            **context,
        ) from None


def arrow_columns(table: DeltaTable) -> pa.Schema:
    """The columns of a table as Arrow has them."""
    return pa.schema(table.schema().to_arrow())


def described(fields: Sequence[Field]) -> str:
    """Columns with their types, for a person who adds them."""
    return ", ".join(f"{field.name} {_type_text(json.loads(field.to_json())['type'])}" for field in fields)


def missing_columns(table: DeltaTable, wanted: Schema) -> list[Field]:
    existing = {field.name for field in table.schema().fields}
    return [field for field in wanted.fields if field.name not in existing]


def refuse_misfits(table: DeltaTable, wanted: Schema, context: Context) -> None:
    """Raise ``SinkRefused`` for a column of another type."""
    types = {field["name"]: field["type"] for field in _fields(wanted)}
    for column in _fields(table.schema()):
        needed = types.get(column["name"])
        if needed is not None and not _fits(column["type"], needed):
            raise SinkRefused(
                f"column {column['name']} of the table is {_type_text(column['type'])}, the rows have "
                f"{_type_text(needed)}",
                next_step="write the table again with another type of it, or give the column another name in a "
                "transform and let auto_create add it; then: tidemark retry {pipeline}",
                **context,
            )


def refuse_other_partitioning(table: DeltaTable, partition: str, context: Context) -> None:
    """Raise ``SinkRefused`` for another partitioning than by ``partition``."""
    actual = table.metadata().partition_columns
    if actual != [partition]:
        raise SinkRefused(
            f"the table is partitioned by {', '.join(actual) or 'nothing'}, and a sink needs it by {partition}",
            next_step="give the sink a table of its own (sinks.delta.location), and let auto_create make it",
            **context,
        )


def _fields(schema: Schema) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = json.loads(schema.to_json())["fields"]
    return fields


def _fits(actual: Any, needed: Any) -> bool:
    """Whether values of the type ``needed`` can be stored, because it is the same or a wider one."""
    decimals = [_DECIMAL.fullmatch(kind) for kind in (actual, needed) if isinstance(kind, str)]
    if len(decimals) == 2 and decimals[0] and decimals[1]:
        (own, own_scale), (other, scale) = (map(int, decimal.groups()) for decimal in decimals if decimal)
        return own_scale == scale and own >= other
    if isinstance(actual, str) and isinstance(needed, str) and (needed, actual) in _WIDER:
        return True
    return bool(_shape(actual) == _shape(needed))


def _shape(kind: Any) -> Any:
    """A type without what may be null, which differs from table to table, and without comments."""
    if not isinstance(kind, dict):
        return kind
    kept = {key: part for key, part in kind.items() if key not in ("containsNull", "valueContainsNull", "fields")}
    inner = {key: _shape(part) for key, part in kept.items()}
    return {**inner, "fields": [(field["name"], _shape(field["type"])) for field in kind.get("fields", [])]}


def _type_text(kind: Any) -> str:
    """A type as Spark writes it."""
    if not isinstance(kind, dict):
        return str(kind)
    if kind["type"] == "array":
        return f"array<{_type_text(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{_type_text(kind['keyType'])},{_type_text(kind['valueType'])}>"
    return f"struct<{','.join(field['name'] + ':' + _type_text(field['type']) for field in kind['fields'])}>"
