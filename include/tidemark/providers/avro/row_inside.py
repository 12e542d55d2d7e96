"""Finds the row inside the envelope that an Avro schema describes."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tidemark.decoders.envelopes.base import no_row_inside
from tidemark.providers.avro.schema import kind_of, without_null
from tidemark.providers.avro.types import column


def row_inside(schema: Any, part: str) -> pa.Schema:
    """The columns of the record in a part of the envelope.

    Each has the metadata ``connect.name`` where the field's type has it. Raises ``ConfigurationError`` when there is no
    such record.
    """
    parts = {field["name"]: field["type"] for field in schema["fields"]} if kind_of(schema) == "record" else {}
    row, _ = without_null(parts.get(part, "null"))
    if kind_of(row) != "record":
        raise no_row_inside("the Avro schema", part)
    return pa.schema([_with_name(column(field["name"], field["type"]).field, field["type"]) for field in row["fields"]])


def _with_name(field: pa.Field, schema: Any) -> pa.Field:
    name = _connect_name(schema)
    return field.with_metadata({"connect.name": name}) if name else field


def _connect_name(schema: Any) -> str | None:
    """The name of a field's type, or of the type that may also be null."""
    if isinstance(schema, list):
        return next(filter(None, map(_connect_name, schema)), None)
    return schema.get("connect.name") if isinstance(schema, Mapping) else None
