"""Chooses the Spark for ``run``, ``retry`` and ``replay``: a session of this process, a server, or a driver on a
cluster.

Airflow submits a job in place of the session; ``engine_of`` makes the choice for both.
"""

import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tidemark.environment import Environment
from tidemark.extras import require
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.work import SharedStage
from tidemark.model.order import Order
from tidemark.model.receipt import Receipt
from tidemark.pipeline.settings import Engine, Pipeline
from tidemark.spark.masters import is_local
from tidemark.spark.remote import remote_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Report = Callable[[str], object]


def engine_of(pipeline: Pipeline, environment: Environment) -> Engine:
    """Return the engine of the pipeline file. Without one, use a server if the environment names it."""
    return pipeline.spark.engine or (Engine.CONNECT if environment.spark_remote else Engine.SUBMIT)


def stage_in(
    context: Context, environment: Environment, master: str | None, report: Report | None = None
) -> SharedStage:
    """Return a stage on a Spark Connect server, by drivers on a cluster, or in a session of this process that opens
    with the first order.

    ``master`` is the address of a cluster for such drivers, or else for such a session, which then does the work in any
    case. ``report`` gets a line about a job every 30 seconds.

    Raises ``ConfigurationError`` if a server is to do the work and none is named, or if a master runs no such drivers.
    """
    engine, spark = engine_of(context.pipeline, environment), context.pipeline.spark
    if master is None and engine is Engine.CONNECT:
        return OnServer(context, environment, report)
    if engine is Engine.CLUSTER and not (master and is_local(master)):
        from tidemark.spark.cluster import OnCluster, open_orders, spark_submit  # imports PySpark, which takes 1 s

        command = None if spark.submit else spark_submit(master or environment.spark_master, environment, spark)
        return OnCluster(spark, open_orders(spark, context.lookup, context.database.id()), command, report)
    log = environment.home / "_logs" / "spark.log"
    return InSession(context.pipeline, environment, master or environment.spark_master, log, report)


class OnServer:
    """Stages on the server that the environment or the connection ``spark_connect`` names."""

    def __init__(self, context: Context, environment: Environment, report: Report | None) -> None:
        require("connect", "a Spark Connect server")
        self._context, self._environment = context, environment
        self._remote = remote_of(environment, context.lookup)
        self._report = _reporter(context.pipeline, report)

    def start(self, records: int) -> None:
        """Do nothing: the server is up already."""

    def end_jobs(self) -> None:
        connected = sys.modules.get("tidemark.spark.connected")
        if connected is not None:  # otherwise there is no job
            connected.end_jobs()

    def __call__(self, order: Order) -> Receipt:
        from tidemark.spark.connected import stage_on  # takes 0.5 s to import

        context, environment = self._context, self._environment
        entries = {conn_id: context.lookup(conn_id) for conn_id in context.pipeline.connections()}
        return stage_on(
            self._remote,
            order,
            database_id=context.database.id(),
            home=environment.home,
            conf=context.pipeline.spark.conf,
            connections={conn_id: entry for conn_id, entry in entries.items() if entry is not None},
            report=self._report and self._report(order),
        )


class InSession:
    """Stages in a session of this process, which opens with the first order. ``pipeline`` has the settings of Spark,
    also those that a group shares. ``log`` and ``folder`` are as for ``open_session``.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        environment: Environment,
        master: str,
        log: Path | None,
        report: Report | None,
        folder: Path | None = None,
    ) -> None:
        self._spark, self._environment = pipeline.spark, environment
        self._master, self._log, self._folder = master, log, folder
        self._report = _reporter(pipeline, report)
        self._session: SparkSession | None = None
        self._tags: set[str] = set()  # of the jobs at work

    def start(self, records: int) -> None:
        """Open the session. Meanwhile our output goes to the log, and Ctrl-C is held back."""
        from tidemark.spark.session import open_session  # Spark takes 1 s to import and 8 s to start

        environment = self._environment
        self._session = open_session(
            self._master, environment.spark_jars, self._log, home=environment.home, conf=self._spark.conf,
            records=records, folder=self._folder,
        )  # fmt: skip

    @property
    def has_died(self) -> bool:
        """Return whether the JVM of the session has ended: every further order would fail."""
        if self._session is None:
            return False
        from tidemark.spark.job import jvm_of_session

        jvm = jvm_of_session()
        return jvm is not None and jvm.poll() is not None

    def close(self) -> None:
        """Stop the session, if it is open; its JVM ends with this process."""
        if self._session is not None:
            from py4j.protocol import Py4JError  # type: ignore[import-untyped]

            with suppress(Py4JError, OSError):
                self._session.stop()

    def end_jobs(self) -> None:
        from tidemark.spark.jobs import end_job

        for tag in list(self._tags):
            if self._session is not None:
                end_job(self._session, tag)

    def __call__(self, order: Order) -> Receipt:
        if self._session is None:
            self.start(order.span)
        assert self._session is not None
        from tidemark.spark.job import stage
        from tidemark.spark.jobs import report_jobs, tag_of
        from tidemark.spark.session import with_own_properties

        tag = tag_of(order.manifest_id, order.attempt)
        session = self._session
        if self._spark.parallel_slices > 1:
            session = with_own_properties(session)
        self._tags.add(tag)
        try:
            with report_jobs(session, tag, self._report(order)) if self._report else nullcontext():
                return stage(session, order, self._log)
        finally:
            self._tags.discard(tag)


def _reporter(pipeline: Pipeline, report: Report | None) -> Callable[[Order], Report] | None:
    """Return a function that makes the ``report`` of an order. If several slices work at once, its lines name the
    manifest.
    """
    if report is None:
        return None
    if pipeline.spark.parallel_slices == 1:
        return lambda _: report
    return lambda order: lambda line: report(f"manifest {order.manifest_id}, {line}")
