"""The keys that formats with a schema registry share: ``registry``, and ``schema``, which may name a schema in it."""

import json
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Self

from pydantic import Field, PrivateAttr, StrictInt, model_validator

from tidemark.config.base import Section, wrong_at
from tidemark.config.values import wrong
from tidemark.decoders.pins import Pins
from tidemark.decoders.settings import DecodeSettings
from tidemark.errors import ConfigurationError
from tidemark.providers.registry.registered_schema import RegisteredSchema, UnknownSchema
from tidemark.providers.registry.registry_settings import RegistryEntry

if TYPE_CHECKING:
    from tidemark.providers.registry.schemas import Schemas


_OF_ROWS: Final = (
    "name the schema of the rows in the pipeline file: schema: {subject: NAME}, {id: NUMBER} or a file; "
    "tidemark doctor {pipeline} checks it"
)
_OF_KEYS: Final = (
    "name the schema of the keys below decode.key: schema: {subject: NAME}, {id: NUMBER} or a file; records without "
    "keys, such as those of a table without a primary key, have no current rows: leave their topic out, in a group by "
    "false below each_topic"
)
_UUID: Final = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"


class Registered(Section):
    """A schema of the registry: a version of a subject, by default the newest, or an id."""

    subject: str | None = Field(default=None, min_length=1, description="Its subject, such as orders-value.")
    version: StrictInt | None = Field(default=None, ge=1, description="The version; the newest without it.")
    id: Annotated[StrictInt, Field(ge=0)] | Annotated[str, Field(pattern=_UUID)] | None = Field(
        default=None, description="Its id, instead of a subject: a number, or a UUID."
    )

    @model_validator(mode="after")
    def _subject_or_id(self) -> Self:
        if (self.subject is None) == (self.id is None) or (self.id is not None and self.version is not None):
            raise wrong("must hold subject, with or without version, or id alone")
        return self


class FramedSettings(DecodeSettings):
    """A format whose records name their schema if there is a ``registry``; without a registry all records have one
    schema."""

    registry: RegistryEntry | None = Field(
        default=None, description="Where the schemas are that records name in their frames."
    )

    _pinned: RegisteredSchema | None = PrivateAttr(default=None)
    _schemas: dict[str, Any] = PrivateAttr(default_factory=dict)

    @abstractmethod
    def local(self) -> RegisteredSchema | None:
        """Return the schema of the pipeline file, or of a file that it names, with the id -1; None if it is in the
        registry."""

    @abstractmethod
    def registered(self) -> Registered | None:
        """Return the schema of the registry that the file names; None means the newest of the topic's own subject."""

    @abstractmethod
    def fields_of(self, reader: RegisteredSchema) -> dict[str, tuple[str, bool]]:
        """Return, for each column of a reader's schema: (Arrow type as text, whether it may be null).

        Raises ``ConfigurationError`` for a schema that has no columns.
        """

    def _fields(self) -> dict[str, tuple[str, bool]]:
        if self.reader is None:
            return {}
        if self.envelope is not None:
            return self.fields_inside()
        try:
            return self.fields_of(self.reader)
        except ConfigurationError as problem:
            if self._pinned is None:
                raise
            raise ConfigurationError(
                f"schema {self._pinned.name} of the registry gives no columns: {problem.what}",
                next_step=f"{problem.next_step}; decode.schema may be a file, a version of a subject, or an id",
            ) from None

    @model_validator(mode="after")
    def _has_a_schema(self) -> Self:
        if self.registry is None and self.local() is None:
            raise wrong_at("schema", "names no file: without registry, all records have one schema, which a file holds")
        return self

    @property
    def reader(self) -> RegisteredSchema | None:
        """The schema whose fields become columns; None if it is not pinned yet."""
        return self.local() or self._pinned

    def is_known(self) -> bool:
        return self.reader is not None

    def connections(self) -> set[str]:
        return super().connections() | (self.registry.connections() if self.registry else set())

    def order(self) -> dict[str, Any]:
        if self.reader is None:
            raise ConfigurationError("the schema of the rows is not pinned", next_step="report this bug")
        order: dict[str, Any] = {
            "format": self.format, "reader": self.reader.as_dict(), **self.order_of_envelope()
        }  # fmt: skip
        return {**order, "registry": self.registry.order(), "schemas": self._schemas} if self.registry else order

    def decides_output(self) -> dict[str, Any]:
        """Return the settings that decide the rows. They say if there is a registry, but not its address."""
        settings = {name: value for name, value in super().decides_output().items() if name != "registry"}
        return {**settings, "framed": self.registry.order().get("kind", True)} if self.registry else settings

    def pinned_output(self) -> dict[str, Any]:
        value = {"value": self._pinned.as_dict()} if self._pinned else {}
        return {**value, **super().pinned_output()}

    def uses_registry(self) -> bool:
        return self.registry is not None or super().uses_registry()

    def pinned_part(self, pins: Pins, part: str) -> Self:
        if self.registry is None:
            return self
        from tidemark.providers.registry.schemas import Schemas  # imported late: slow, and most commands do not need it

        schemas = Schemas(self.registry.order(), pins.all(), pins.lookup)
        pinned = self.model_copy()
        if self.local() is None:
            pinned._pinned = self._wanted(schemas, pins, part)
        pins.used |= schemas.used
        pinned._schemas = pins.all()
        return pinned

    def _wanted(self, schemas: "Schemas", pins: Pins, part: str) -> RegisteredSchema:
        assert self.registry is not None, "the schema is in the registry"
        wanted = self.registered() or Registered(subject=pins.subject(part, self.registry.subject))
        if wanted.id is not None:
            by_id = schemas.writer(str(wanted.id))
            if by_id is None:
                raise _missing(f"has no schema {wanted.id}", part)
            return by_id
        assert wanted.subject is not None
        try:
            return schemas.subject(wanted.subject, wanted.version)
        except UnknownSchema:
            version = f"version {wanted.version} of " if wanted.version else ""
            raise _missing(f"has no {version}subject {wanted.subject}", part) from None


class TextSchemaSettings(FramedSettings):
    """A format whose key ``schema`` holds a schema as JSON, or names one of the registry."""

    schema_kind: ClassVar[str]  # the registry's name for this kind of schema

    record_schema: Any = None

    def local(self) -> RegisteredSchema | None:
        if self.record_schema is None or isinstance(self.record_schema, Registered):
            return None
        return RegisteredSchema(-1, self.schema_kind, json.dumps(self.record_schema))

    def registered(self) -> Registered | None:
        return self.record_schema if isinstance(self.record_schema, Registered) else None


def is_registered(value: object) -> bool:
    """Return whether a value of ``schema`` names a schema of the registry."""
    return isinstance(value, Mapping) and bool(value) and value.keys() <= Registered.model_fields.keys()


def _missing(what: str, part: str) -> ConfigurationError:
    return ConfigurationError(f"the schema registry {what}", next_step=_OF_KEYS if part == "key" else _OF_ROWS)
