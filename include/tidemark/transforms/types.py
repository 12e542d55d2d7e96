"""Columns by their SQL types, and the Arrow types that sinks get for DuckDB's types."""

from collections.abc import Mapping
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from duckdb.sqltypes import DuckDBPyType

from tidemark.errors import ConfigurationError
from tidemark.transforms.statement import connect

_WIDER: Final = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}
_AS_THEY_ARE: Final = (
    pa.types.is_boolean, pa.types.is_signed_integer, pa.types.is_float32, pa.types.is_float64, pa.types.is_string,
    pa.types.is_binary, pa.types.is_date32, pa.types.is_decimal128,
)  # fmt: skip
_NOT_NULL: Final = " not null"
_MICROSECONDS: Final = {"s": 1_000_000, "ms": 1_000}
_LAST: Final = 2**63 - 1


def refuse_altered(kind: DuckDBPyType, column: str) -> None:
    """Raise ``ConfigurationError`` for a type of DuckDB whose values change in Arrow: UHUGEINT becomes the raw bits of
    a signed number, BIT becomes bytes with their padding.
    """
    if kind.id in ("uhugeint", "bit"):
        raise ConfigurationError(
            f"column {column} would have DuckDB's type {kind!s}; Arrow would change its values",
            next_step=f"cast it: CAST(.. AS VARCHAR) AS {column}",
        )
    for _, inner in kind.children if kind.id in ("list", "array", "struct", "map", "union") else ():
        if isinstance(inner, DuckDBPyType):
            refuse_altered(inner, column)


def stored_type(kind: pa.DataType, column: str) -> pa.DataType:
    """Return the type that sinks get for one of DuckDB's. Raises ``ConfigurationError`` for one that they cannot
    store.
    """
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


def stored_values(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return values of DuckDB with the type that sinks get. Digits of a time beyond the microsecond are cut off. A time
    that has no number of microseconds, such as infinity, becomes the first or last number, which no sink can store.
    """
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if pa.types.is_timestamp(kind):
        return _in_microseconds(values, kind)
    if not _has_times(kind):
        return values.cast(kind)
    mask = values.is_null()
    if pa.types.is_struct(kind):
        parts = [stored_values(values.field(at), field.type) for at, field in enumerate(kind)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
    if pa.types.is_fixed_size_list(values.type):
        values = values.cast(pa.list_(values.type.value_field))
    offsets = pc.add(values.offsets, pa.scalar(0, values.offsets.type)).cast(pa.int32())  # none that begin at another
    if pa.types.is_map(kind):
        keys, items = stored_values(values.keys, kind.key_type), stored_values(values.items, kind.item_type)
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=mask)
    return pa.ListArray.from_arrays(offsets, stored_values(values.values, kind.value_type), type=kind, mask=mask)


def _has_times(kind: pa.DataType) -> bool:
    nested = any(_has_times(kind.field(at).type) for at in range(kind.num_fields))
    return bool(pa.types.is_timestamp(kind)) or nested


def _in_microseconds(times: pa.Array, kind: pa.DataType) -> pa.Array:
    unit = times.type.unit
    if unit == "us":
        return times.cast(kind)
    counts = times.view(pa.int64())
    factor = _MICROSECONDS.get(unit, 1)
    most = _LAST // factor if factor > 1 else _LAST - 1  # DuckDB's infinity is the last number
    far = pc.or_(pc.greater(counts, most), pc.less(counts, -most))
    near = pc.if_else(far, 0, counts)
    micros = pc.divide(near, 1_000) if unit == "ns" else pc.multiply(near, factor)
    return pc.if_else(far, pc.if_else(pc.greater(counts, 0), _LAST, -_LAST), micros).cast(kind)


def schema_of_sql_types(columns: Mapping[str, str]) -> pa.Schema:
    """Return columns by their types in SQL, such as ``DECIMAL(18, 2)`` or ``BIGINT NOT NULL``."""
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
