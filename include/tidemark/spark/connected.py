"""Works on a Spark Connect server that stays up: no JVM starts, and its Python workers have imported what they need.

Spark gives each session a Python process of its own, which takes a second to start. So attempts share sessions: all
attempts of a database with the same package and properties. Each job has its manifest and attempt as a tag. A new
attempt ends the jobs of older ones. That only saves work: the fence decides what an older attempt may do.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, cast
from uuid import UUID, uuid5

from grpc import RpcError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql.connect.client.retries import DefaultPolicy
from pyspark.sql.connect.session import SparkSession
from pyspark.sql.connect.shell.progress import ProgressHandler

from tidemark.connections.lookup import put_in_memory
from tidemark.errors import ConfigurationError, Unavailable
from tidemark.model.order import Order
from tidemark.model.receipt import Receipt
from tidemark.sources.spark import open_reader
from tidemark.spark.batches import arrow_batches
from tidemark.spark.job import failure, staged
from tidemark.spark.jobs import EVERY_S, PATIENCE_S, tag_of, tasks_text
from tidemark.spark.remote import Remote
from tidemark.spark.shipped import package_hash, package_zip

OLDER = 5  # older attempts whose jobs are ended, with one request each
PACKAGE = (
    "spark.tidemark.package"  # property of a server or session: the hash of the package that its Python workers have
)
CLOSED = "INVALID_HANDLE.SESSION_CLOSED"
RETRIES = DefaultPolicy(max_retries=5)  # 17 s in all; Spark's own default is ten minutes
SESSIONS_OF_A_DAY = 1_000  # by default, a server closes a session that was not used for an hour
WHERE = "the log of the Spark Connect server says more"
WITHOUT_PROXY = ("no_grpc_proxy", "no_proxy")  # variables that gRPC reads, the first that is set
ERRORS = (PySparkException, RpcError)
_running: dict[str, SparkSession] = {}  # the sessions of this process's jobs, by their tags
_sending = Lock()  # of slices that work at once, one sends the package, and the others find it there


class _Session(SparkSession):
    """A session that only its opener closes. PySpark's own session also closes itself when it is garbage-collected. In
    Spark 4.0 that waits for ever if the thread is just handing work to the pool that closing ends.
    """

    def __del__(self) -> None:
        pass


def stage_on(
    remote: Remote,
    order: Order,
    *,
    database_id: str,
    home: Path,
    conf: Mapping[str, str],
    connections: Mapping[str, Mapping[str, Any]],
    report: Callable[[str], object] | None = None,
) -> Receipt:
    """Do an order on the server. Raises as ``job.stage`` does, and ``Unavailable`` if the server does not answer.

    ``conf``: properties of the pipeline, which the server must allow a session to change. ``home``: the folder for the
    zip of our package that the server gets. ``connections``: those of the pipeline. Tasks get them if this user runs
    the server on this machine; other servers must have them in their environment. ``report``: gets a line about the job
    every 30 seconds.
    """
    remote.check()
    reader = open_reader(order)
    try:
        with _session(remote, database_id, {**arrow_batches(order.record_bytes), **conf}) as session:
            send_package(session, home)
            for attempt in range(max(1, order.attempt - OLDER), order.attempt):
                session.client.interrupt_tag(tag_of(order.manifest_id, attempt))
            session.client.register_progress_handler(_Progress(remote, report))
            with _tagged(session, tag_of(order.manifest_id, order.attempt)), put_in_memory(connections) as file:
                return staged(cast("Any", session), order, reader, file if remote.is_here else None)
    except ERRORS as error:
        remote.check()
        raise failure(order, error, reader, WHERE) from error


@contextmanager
def _tagged(session: SparkSession, tag: str) -> Iterator[None]:
    """Tag the jobs that begin in the block. If an error or Ctrl-C ends the block, the server ends them."""
    session.client.add_tag(tag)
    _running[tag] = session
    try:
        yield
    except BaseException:
        with suppress(*ERRORS):
            session.client.interrupt_tag(tag)
        raise
    finally:
        del _running[tag]


def end_jobs() -> None:
    """Make the servers end all jobs of this process; ``stage_on`` then raises."""
    for tag, session in list(_running.items()):
        with suppress(*ERRORS):
            session.client.interrupt_tag(tag)


@contextmanager
def _session(remote: Remote, database_id: str, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """Open the session for these properties; it stays on the server when the block ends.

    A server closes a session that was not used for an hour, and does not open it again. Then take the next number.
    """
    if remote.is_here:  # gRPC would ask the proxy of http_proxy for a server of this machine
        direct = next((os.environ[name] for name in WITHOUT_PROXY if os.environ.get(name)), "")
        os.environ[WITHOUT_PROXY[0]] = ",".join(dict.fromkeys([*filter(None, direct.split(",")), remote.host]))
    day = datetime.now(UTC).date()
    for number in range(SESSIONS_OF_A_DAY):
        name = json.dumps([package_hash(), sorted(conf.items()), str(day), number])
        session = _Session(remote.url(uuid5(UUID(database_id), name)))
        try:
            session.client.set_retry_policies([RETRIES])
            if _is_open(session):
                _configure(session, conf)
                yield session
                return
        finally:
            session.client.close()
    raise Unavailable(
        f"the Spark Connect server has closed {SESSIONS_OF_A_DAY:,} sessions of these settings today",
        next_step=f"it may close each session at once: {WHERE}. Nothing is published",
        server=remote.address,
    )


def _is_open(session: SparkSession) -> bool:
    try:
        session.conf.set("spark.sql.session.timeZone", "UTC")
    except PySparkException as error:
        if error.getCondition() != CLOSED:
            raise
        return False
    return True


def _configure(session: SparkSession, conf: Mapping[str, str]) -> None:
    """Set properties for this session. Raises ``ConfigurationError`` for those that only a whole server can have."""
    for name, value in conf.items():
        if session.conf.get(name, None) == value:
            continue
        if not session.conf.isModifiable(name):
            raise ConfigurationError(
                f"a session of a Spark Connect server cannot set {name}",
                next_step=f"start the server with it ({name}={value}), or write spark: {{engine: submit}} into the "
                "pipeline file",
            )
        session.conf.set(name, value)


def send_package(session: SparkSession, home: Path) -> None:
    """Send the zip of our package, unless the server's Python workers have it."""
    with _sending:
        if session.conf.get(PACKAGE, None) != package_hash():
            session.addArtifact(str(package_zip(home)), pyfile=True)
            session.conf.set(PACKAGE, package_hash())


