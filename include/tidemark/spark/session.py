"""A Spark session that can read Kafka, set up the same way by the command line, Airflow and the tests.

On a cluster the driver stays here (client mode): it serves jars and our package to executors in other processes. They
bring a Python with pyarrow and the driver of the database they write to, and their secrets in their own environment.
"""

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from types import MappingProxyType

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidemark.errors import ConfigurationError, Unavailable, WorkFailed
from tidemark.spark.shipped import is_local, package_zip

# Spark's own words, and those of Kafka's keys: what it then shows of options, in plans and debug logs, are stars.
REDACTED = "(?i)secret|password|token|access[.]?key|jaas|keystore[.]key|private key"
BATCH_ROWS = 50_000  # rows per Arrow batch, at most: 10,000 (Spark's default) costs 8 % more per record here
BATCH_BYTES = 16 * 1024 * 1024  # of keys and values in one Arrow batch, by the measured record size
UNMEASURED = 2**31 - 1  # Spark then does not ask after every row how large its batch has grown: 8 to 13 % less work
MASTER_TIMEOUT_S = 5.0  # Spark itself tries a master that is not there for a minute
DEFAULT_MASTER_PORT = 7077
NOTHING: Mapping[str, str] = MappingProxyType({})


def spark_configuration(jars: Path | None) -> dict[str, str]:
    """What every job needs, whoever submits it; ``jars`` is a folder with the Kafka connector."""
    settings = {
        "spark.sql.session.timeZone": "UTC",
        **arrow_batches(None),
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


def arrow_batches(record_bytes: float | None) -> dict[str, str]:
    """How large an Arrow batch may grow, for records of this size; None: not known yet, so Spark measures each row."""
    rows, largest = "spark.sql.execution.arrow.maxRecordsPerBatch", "spark.sql.execution.arrow.maxBytesPerBatch"
    if record_bytes is None:
        return {rows: str(BATCH_ROWS), largest: str(4 * BATCH_BYTES)}
    return {rows: str(max(1, min(BATCH_ROWS, int(BATCH_BYTES / max(record_bytes, 1))))), largest: str(UNMEASURED)}


def python_of_executors(conf: Mapping[str, str]) -> str:
    """The Python that tasks run on, a path on the executors' machines; ours unless a setting names another.

    The pipeline's ``spark.pyspark.python`` wins over the variable PYSPARK_PYTHON, as it does for ``spark-submit``.
    """
    return conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable


def open_session(
    master: str,
    jars: Path | None,
    log: Path | None = None,
    *,
    home: Path = Path(),
    conf: Mapping[str, str] = NOTHING,
) -> SparkSession:
    """A session in this process; its JVM ends with the process, also when that is killed.

    ``log`` takes what the JVM says on standard error; None leaves it there. ``home`` takes the zip of our package for
    executors elsewhere, ``conf`` are properties of the pipeline file. ``Unavailable`` when no master answers.
    """
    os.environ["PYSPARK_PYTHON"] = python_of_executors(conf)
    check_master(master)
    logging.getLogger().addFilter(_no_traceback_of_interrupts)
    with _interruptible(), _standard_error_to(log):
        session = _session(master, {**spark_configuration(jars), **conf})
        if not is_local(master):
            session.sparkContext.addPyFile(str(package_zip(home)))
        return session


def check_master(master: str) -> None:
    """Raise ``Unavailable`` when none of the addresses of a ``spark://`` master takes a connection; others pass."""
    if not master.startswith("spark://"):
        return
    refused = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":") if ":" in address else (address, ":", str(DEFAULT_MASTER_PORT))
        try:
            with closing(socket.create_connection((host.strip("[]"), int(port)), timeout=MASTER_TIMEOUT_S)):
                return
        except ValueError:
            raise ConfigurationError(
                f"{master} is no Spark master", next_step="write it as spark://host:port", master=master
            ) from None
        except OSError as error:
            refused.append(f"{address}: {error.strerror or error}")
    raise Unavailable(
        f"the Spark master cannot be reached ({'; '.join(refused)})",
        next_step="check that it runs and that this machine may connect to it; nothing was read",
        master=master,
    )


def _no_traceback_of_interrupts(record: logging.LogRecord) -> bool:
    """py4j tells the root logger, with a traceback, that Ctrl-C came while it waited; then it raises it."""
    return not (record.exc_info and record.exc_info[0] is KeyboardInterrupt)


@contextmanager
def keeping_interrupts() -> Iterator[None]:
    """Ctrl-C stays Ctrl-C: py4j lets another error take its place when it cannot tell the JVM of it."""
    try:
        yield
    except Exception as failed:
        before: BaseException | None = failed
        while before is not None:
            if isinstance(before, KeyboardInterrupt):
                raise KeyboardInterrupt from failed
            before = before.__context__
        raise


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C is a plain ``KeyboardInterrupt``, when Spark has started; a second one is not waited with.

    In the middle of its start the JVM would be left behind, since nothing tells it yet that we are gone. Afterwards
    PySpark's own handler would talk to it over the connection that is in use, and die of that with a traceback.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    heard: list[int] = []

    def hear(number: int, _: object) -> None:
        heard.append(number)
        if len(heard) > 1:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if heard:
        raise KeyboardInterrupt


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


def _session(master: str, settings: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder.master(master).appName("tidemark")
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as failed:
        lines = [line for line in str(failed).splitlines() if line.strip()] or [type(failed).__name__]
        said = next((line for line in lines if line.startswith(": ")), lines[0]).removeprefix(": ")  # of the JVM
        raise WorkFailed(
            f"Spark did not start: {said.strip()[:300]}",
            next_step="TIDEMARK_HOME/_logs/spark.log says more; tidemark doctor checks Java, jars and master",
            master=master,
        ) from failed
    session.sparkContext.setLogLevel("ERROR")
    return session
