"""Addresses of folders in Azure's containers, as Spark and fsspec write them.

    abfss://<container>@<account>.dfs.core.windows.net/<prefix>

Tidemark talks to the account's Blob endpoint, ``https://<account>.blob.core.windows.net``.
"""

import re
from dataclasses import dataclass
from typing import Final

EXAMPLE: Final = "abfss://container@account.dfs.core.windows.net/prefix"
OTHER_SCHEMES: Final = ("abfs", "adl", "az", "azure", "wasb", "wasbs")
_ADDRESS: Final = re.compile(
    r"abfss://(?P<container>[a-z0-9](?:-?[a-z0-9]){2,62})@(?P<account>[a-z0-9]{3,24})"
    r"\.dfs\.(?P<cloud>core(?:\.[a-z]+)+)(?P<folders>(?:/[A-Za-z0-9._=+!*'()-]+)*)"
)


@dataclass(frozen=True)
class AzureAddress:
    """A place in a container; ``prefix`` ends with a slash unless it is empty."""

    account: str
    endpoint: str
    container: str
    prefix: str

    @classmethod
    def parse(cls, address: str) -> "AzureAddress":
        """Return the parts of an address that ``problem_with_address`` accepts."""
        match = _ADDRESS.fullmatch(address)
        if match is None:
            raise ValueError(f"{address} is not {EXAMPLE}")
        prefix = f"{match['folders'][1:]}/" if match["folders"] else ""
        endpoint = f"https://{match['account']}.blob.{match['cloud']}"
        return cls(match["account"], endpoint, match["container"], prefix)

    def root(self, prefix: str) -> str:
        """Return the address of another prefix of this container."""
        cloud = self.endpoint.partition(".blob.")[2]
        return f"abfss://{self.container}@{self.account}.dfs.{cloud}/{prefix}".rstrip("/")


def problem_with_address(address: str) -> str | None:
    """Return what is wrong with an address without a slash at its end; None if it is right."""
    match = _ADDRESS.fullmatch(address)
    if match is None or any(folder.strip(".") == "" for folder in match["folders"].split("/")[1:]):
        return f"must be {EXAMPLE}: a container, an account, and a prefix of letters, digits and ._=+!*'()-"
    return None
