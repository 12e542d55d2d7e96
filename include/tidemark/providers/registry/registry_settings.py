"""``decode.registry``: where the schemas of framed records are."""

from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from tidemark.config import values
from tidemark.config.base import Section
from tidemark.config.values import wrong


def _url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise wrong("must be an address such as http://registry:8081")
    if parts.username or parts.password:
        raise wrong("may not hold a password: pipeline files are shown; name a connection instead")
    return url


class RegistrySettings(Section):
    """A schema registry with Confluent's API: an Airflow connection, or the address of a registry without security."""

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
    def _one_of_both(self) -> "RegistrySettings":
        if (self.connection is None) == (self.url is None):
            raise wrong("must hold one key: connection (an Airflow connection) or url (a registry without login)")
        return self

    def order(self) -> dict[str, Any]:
        return self.model_dump(exclude_none=True)

    def connections(self) -> set[str]:
        return {self.connection} if self.connection else set()
