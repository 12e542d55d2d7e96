"""Spark with Delta's own runtime as a reader, in its own process without deltalake."""

from typing import Any

from tests.worlds.asked_spark import AskedSpark
from tests.worlds.delta_world import DeltaWorld


def by_spark(spark: AskedSpark, world: DeltaWorld, *statements: str) -> list[list[list[Any]]]:
    """The rows that Spark answers to each SQL statement, in which ``{table}`` is the table."""
    return spark.rows([statement.format(table=f"delta.`{world.location}`") for statement in statements], {})
