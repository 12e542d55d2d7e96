"""Finds the row inside the envelope that an Avro schema describes."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tidemark.decoders.envelopes.base import no_row_inside
from tidemark.providers.avro.types import AvroSchema, column, kind_of, without_null


def row_inside(part: str, text: str, references: Sequence[tuple[str, str]], schema: AvroSchema) -> pa.Schema:
    """The columns of the record in a part of the envelope.

    Each has the metadata ``connect.name`` where the field's type has it. ``schema`` is what ``text`` and its references
    say. Raises ``ConfigurationError`` when there is no such record.
    """
    parts = {field["name"]: field["type"] for field in schema.full["fields"]} if schema.is_record else {}
    row, _ = without_null(parts.get(part, "null"))
    if kind_of(row) != "record":
        raise no_row_inside("the Avro schema", part)
    texts = [text, *(reference for _, reference in references)]
    names = _connect_names([json.loads(each) for each in texts], row["name"])
    fields = [column(field["name"], field["type"]).field for field in row["fields"]]
    return pa.schema(
        [field.with_metadata({"connect.name": names[field.name]}) if field.name in names else field for field in fields]
    )


def _connect_names(texts: Any, record: str) -> dict[str, str]:
    """The names that the types of a record's fields have in the texts, which the parsed schema leaves out."""
    for name, inner in _records(texts, ""):
        if name == record:
            named = {part["name"]: _connect_name(part["type"]) for part in inner["fields"]}
            return {field: connect_name for field, connect_name in named.items() if connect_name}
    return {}


def _records(schema: Any, namespace: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each record of a schema as its text has it, inner ones too, with its full name by Avro's rules."""
    if isinstance(schema, list):
        for branch in schema:
            yield from _records(branch, namespace)
    elif isinstance(schema, Mapping):
        if schema.get("type") in ("record", "error"):
            name = schema["name"]
            space = name.rpartition(".")[0] if "." in name else schema.get("namespace", namespace)
            yield f"{space}.{name.rpartition('.')[2]}".removeprefix("."), schema
            for part in schema["fields"]:
                yield from _records(part["type"], space)
        else:
            for inner in (schema.get("type"), schema.get("items"), schema.get("values")):
                yield from _records(inner, namespace)


def _connect_name(schema: Any) -> str | None:
    """The name of a field's type, or of the type that may also be null."""
    if isinstance(schema, list):
        return next(filter(None, map(_connect_name, schema)), None)
    return schema.get("connect.name") if isinstance(schema, Mapping) else None
