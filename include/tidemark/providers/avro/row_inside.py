"""Finds the row inside the envelope that an Avro schema describes."""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tidemark.decoders.envelopes.base import no_row_inside
from tidemark.providers.avro.schema import kind_of, without_null
from tidemark.providers.avro.types import column


def row_inside(schema: Any, part: str) -> pa.Schema:
    """Return the columns of the record in a part of the envelope.

    Each column, and each field, element and value inside, has the metadata ``connect.name``, ``connect.type`` and
    ``connect.parameters`` (JSON) if its type has them. Raises ``ConfigurationError`` if the part holds no record.
    """
    parts = {field["name"]: field["type"] for field in schema["fields"]} if kind_of(schema) == "record" else {}
    row, _ = without_null(parts.get(part, "null"))
    if kind_of(row) != "record":
        raise no_row_inside("the Avro schema", part)
    return pa.schema([_named(column(field["name"], field["type"]).field, field["type"]) for field in row["fields"]])


def _named(field: pa.Field, schema: Any) -> pa.Field:
    """Return the field with the metadata that a connector wrote about its type, and about the types inside it."""
    schema, _ = without_null(schema)
    if not isinstance(schema, Mapping):
        return field
    known = {name: str(schema[name]) for name in ("connect.name", "connect.type") if name in schema}
    if "connect.parameters" in schema:
        known["connect.parameters"] = json.dumps(schema["connect.parameters"])
    field = field.with_type(_named_inside(field.type, schema))
    return field.with_metadata(known) if known else field


def _named_inside(kind: pa.DataType, schema: Mapping[str, Any]) -> pa.DataType:
    if pa.types.is_struct(kind):
        types = {field["name"]: field["type"] for field in schema["fields"]}
        return pa.struct([_named(field, types[field.name]) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_named(kind.value_field, schema["items"]))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field, _named(kind.item_field, schema["values"]))
    return kind
