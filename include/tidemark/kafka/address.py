"""The address of Kafka, as a pipeline file says it (a connection or servers) and as tools for lineage say it."""

from dataclasses import dataclass

from pydantic import ValidationInfo

from tidemark.config.values import wrong
from tidemark.model.dataset import Dataset


@dataclass(frozen=True)
class Address:
    """One of the two is set; it holds no secret."""

    connection: str | None
    servers: str | None

    def __str__(self) -> str:
        return f"connection {self.connection}" if self.connection else str(self.servers)

    def is_same(self, other: "Address | None") -> bool:
        """Whether both have the same connection, or a server in common. Only Kafka knows whether two others are one."""
        if other is None:
            return False
        if self.connection is not None:
            return self.connection == other.connection
        return bool(_servers(self.servers) & _servers(other.servers))


def dataset_of_topic(servers: str, topic: str) -> Dataset:
    """What tools for lineage call a topic, by the first of the cluster's servers (``host:port,host:port``)."""
    return Dataset(f"kafka://{servers.split(',')[0].strip()}", topic)


def _servers(text: str | None) -> set[str]:
    return {server.strip() for server in (text or "").split(",") if server.strip()}


def one_address(servers: str | None, info: ValidationInfo) -> str | None:
    """Check ``bootstrap_servers``, which comes after ``connection``: exactly one of them is set."""
    if "connection" not in info.data:
        return servers
    if servers is None and info.data["connection"] is None:
        raise wrong("is missing, and so is connection: one of them says where Kafka is")
    if servers is not None and info.data["connection"] is not None:
        raise wrong("is set beside connection: only one of them may say where Kafka is")
    return servers
