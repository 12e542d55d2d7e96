"""Flink as a contender: its jars, the compiled job (FlinkJob.java), and the command that runs both in one JVM.

The jars are a set of `jars/ivy.xml` that nothing else needs. Java's own compiler compiles the job before anything is
measured, as a user ships a jar.
"""

import os
import subprocess
from pathlib import Path

from sandbox.bootstrap.jars import ensure, java, locked, pyspark_jars
from sandbox.errors import SandboxFailed

SET = "flink"
SOURCE = Path(__file__).with_name("FlinkJob.java")
COMPILER = "jdk.compiler"
NO_COMPILER = f"this Java has no compiler (module {COMPILER}), a JDK has one"
HADOOP = ("hadoop-client-api-*.jar", "hadoop-client-runtime-*.jar")  # Parquet names classes of Hadoop's
OPTIONS = (
    "-Xmx1g",  # the heap of a local Spark, by default
    # Flink's own scripts open these packages too; the job reads no private field of other packages.
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.time=ALL-UNNAMED",
)


def missing() -> str | None:
    """Return why the job cannot run on this machine, or None."""
    modules = subprocess.run([java(), "--list-modules"], capture_output=True, text=True).stdout
    return None if f"{COMPILER}@" in modules else NO_COMPILER


def version() -> str:
    return next(jar.revision for jar in locked() if (jar.set, jar.name) == (SET, "flink-streaming-java"))


def command(state: Path, folder: Path) -> list[str]:
    """Return the command of the job, which the file of a task must follow. Fetches the jars and compiles into
    ``folder``.
    """
    ensure(state, [SET])
    jars = sorted((state / "jars" / SET).glob("*.jar"))
    jars += [path for pattern in HADOOP for path in pyspark_jars().glob(pattern)]
    classes = folder / "flink-classes"
    _compile(jars, classes)
    scratch = folder / "flink-scratch"
    scratch.mkdir()
    return [java(), *OPTIONS, f"-Djava.io.tmpdir={scratch}", "-cp", _path([classes, *jars]), SOURCE.stem]


def _compile(jars: list[Path], classes: Path) -> None:
    tool = [java(), "-m", f"{COMPILER}/com.sun.tools.javac.Main"]
    arguments = ["-nowarn", "-proc:none", "-cp", _path(jars), "-d", str(classes), str(SOURCE)]
    done = subprocess.run([*tool, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise SandboxFailed(f"{SOURCE.name} cannot be compiled:\n{done.stderr[-3000:]}", next_step=f"read {SOURCE}")


def _path(paths: list[Path]) -> str:
    return os.pathsep.join(map(str, paths))
