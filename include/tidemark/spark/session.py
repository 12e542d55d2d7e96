"""The Spark session: the command line, Airflow and the tests configure it in the same way.

On a cluster the driver stays on this machine (client mode) and sends jars and our package to the executors. Executors
need a Python with pyarrow and with the driver of the database that they write to, and secrets in their own environment.
"""

import atexit
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from py4j.protocol import INPUT_CONVERTER, Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas import functions
from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

from tidemark.errors import ConfigurationError, Unavailable
from tidemark.spark.batches import arrow_batches
from tidemark.spark.classes import class_archive
from tidemark.spark.jars import fitting_jars, refuse_other_versions, step_to_jars
from tidemark.spark.java import java_options
from tidemark.spark.masters import YARN, check_master, is_local
from tidemark.spark.shipped import package_zip
from tidemark.spark.start_log import not_started, size_of, written_since

# Spark's default words and the keys of sources: Spark shows options with these names as stars in plans and debug logs.
REDACTED = "(?i)secret|password|token|access[.]?key|jaas|keystore[.]key|private key"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
CLASS_PATH = "spark.driver.extraClassPath"
JARS = "spark.jars"
NO_PATH = re.compile(r"[:*?{\[]")  # addresses and patterns of files, which only spark.jars may have
LOGGERS_OF_PY4J = (None, "py4j.java_gateway", "py4j.clientserver")
STANDARD_OUTPUT, STANDARD_ERROR = 1, 2
ADMITTED_S = 300.0  # for YARN to start an application master: seconds in a queue with room
LOOPBACK = "127.0.0.1"  # a local master works on this machine alone
ON_ONE_MACHINE = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.io.mode.default": "NIO",  # the native transport, the default since Spark 4.1, takes 0.4 s more of a core
}
NOTHING: Mapping[str, str] = MappingProxyType({})


def spark_configuration(jars: Path | None) -> dict[str, str]:
    """Return the properties of every job. ``jars`` is the folder with the connectors of the sources; None if the
    cluster has its own.
    """
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
        fitting = fitting_jars(jars)
        files = sorted(fitting.glob("*.jar"))
        if not files:
            raise ConfigurationError(f"there are no jars in {fitting}", next_step=step_to_jars())
        refuse_other_versions(fitting)
        settings[JARS] = ",".join(str(file.resolve()) for file in files)
    return settings


def driver_configuration(
    master: str, folder: Path, properties: Mapping[str, str], records: int | None, jars: Path | None
) -> dict[str, str]:
    """Return the properties of a driver on this machine: those given, its address, its working folder, its JVM.

    Spark 4.0 leaves a folder ``artifacts`` where its JVM works, so the caller removes ``folder`` afterwards.
    ``records`` is the largest number that its first job reads; None: it stays up for many jobs. ``jars`` is the folder
    of the connectors, which may have an archive of classes beside it.
    """
    path = class_path(properties)
    options = java_options(properties.get(JAVA_OPTIONS, ""), records, class_archive(jars, path))
    driver = {
        **(ON_ONE_MACHINE if is_local(master) else {}),
        **properties,
        JAVA_OPTIONS: f"-Duser.dir='{folder.absolute()}' {options}".strip(),
    }
    if path:
        driver[CLASS_PATH] = path
        if is_local(master):
            del driver[JARS]  # no executor on another machine fetches them
    return driver


def class_path(properties: Mapping[str, str]) -> str:
    """Return the class path for the connectors' jars in a driver: from ``spark.jars`` Java archives no classes.

    It is empty if a class path of the user is set, which must stay: here, in ``spark-defaults.conf``, or for PySpark.
    """
    jars = properties.get(JARS, "")
    in_arguments = "class-path" in os.environ.get("PYSPARK_SUBMIT_ARGS", "")
    if CLASS_PATH in properties or in_arguments or _defaults_have_a_class_path() or NO_PATH.search(jars):
        return ""
    return jars.replace(",", os.pathsep)


def _defaults_have_a_class_path() -> bool:
    home = Path(os.environ.get("SPARK_HOME") or own_spark())
    defaults = Path(os.environ.get("SPARK_CONF_DIR") or home / "conf") / "spark-defaults.conf"
    return defaults.is_file() and CLASS_PATH in defaults.read_text(errors="replace")


def python_of_executors(conf: Mapping[str, str]) -> str:
    """Return the path of the tasks' Python on the executors' machines: that of this process, unless a setting names
    another.

    The pipeline's ``spark.pyspark.python`` comes before the variable PYSPARK_PYTHON, as in ``spark-submit``.
    """
    return conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable


def own_spark() -> Path:
    """Return the folder of the PySpark that is installed here, whatever SPARK_HOME says: another Spark does not fit
    it.
    """
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigurationError("PySpark is not installed", next_step="pip install 'pyspark[sql]>=4.0,<4.3'")
    return Path(spec.origin).parent


