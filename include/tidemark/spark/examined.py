"""Spark for ``tidemark doctor``: the master, and on a cluster a small job that every executor takes part in."""

import json
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidemark.doctor.checks import Check
from tidemark.findings import Finding, clock, failed, ok, warning
from tidemark.pipeline.settings import Pipeline
from tidemark.settings import Settings
from tidemark.spark.executors import count
from tidemark.spark.job import reason_of
from tidemark.spark.probe import REST_S, Questions, look
from tidemark.spark.session import check_master, open_session
from tidemark.spark.shipped import is_local
from tidemark.version import VERSION

NAME = "spark"
EXECUTORS_S = 30.0  # a worker starts an executor in 3 s when it has a core for it
JOB_S = 300.0  # for the whole: session, executors, job; 25 on idle cores, 200 were too short on busy ones
TASKS = 1000


def checks(settings: Settings, master: str, pipelines: Sequence[Pipeline], brokers: Sequence[str]) -> list[Check]:
    if is_local(master):
        return [Check(NAME, lambda: [ok(NAME, f"{master}: tasks run in the driver, nothing has to travel")])]
    return [
        Check(NAME, lambda: _master(master)),
        Check("executors", lambda: executors(settings, master, pipelines, brokers), JOB_S),
    ]


def _master(master: str) -> Iterator[Finding]:
    check_master(master)
    yield ok(NAME, f"{master} answers" if master.startswith("spark://") else f"{master} is asked when a session starts")


def executors(
    settings: Settings, master: str, pipelines: Sequence[Pipeline], brokers: Sequence[str]
) -> Iterator[Finding]:
    """Start a session with the properties of the pipelines, and compare what executors have with what they need."""
    conf = {name: value for pipeline in pipelines for name, value in pipeline.spark.conf.items()}
    log = settings.home / "_logs" / "spark.log"
    session = open_session(master, settings.spark_jars, log, home=settings.home, conf=conf)
    try:
        registered = _registered(session)
        if registered == 0:
            yield failed(
                "executors",
                f"the master gave this application no executor within {EXECUTORS_S:.0f} s",
                "look at the master's page: has a worker a free core, and room for spark.executor.memory (1 GiB)?",
            )
            return
        with _nonces(pipelines) as nonces:
            found, seconds = _answers(session, _questions(pipelines, brokers, nonces), registered)
    finally:
        session.stop()
    if isinstance(found, str):
        yield failed("executors", f"a small job failed: {found}", "mend that first; the executors' logs say more")
        return
    for one in found:
        yield from compared(one)
    yield ok("executors", f"{len(found)} of {registered} answered within {seconds:.0f} s")
    for root in _roots(pipelines):
        if not Path(root).is_dir():
            said = f"{root} is not there yet, so it could not be compared with what executors see"
            yield warning("executors", said, "run tidemark doctor again after the first plan; it must be shared")


def _registered(session: SparkSession) -> int:
    """How many executors there are once their number has rested for two seconds."""
    deadline, before, since = time.monotonic() + EXECUTORS_S, 0, time.monotonic()
    while time.monotonic() < deadline:
        now = count(session)
        if now != before:
            before, since = now, time.monotonic()
        elif now and time.monotonic() - since > 2:
            break
        time.sleep(0.2)
    return before


def _answers(session: SparkSession, questions: Questions, registered: int) -> tuple[list[dict[str, Any]] | str, float]:
    """One answer of each executor, or why there is none; and the seconds it took."""
    context = session.sparkContext
    tasks = min(2 * max(context.defaultParallelism, registered), TASKS)
    started = time.monotonic()
    try:
        said = context.parallelize(range(tasks), tasks).mapPartitions(partial(look, questions)).collect()
    except (PySparkException, Py4JError, ConnectionError) as error:
        return reason_of(error), time.monotonic() - started
    now = time.time()
    seconds = time.monotonic() - started
    found = {(one["host"], one["folder"]): one for one in map(json.loads, said)}
    for one in found.values():
        # Between the start of the job and its end; what lies inside is no difference of clocks.
        one["ahead"] = max(one["now"] - now, 0) + min(one["now"] - (now - seconds - REST_S), 0)
    return list(found.values()), seconds


def _questions(pipelines: Sequence[Pipeline], brokers: Sequence[str], nonces: Sequence[Path]) -> Questions:
    targets = {(sink.kind, conn_id) for p in pipelines for sink in p.sinks for conn_id in sink.connections()}
    connections = sorted({conn_id for _, conn_id in targets})
    return Questions(connections, sorted(targets), [str(nonce) for nonce in nonces], list(brokers))


def _roots(pipelines: Sequence[Pipeline]) -> list[str]:
    return sorted({root for pipeline in pipelines for sink in pipeline.sinks for root in sink.folders()})


@contextmanager
def _nonces(pipelines: Sequence[Pipeline]) -> Iterator[list[Path]]:
    """A file of a name nobody can guess in each local root: an executor that sees it sees the same folder."""
    files = [Path(root, f".doctor-{uuid4().hex}") for root in _roots(pipelines) if Path(root).is_dir()]
    try:
        for file in files:
            file.touch()
        yield files
    finally:
        for file in files:
            with suppress(OSError):
                file.unlink()


def compared(one: dict[str, Any]) -> Iterator[Finding]:
    """What is to be said of one executor's answer, which has the keys that ``probe.look`` gives it, and ``ahead``."""
    where = f"executor {one['host']} {one['folder']}"
    ours = {name: version(name) for name in ("pyspark", "pyarrow")}
    if one["python"] != platform.python_version():
        said = f"Python {one['python']}, the driver has {platform.python_version()}"
        yield warning(where, said, "the same minor version is needed, the same patch version is better: PYSPARK_PYTHON")
    for name, wanted in ours.items():
        if (has := one["packages"][name]) is None:
            yield failed(where, f"its Python has no {name}", f"install {name}=={wanted}, or set PYSPARK_PYTHON")
        elif has != wanted:
            yield warning(where, f"{name} {has}, the driver has {wanted}", f"install {name}=={wanted} there")
    if not one["tidemark"].startswith(f"{VERSION} "):
        yield failed(where, f"tidemark {one['tidemark']}, here {VERSION}", "remove the one installed there")
    if one["unreachable"] or one["missing"]:
        yield from _connections(where, one)
    for nonce in one["unseen"]:
        root = Path(nonce).parent
        yield failed(where, f"it does not see what the driver writes to {root}", "mount one shared folder on all")
    for nonce in set(one["read_only"]) - set(one["unseen"]):
        yield failed(where, f"its user may not write to {Path(nonce).parent}", "give the user of the workers the right")
    for broker in one["brokers"]:
        yield failed(where, f"it cannot connect to the source at {broker}", "open the way from workers to the brokers")
    yield clock(where, "this executor", one["ahead"])


def _connections(where: str, one: dict[str, Any]) -> Iterator[Finding]:
    for conn_id in one["missing"]:
        yield failed(
            where,
            f"it does not find the connection {conn_id}",
            f"set AIRFLOW_CONN_{conn_id.upper()} in the workers' environment (conf/spark-env.sh), never in properties",
        )
    for said in one["unreachable"].values():
        yield failed(where, said, "open the way from workers to the target")
