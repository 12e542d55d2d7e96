"""The fixtures of ``tests/e2e``: these tests need a running Airflow."""

from tests.e2e.conftest import *  # noqa: F403
