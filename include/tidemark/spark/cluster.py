"""Stages by a driver that runs on the cluster (cluster mode): order and receipt go through a store that both can reach.

``spark-submit``, or a command of the user, starts the driver and returns when it has ended, or only submits it. We look
for its answer in the store. A driver whose order we remove ends its jobs by itself (``submitted.py``), on every
cluster, so nothing here asks a cluster to kill an application.
"""

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Generic, TypeVar

from tidemark.connections.lookup import Lookup
from tidemark.environment import Environment
from tidemark.errors import ConfigurationError, TidemarkError, Unavailable, WorkFailed
from tidemark.lifecycle.deferral import StagedElsewhere, still_waiting
from tidemark.model.order import Order
from tidemark.model.receipt import Receipt
from tidemark.pipeline.settings import Spark
from tidemark.spark import ended
from tidemark.spark.jobs import EVERY_S
from tidemark.spark.masters import KUBERNETES, YARN, check_master
from tidemark.spark.orders import (
    OrderFolder,
    Silence,
    find_answer,
    find_answers,
    without_receipt,
    write_order,
    write_questions,
)
from tidemark.spark.probe import Questions
from tidemark.spark.session import own_spark, python_of_executors, spark_configuration
from tidemark.spark.shipped import package_zip
from tidemark.spark.start_log import last_errors, written_since
from tidemark.storage.base import ObjectStore
from tidemark.storage.open import open_store

APPLICATION = Path(str(files("tidemark.spark"))) / "application.py"
POLL_S = 1.0  # between two looks for the answer
AWAY_S = 300.0  # for a store that does not answer when the command has ended
ENDS_S = 5.0  # for the command to end its own job after SIGTERM
TAIL = 30  # lines of the command for the log, if no driver answered
UPLOAD = "spark.kubernetes.file.upload.path"
# spark-submit ends when the cluster has accepted the application.
DETACHED = {"spark.yarn.submit.waitAppCompletion": "false", "spark.kubernetes.submission.waitAppCompletion": "false"}
ON_CLUSTER = "the cluster has the log of the driver"
_APPLICATION_ID = re.compile(r"\bapplication_\d+_\d+\b")
_POD = re.compile(r"\b[a-z0-9.-]+-driver\b")

Answer = TypeVar("Answer")
Command = Callable[[str, list[str]], list[str]]  # what starts a driver, given its name and its arguments


