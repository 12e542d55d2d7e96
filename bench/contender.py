"""Runs one contender in its own process: `python -m bench.contender KIND TASK.json`. FlinkJob.java has Flink's
contender.

Every contender has the same master, the same jars and the same heap. It writes the time of each mark, in seconds since
1970, to the file that the task names.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from bench.records import SCHEMA

METADATA = ("topic", "partition", "offset", "timestamp", "key")


def main(kind: str, file: Path) -> None:
    task = json.loads(file.read_text())
    marks: dict[str, float] = {}

    def mark(name: str) -> None:
        marks[name] = time.time()

    CONTENDERS[kind](task, mark)
    mark("done")
    Path(task["marks"]).write_text(json.dumps(marks))


def tidemark(task: dict[str, Any], mark: Callable[[str], None]) -> None:
    """Run `tidemark run`, with marks before and after Spark's part."""
    from tidemark.cli import main
    from tidemark.spark import job, session

    _marked(session, "open_session", mark, before="planned", after="session")
    _marked(job, "stage", mark, before="session", after="staged")
    main.main(["run", task["pipeline"], "--master", task["master"]], standalone_mode=False)


def warm(task: dict[str, Any], mark: Callable[[str], None]) -> None:
    """Run `tidemark run` on the Spark Connect server that the environment names."""
    from tidemark.cli import main
    from tidemark.spark import connected

    _marked(connected, "staged", mark, before="session", after="staged")
    main.main(["run", task["pipeline"]], standalone_mode=False)


def _marked(module: ModuleType, name: str, mark: Callable[[str], None], *, before: str, after: str) -> None:
    """Set marks before and after a function of a module; its callers must look it up in the module at each call."""
    function = getattr(module, name)

    def marked(*arguments: Any, **options: Any) -> Any:
        mark(before)
        result = function(*arguments, **options)
        mark(after)
        return result

    setattr(module, name, marked)


def batch(task: dict[str, Any], mark: Callable[[str], None]) -> None:
    """Run a plain batch job: read the whole topic, parse with ``from_json``, write with Spark's own Parquet writer."""
    session = _session(task, mark)
    options = {**_source(task), "endingOffsets": "latest"}
    rows = _rows(session.read.format("kafka").options(**options).load())
    rows.write.partitionBy("day", "hour").option("compression", "zstd").parquet(task["output"])
    mark("staged")


def streaming(task: dict[str, Any], mark: Callable[[str], None]) -> None:
    """Do the same with Structured Streaming, which ends when it has read the whole topic."""
    session = _session(task, mark)
    rows = _rows(session.readStream.format("kafka").options(**_source(task)).load())
    query = (
        rows.writeStream.format("parquet")
        .partitionBy("day", "hour")
        .option("compression", "zstd")
        .option("checkpointLocation", task["output"] + "-checkpoint")
        .trigger(availableNow=True)
        .start(task["output"])
    )
    query.awaitTermination()
    mark("staged")


def noop(task: dict[str, Any], mark: Callable[[str], None]) -> None:
    """Only read: no job on this source can be faster."""
    session = _session(task, mark)
    options = {**_source(task), "endingOffsets": "latest"}
    session.read.format("kafka").options(**options).load().write.format("noop").mode("overwrite").save()
    mark("staged")


CONTENDERS = {"tidemark": tidemark, "warm": warm, "batch": batch, "streaming": streaming, "noop": noop}


def _session(task: dict[str, Any], mark: Callable[[str], None]) -> Any:
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master(task["master"])
        .appName("bench")
        .config("spark.jars", task["jars"])
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    mark("session")
    return session


def _source(task: dict[str, Any]) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": task["bootstrap_servers"],
        "kafka.isolation.level": "read_committed",
        "subscribe": task["topic"],
        "startingOffsets": "earliest",
    }


def _rows(records: Any) -> Any:
    """Return the columns that Tidemark writes, and two for the folders."""
    from pyspark.sql import functions as f

    parsed = records.select(
        *(f.col(name).alias(f"_{name}") for name in METADATA),
        f.lit(1).cast("long").alias("_manifest_id"),
        f.from_json(f.col("value").cast("string"), SCHEMA).alias("data"),
    )
    return parsed.select(
        *(f"_{name}" for name in METADATA),
        "_manifest_id",
        "data.*",
        f.date_format("data.at", "yyyy-MM-dd").alias("day"),
        f.date_format("data.at", "HH").alias("hour"),
    )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
