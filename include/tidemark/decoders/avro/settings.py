"""``decode: {format: avro, ..}``."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema

from tidemark.config.base import Surroundings
from tidemark.config.values import wrong
from tidemark.decoders.framed_settings import FramedSettings, Registered
from tidemark.decoders.registered_schema import RegisteredSchema
from tidemark.errors import ConfigurationError

_FILES = (".avsc", ".json")
_OF_REGISTRY = frozenset(Registered.model_fields)


def _read_schema(value: object, info: ValidationInfo) -> object:
    """The content of the file instead of its name: executors do not have the files of this machine."""
    if isinstance(value, Mapping) and value and value.keys() <= _OF_REGISTRY:
        return Registered.model_validate(value)
    if not isinstance(value, str | Mapping):
        raise wrong("must be the name of an Avro schema file, an Avro schema, or subject or id in the registry")
    schema = _of_file(value, info) if isinstance(value, str) and value.endswith(_FILES) else value
    _parsed(json.dumps(schema))
    return schema


def _of_file(name: str, info: ValidationInfo) -> Any:
    surroundings = Surroundings.of(info)
    path = surroundings.folder / name
    try:
        return json.loads(surroundings.text(name))
    except OSError as problem:
        raise wrong(f"names a file that cannot be read: {path}: {problem.strerror}") from None
    except RecursionError:
        raise wrong(f"names a file that is nested too deeply: {path}") from None
    except ValueError as problem:
        raise wrong(f"names a file that is not JSON: {path}: {problem}") from None


def _parsed(text: str, references: tuple[tuple[str, str], ...] = ()) -> dict[str, tuple[str, bool]]:
    """Of each column: (Arrow type as text, whether it may be null)."""
    # Imported late: it needs pyarrow and fastavro, which a pipeline of other records does without.
    from tidemark.decoders.avro.types import parsed

    try:
        return {field.name: (str(field.type), field.nullable) for field in parsed(text, references).arrow}
    except ConfigurationError as problem:
        raise wrong(problem.what.removeprefix("the Avro schema ")) from None


class Settings(FramedSettings):
    """One Avro record per value; the reader's schema, ``schema``, decides the columns."""

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

    def local(self) -> RegisteredSchema | None:
        if self.record_schema is None or isinstance(self.record_schema, Registered):
            return None
        return RegisteredSchema(-1, "AVRO", json.dumps(self.record_schema))

    def registered(self) -> Registered | None:
        return self.record_schema if isinstance(self.record_schema, Registered) else None

    def field_types(self) -> dict[str, str]:
        return {name: kind for name, (kind, _) in self._fields().items()}

    def never_null(self) -> set[str]:
        return {name for name, (_, nullable) in self._fields().items() if not nullable}

    def _fields(self) -> dict[str, tuple[str, bool]]:
        reader = self.reader
        return {} if reader is None else _parsed(reader.text, reader.references)
