"""Spark with Delta's own runtime, in a process of its own: it has no code of deltalake."""

import json
import subprocess
import sys
from typing import Any

from sandbox.bootstrap.checkout import STATE
from sandbox.bootstrap.jars import fetch_for_tests
from tests.worlds.delta_world import DeltaWorld
from tests.worlds.iceberg_readers import SPARK


def by_spark(world: DeltaWorld, *statements: str) -> list[list[list[Any]]]:
    """The rows that Spark answers to each SQL statement, in which ``{table}`` is the table."""
    conf = {
        "spark.driver.extraClassPath": f"{fetch_for_tests('delta', STATE)}/*",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",  # VACUUM removes at once
    }
    named = [statement.format(table=f"delta.`{world.location}`") for statement in statements]
    done = subprocess.run(
        [sys.executable, "-c", SPARK],
        input=json.dumps([conf, named]),
        stdout=subprocess.PIPE,
        cwd=world.folder,  # Spark leaves a folder there
        text=True,
        check=True,
    )
    answers: list[list[list[Any]]] = json.loads(done.stdout.splitlines()[-1])
    return answers
