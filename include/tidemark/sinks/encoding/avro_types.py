"""Converts rows to Avro records: the schema of their columns, and their values.

A nullable column is a union with null. A nested record is named after its path, because names in Avro must be unique.
"""

import re
from typing import Any

import pyarrow as pa

from tidemark.errors import ConfigurationError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN: dict[pa.DataType, Any] = {
    pa.bool_(): "boolean", pa.int8(): "int", pa.int16(): "int", pa.int32(): "int", pa.int64(): "long",
    pa.float32(): "float", pa.float64(): "double", pa.string(): "string", pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.timestamp("us", "UTC"): {"type": "long", "logicalType": "timestamp-micros"},
}  # fmt: skip


def avro_schema(schema: pa.Schema, name: str = "Row") -> dict[str, Any]:
    """Return the Avro schema of rows, a record with this name; raises ``ConfigurationError`` for a column that Avro
    cannot hold."""
    return {"type": "record", "name": name, "fields": [_field(field, "Row") for field in schema]}


def _field(field: pa.Field, within: str) -> dict[str, Any]:
    path = f"{within}.{field.name}"
    if not _NAME.fullmatch(field.name):
        raise _refused(path, "its name has other characters than letters, digits and _ (or begins with a digit)")
    kind = _type(field.type, path)
    return {"name": field.name, "type": ["null", kind], "default": None} if field.nullable else {
        "name": field.name, "type": kind,
    }  # fmt: skip


def _type(kind: pa.DataType, path: str) -> Any:
    if kind in _PLAIN:
        return _PLAIN[kind]
    if pa.types.is_decimal128(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_map(kind):
        if not pa.types.is_string(kind.key_type):
            raise _refused(path, f"it is a map whose keys are {kind.key_type}, and Avro's are text")
        return {"type": "map", "values": ["null", _type(kind.item_type, path)]}
    if pa.types.is_list(kind):
        return {"type": "array", "items": ["null", _type(kind.value_type, path)]}
    if pa.types.is_struct(kind):
        return {"type": "record", "name": path, "fields": [_field(field, path) for field in kind]}
    raise _refused(path, f"it is {kind}")


def _refused(path: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"Avro cannot hold column {path.removeprefix('Row.')}: {why}",
        next_step="give the sink another format, or leave the column out",
    )


def avro_values(column: pa.Array) -> list[Any]:
    """Return Python values for fastavro. Times and dates are numbers, so that fastavro need not convert them."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    values: list[Any] = column.to_pylist(maps_as_pydicts="strict" if pa.types.is_nested(column.type) else None)
    return values