class _Progress(ProgressHandler):
    """Reports a job. PySpark calls it every few seconds while a job runs; an error that it raises ends the job.

    A job may wait for the cores of another slice of this process: that is no reason to end it.
    """

    last_work: ClassVar[float] = 0.0  # when a job of this process was last seen with a task at work

    def __init__(self, remote: Remote, report: Callable[[str], object] | None) -> None:
        self._remote = remote
        self._report = report
        self._began = self._reported_at = time.monotonic()

    def __call__(self, stages: Any, inflight_tasks: int, operation_id: Any, done: bool) -> None:
        del operation_id
        now = time.monotonic()
        if inflight_tasks or done:
            _Progress.last_work = now
        if now - max(self._began, _Progress.last_work) > PATIENCE_S:
            raise Unavailable(
                f"Spark had no task at work for {PATIENCE_S:.0f} s",
                next_step="look at the server: other jobs may hold all cores, or it has no executor. Nothing is "
                "published",
                server=self._remote.address,
            )
        if self._report is not None and now - self._reported_at >= EVERY_S and not done:
            self._reported_at = now
            text = tasks_text(
                sum(stage.num_completed_tasks for stage in stages or ()), inflight_tasks,
                sum(stage.num_tasks for stage in stages or ()),
            )  # fmt: skip
            self._report(f"after {now - self._began:.0f} s: {text}")
