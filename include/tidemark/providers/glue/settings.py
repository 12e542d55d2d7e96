"""``registry: {glue: ..}``."""

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from tidemark.config import values
from tidemark.providers.registry.registry_settings import AnyRegistrySettings


class Settings(AnyRegistrySettings):
    """A registry of AWS Glue. A subject is what AWS calls a schema; by default its name is the topic's."""

    subject = "{topic}"

    name: str = Field(
        default="default-registry",
        pattern=r"^[a-zA-Z0-9$_#.-]{1,255}$",
        description="The registry's name.",
        examples=["orders"],
    )
    connection: Annotated[str, AfterValidator(values.connection_id)] | None = Field(
        default=None, description="Id of an Airflow connection of type aws; else boto3's own sources."
    )
    region: str | None = Field(default=None, description="Region of the registry.", examples=["eu-central-1"])
    endpoint_url: Annotated[str, AfterValidator(values.endpoint)] | None = Field(
        default=None, description="Address of a service that is not AWS's.", examples=["http://glue:5000"]
    )

    def order(self) -> dict[str, Any]:
        return {"kind": "glue", **self.model_dump(exclude_none=True)}

    def connections(self) -> set[str]:
        return {self.connection} if self.connection else set()
