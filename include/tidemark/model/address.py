"""The address of topics, as a pipeline file names it: a connection or servers."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Address:
    """A connection or servers: one of the two is set. Contains no secret."""

    connection: str | None
    servers: str | None

    def __str__(self) -> str:
        return f"connection {self.connection}" if self.connection else str(self.servers)

    def is_same(self, other: "Address | None") -> bool:
        """Return whether two addresses have the same connection or, without one, share a server. False does not prove
        that they are two clusters: different addresses may lead to one."""
        if other is None:
            return False
        if self.connection is not None:
            return self.connection == other.connection
        return bool(_servers(self.servers) & _servers(other.servers))


def _servers(text: str | None) -> set[str]:
    return {server.strip() for server in (text or "").split(",") if server.strip()}
