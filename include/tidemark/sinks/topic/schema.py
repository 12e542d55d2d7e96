"""Which schema of a registry the messages of a sink are written with."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tidemark.decoders.pins import Pins
from tidemark.decoders.registered_schema import RegisteredSchema, UnknownSchema
from tidemark.decoders.schemas import Schemas
from tidemark.errors import ConfigurationError
from tidemark.sinks.topic.avro import derived, why_unlike

NOT_REGISTERED = -1  # the id of a schema that the first attempt registers


def chosen_schema(
    sink: str, registry: Mapping[str, Any], subject: str, columns: pa.Schema, pins: Pins, *, auto_register: bool
) -> tuple[RegisteredSchema, dict[str, Any]]:
    """The schema, and what a later attempt must know to use the same. Raises ``ConfigurationError`` when no schema
    fits, and what a registry raises that does not answer."""
    schemas = Schemas(registry, pins.all(), pins.lookup)
    if auto_register:
        text = derived(columns, "Row")
        try:
            return schemas.written(subject, "AVRO", text, register=pins.register), schemas.used
        except UnknownSchema:
            return RegisteredSchema(NOT_REGISTERED, "AVRO", text), {}
    try:
        schema = schemas.subject(subject)
        why = why_unlike(schema, columns)
        if why:  # the columns have changed since an earlier attempt
            schemas = Schemas(registry, {}, pins.lookup)
            schema = schemas.subject(subject)
            why = why_unlike(schema, columns)
    except UnknownSchema:
        raise _unusable(sink, f"the schema registry has no subject {subject}", subject, columns) from None
    if why:
        raise _unusable(sink, f"schema {schema.name} of {subject} does not fit the columns: {why}", subject, columns)
    return schema, schemas.used


def _unusable(sink: str, what: str, subject: str, columns: pa.Schema) -> ConfigurationError:
    return ConfigurationError(
        f"sink {sink}: {what}",
        next_step=f"register a schema for {subject} that fits, such as {derived(columns, 'Row')}; or set "
        "auto_register: true for the sink; then: tidemark doctor {pipeline}",
    )
