"""Finds the row inside the envelope that an Avro schema describes."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from tidemark.decoders.avro.types import AvroSchema, column, kind_of, without_null
from tidemark.decoders.envelopes.base import no_row_inside


def row_inside(text: str, schema: AvroSchema) -> pa.Schema:
    """The columns of ``after``, each with the metadata ``connect.name`` where the field's type has it.

    Raises ``ConfigurationError`` when there is no such record.
    """
    parts = {part["name"]: part["type"] for part in schema.full["fields"]} if schema.is_record else {}
    row, _ = without_null(parts.get("after", "null"))
    if kind_of(row) != "record":
        raise no_row_inside("the Avro schema")
    names = _connect_names(json.loads(text), row["name"])
    fields = [column(part["name"], part["type"]).field for part in row["fields"]]
    return pa.schema(
        [field.with_metadata({"connect.name": names[field.name]}) if field.name in names else field for field in fields]
    )


def _connect_names(text: Any, record: str) -> dict[str, str]:
    """The names that the types of a record's fields have in the text, which the parsed schema leaves out."""
    for inner in _records(text):
        if inner["name"].rpartition(".")[2] == record.rpartition(".")[2]:
            named = {part["name"]: _connect_name(part["type"]) for part in inner["fields"]}
            return {name: connect_name for name, connect_name in named.items() if connect_name}
    return {}


def _records(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Each record of a schema as its text has it, inner ones too."""
    if isinstance(schema, list):
        for branch in schema:
            yield from _records(branch)
    elif isinstance(schema, Mapping):
        if schema.get("type") == "record":
            yield schema
            for part in schema["fields"]:
                yield from _records(part["type"])
        else:
            for inner in (schema.get("type"), schema.get("items"), schema.get("values")):
                yield from _records(inner)


def _connect_name(schema: Any) -> str | None:
    """The name of a field's type, or of the type that may also be null."""
    if isinstance(schema, list):
        return next(filter(None, map(_connect_name, schema)), None)
    return schema.get("connect.name") if isinstance(schema, Mapping) else None
