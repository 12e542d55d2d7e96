"""The fixtures of ``tests/faults``: these tests kill processes."""

from tests.faults.conftest import *  # noqa: F403
