"""These tests need real services."""

import pytest

from tests.fixtures import plugin


def pytest_configure(config: pytest.Config) -> None:
    plugin.load(config)
