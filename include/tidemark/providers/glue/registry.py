"""The client of Glue's schema registry: two requests, with the keys of a connection or those that boto3 finds."""

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as NoConnection

from tidemark.connections.lookup import Lookup
from tidemark.errors import THEN_RETRY, AccessDenied, ConfigurationError, TidemarkError, Unavailable
from tidemark.providers.glue.framing import unframe
from tidemark.providers.registry.base import MessagePlace, Registry, RegistryKind
from tidemark.providers.registry.framing import RecordPart, Unframed
from tidemark.providers.registry.registered_schema import RegisteredSchema, UnknownSchema
from tidemark.storage.s3.client import NO_KEYS, NO_KEYS_FOUND, NO_RIGHT, Access, access, client_of, code_of, status_of

RIGHT = "glue:GetSchemaVersion"
_UNKNOWN = {"EntityNotFoundException"}
_BUSY = {"InternalServiceException", "OperationTimeoutException", "ThrottlingException"}


class GlueRegistry(Registry):
    """Asks one registry of one region; ``name`` is its name there."""

    def __init__(self, name: str, keys: Access) -> None:
        self.name, self._keys = name, keys
        self.address = f"glue {keys.endpoint_url or ''} {keys.region or ''} {name}"

    def by_writer(self, writer: str) -> RegisteredSchema:
        return self._schema(SchemaVersionId=writer)

    def by_subject(self, subject: str, version: int | None = None) -> RegisteredSchema:
        number = {"LatestVersion": True} if version is None else {"VersionNumber": version}
        return self._schema(SchemaId={"RegistryName": self.name, "SchemaName": subject}, SchemaVersionNumber=number)

    def _schema(self, **asked: Any) -> RegisteredSchema:
        try:
            raw = _client(self._keys, os.getpid()).get_schema_version(**asked)
        except (ClientError, BotoCoreError) as error:
            if isinstance(error, ClientError) and code_of(error) in _UNKNOWN:
                raise UnknownSchema(str(asked)) from None
            raise self._translated(error) from error
        return RegisteredSchema(raw["SchemaVersionId"], raw["DataFormat"], raw["SchemaDefinition"])

    def _translated(self, error: ClientError | BotoCoreError) -> TidemarkError:
        what = f"Glue's schema registry {self.name}"
        message = str(error)[:300]
        if isinstance(error, NO_KEYS_FOUND) or (isinstance(error, ClientError) and code_of(error) in NO_KEYS):
            return AccessDenied(
                f"the keys for {what} are missing, or are not taken: {message}",
                next_step="name a connection of type aws in registry.glue, or set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, or a profile, here and on Spark's machines" + THEN_RETRY,
            )
        if isinstance(error, NoConnection | HTTPClientError):
            return Unavailable(
                f"{what} does not answer: {message}",
                next_step="check the network, and region and endpoint_url of registry.glue; nothing is published, and "
                "nothing is lost" + THEN_RETRY,
            )
        if isinstance(error, ClientError) and code_of(error) in NO_RIGHT:
            return AccessDenied(
                f"{what} refused access: {message}",
                next_step=f"give these keys {RIGHT} on the registry and its schemas{THEN_RETRY}",
            )
        if isinstance(error, ClientError) and (code_of(error) in _BUSY or status_of(error) >= 500):
            return Unavailable(
                f"{what} is busy: {message}",
                next_step=f"wait a moment; nothing is published, and nothing is lost{THEN_RETRY}",
            )
        return ConfigurationError(
            f"{what} cannot be asked: {message}", next_step="check name, region and endpoint_url of registry.glue"
        )


@lru_cache(maxsize=8)
def _client(keys: Access, pid: int) -> Any:
    del pid  # a fork must not use the sockets of its parent
    retries: Any = {"mode": "standard", "total_max_attempts": 3}
    return client_of("glue", keys, Config(connect_timeout=5, read_timeout=15, retries=retries))


class Glue(RegistryKind):
    message_place = MessagePlace.NUMBER

    def name(self, config: Mapping[str, Any]) -> str:
        return f"glue {config['name']}"

    def open(self, config: Mapping[str, Any], lookup: Lookup) -> GlueRegistry:
        return GlueRegistry(config["name"], access(config, lookup))

    def unframe(self, batch: pa.RecordBatch, part: RecordPart, *, with_message: bool) -> Unframed:
        del with_message  # the place of a message is always in the data
        return unframe(batch, part)


def open_kind() -> Glue:
    return Glue()
