"""A pipeline with its lake in a container of Azurite. Its readers use their own client."""

from dataclasses import dataclass, field

from sandbox.services.azurite import ACCOUNT, KEY, Container
from tests.worlds.store_world import StoreWorld

CONNECTION = "lake_keys"


def azure_options() -> dict[str, str]:
    """Access to Azurite as a reader with deltalake has it, whose address is in AZURITE_BLOB_STORAGE_URL."""
    return {
        "azure_storage_account_name": ACCOUNT, "azure_storage_account_key": KEY, "azure_storage_use_emulator": "true",
    }  # fmt: skip


class Blobs:
    """The blobs below a place in a container, read with a separate client; keys are relative to the place."""

    def __init__(self, container: Container) -> None:
        self._client = container.client()
        self._prefix = container.prefix

    def keys(self, below: str = "") -> list[str]:
        """Every key that starts with ``below``, sorted."""
        return sorted(self.etags(below))

    def etags(self, below: str = "") -> dict[str, str]:
        """The ETag, which is another one after each write, by key."""
        blobs = self._client.list_blobs(name_starts_with=f"{self._prefix}{below}")
        return {blob.name.removeprefix(self._prefix): str(blob.etag) for blob in blobs}

    def content(self, key: str) -> bytes:
        return self._client.download_blob(f"{self._prefix}{key}").readall()

    def remove(self, key: str) -> None:
        self._client.delete_blob(f"{self._prefix}{key}")


@dataclass
class AzureWorld(StoreWorld):
    """A world with a lake in the container; ``connection`` replaces that with the key of the account."""

    azure: Container = field(kw_only=True)  # of all tests; the world has a folder of it
    connection: str = ""

    def __post_init__(self) -> None:
        own = self.azure.below(f"{self.folder.parent.name}/{self.folder.name}/lake")
        self.root = own.root
        files = {"root": self.root, "connection": CONNECTION, "layout": "raw/{stream}/%Y/%m/%d/%H"}
        self.settings = {"sinks": [{"files": files}], **self.settings}
        self.targets = {CONNECTION: self.connection or self.azure.connection(), **self.targets}
        self._below = Blobs(own)
        super().__post_init__()

    @property
    def below(self) -> Blobs:
        return self._below
