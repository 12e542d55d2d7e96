"""``decode: {format: protobuf, ..}``."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema, field_validator, model_validator

from tidemark.config.base import LoadContext, wrong_at
from tidemark.config.values import wrong
from tidemark.decoders.settings import ListSettings
from tidemark.errors import ConfigurationError
from tidemark.providers.registry.framed_settings import FramedSettings, Registered
from tidemark.providers.registry.registered_schema import RegisteredSchema

LARGEST_FILE = 4 * 2**20  # bytes; limited because every order contains the file


def _read(value: object, info: ValidationInfo) -> str | None:
    """Return the content of the file as base64, because executors do not have the files of this machine."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise wrong("must be the name of a descriptor set that protoc has written, such as flights.desc")
    load_context = LoadContext.of(info)
    try:
        content = load_context.content(value)
    except OSError as problem:
        raise wrong(f"names a file that cannot be read: {load_context.folder / value}: {problem.strerror}") from None
    if len(content) > LARGEST_FILE:
        raise wrong(f"names a file of more than {LARGEST_FILE:,} bytes: {load_context.folder / value}")
    return b64encode(content).decode()


def _registered(value: object) -> Registered | None:
    if value is None or isinstance(value, Registered):
        return value
    if not isinstance(value, Mapping):
        raise wrong("must be a mapping with subject, with or without version, or id; a file is descriptor_set")
    return Registered.model_validate(value)


class Settings(FramedSettings, ListSettings):
    """One Protobuf message per record; the reader's ``message`` decides the columns."""

    may_have_envelope = True

    format: Literal["protobuf"]
    message: str = Field(
        description="For protobuf: the message of a record, with its package.", examples=["travel.Flight"], min_length=1
    )
    descriptor_set: Annotated[str | None, BeforeValidator(_read)] = Field(
        default=None,
        description="For protobuf: a descriptor set file of at most 4 MiB. Required without a registry.",
        examples=["flights.desc"],
    )
    record_schema: Annotated[Registered | None, BeforeValidator(_registered), WithJsonSchema({"type": "object"})] = (
        Field(
            default=None,
            alias="schema",
            description="Instead of a descriptor_set: a schema of the registry, by subject or id.",
            examples=[{"subject": "flights-value"}],
        )
    )

    @field_validator("descriptor_set")
    @classmethod
    def _usable(cls, content: str | None, info: ValidationInfo) -> str | None:
        """Keep only the files that the message needs, so that a change of other files does not change the
        fingerprint."""
        if content is None or "message" not in info.data:
            return content
        # Imported late: it needs protobuf, which other pipelines do without.
        from tidemark.providers.protobuf.schemas.descriptors import message_descriptor, needed
        from tidemark.providers.protobuf.schemas.shapes import message_shape

        try:
            kept = needed(b64decode(content), info.data["message"])
            message_shape(message_descriptor(kept, info.data["message"]))
        except ConfigurationError as problem:
            raise wrong(f"cannot be used: {problem.what}; {problem.next_step}") from None
        return b64encode(kept).decode()

    @model_validator(mode="after")
    def _has_a_schema(self) -> Self:
        if self.registry is None and self.descriptor_set is None:
            raise wrong_at("descriptor_set", "is missing: without registry, a descriptor set file holds the message")
        if self.record_schema is not None and (self.registry is None or self.descriptor_set is not None):
            raise wrong_at("schema", "names a schema of the registry: it needs registry, and excludes descriptor_set")
        return self

    def local(self) -> RegisteredSchema | None:
        return None if self.descriptor_set is None else RegisteredSchema(-1, "PROTOBUF", self.descriptor_set)

    def registered(self) -> Registered | None:
        return self.record_schema

    def order(self) -> dict[str, Any]:
        return {**super().order(), "message": self.message, "max_list_bytes": self.max_list_bytes}

    def fields_of(self, reader: RegisteredSchema) -> dict[str, tuple[str, bool]]:
        from tidemark.providers.protobuf.schemas.descriptors import message_descriptor
        from tidemark.providers.protobuf.schemas.registered import descriptor_set_of
        from tidemark.providers.protobuf.schemas.shapes import message_shape

        shape = message_shape(message_descriptor(descriptor_set_of(reader), self.message))
        return {field.name: (str(field.shape.arrow), field.arrow.nullable) for field in shape.fields}
