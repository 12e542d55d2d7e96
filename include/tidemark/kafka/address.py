"""Checks the address of Kafka in a pipeline file, and names topics as lineage tools do."""

from pydantic import ValidationInfo

from tidemark.config.values import wrong
from tidemark.model.dataset import Dataset


def dataset_of_topic(servers: str, topic: str) -> Dataset:
    """Return the name of a topic in lineage tools. It has the first of the cluster's servers
    (``host:port,host:port``)."""
    return Dataset(f"kafka://{servers.split(',')[0].strip()}", topic)


def one_address(servers: str | None, info: ValidationInfo) -> str | None:
    """Check that exactly one of ``bootstrap_servers`` and ``connection`` is set. ``connection`` is validated before."""
    if "connection" not in info.data:
        return servers
    if servers is None and info.data["connection"] is None:
        raise wrong("is missing, and so is connection: one of them must say where Kafka is")
    if servers is not None and info.data["connection"] is not None:
        raise wrong("is set beside connection: only one of them may say where Kafka is")
    return servers
