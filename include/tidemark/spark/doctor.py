"""The checks of Spark for ``tidemark doctor``: the master, and on a cluster a small job on every executor."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from threading import Timer
from typing import Any
from uuid import uuid4

from tidemark.connections.lookup import Lookup
from tidemark.doctor.checks import Check
from tidemark.environment import Environment
from tidemark.errors import WorkFailed
from tidemark.extras import require
from tidemark.model.findings import Finding, failed, ok, warning
from tidemark.pipeline.settings import Engine, Pipeline
from tidemark.spark.asked_executors import EXECUTORS_S, ask_executors
from tidemark.spark.cluster import OnCluster, open_orders, spark_submit
from tidemark.spark.engines import engine_of
from tidemark.spark.executor_answers import findings_of, nonce_files, questions_of, roots_of
from tidemark.spark.masters import check_master, is_local, step_to_executors
from tidemark.spark.remote import remote_of
from tidemark.spark.session import open_session
from tidemark.spark.start_log import last_errors, size_of, written_since
from tidemark.version import VERSION

NAME, ORDERS = "spark", "orders"
JOB_S = 300.0  # for session, executors and job together: 25 s on idle cores, more than 200 s on busy ones
SERVER_S = 90.0  # for a small job on a server that is up: 5 s on idle cores
BUSY = (
    "it takes connections: its cores are busy with other jobs, or it hangs. Look at its page or its log, and repeat "
    "the command when its jobs have ended"
)
DRIVER_S = 600.0  # for a driver on the cluster to start, and to ask: its image may have to be fetched
ENDS_S = 60.0  # for what remains of it to be removed when its time is over
NO_CORES = "the cluster or this machine is busy; look at the master's page, and repeat the command"


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
    on_cluster = [
        pipeline
        for pipeline in pipelines
        if engines[pipeline.name] is Engine.CLUSTER and not (master and is_local(master))
    ]
    others = [pipeline for pipeline in pipelines if pipeline not in on_server and pipeline not in on_cluster]
    of_server = [Check("spark server", lambda: _server(environment, on_server, addresses, lookup), SERVER_S, BUSY)]
    there = master or environment.spark_master
    of_master = _check_master(environment, there, others, addresses)
    ways: dict[tuple[str | None, tuple[str, ...]], list[Pipeline]] = {}  # to start drivers, and to reach them
    for pipeline in on_cluster:
        ways.setdefault((pipeline.spark.orders, tuple(pipeline.spark.submit)), []).append(pipeline)
    of_drivers = [
        Check(ORDERS, lambda: _orders(on_cluster, lookup)),
        *(
            Check("driver", partial(_driver, environment, there, alike, addresses, lookup), DRIVER_S + ENDS_S, NO_CORES)
            for alike in ways.values()
        ),
    ]
    return [
        *(of_server if on_server else []),
        *(of_master if others or not pipelines else []),
        *(of_drivers if on_cluster else []),
    ]


def _server(
    environment: Environment, pipelines: Sequence[Pipeline], addresses: Sequence[str], lookup: Lookup
) -> Iterator[Finding]:
    require("connect", "a Spark Connect server")
    from tidemark.spark.server_doctor import findings  # takes 0.5 s to import

    yield from findings(remote_of(environment, lookup), environment.home, pipelines, addresses, lookup)


def _orders(pipelines: Sequence[Pipeline], lookup: Lookup) -> Iterator[Finding]:
    """Write and remove an object where orders lie."""
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
    conf = _properties(pipelines)
    log = environment.home / "_logs" / "spark.log"
    size = size_of(log)
    session = open_session(master, environment.spark_jars, log, home=environment.home, conf=conf)
    try:
        with nonce_files(pipelines) as nonces:
            asked = ask_executors(session, questions_of(pipelines, addresses, nonces))
    finally:
        session.stop()
    in_log = [] if asked["registered"] else last_errors(written_since(log, size))
    yield from _findings(asked, pipelines, step_to_executors(master), in_log)


def _properties(pipelines: Sequence[Pipeline]) -> dict[str, str]:
    return {name: value for pipeline in pipelines for name, value in pipeline.spark.conf.items()}


def _driver(
    environment: Environment, master: str, alike: Sequence[Pipeline], addresses: Sequence[str], lookup: Lookup
) -> Iterator[Finding]:
    """Have a driver on the cluster ask its executors. The pipelines have one command, and one place of orders."""
    spark = alike[0].spark.model_copy(update={"conf": _properties(alike)})
    command = None if spark.submit else spark_submit(master, environment, spark)
    driver = OnCluster(spark, open_orders(spark, lookup), command, None)
    timer = Timer(DRIVER_S, driver.end_jobs)
    timer.daemon = True
    timer.start()
    try:
        with nonce_files(alike) as nonces:
            asked = driver.ask(questions_of(alike, addresses, nonces))
    except WorkFailed:
        if not timer.finished.is_set():
            raise
        yield failed("driver", f"no driver answered within {DRIVER_S / 60:.0f} minutes", NO_CORES)
        return
    finally:
        timer.cancel()
    if asked["driver"]["tidemark"].startswith(f"{VERSION} "):
        yield ok("driver", f"a driver of {spark.submit[0] if spark.submit else master} read from {spark.orders}")
    else:
        message = f"it has tidemark {asked['driver']['tidemark']}, here {VERSION}"
        yield failed("driver", message, "give the driver's image the same version")
    yield from _findings(asked, alike, "the log of the driver says more; the cluster needs room for executors")


def _findings(
    asked: dict[str, Any], pipelines: Sequence[Pipeline], step: str, in_log: Sequence[str] = ()
) -> Iterator[Finding]:
    """Compare the executors with their driver; ``asked`` has the values of ``ask_executors``."""
    if not asked["registered"]:
        reasons = f"; its log: {' | '.join(in_log)}" if in_log else ""
        yield failed("executors", f"no executor started within {EXECUTORS_S:.0f} s{reasons}", step)
        return
    if asked["problem"]:
        yield failed("executors", f"a small job failed: {asked['problem']}", "the logs of the executors say more")
        return
    for answer in asked["answers"]:
        yield from findings_of(answer, asked["driver"])
    answered = f"{len(asked['answers'])} of {asked['registered']} answered within {asked['seconds']:.0f} s"
    yield ok("executors", answered)
    for root in roots_of(pipelines):
        if not Path(root).is_dir():
            message = f"{root} does not exist yet, so nothing shows whether executors see the same folder"
            yield warning("executors", message, "run tidemark doctor again after the first plan")
