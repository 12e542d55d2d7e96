"""Engines without PyIceberg as readers, each in its own process: DuckDB, and Spark with Iceberg's runtime."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from sandbox.bootstrap.apart import packages_of
from sandbox.services.iceberg_catalog import jdbc_options
from tests.worlds.asked_spark import AskedSpark
from tests.worlds.world import Place

SCRIPT = """
import duckdb, json, pathlib, sys
connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
connection.execute("SET enable_progress_bar = false")  # it is printed between the rows when a query takes seconds
for extension in ("avro", "iceberg"):
    folder = pathlib.Path(sys.argv[1], f"duckdb_extension_{extension}", "extensions")
    [file] = folder.glob("*/*.duckdb_extension")
    connection.execute(f"LOAD '{file}'")
rows = connection.execute(f"SELECT _topic, _topic_partition, _offset FROM iceberg_scan('{sys.argv[2]}')").fetchall()
print(json.dumps(rows))
"""


def read_by_duckdb(metadata: str) -> list[Place]:
    """The places of all rows of the table with this metadata file."""
    folder = packages_of("readers")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder), metadata.removeprefix("file://")],
        env={"PYTHONPATH": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [(topic, partition, offset) for topic, partition, offset in json.loads(done.stdout)]


def by_spark(spark: AskedSpark, dsn: str, warehouse: Path, *statements: str) -> list[list[list[Any]]]:
    """The rows that Spark answers to each SQL statement; its catalog ``tidemark`` is the SQL catalog in a database."""
    catalog = {"type": "jdbc", "warehouse": str(warehouse), **jdbc_options(dsn)}
    conf = {"spark.sql.catalog.tidemark": "org.apache.iceberg.spark.SparkCatalog"}
    conf |= {f"spark.sql.catalog.tidemark.{key}": value for key, value in catalog.items()}
    return spark.rows([*statements], conf)
