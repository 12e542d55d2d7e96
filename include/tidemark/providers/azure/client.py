"""The client of Azure's Blob storage: its keys, and the translation of its errors. Executors use it too."""

import os
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from azure.core.exceptions import AzureError, HttpResponseError, ServiceRequestError, ServiceResponseError
from azure.storage.blob import BlobServiceClient, ContainerClient, ExponentialRetry

from tidemark.connections.lookup import Lookup, Secret, reveal, variable_of
from tidemark.errors import (
    THEN_RETRY,
    AccessDenied,
    ConfigurationError,
    SinkRefused,
    TidemarkError,
    Unavailable,
    WorkFailed,
)
from tidemark.providers.azure.address import AzureAddress
from tidemark.storage.base import is_address

MIB: Final = 1024 * 1024
BLOCKS_FROM: Final = 64 * MIB  # a larger blob is put in blocks
BLOCK_BYTES: Final = 16 * MIB
RIGHTS: Final = "read, write, delete and list (rwdl)"
# The names are those of Azure's command line.
CONNECTION_STRING, KEY, SAS = "AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN"
_EXTRA = {"connection_string", "shared_access_key", "sas_token"}
# Azurite says AuthorizationFailure for a wrong key or signature, Azure also for an address outside of its firewall.
_KEYS = {"AuthenticationFailed", "AuthorizationFailure", "InvalidAuthenticationInfo", "NoAuthenticationInformation",
         "KeyBasedAuthenticationNotPermitted"}  # fmt: skip
_LATER = {"InternalError", "OperationTimedOut", "PendingCopyOperation", "ServerBusy", "ContainerBeingDeleted"}
_QUERY: Final = re.compile(r"\?[^\s'\")]*")  # of an address: it may have a SAS token


@dataclass(frozen=True)
class AzureAccess:
    """The keys and address of an account: a connection string, or else a key or a SAS token for the endpoint."""

    endpoint: str
    connection_string: Secret | None = None
    key: Secret | None = None
    sas: Secret | None = None


def access(address: AzureAddress, settings: Mapping[str, Any], lookup: Lookup) -> AzureAccess:
    """Return the keys of the connection that the settings of a sink name; without one, those of the environment.

    Raises ``ConfigurationError`` with names of keys, never values, and ``AccessDenied`` if there are no keys.
    """
    conn_id = settings.get("connection")
    if conn_id:
        return _from_connection(address, conn_id, lookup)
    given = [_secret(os.environ.get(name, "").strip()) for name in (CONNECTION_STRING, KEY, SAS)]
    if not any(given):
        raise AccessDenied(
            f"no keys were found for the account {address.account}",
            next_step=f"name a connection of type wasb in the sink, or set {CONNECTION_STRING}, {KEY} or {SAS}; "
            "executors need the same",
        )
    return AzureAccess(address.endpoint, *given)


def _from_connection(address: AzureAddress, conn_id: str, lookup: Lookup) -> AzureAccess:
    """Return the keys of a connection; its fields are those of Airflow's type wasb."""
    connection = lookup(conn_id)
    if connection is None:
        raise ConfigurationError(
            f"the Azure connection {conn_id} does not exist",
            next_step=f"""set {variable_of(conn_id)}='{{"conn_type": "wasb", "login": ACCOUNT, "password": KEY}}', """
            "or add it in Airflow under Admin, Connections, or name no connection in the sink",
            connection=conn_id,
        )
    extra: Mapping[str, Any] = connection.get("extra") or {}
    host = str(connection.get("host") or "")
    endpoint = host if "://" in host or not host else f"https://{host}"
    keys = AzureAccess(
        endpoint.rstrip("/") or address.endpoint,
        _secret(extra.get("connection_string")),
        _secret(extra.get("shared_access_key") or connection.get("password")),
        _secret(extra.get("sas_token")),
    )
    if problem := _problem_with(connection, extra, keys, address):
        raise ConfigurationError(
            f"the Azure connection {conn_id} {problem}",
            next_step="give login (the account) and password (its key), or in its extra connection_string or "
            "sas_token; host is only for an address that is not Azure's",
            connection=conn_id,
        )
    return keys


def _problem_with(
    connection: Mapping[str, Any], extra: Mapping[str, Any], keys: AzureAccess, address: AzureAddress
) -> str | None:
    if unknown := sorted(extra.keys() - _EXTRA):
        return f"has unknown keys in its extra: {', '.join(unknown)}"
    if not is_address(keys.endpoint):
        return "has a host that is not the address of a store"
    if not (keys.connection_string or keys.key or keys.sas):
        return "has neither a key nor a SAS token"
    if connection.get("login") not in (None, "", address.account):
        return f"is of the account {connection['login']}, and the sink writes to {address.account}"
    return None


