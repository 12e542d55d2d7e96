"""Spark with Delta's own runtime as a reader, in its own process without deltalake."""

from typing import Any

from tests.worlds.asked_spark import AskedSpark
from tests.worlds.delta_world import DeltaWorld

CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",  # VACUUM removes at once
}


def spark_with_delta() -> AskedSpark:
    return AskedSpark("delta", CONF)


def by_spark(spark: AskedSpark, world: DeltaWorld, *statements: str) -> list[list[list[Any]]]:
    """The rows that Spark answers to each SQL statement, in which ``{table}`` is the table."""
    return spark.rows([statement.format(table=f"delta.`{world.location}`") for statement in statements], {})
