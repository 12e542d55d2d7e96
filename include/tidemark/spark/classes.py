"""An archive of the classes that Spark's JVM loads (Java's class data sharing), beside the folder of the jars.

A driver with the archive starts its session and its first job with less than two thirds of the processor time. Java
compares the archive with itself and with its jars, and ignores an archive that differs. But a truncated file would
crash it. So the name contains the size, and a hash of what the archive was made from.
"""

import hashlib
import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tidemark.errors import WorkFailed
from tidemark.spark.java import NO_WORD, java_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PREFIX, ENDING = "spark-classes-", ".jsa"
WRITTEN_S = 300.0  # a JVM writes 150 MiB at its end, in 5 s on idle cores
ROWS = 1_000
OpenSession = Callable[[str], "SparkSession"]


def class_archive(jars: Path | None) -> Path | None:
    """Return the archive for the Java and the PySpark of this machine, or None. ``jars`` is the folder of the jars."""
    if jars is None:
        return None
    for path in jars.parent.glob(f"{_prefix()}{_made_from()}-*{ENDING}"):
        with suppress(FileNotFoundError):  # another process has just put a new one in its place
            if path.name.endswith(f"-{path.stat().st_size}{ENDING}"):
                return path.resolve()
    return None


def make_class_archive(jars: Path, open_session: OpenSession) -> Path:
    """Make the archive, in place of any other for this PySpark.

    This process must not have opened a session, and opens no more. ``open_session`` opens one whose JVM has these
    options of Java too. Raises ``WorkFailed`` when Java wrote nothing.
    """
    with TemporaryDirectory(prefix=_prefix(), dir=jars.parent) as folder:
        written = Path(folder, "classes").resolve()
        _use(open_session(f"-XX:ArchiveClassesAtExit='{written}' {NO_WORD}"))
        if not written.exists() or not written.stat().st_size:
            raise WorkFailed(
                "Java has written no archive of classes",
                next_step="Spark works without it; tidemark doctor checks Java and the jars",
            )
        with written.open("rb") as file:
            os.fsync(file.fileno())
        for older in jars.parent.glob(f"{_prefix()}*{ENDING}"):
            older.unlink()
        path = jars.parent / f"{_prefix()}{_made_from()}-{written.stat().st_size}{ENDING}"
        written.rename(path)
    return path


def _use(session: "SparkSession") -> None:
    """Do what the job of a manifest does, but without a source: the class loader of connectors is never archived."""
    from pyspark import SparkContext

    columns = (
        "cast(cast(id AS string) AS binary) AS key",
        "cast(cast(id AS string) AS binary) AS value",
        "'topic' AS topic",
        "0 AS partition",
        "id AS offset",
        "timestamp_millis(id) AS timestamp",
        "array(struct('a' AS key, cast(cast(id AS string) AS binary) AS value)) AS headers",
    )
    jvm: subprocess.Popen[bytes] = SparkContext._gateway.proc  # type: ignore[union-attr]
    rows = session.range(ROWS, numPartitions=2).selectExpr(*columns)
    rows.mapInArrow(lambda batches: (batch.select(["topic"]) for batch in batches), "topic string").collect()
    session.stop()
    assert jvm.stdin is not None
    jvm.stdin.close()  # the JVM ends
    jvm.wait(WRITTEN_S)


def _prefix() -> str:
    return f"{PREFIX}{version('pyspark')}-"


def _made_from() -> str:
    """A word for the Java and the PySpark that a session of this process has."""
    java = Path(java_command())
    spark = find_spec("pyspark")
    parts = [str(spark and spark.origin)]
    for path in (java, Path(str(spark and spark.origin)).with_name("version.py")):
        if path.exists():
            known = path.resolve().stat()
            parts += [str(path.resolve()), str(known.st_mtime_ns), str(known.st_size)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