def _secret(value: object) -> Secret | None:
    return Secret(str(value)) if value not in (None, "") else None


def container_client(address: AzureAddress, access: AzureAccess) -> ContainerClient:
    """Return a client of the container. It is kept for the process; threads may share it, forks may not.

    Raises ``ConfigurationError`` for keys that cannot be keys, and for those of another account.
    """
    try:
        service = _service(access, address.account, os.getpid())
    except ValueError:  # its text may hold the connection string
        raise ConfigurationError(
            f"the keys of the account {address.account} are not as Azure writes them",
            next_step="copy connection string, key or SAS token again, whole, from Access keys of the account",
        ) from None
    if service.account_name not in (None, "", address.account):
        raise ConfigurationError(
            f"the keys are of the account {service.account_name}, and the sink writes to {address.account}",
            next_step="correct the address of the sink, or name the connection of that account",
        )
    return service.get_container_client(address.container)


@lru_cache(maxsize=8)
def _service(access: AzureAccess, account: str, pid: int) -> BlobServiceClient:
    del pid  # a fork must not use the sockets of its parent
    settings: dict[str, Any] = {
        "retry_policy": ExponentialRetry(initial_backoff=1, increment_base=2, retry_total=2, random_jitter_range=1),
        "connection_timeout": 5,
        "read_timeout": 60,
        "max_single_put_size": BLOCKS_FROM,
        "max_block_size": BLOCK_BYTES,
    }
    if access.connection_string:
        return BlobServiceClient.from_connection_string(access.connection_string.reveal(), **settings)
    if access.key:
        b64decode(access.key.reveal(), validate=True)
        named = {"account_name": account, "account_key": access.key.reveal()}
        return BlobServiceClient(access.endpoint, named, **settings)
    # As a text, not as AzureSasCredential: then the addresses of blobs have the token, which copies need.
    return BlobServiceClient(access.endpoint, str(reveal(access.sas)).removeprefix("?"), **settings)


@contextmanager
def translated(what: str, uri: str) -> Iterator[None]:
    """Turn errors of Azure and its client into ours, by code; ``what`` is a verb for ``uri``, such as "read".

    The errors of the client are not chained: their texts may have addresses with a SAS token.
    """
    try:
        yield
    except AzureError as error:
        raise _translate(error, what, uri) from None


def code_of(error: HttpResponseError) -> str:
    code = getattr(error, "error_code", None)
    return str(getattr(code, "value", code) or "")


def is_gone(error: HttpResponseError) -> bool:
    """Return whether the blob does not exist; false if the container does not exist."""
    return code_of(error) == "BlobNotFound"


def _translate(error: AzureError, what: str, uri: str) -> TidemarkError:
    message = _QUERY.sub("?***", str(error.message).partition("\n")[0])[:300]
    if isinstance(error, HttpResponseError) and error.status_code:
        refusal = f"Azure refused to {what} {uri}: {code_of(error) or error.status_code}, {message}"
        return error_of_code(code_of(error), error.status_code, refusal)
    if isinstance(error, ServiceRequestError | ServiceResponseError):
        return Unavailable(
            f"Azure did not answer the request to {what} {uri}: {message}",
            next_step="check the network, the account in the address of the sink, and host of its connection"
            + THEN_RETRY,
        )
    return WorkFailed(f"Azure's client cannot {what} {uri}: {message}", next_step="tidemark retry {pipeline}")


def error_of_code(code: str, status: int, what: str) -> TidemarkError:
    """Return our error for an error code of Azure, or for the HTTP status if the code is not known."""
    if code == "ContainerNotFound":
        return SinkRefused(
            what,
            next_step="create the container, or correct the address of the sink; Tidemark creates no containers",
        )
    if code in _KEYS:
        return AccessDenied(what, next_step="check the key or SAS token of the connection or environment: is it of "
                            "this account, whole and not expired? Does the account allow keys, and the address of this "
                            "machine? Then: tidemark retry {pipeline}")  # fmt: skip
    if code in _LATER or status == 429 or status >= 500:
        return Unavailable(what, next_step="the store is busy or out of order; tidemark retry {pipeline}")
    if status in (401, 403):
        return AccessDenied(what, next_step=f"give the SAS token the rights {RIGHTS} on blobs of the container, or "
                            "take the key of the account" + THEN_RETRY)  # fmt: skip
    return SinkRefused(what, next_step="the store does not do what a lake needs: check policies of the container, "
                       "such as immutability" + THEN_RETRY)  # fmt: skip
