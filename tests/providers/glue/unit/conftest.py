"""The fixtures of ``tests/unit``: these tests start no service."""

from tests.unit.conftest import *  # noqa: F403
