"""An archive of the classes that Spark's JVM loads (Java's class data sharing), beside the folder of the jars.

A driver with the archive starts its session and its first job with less than two thirds of the processor time. Java
compares the archive with itself and with its jars, and ignores an archive that differs. But a truncated file would
crash it. So the name contains the size, and a hash of what the archive was made from.
"""

import hashlib
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from zipfile import ZipFile

from tidemark.errors import WorkFailed
from tidemark.spark.java import NO_WORD, java_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PREFIX, ENDING = "spark-classes-", ".jsa"
WRITTEN_S = 300.0  # a JVM writes 170 MiB at its end, in 5 s on idle cores
ROWS = 1_000
OpenSession = Callable[[str], "SparkSession"]


def class_archive(jars: Path | None, class_path: str) -> Path | None:
    """Return the archive for the Java and the PySpark of this machine, or None. ``jars`` is the folder of the jars.

    ``class_path`` is what a driver has before Spark's own jars: Java silently ignores an archive of another one.
    """
    if jars is None:
        return None
    for path in jars.parent.glob(f"{_prefix()}{_made_from(class_path)}-*{ENDING}"):
        with suppress(FileNotFoundError):  # another process has just put a new one in its place
            if path.name.endswith(f"-{path.stat().st_size}{ENDING}"):
                return path.resolve()
    return None


def make_class_archive(jars: Path, class_path: str, open_session: OpenSession) -> Path:
    """Make the archive, in place of any other for this PySpark.

    This process must not have opened a session, and opens no more. ``open_session`` opens one whose JVM has these
    options of Java too. Raises ``WorkFailed`` when Java wrote nothing.
    """
    with TemporaryDirectory(prefix=_prefix(), dir=jars.parent) as folder:
        written = Path(folder, "classes").resolve()
        _use(open_session(f"-XX:ArchiveClassesAtExit='{written}' {NO_WORD}"), class_path)
        if not written.exists() or not written.stat().st_size:
            raise WorkFailed(
                "Java has written no archive of classes",
                next_step="Spark works without it; tidemark doctor checks Java and the jars",
            )
        with written.open("rb") as file:
            os.fsync(file.fileno())
        for older in jars.parent.glob(f"{_prefix()}*{ENDING}"):
            older.unlink()
        path = jars.parent / f"{_prefix()}{_made_from(class_path)}-{written.stat().st_size}{ENDING}"
        written.rename(path)
    return path


def _use(session: "SparkSession", class_path: str) -> None:
    """Do what the job of a manifest does, but without a source: load the classes of the connectors by their names."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
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
    java = session.sparkContext._jvm.java.lang  # type: ignore[union-attr]
    loader = java.ClassLoader.getSystemClassLoader()
    for name in _classes_in(class_path):
        with suppress(Py4JJavaError):  # it needs a library that is not there
            java.Class.forName(name, False, loader)
    session.stop()
    assert jvm.stdin is not None
    jvm.stdin.close()  # the JVM ends
    jvm.wait(WRITTEN_S)


def _classes_in(class_path: str) -> Iterator[str]:
    """Yield the names of the classes in these jars."""
    for path in filter(None, class_path.split(os.pathsep)):
        with ZipFile(path) as jar:
            for entry in jar.namelist():
                if entry.endswith(".class") and "-" not in entry:  # META-INF, module-info and package-info
                    yield entry.removesuffix(".class").replace("/", ".")


def _prefix() -> str:
    return f"{PREFIX}{version('pyspark')}-"


def _made_from(class_path: str) -> str:
    """A word for the Java, the PySpark and the class path that a session of this process has."""
    java = Path(java_command())
    spark = find_spec("pyspark")
    jars = [Path(path) for path in class_path.split(os.pathsep) if path]
    parts = [str(spark and spark.origin), class_path]
    for path in (java, Path(str(spark and spark.origin)).with_name("version.py"), *jars):
        if path.exists():
            known = path.resolve().stat()
            parts += [str(path.resolve()), str(known.st_mtime_ns), str(known.st_size)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
