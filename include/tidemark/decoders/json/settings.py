"""``decode: {format: json, ..}``."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from tidemark.config.base import json_of_file
from tidemark.config.values import wrong
from tidemark.decoders.json.json_schema import parse, struct_of
from tidemark.decoders.json.marks import columns_of
from tidemark.decoders.json.on_unknown import OnUnknown
from tidemark.decoders.json_shapes.nested import Struct
from tidemark.decoders.settings import ListSettings
from tidemark.errors import ConfigurationError


def read_schema(value: object, info: ValidationInfo) -> object:
    """Replace the path of a schema file by its content, because executors do not have the files of this machine."""
    if not isinstance(value, str | dict):
        raise wrong("must be the name of a JSON Schema file, a JSON Schema, or columns such as id BIGINT, name STRING")
    if isinstance(value, dict) or not value.endswith(".json"):
        return value
    return json_of_file(value, info)


def _parsable(schema: str | dict[str, Any]) -> str | dict[str, Any]:
    check_schema(schema)
    return schema


def check_schema(schema: str | dict[str, Any]) -> None:
    """Raise the error of a pipeline file's key unless the schema parses."""
    try:
        parse(schema)
    except ConfigurationError as problem:
        raise wrong(f"does not parse: {problem.what}; {problem.next_step}") from None


def fields_of(struct: Struct) -> dict[str, tuple[str, bool]]:
    """Return, for each field: (Arrow type as text, whether it may be null)."""
    return {field.name: (str(field.arrow.type), field.arrow.nullable) for field in struct.fields}


class JsonSettings(ListSettings):
    """A format whose values are JSON objects, which may have fields that the schema does not have."""

    unknown_fields: OnUnknown = Field(
        default=OnUnknown.COUNT,
        description="For `json` and `json_schema`: [what happens](#fields-that-the-schema-does-not-have) to a record "
        "with other fields.",
    )

    def finds_unknown_fields(self) -> bool:
        return True

    def order_of_json(self) -> dict[str, Any]:
        """Return the settings that executors need. A default of ``unknown_fields`` adds nothing to an order."""
        is_default = self.unknown_fields is OnUnknown.COUNT
        unknown = {} if is_default else {"unknown_fields": self.unknown_fields.value}
        return {"max_list_bytes": self.max_list_bytes, **unknown}


class Settings(JsonSettings):
    """One JSON object per record, checked strictly against ``record_schema`` (the key ``schema``)."""

    keys_are_json = True
    may_have_envelope = True

    format: Literal["json"]
    record_schema: Annotated[str | dict[str, Any], BeforeValidator(read_schema), AfterValidator(_parsable)] = Field(
        alias="schema",
        description="A JSON Schema file (its name ends in .json), a JSON Schema, or columns as Spark DDL. A BINARY "
        "is base64.",
        examples=["flights.schema.json", "id BIGINT NOT NULL, name STRING"],
    )

    def order(self) -> dict[str, Any]:
        order = {
            "format": self.format,
            "schema": self.record_schema,
            **self.order_of_json(),
            **self.order_of_envelope(),
        }
        of_json_keys = self.tombstones and self.key is None
        return {**order, "tombstones": list(self.tombstones)} if of_json_keys else order

    def _fields(self) -> dict[str, tuple[str, bool]]:
        if self.envelope is not None:
            return self.fields_inside()
        return columns_of(fields_of(struct_of(self.record_schema)), deletes=bool(self.tombstones))