def cluster_configuration(master: str, environment: Environment, conf: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a driver on a cluster, with ``conf``.

    YARN gets jars and package from this machine. Kubernetes needs a place for that; without one, they are those of the
    image, at the same paths. There, Spark refuses the address of this machine: each driver has a service of its own.
    """
    settings = {"spark.yarn.maxAppAttempts": "1", **spark_configuration(environment.spark_jars), **conf}
    settings |= {"spark.submit.deployMode": "cluster", "spark.pyspark.python": python_of_executors(conf)}
    if master.startswith(KUBERNETES):
        settings.pop("spark.driver.host", None)
    if not _in_image(master, conf):
        return {**settings, "spark.submit.pyFiles": str(package_zip(environment.home))}
    jars = settings.get("spark.jars", "")
    return {**settings, "spark.jars": ",".join(f"local://{jar}" for jar in jars.split(",") if jar)}


def application_for(master: str, conf: Mapping[str, str]) -> str:
    return f"local://{APPLICATION}" if _in_image(master, conf) else str(APPLICATION)


def _in_image(master: str, conf: Mapping[str, str]) -> bool:
    return master.startswith(KUBERNETES) and UPLOAD not in conf


def spark_submit(master: str, environment: Environment, spark: Spark) -> Command:
    """Return the command of the installed PySpark. Raises ``ConfigurationError`` for a master without cluster mode."""
    check_cluster(master)
    os.environ["SPARK_HOME"] = str(own_spark())

    def command(name: str, arguments: list[str]) -> list[str]:
        settings = cluster_configuration(master, environment, spark.conf) | {"spark.app.name": name}
        words = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        submit = str(own_spark() / "bin" / "spark-submit")
        return [submit, "--master", master, *words, application_for(master, spark.conf), *arguments]

    return command


def check_cluster(master: str) -> None:
    """Raise ``ConfigurationError`` for a master that runs no drivers of Python, ``Unavailable`` if it does not
    answer.
    """
    if not master.startswith((YARN, KUBERNETES)):
        raise ConfigurationError(
            f"Spark runs no driver of Python on {master}",
            next_step="engine: cluster needs the master yarn or k8s://.., or spark.submit, a command that starts the "
            "driver elsewhere; else leave engine out",
            master=master,
        )
    check_master(master)


def name_of(order: Order) -> str:
    return f"tidemark {order.pipeline_name} manifest {order.manifest_id} attempt {order.attempt}"


@dataclass(frozen=True)
class Wanted(Generic[Answer]):
    """An answer of a driver: ``find`` looks for it, or for the driver's error, in the folder of its order. ``fail``
    makes the error of a driver that left none, from the reason and where to look.
    """

    find: Callable[[OrderFolder], Answer | TidemarkError | None]
    fail: Callable[[str, str], TidemarkError]


class OnCluster:
    """Stages each order by a driver of its own. ``command`` starts it, unless the pipeline file names a command.

    ``orders`` is the place that ``open_orders`` opens. ``detached``: raise ``StagedElsewhere`` when the command has
    ended well, and no driver has answered yet.
    """

    def __init__(
        self,
        spark: Spark,
        orders: ObjectStore,
        command: Command | None,
        report: Callable[[str], object] | None,
        *,
        detached: bool = False,
    ) -> None:
        self._spark, self._orders, self._report, self._detached = spark, orders, report, detached
        self._command = command or (lambda _, arguments: [*spark.submit, *arguments])
        self._ends = False

    def start(self, records: int) -> None:
        """Do nothing: each order starts a driver."""

    def end_jobs(self) -> None:
        """Make all calls raise within ``POLL_S``; a handler of a signal may call this."""
        self._ends = True

    def __call__(self, order: Order) -> Receipt:
        wanted = Wanted(find_answer, partial(_without_receipt, order))
        return self._by_driver(name_of(order), write_order(order, self._orders), wanted)

    def ask(self, questions: Questions) -> dict[str, Any]:
        """Return what a driver says of itself and its executors: the values of ``ask_executors``."""
        wanted = Wanted(find_answers, _without_answers)
        return self._by_driver("tidemark doctor", write_questions(questions, self._orders), wanted)

    def _by_driver(self, name: str, folder: OrderFolder, wanted: Wanted[Answer]) -> Answer:
        connection = self._spark.orders_connection
        with ExitStack() as at_end:
            at_end.push(partial(_remove, folder))
            command = self._command(name, [folder.address, *([connection] if connection else [])])
            process, log = at_end.enter_context(_started(command))
            at_end.push(partial(_remove, folder))  # before the command is ended, which may take seconds
            return self._awaited(folder, wanted, process, log)

    def _awaited(
        self, folder: OrderFolder, wanted: Wanted[Answer], process: "subprocess.Popen[bytes]", log: Path
    ) -> Answer:
        began = reported = answered_at = time.monotonic()
        silence = Silence()
        while True:
            status = process.poll()  # before the look: an answer that stands at the end is found
            if status is None:  # neither driver nor store has to answer yet
                answered_at = time.monotonic()
                silence.excuse()
            away: str | None = None
            try:
                answer, progress = wanted.find(folder), silence.hears(folder)
            except Unavailable as error:
                away = still_waiting(error, answered_at, AWAY_S)
                silence.excuse()
            else:
                answered_at = time.monotonic()
                if isinstance(answer, TidemarkError):
                    raise answer
                if answer is not None:
                    return answer
                if progress:
                    self._say(progress)
                if status is not None:
                    self._refuse_to_wait(folder, wanted, process, silence, log)
            if time.monotonic() - reported > EVERY_S:
                reported = time.monotonic()
                self._say(f"after {reported - began:.0f} s: {away or _last_line(log)}")
            time.sleep(POLL_S)
            if self._ends:
                raise wanted.fail("it was told to end", "it was interrupted")

    def _refuse_to_wait(
        self,
        folder: OrderFolder,
        wanted: Wanted[Answer],
        process: "subprocess.Popen[bytes]",
        silence: Silence,
        log: Path,
    ) -> None:
        """Raise, when the command has ended without an answer, unless it may only have submitted the driver."""
        if process.returncode or not (self._detached or self._spark.submit):
            raise self._no_answer(wanted, process, log)
        look = _log_of_driver(written_since(log, 0), ON_CLUSTER)
        if self._detached:
            raise StagedElsewhere(folder.address, self._spark.orders_connection, look, folder.remove)
        if reason := silence.is_too_long():
            raise wanted.fail(reason, look)

    def _no_answer(self, wanted: Wanted[Answer], process: "subprocess.Popen[bytes]", log: Path) -> TidemarkError:
        written = written_since(log, 0)
        for line in written.splitlines()[-TAIL:]:
            self._say(line)
        program, status = Path(str(process.args[0])).name, process.returncode  # type: ignore[index]
        errors = last_errors(written)
        what = f"{ended.describe_end(status, program)}{': ' if errors else ''}{' | '.join(errors)}"
        look = _log_of_driver(written, f"the log of {program} is above")
        return wanted.fail(what, look)

    def _say(self, line: str) -> None:
        if self._report is not None:
            self._report(line)


def _without_receipt(order: Order, reason: str, look: str) -> WorkFailed:
    return without_receipt(order, f"the driver on the cluster left no receipt; {reason}", look)


def _without_answers(reason: str, look: str) -> WorkFailed:
    return WorkFailed(f"the driver on the cluster gave no answer; {reason}", next_step=look)


def _log_of_driver(written: str, otherwise: str) -> str:
    """Return where the log of the driver is, from what ``spark-submit`` has written; ``otherwise`` if that is not
    there.
    """
    application, pod = _APPLICATION_ID.findall(written), _POD.findall(written)
    if application:
        return f"the log of the driver: yarn logs -applicationId {application[-1]}"
    return f"the log of the driver: kubectl logs {pod[-1]}" if pod else otherwise


def open_orders(spark: Spark, lookup: Lookup, *database_id: str) -> ObjectStore:
    """Open the place of orders that a pipeline file names; in it, each manifest database has a folder of its own."""
    settings = {"connection": spark.orders_connection} if spark.orders_connection else {}
    return open_store("/".join([str(spark.orders), *database_id]), settings, lookup)


def _remove(folder: OrderFolder, kind: type[BaseException] | None, *_: object) -> None:
    if kind is not StagedElsewhere:
        with suppress(TidemarkError):  # the next attempt removes it
            folder.remove()


@contextmanager
def _started(command: list[str]) -> Iterator[tuple["subprocess.Popen[bytes]", Path]]:
    """Run a command during the block; yield its process, and the file with its output."""
    with TemporaryDirectory(prefix="tidemark-submit-") as folder:
        log = Path(folder, "log")
        with log.open("wb") as output:
            try:
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
            except OSError as error:
                raise ConfigurationError(
                    f"{command[0]} cannot be started: {error.strerror}",
                    next_step="correct spark.submit of the pipeline file, or install the program on this machine",
                ) from error
        try:
            yield process, log
        finally:
            process.terminate()
            try:
                process.wait(ENDS_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _last_line(log: Path) -> str:
    lines = written_since(log, 0).splitlines()
    return lines[-1] if lines else "no word yet"
