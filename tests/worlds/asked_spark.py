"""Spark with the runtimes of Delta and Iceberg, in its own process. It starts once and answers many questions."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from sandbox.bootstrap.checkout import STATE
from sandbox.bootstrap.jars import fetch_for_tests

# Of a Spark that knows tables of both kinds; properties of a session add catalogs of Iceberg.
CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",  # VACUUM removes at once
}
ANSWER = "answer "  # begins the lines that are ours
PROGRAM = f"""
import json, sys
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[2]")
for name, value in json.loads(sys.stdin.readline()).items():
    builder = builder.config(name, value)
first = builder.getOrCreate()
for line in sys.stdin:
    conf, statements = json.loads(line)
    session = first.newSession()  # with catalogs of its own, so it reads all tables anew
    for name, value in conf.items():
        session.conf.set(name, value)
    rows = [[list(row) for row in session.sql(statement).collect()] for statement in statements]
    print({ANSWER!r} + json.dumps(rows, default=str), flush=True)
first.stop()
"""


def class_path() -> str:
    """The jars of both runtimes, for ``spark.driver.extraClassPath``."""
    return os.pathsep.join(f"{folder}/*" for folder in fetch_for_tests(STATE, "delta", "iceberg"))


class AskedSpark:
    """A process with Spark."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="asked-spark-")  # Spark leaves a folder where it works
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(self._folder.name),
            text=True,
        )
        self._send({"spark.driver.extraClassPath": class_path(), **CONF})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()
        self._folder.cleanup()
        assert self._process.returncode == 0

    def rows(self, statements: list[str], conf: Mapping[str, str]) -> list[list[list[Any]]]:
        """The rows that it answers to each SQL statement, in a session with these properties."""
        self._send([conf, statements])
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(ANSWER):
                answers: list[list[list[Any]]] = json.loads(line.removeprefix(ANSWER))
                return answers
        raise AssertionError(f"Spark has ended at one of {statements}")

    def _send(self, what: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(what)}\n")
        self._process.stdin.flush()
