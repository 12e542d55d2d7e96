"""A Spark session that can read Kafka, set up the same way by the command line, Airflow and the tests."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from tidemark.errors import ConfigurationError

# Spark's own words, and those of Kafka's keys: what it then shows of options, in plans and debug logs, are stars.
REDACTED = "(?i)secret|password|token|access[.]?key|jaas|keystore[.]key|private key"
BATCH_ROWS = 50_000  # rows per Arrow batch: 10,000 (Spark's default) costs 8 % more per record here


def spark_configuration(jars: Path | None) -> dict[str, str]:
    """What every job needs, whoever submits it; ``jars`` is a folder with the Kafka connector."""
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.artifact.isolation.enabled": "false",
        "spark.speculation": "false",
        "spark.task.maxFailures": "4",
        "spark.redaction.regex": REDACTED,
    }
    if jars is not None:
        files = sorted(jars.glob("*.jar"))
        if not files:
            raise ConfigurationError(
                f"there are no jars in {jars}",
                next_step="make setup resolves them; TIDEMARK_SPARK_JARS names the folder",
            )
        settings["spark.jars"] = ",".join(str(file.resolve()) for file in files)
    return settings


def open_session(master: str, jars: Path | None, log: Path | None = None) -> SparkSession:
    """A session in this process; its JVM ends with the process, also when that is killed.

    ``log`` takes what the JVM says on standard error; None leaves it there.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with _standard_error_to(log):
        return _session(master, jars)


@contextmanager
def _standard_error_to(log: Path | None) -> Iterator[None]:
    """A process started inside writes its standard error to a file; ours comes back afterwards."""
    if log is None:
        yield
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    kept = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _session(master: str, jars: Path | None) -> SparkSession:
    builder = SparkSession.builder.master(master).appName("tidemark")
    for name, value in spark_configuration(jars).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
