"""``registry``: where the schemas of framed records are."""

from abc import abstractmethod
from typing import Annotated, Any, ClassVar, Final
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializeAsAny,
    ValidationInfo,
    create_model,
    model_validator,
)

from tidemark.config import values
from tidemark.config.base import Section, settings_of_kinds
from tidemark.config.values import wrong
from tidemark.kinds import REGISTRIES


def _url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise wrong("must be an address such as http://registry:8081")
    if parts.username or parts.password:
        raise wrong("may not hold a password: pipeline files are shown; name a connection instead")
    return url


class AnyRegistrySettings(Section):
    """A schema registry. ``subject`` is the subject of a topic by the default of its serializers."""

    subject: ClassVar[str]

    @abstractmethod
    def order(self) -> dict[str, Any]:
        """Return what executors need, without secrets; ``kind`` for a kind that a provider brings."""

    @abstractmethod
    def connections(self) -> set[str]:
        """Return the ids of the Airflow connections that these settings name."""


class RegistrySettings(AnyRegistrySettings):
    """A schema registry with Confluent's API: an Airflow connection, or the address of a registry without security."""

    subject = "{topic}-{part}"

    connection: Annotated[str, AfterValidator(values.connection_id)] | None = Field(
        default=None,
        description="The id of an Airflow connection with the registry's address, login, token or certificate.",
    )
    url: Annotated[str, AfterValidator(_url)] | None = Field(
        default=None,
        description="The registry's address, when it asks for no login.",
        examples=["http://registry:8081"],
    )

    @model_validator(mode="after")
    def _one_key(self) -> "RegistrySettings":
        fields = type(self).model_fields
        if sum(getattr(self, name) is not None for name in fields) != 1:
            kinds = "".join(f", or {name}" for name in fields if name not in RegistrySettings.model_fields)
            both = "connection (an Airflow connection) or url (a registry without login)"
            raise wrong(f"must hold one key: {both}{kinds}")
        return self

    def order(self) -> dict[str, Any]:
        return self.model_dump(exclude_none=True)

    def connections(self) -> set[str]:
        return {self.connection} if self.connection else set()


def _entry() -> type[RegistrySettings]:
    """Return the model of the file's mapping: Confluent's keys, and a key for each kind that a provider brings."""
    kinds: dict[str, Any] = {
        kind: (model, Field(default=None)) for kind, model in settings_of_kinds(REGISTRIES, AnyRegistrySettings).items()
    }
    return create_model("RegistryEntry", __base__=RegistrySettings, **kinds)


_ENTRY: Final = _entry()


def _registry(value: object, info: ValidationInfo) -> object:
    if isinstance(value, AnyRegistrySettings):
        return value
    entry = _ENTRY.model_validate(value, context=info.context)
    kinds = [settings for kind in REGISTRIES if (settings := getattr(entry, kind, None)) is not None]
    return kinds[0] if kinds else RegistrySettings(connection=entry.connection, url=entry.url)


RegistryEntry = Annotated[
    SerializeAsAny[AnyRegistrySettings], BeforeValidator(_registry, json_schema_input_type=_ENTRY)
]