def open_session(
    master: str,
    jars: Path | None,
    log: Path | None = None,
    *,
    home: Path = Path(),
    conf: Mapping[str, str] = NOTHING,
    records: int | None = 0,
    folder: Path | None = None,
) -> SparkSession:
    """Open a session in this process. Its JVM ends with the process, even if the process is killed.

    ``log``: the file for the JVM's standard output and error; None: they go to ours. ``home``: the folder for the zip
    of our package that executors get. ``conf``: properties of the pipeline file. ``records``: the largest number that
    its first job reads; None: it stays up for many jobs. ``folder``: the working folder of the JVM; None: one that this
    process removes when it ends.

    Raises ``Unavailable`` if no master answers.
    """
    os.environ |= {"PYSPARK_PYTHON": python_of_executors(conf), "SPARK_HOME": str(own_spark())}
    check_master(master)
    for name in LOGGERS_OF_PY4J:  # a filter applies only to records of its own logger
        logging.getLogger(name).addFilter(_no_traceback_of_py4j)
    with _interruptible(), _output_to(log):
        if folder is None:
            folder = Path(tempfile.mkdtemp(prefix="tidemark-spark-"))
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
        properties = {**spark_configuration(jars), **conf}
        session = _session(master, driver_configuration(master, folder, properties, records, jars), log)
        if not is_local(master):
            session.sparkContext.addPyFile(str(package_zip(home)))
        return session


def with_own_properties(session: SparkSession) -> SparkSession:
    """Return the same Spark with a copy of its properties: what is set later in one of the two does not change the
    other.
    """
    return SparkSession(session.sparkContext, session._jsparkSession.cloneSession())


def _no_traceback_of_py4j(record: logging.LogRecord) -> bool:
    """Drop tracebacks of py4j: it logs one when Ctrl-C interrupts it or the JVM ends, and then raises the error
    anyway.
    """
    return not (record.exc_info and Path(record.pathname).parent.name == "py4j")


@contextmanager
def keeping_interrupts() -> Iterator[None]:
    """Raise ``KeyboardInterrupt`` after Ctrl-C: py4j raises another error if it cannot tell the JVM."""
    try:
        yield
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, KeyboardInterrupt):
                raise KeyboardInterrupt from error
            cause = cause.__context__
        raise


@contextmanager
def _interruptible() -> Iterator[None]:
    """Hold Ctrl-C back until Spark has started, then raise ``KeyboardInterrupt``. A second Ctrl-C raises it at once.

    An interrupt while the JVM starts would leave the JVM running, because it does not watch our process yet. PySpark's
    own handler is replaced, because it uses a busy connection and fails with a traceback.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    signals: list[int] = []

    def remember(number: int, _: object) -> None:
        signals.append(number)
        if len(signals) > 1:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if signals:
        raise KeyboardInterrupt


@contextmanager
def _output_to(log: Path | None) -> Iterator[None]:
    """Make processes that start in the block write to a file. A JVM without enough memory says so on standard output,
    which belongs to the command's result, such as JSON.
    """
    if log is None:
        yield
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    originals = {number: os.dup(number) for number in (STANDARD_OUTPUT, STANDARD_ERROR)}
    try:
        with log.open("ab") as file:
            for number in originals:
                os.dup2(file.fileno(), number)
        yield
    finally:
        for number, original in originals.items():
            os.dup2(original, number)
            os.close(original)


def forget_pandas() -> None:
    """Keep pandas out of this process: to import it takes 0.3 s of a core, and nothing here uses it.

    PySpark looks for pandas before Arrow batches go to Python. Java gets no values of NumPy from us: to recognize such
    values, PySpark would import its test tools, with pandas and gRPC.
    """
    functions.require_minimum_pandas_version = lambda: None  # type: ignore[attr-defined]
    INPUT_CONVERTER[:] = [
        each for each in INPUT_CONVERTER if not isinstance(each, NumpyArrayConverter | NumpyScalarConverter)
    ]


def _session(master: str, settings: Mapping[str, str], log: Path | None) -> SparkSession:
    forget_pandas()
    builder = SparkSession.builder.master(master).appName("tidemark")
    for name, value in settings.items():
        builder = builder.config(name, value)
    size = size_of(log)
    try:
        with _expecting_room() if master == YARN else nullcontext():
            session = builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        raise not_started(error, master, log, written_since(log, size)) from error
    session.sparkContext.setLogLevel("ERROR")
    return session


@contextmanager
def _expecting_room() -> Iterator[None]:
    """Raise ``Unavailable`` if YARN starts no application master in time: Spark waits without limit until a queue has
    room for it."""
    too_late = threading.Event()
    timer = threading.Timer(ADMITTED_S, _end_jvm, [too_late])
    timer.daemon = True
    timer.start()
    try:
        yield
    except (PySparkException, Py4JError, OSError) as error:
        if too_late.is_set():
            raise Unavailable(
                f"YARN had no room for an application within {ADMITTED_S:.0f} s",
                next_step="yarn application -list shows what its queue runs; the queue needs room for "
                "spark.yarn.am.memory. Nothing was read",
                master=YARN,
            ) from error
        raise
    finally:
        timer.cancel()


def _end_jvm(too_late: threading.Event) -> None:
    """End the JVM that is starting, so that the call that waits for it fails."""
    too_late.set()
    jvm = getattr(SparkContext._gateway, "proc", None)
    if jvm is not None:
        jvm.kill()
