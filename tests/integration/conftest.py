"""These tests need real services."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from sandbox.services.broker import Broker
from tests.fixtures import plugin
from tests.worlds.used_topics import delete_later


def pytest_configure(config: pytest.Config) -> None:
    plugin.load(config)


@pytest.fixture
def prefix(broker: Broker) -> Iterator[str]:
    """The topics of one test have it in their names, and are removed at the end."""
    made = f"p{uuid4().hex[:12]}"
    yield made
    delete_later(broker, *(topic for topic in broker.admin().list_topics(timeout=30).topics if made in topic))
