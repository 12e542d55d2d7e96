"""Proposes the type of each column of a row in Spark DDL, from the schema beside its record (``schemas.enable``)."""

from collections.abc import Mapping
from typing import Any, Final

from tidemark.providers.debezium.source_types import DECIMAL, VARIABLE_SCALE, ZONED, exact_digits
from tidemark.providers.debezium.units import NAMED, Unit

_SCALARS: Final = {
    "int8": "SMALLINT", "int16": "SMALLINT", "int32": "INT", "int64": "BIGINT", "float": "FLOAT", "double": "DOUBLE",
    "float32": "FLOAT", "float64": "DOUBLE", "boolean": "BOOLEAN", "string": "STRING", "bytes": "BINARY",
}  # fmt: skip


def type_by(schema: object) -> str | None:
    """Return the type that can hold the values of a schema; None if the schema does not say enough."""
    if not isinstance(schema, Mapping):
        return None
    name = schema.get("name")
    if isinstance(name, str) and (known := _named(name, schema)) is not None:
        return known
    match schema.get("type"):
        case "array":
            part = type_by(schema.get("items"))
            return None if part is None else f"ARRAY<{part}>"
        case "map":
            part = type_by(schema.get("values"))
            keys = schema.get("keys")
            has_texts = isinstance(keys, Mapping) and keys.get("type") == "string"
            return f"MAP<STRING,{part}>" if part is not None and has_texts else None
        case "struct":
            return _struct(schema.get("fields"))
        case str(scalar):
            return _SCALARS.get(scalar)
        case _:
            return None


def _named(name: str, schema: Mapping[str, Any]) -> str | None:
    if name in NAMED:
        return "DATE" if NAMED[name] is Unit.DAYS else "TIMESTAMP"
    if name == ZONED:
        return "TIMESTAMP"
    if name == VARIABLE_SCALE:
        return "STRING"
    if name == DECIMAL:
        parameters = schema.get("parameters")
        digits = exact_digits(parameters if isinstance(parameters, Mapping) else {})
        return "STRING" if digits is None else f"DECIMAL({digits[0]},{digits[1]})"
    return None


def _struct(fields: object) -> str | None:
    if not isinstance(fields, list) or not fields:
        return None
    parts = []
    for field in fields:
        inner = type_by(field)
        name = field.get("field") if isinstance(field, Mapping) else None
        if inner is None or not isinstance(name, str) or not name.isidentifier():
            return None
        parts.append(f"{name}: {inner}")
    return f"STRUCT<{', '.join(parts)}>"
