"""The options with which the client of deltalake accesses a container in the same way as Tidemark's own client."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from tidemark.connections.lookup import Lookup, Secret
from tidemark.providers.azure.address import AzureAddress
from tidemark.providers.azure.client import access, container_client

AZURITE: Final = "devstoreaccount1"


def storage_options(root: str, settings: Mapping[str, Any], lookup: Lookup) -> dict[str, str | Secret]:
    """Return the options of deltalake, with keys as our own client has read them, also from a connection string.

    Raises what ``access`` and ``container_client`` raise.
    """
    address = AzureAddress.parse(root)
    client = container_client(address, access(address, settings, lookup))
    options: dict[str, str | Secret] = {"azure_storage_account_name": address.account}
    if address.account == AZURITE:  # its lists differ from Azure's; its address is in AZURITE_BLOB_STORAGE_URL
        options["azure_storage_use_emulator"] = "true"
    else:
        options["azure_storage_endpoint"] = f"{client.scheme}://{client.primary_hostname}"
        options["azure_allow_http"] = str(client.scheme == "http").lower()
    key, token = getattr(client.credential, "account_key", None), urlsplit(client.url).query
    if key:
        return options | {"azure_storage_account_key": Secret(key)}
    return options | {"azure_storage_sas_token": Secret(token)}
