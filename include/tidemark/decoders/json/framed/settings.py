"""``decode: {format: json_schema, ..}``."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema, model_validator

from tidemark.config.base import wrong_at
from tidemark.config.values import wrong
from tidemark.decoders.framed_settings import FramedSettings, Registered
from tidemark.decoders.json.settings import fields_of, read_schema
from tidemark.decoders.registered_schema import RegisteredSchema

_OF_REGISTRY = frozenset(Registered.model_fields)


def _schema(value: object, info: ValidationInfo) -> object:
    if value is None or (isinstance(value, Mapping) and value and value.keys() <= _OF_REGISTRY):
        return None if value is None else Registered.model_validate(value)
    schema = read_schema(value, info)
    if not isinstance(schema, dict):
        raise wrong("must be the name of a JSON Schema file (.json), a JSON Schema, or subject or id in the registry")
    fields_of(schema)
    return schema


class Settings(FramedSettings):
    """One framed JSON object per record; the reader's schema, ``schema``, decides the columns."""

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

    def local(self) -> RegisteredSchema | None:
        if self.record_schema is None or isinstance(self.record_schema, Registered):
            return None
        return RegisteredSchema(-1, "JSON", json.dumps(self.record_schema))

    def registered(self) -> Registered | None:
        return self.record_schema if isinstance(self.record_schema, Registered) else None

    def field_types(self) -> dict[str, str]:
        return {name: kind for name, (kind, _) in self._fields().items()}

    def never_null(self) -> set[str]:
        return {name for name, (_, nullable) in self._fields().items() if not nullable}

    def _fields(self) -> dict[str, tuple[str, bool]]:
        return {} if self.reader is None else fields_of(json.loads(self.reader.text))
