"""The checks of Spark for ``tidemark doctor``: the master, and on a cluster a small job on every executor."""

import json
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from shutil import which
from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidemark.connections.lookup import Lookup
from tidemark.doctor.checks import Check
from tidemark.environment import Environment
from tidemark.extras import require
from tidemark.model.findings import Finding, failed, ok, warning
from tidemark.pipeline.settings import Engine, Pipeline
from tidemark.spark.cluster import open_orders
from tidemark.spark.engines import engine_of
from tidemark.spark.executor_answers import findings_of, nonce_files, questions_of, roots_of
from tidemark.spark.failures import cause_of
from tidemark.spark.jobs import count_executors
from tidemark.spark.masters import check_master, step_to_executors
from tidemark.spark.probe import REST_S, Questions, look
from tidemark.spark.remote import remote_of
from tidemark.spark.session import open_session
from tidemark.spark.shipped import is_local
from tidemark.spark.start_log import last_errors, size_of, written_since

NAME, ORDERS = "spark", "orders"
EXECUTORS_S = 30.0  # a worker with a free core starts an executor in 3 s
SETTLED_S = 2.0  # without a new executor for so long, all have registered
JOB_S = 300.0  # for session, executors and job together: 25 s on idle cores, more than 200 s on busy ones
SERVER_S = 90.0  # for a small job on a server that is up: 5 s on idle cores
BUSY = (
    "it takes connections: its cores are busy with other jobs, or it hangs. Look at its page or its log, and repeat "
    "the command when its jobs have ended"
)
NO_CORES = "the cluster or this machine is busy; look at the master's page, and repeat the command"
TASKS = 1000


def checks(
    environment: Environment,
    master: str | None,
    pipelines: Sequence[Pipeline],
    addresses: Sequence[str],
    lookup: Lookup,
) -> list[Check]:
    """Check each engine that pipelines use; without pipelines, the engine that the environment names."""
    engines = {pipeline.name: engine_of(pipeline, environment) for pipeline in pipelines}
    on_server = [pipeline for pipeline in pipelines if master is None and engines[pipeline.name] is Engine.CONNECT]
    others = [pipeline for pipeline in pipelines if pipeline not in on_server and not pipeline.spark.submit]
    of_server = [Check("spark server", lambda: _server(environment, on_server, addresses, lookup), SERVER_S, BUSY)]
    of_master = _check_master(environment, master or environment.spark_master, others, addresses)
    on_cluster = [pipeline for pipeline in pipelines if engines[pipeline.name] is Engine.CLUSTER]
    of_orders = [Check(ORDERS, lambda: _orders(on_cluster, lookup))] if on_cluster else []
    return [*(of_server if on_server else []), *(of_master if others or not pipelines else []), *of_orders]


def _server(
    environment: Environment, pipelines: Sequence[Pipeline], addresses: Sequence[str], lookup: Lookup
) -> Iterator[Finding]:
    require("connect", "a Spark Connect server")
    from tidemark.spark.server_doctor import findings  # takes 0.5 s to import

    yield from findings(remote_of(environment, lookup), environment.home, pipelines, addresses, lookup)


def _orders(pipelines: Sequence[Pipeline], lookup: Lookup) -> Iterator[Finding]:
    """Write and remove an object where orders lie, and look for the programs that start drivers. Whether drivers can
    read there, only a run shows.
    """
    for program in sorted({pipeline.spark.submit[0] for pipeline in pipelines if pipeline.spark.submit}):
        if which(program) is None:
            message = f"{program} cannot be started: there is no such program"
            yield failed(ORDERS, message, "correct spark.submit of the pipeline file, or install it on this machine")
    for spark in {pipeline.spark.orders: pipeline.spark for pipeline in pipelines}.values():
        store = open_orders(spark, lookup)
        key = f"_doctor-{uuid4().hex}"
        store.put(key, b"")
        store.delete([key])
        yield ok(ORDERS, f"{spark.orders} can be written")


def _check_master(
    environment: Environment, master: str, pipelines: Sequence[Pipeline], addresses: Sequence[str]
) -> list[Check]:
    if is_local(master):
        return [Check(NAME, lambda: [ok(NAME, f"{master}: tasks run in the driver, on this machine")])]
    return [
        Check(NAME, lambda: _master(master)),
        Check("executors", lambda: executors(environment, master, pipelines, addresses), JOB_S, NO_CORES),
    ]


def _master(master: str) -> Iterator[Finding]:
    answers = check_master(master)
    yield ok(NAME, f"{master} answers" if answers else f"{master} cannot be checked before a session starts")


def executors(
    environment: Environment, master: str, pipelines: Sequence[Pipeline], addresses: Sequence[str]
) -> Iterator[Finding]:
    """Start a session with the properties of the pipelines, and compare every executor with the driver."""
    conf = {name: value for pipeline in pipelines for name, value in pipeline.spark.conf.items()}
    log = environment.home / "_logs" / "spark.log"
    size = size_of(log)
    session = open_session(master, environment.spark_jars, log, home=environment.home, conf=conf)
    try:
        registered = _registered(session)
        if registered == 0:
            in_log = last_errors(written_since(log, size))
            reasons = f"; its log: {' | '.join(in_log)}" if in_log else ""
            message = f"no executor started within {EXECUTORS_S:.0f} s{reasons}"
            yield failed("executors", message, step_to_executors(master))
            return
        with nonce_files(pipelines) as nonces:
            answers, seconds = _answers(session, questions_of(pipelines, addresses, nonces), registered)
        registered = max(
            registered, count_executors(session)
        )  # an executor may have started during the job, and answered
    finally:
        session.stop()
    if isinstance(answers, str):
        yield failed("executors", f"a small job failed: {answers}", "the logs of the executors say more")
        return
    for answer in answers:
        yield from findings_of(answer)
    yield ok("executors", f"{len(answers)} of {registered} answered within {seconds:.0f} s")
    for root in roots_of(pipelines):
        if not Path(root).is_dir():
            message = f"{root} does not exist yet, so nothing shows whether executors see the same folder"
            yield warning("executors", message, "run tidemark doctor again after the first plan")


def _registered(session: SparkSession) -> int:
    """Return the number of executors, once it has not changed for ``SETTLED_S``; 0 if none registers in time."""
    deadline, registered, changed_at = time.monotonic() + EXECUTORS_S, 0, time.monotonic()
    while time.monotonic() < deadline:
        current = count_executors(session)
        if current != registered:
            registered, changed_at = current, time.monotonic()
        elif registered and time.monotonic() - changed_at > SETTLED_S:
            break
        time.sleep(0.2)
    return registered


def _answers(session: SparkSession, questions: Questions, registered: int) -> tuple[list[dict[str, Any]] | str, float]:
    """Return one answer of each executor, or the reason why the job failed; and the seconds it took."""
    context = session.sparkContext
    tasks = min(2 * max(context.defaultParallelism, registered), TASKS)
    started = time.monotonic()
    try:
        lines = context.parallelize(range(tasks), tasks).mapPartitions(partial(look, questions)).collect()
    except (PySparkException, Py4JError, ConnectionError) as error:
        return cause_of(error), time.monotonic() - started
    now = time.time()
    seconds = time.monotonic() - started
    answers = {(answer["host"], answer["folder"]): answer for answer in map(json.loads, lines)}
    for answer in answers.values():
        # A time of an executor between the start and the end of the job shows no difference of clocks.
        answer["ahead"] = max(answer["now"] - now, 0) + min(answer["now"] - (now - seconds - REST_S), 0)
    return list(answers.values()), seconds
