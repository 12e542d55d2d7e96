"""The fixtures of ``tests/spark``: these tests need Spark."""

from tests.spark.conftest import *  # noqa: F403
