"""Columns by their SQL types, and the Arrow types that sinks get for those of DuckDB."""

from collections.abc import Mapping
from typing import Final

import duckdb
import pyarrow as pa
from duckdb.sqltypes import DuckDBPyType

from tidemark.errors import ConfigurationError
from tidemark.transforms.statement import connect

_WIDER: Final = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}
_AS_THEY_ARE: Final = (
    pa.types.is_boolean, pa.types.is_signed_integer, pa.types.is_float32, pa.types.is_float64, pa.types.is_string,
    pa.types.is_binary, pa.types.is_date32, pa.types.is_decimal128,
)  # fmt: skip
_NOT_NULL: Final = " not null"


def refuse_altered(kind: DuckDBPyType, column: str) -> None:
    """Raise ``ConfigurationError`` for a type of DuckDB whose values Arrow gets as other values: UHUGEINT comes as the
    raw bits of a signed number, BIT as bytes with their padding."""
    if kind.id in ("uhugeint", "bit"):
        raise ConfigurationError(
            f"column {column} would be {kind!s}, whose values no sink gets as they are",
            next_step=f"cast it: CAST(.. AS VARCHAR) AS {column}",
        )
    for _, inner in kind.children if kind.id in ("list", "array", "struct", "map", "union") else ():
        if isinstance(inner, DuckDBPyType):
            refuse_altered(inner, column)


def stored_type(kind: pa.DataType, column: str) -> pa.DataType:
    """The type that sinks get for one of DuckDB's; ``ConfigurationError`` for one that they do not know."""
    if kind in _WIDER:
        return _WIDER[kind]
    if any(test(kind) for test in _AS_THEY_ARE):
        return kind
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(pa.field("element", stored_type(kind.value_type, column)))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, stored_type(field.type, column)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(stored_type(kind.key_type, column), stored_type(kind.item_type, column))
    if isinstance(kind, pa.BaseExtensionType) and pa.types.is_string(kind.storage_type):
        return pa.string()  # JSON
    raise ConfigurationError(
        f"column {column} would be {kind}, which sinks cannot store",
        next_step=f"cast it: CAST(.. AS VARCHAR) AS {column}, or BIGINT, DOUBLE, DECIMAL(18, 2), TIMESTAMPTZ",
    )


def schema_of_sql_types(columns: Mapping[str, str]) -> pa.Schema:
    """Columns by their types in SQL, such as ``DECIMAL(18, 2)`` or ``BIGINT NOT NULL``."""
    connection = connect()
    fields = []
    for name, written in columns.items():
        text = written.strip()
        nullable = not text.lower().endswith(_NOT_NULL)
        kind = text if nullable else text[: -len(_NOT_NULL)]
        try:
            relation = connection.sql(f"SELECT CAST(NULL AS {kind}) AS c")
            [made], [type_of_column] = relation.to_arrow_table().schema, relation.types
        except (duckdb.Error, ValueError):
            raise ConfigurationError(
                f"column {name}: {written} is not a type of SQL",
                next_step="write types such as BIGINT, VARCHAR, DOUBLE, DECIMAL(18, 2), TIMESTAMPTZ, BIGINT NOT NULL",
            ) from None
        refuse_altered(type_of_column, name)
        fields.append(pa.field(name, stored_type(made.type, name), nullable=nullable))
    return pa.schema(fields)
