"""Chooses the registry's schema with which the messages of a sink are written."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol, cast

import pyarrow as pa

from tidemark.decoders.pins import Pins
from tidemark.errors import ConfigurationError
from tidemark.providers.registry.registered_schema import RegisteredSchema, UnknownSchema
from tidemark.providers.registry.schemas import Schemas

NOT_REGISTERED = -1  # the id of a schema that the first attempt registers


class Values(Protocol):
    """Writes rows with one schema."""

    def of(self, rows: pa.RecordBatch) -> pa.Array: ...


class Form(Protocol):
    """A module for one format: its name in a registry, the schema of columns, why a schema does not fit, and the writer
    of rows."""

    KIND: str

    def derived(self, columns: pa.Schema, name: str) -> str: ...
    def problem_with(self, schema: RegisteredSchema, columns: pa.Schema) -> str | None: ...
    def values_of(self, schema: RegisteredSchema) -> Values: ...


def form_of(name: str) -> Form:
    """Return the module for ``avro`` or ``protobuf``. Each needs libraries that the other does not need."""
    return cast("Form", import_module(f"tidemark.providers.topic.{name}"))


def values_of(schema: Mapping[str, Any]) -> Values:
    """Return the writer for rows, with the schema of an order."""
    return form_of(schema["kind"].lower()).values_of(RegisteredSchema.from_dict(schema))


def chosen_schema(
    sink: str,
    form: Form,
    registry: Mapping[str, Any],
    subject: str,
    columns: pa.Schema,
    pins: Pins,
    *,
    auto_register: bool,
) -> tuple[RegisteredSchema, dict[str, Any]]:
    """Return the schema, and what a later attempt must know to use the same one.

    Raises ``ConfigurationError`` if no schema fits, and the error of a registry that does not answer.
    """
    schemas = Schemas(registry, pins.all(), pins.lookup)
    if auto_register:
        text = form.derived(columns, "Row")
        try:
            return schemas.written(subject, form.KIND, text, register=pins.register), schemas.used
        except UnknownSchema:
            return RegisteredSchema(NOT_REGISTERED, form.KIND, text), {}
    try:
        schema = schemas.subject(subject)
        problem = form.problem_with(schema, columns)
        if problem is not None:  # the columns have changed since an earlier attempt
            schemas = Schemas(registry, {}, pins.lookup)
            schema = schemas.subject(subject)
            problem = form.problem_with(schema, columns)
    except UnknownSchema:
        raise _unusable(sink, form, f"the schema registry has no subject {subject}", subject, columns) from None
    if problem is not None:
        raise _unusable(
            sink, form, f"schema {schema.name} of {subject} does not fit the columns: {problem}", subject, columns
        )
    return schema, schemas.used


def _unusable(sink: str, form: Form, what: str, subject: str, columns: pa.Schema) -> ConfigurationError:
    return ConfigurationError(
        f"sink {sink}: {what}",
        next_step=f"register a schema for {subject} that fits, such as {form.derived(columns, 'Row')}; or set "
        "auto_register: true for the sink; then: tidemark doctor {pipeline}",
    )
