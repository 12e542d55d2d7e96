"""Azure's Blob storage for tests: Azurite, Microsoft's emulator, on a free port of 127.0.0.1, in memory.

It checks signatures and SAS tokens, but has no hierarchical namespace: it lacks the endpoint ``dfs``.
"""

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from azure.storage.blob import ContainerClient, ContainerSasPermissions, generate_container_sas

from sandbox.bootstrap.azurite import command_of_azurite
from sandbox.services.processes import Child, Service, free_port, port_answers

ACCOUNT = "devstoreaccount1"
# Azurite's own key, which its documentation has: no secret.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
RIGHTS = "rwdl"
FOR = timedelta(hours=6)  # a SAS token is valid for so long


@dataclass(frozen=True)
class Container:
    """A container, or a place in one; ``prefix`` is empty or ends with a slash."""

    endpoint_url: str
    name: str
    prefix: str = ""

    @property
    def root(self) -> str:
        return f"abfss://{self.name}@{ACCOUNT}.dfs.core.windows.net/{self.prefix}".rstrip("/")

    def below(self, folder: str) -> "Container":
        return replace(self, prefix=f"{self.prefix}{folder}/")

    def client(self) -> ContainerClient:
        """Return a client with all rights."""
        credential = {"account_name": ACCOUNT, "account_key": KEY}
        return ContainerClient(self.endpoint_url, self.name, credential)

    def connection(self, endpoint_url: str = "") -> str:
        """Return the value of ``AIRFLOW_CONN_..`` with the account's key, also for a proxy in front of the server."""
        host = endpoint_url or self.endpoint_url
        return json.dumps({"conn_type": "wasb", "login": ACCOUNT, "password": KEY, "host": host})

    def connection_by_sas(self, endpoint_url: str = "", rights: str = RIGHTS, valid_for: timedelta = FOR) -> str:
        """Return the same with a SAS token of the container, which a negative time lets expire before now."""
        host, extra = endpoint_url or self.endpoint_url, {"sas_token": self.sas(rights, valid_for)}
        return json.dumps({"conn_type": "wasb", "host": host, "extra": extra})

    def sas(self, rights: str = RIGHTS, valid_for: timedelta = FOR) -> str:
        now = datetime.now(UTC)
        permission = ContainerSasPermissions.from_string(rights)
        return generate_container_sas(
            ACCOUNT, self.name, KEY, permission=permission, start=now - timedelta(hours=12), expiry=now + valid_for
        )

    def connection_string(self) -> str:
        return f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={self.endpoint_url};"


class Azurite(Service):
    """One server, which loses its blobs when it stops. ``home`` keeps the program for later starts."""

    def __init__(self, state: Path, home: Path) -> None:
        self.log = state.resolve() / "logs" / "azurite.log"
        self.port = free_port()
        self._home = home.resolve()

    @property
    def endpoint_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/{ACCOUNT}"

    def start(self) -> None:
        """Install the program if it is missing, and return when the server answers."""
        command = [*command_of_azurite(self._home), "--blobHost", "127.0.0.1", "--blobPort", str(self.port)]
        command += ["--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck", "--silent"]
        self._child = Child("Azurite", command, self.log, cwd=self.log.parent)
        self._child.wait_ready(lambda: port_answers(self.port), timeout=60)

    def create_container(self, name: str) -> Container:
        container = Container(self.endpoint_url, name)
        container.client().create_container()
        return container
