"""Where a source or a sink of a pipeline file finds Kafka: a connection, or an address."""

from pydantic import ValidationInfo

from tidemark.config.values import wrong


def one_address(servers: str | None, info: ValidationInfo) -> str | None:
    """Check ``bootstrap_servers``, which comes after ``connection``: exactly one of them is set."""
    if "connection" not in info.data:
        return servers
    if servers is None and info.data["connection"] is None:
        raise wrong("is missing, and so is connection: one of them says where Kafka is")
    if servers is not None and info.data["connection"] is not None:
        raise wrong("is set beside connection: only one of them may say where Kafka is")
    return servers
