"""``decode: {format: json_schema, ..}``."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema, model_validator

from tidemark.config.base import wrong_at
from tidemark.config.values import wrong
from tidemark.decoders.json.settings import JsonSettings, check_schema, fields_of, read_schema
from tidemark.providers.registry.framed_settings import Registered, TextSchemaSettings, is_registered
from tidemark.providers.registry.json_schema.registered import struct_of_registered
from tidemark.providers.registry.registered_schema import RegisteredSchema


def _schema(value: object, info: ValidationInfo) -> object:
    if value is None:
        return None
    if is_registered(value):
        return Registered.model_validate(value)
    schema = read_schema(value, info)
    if not isinstance(schema, dict):
        raise wrong("must be the name of a JSON Schema file (.json), a JSON Schema, or subject or id in the registry")
    check_schema(schema)
    return schema


class Settings(TextSchemaSettings, JsonSettings):
    """One framed JSON object per record; the reader's schema, ``schema``, decides the columns."""

    schema_kind = "JSON"

    format: Literal["json_schema"]
    record_schema: Annotated[
        Any, BeforeValidator(_schema), WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object"}]})
    ] = Field(
        default=None,
        alias="schema",
        description="The schema of the rows: a JSON Schema file (its name ends in .json), a JSON Schema, or one of the "
        "registry: subject, with or without version, or id. Without it, the newest of TOPIC-value.",
        examples=["orders.schema.json", {"subject": "orders-value", "version": 3}, {"id": 7}],
    )

    @model_validator(mode="after")
    def _has_a_schema(self) -> Self:
        if self.registry is None:
            raise wrong_at("registry", "is missing: JSON without Confluent's framing is format: json")
        return self

    def order(self) -> dict[str, Any]:
        return {**super().order(), **self.order_of_json()}

    def fields_of(self, reader: RegisteredSchema) -> dict[str, tuple[str, bool]]:
        return fields_of(struct_of_registered(reader))
