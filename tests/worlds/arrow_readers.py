"""Spark, DuckDB and polars as readers, each in its own process without Tidemark's code; they answer with Arrow."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from sandbox.bootstrap.apart import packages_of
from sandbox.services.iceberg_catalog import jdbc_options
from tests.worlds.asked_spark import CONF, class_path

SAVE = """
import json, pathlib, sys
import pyarrow as pa
folder, conf, queries = json.load(sys.stdin)
def save(name, table):
    with pa.OSFile(f"{folder}/{name}.arrow", "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
"""
SPARK = """
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[2]")
for name, value in conf.items():
    builder = builder.config(name, value)
session = builder.getOrCreate()
for name, query in queries.items():
    rows = session.sql(query) if isinstance(query, str) else session.read.parquet(*query)
    save(name, rows.toArrow())
session.stop()
"""
DUCKDB = """
import duckdb
connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
connection.execute("SET enable_progress_bar = false")
connection.execute("SET TimeZone = 'UTC'")
for extension in ("avro", "iceberg", "delta"):
    [file] = pathlib.Path(conf["packages"], f"duckdb_extension_{extension}", "extensions").glob("*/*.duckdb_extension")
    connection.execute(f"LOAD '{file}'")
for name, query in queries.items():
    save(name, connection.execute(query).fetch_arrow_table())
"""
POLARS = """
import polars as pl
for name, paths in queries.items():
    save(name, pl.read_parquet(paths, hive_partitioning=False).to_arrow())
"""


def by_spark(folder: Path, dsn: str, queries: dict[str, str | list[str]]) -> dict[str, pa.Table]:
    """SQL, or paths of Parquet files. Its catalog ``tidemark`` is the SQL catalog of Iceberg; it knows Delta, too."""
    catalog = {"type": "jdbc", "warehouse": str(folder / "warehouse"), **jdbc_options(dsn)}
    conf = {
        **CONF,
        "spark.driver.extraClassPath": class_path(),
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
        "spark.sql.catalog.tidemark": "org.apache.iceberg.spark.SparkCatalog",
        **{f"spark.sql.catalog.tidemark.{key}": value for key, value in catalog.items()},
    }
    return _answers(folder, SPARK, conf, queries)


def by_duckdb(folder: Path, queries: dict[str, str]) -> dict[str, pa.Table]:
    packages = str(packages_of("readers"))
    return _answers(folder, DUCKDB, {"packages": packages}, queries, {"PYTHONPATH": packages, "TZ": "UTC"})


def by_polars(folder: Path, paths: dict[str, list[str]]) -> dict[str, pa.Table]:
    return _answers(folder, POLARS, {}, paths, {"PYTHONPATH": str(packages_of("readers"))})


def _answers(
    folder: Path, script: str, conf: dict[str, str], queries: dict[str, Any], environment: dict[str, str] | None = None
) -> dict[str, pa.Table]:
    answers = folder / f"answers{len(list(folder.glob('answers*')))}"
    answers.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", SAVE + script],
        input=json.dumps([str(answers), conf, queries]),
        capture_output=True,
        env=environment,
        cwd=folder,  # Spark leaves a folder there
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return {name: pa.ipc.open_file(answers / f"{name}.arrow").read_all() for name in queries}
