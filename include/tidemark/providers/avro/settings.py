"""``decode: {format: avro, ..}``."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StrictBool, ValidationInfo, WithJsonSchema

from tidemark.config.base import json_of_file
from tidemark.config.values import wrong
from tidemark.errors import ConfigurationError
from tidemark.providers.avro.schema import parsed
from tidemark.providers.avro.types import rows_of
from tidemark.providers.registry.framed_settings import Registered, TextSchemaSettings, is_registered
from tidemark.providers.registry.registered_schema import RegisteredSchema

_FILES = (".avsc", ".json")


def _read_schema(value: object, info: ValidationInfo) -> object:
    """Replace the name of a schema file by its content, because executors do not have the files of this machine."""
    if is_registered(value):
        return Registered.model_validate(value)
    if not isinstance(value, str | Mapping):
        raise wrong("must be the name of an Avro schema file, an Avro schema, or subject or id in the registry")
    schema = json_of_file(value, info) if isinstance(value, str) and value.endswith(_FILES) else value
    try:
        _fields_of(json.dumps(schema))
    except ConfigurationError as problem:
        raise wrong(problem.what.removeprefix("the Avro schema ")) from None
    return schema


def _fields_of(text: str, references: Sequence[tuple[str, str]] = ()) -> dict[str, tuple[str, bool]]:
    """Return, for each column: (Arrow type as text, whether it may be null)."""
    return {field.name: (str(field.type), field.nullable) for field in rows_of(parsed(text, references)).arrow}


class Settings(TextSchemaSettings):
    """One Avro record per value; the reader's schema, ``schema``, decides the columns."""

    schema_kind = "AVRO"

    may_have_envelope = True

    format: Literal["avro"]
    record_schema: Annotated[
        Any,
        BeforeValidator(_read_schema),
        WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object"}]}),
    ] = Field(
        default=None,
        alias="schema",
        description="The schema of the rows: an Avro schema file (its name ends in .avsc), an Avro schema, or one of "
        "the registry: subject, with or without version, or id. Without it, the newest of TOPIC-value.",
        examples=["orders.avsc", {"subject": "orders-value", "version": 3}, {"id": 7}],
    )

    any_record_name: StrictBool = Field(
        default=False,
        description="For avro: whether a record may have [another "
        "name](providers/avro.md#avro-and-the-schema-registry) than the reader's schema.",
    )

    def order(self) -> dict[str, Any]:
        return {**super().order(), **({"any_record_name": True} if self.any_record_name else {})}

    def fields_of(self, reader: RegisteredSchema) -> dict[str, tuple[str, bool]]:
        return _fields_of(reader.text, reader.references)
