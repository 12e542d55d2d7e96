"""The traces need a real PostgreSQL."""

import pytest

from tests.fixtures import plugin


def pytest_configure(config: pytest.Config) -> None:
    plugin.load(config)
