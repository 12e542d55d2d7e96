"""The fixtures of ``tests/integration``: these tests need real services."""

from tests.integration.conftest import *  # noqa: F403
