"""The checks of ``tidemark doctor --airflow``: Airflow's connections, wherever it stores them, and its limits."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from airflow.configuration import conf
from airflow.exceptions import AirflowNotFoundException
from airflow.jobs.job import most_recent_job
from airflow.models.connection import Connection
from airflow.models.pool import Pool

from tidemark.airflow.lookup import as_mapping, master_of
from tidemark.airflow.other_runs import defers
from tidemark.connections.lookup import variable_of
from tidemark.doctor.checks import Check
from tidemark.environment import Environment
from tidemark.model.findings import Finding, failed, ok, warning
from tidemark.pipeline.settings import Engine, Pipeline
from tidemark.spark.engines import engine_of
from tidemark.spark.remote import remote_of

NAME = "airflow"
TIMEOUT_S = 60.0  # importing Airflow's models takes seconds
SPARK = "spark_default"


def checks(pipelines: Sequence[Pipeline]) -> list[Check]:
    return [
        Check(NAME, lambda: spark_connections(pipelines), TIMEOUT_S),
        Check(NAME, lambda: other_connections(pipelines), TIMEOUT_S),
        Check(NAME, lambda: pools(pipelines), TIMEOUT_S),
        Check(NAME, lambda: triggerer(pipelines), TIMEOUT_S),
        Check(NAME, limits, TIMEOUT_S),
    ]


def stored(conn_id: str) -> Mapping[str, Any] | None:
    """Return a connection from Airflow's environment, secrets backend or database, in the form of
    ``connections.Lookup``.
    """
    connection = _connection(conn_id)
    return None if connection is None else as_mapping(connection)


def _connection(conn_id: str) -> Connection | None:
    try:
        return Connection.get_connection_from_secrets(conn_id)
    except AirflowNotFoundException:
        return None


def spark_connections(pipelines: Sequence[Pipeline]) -> Iterator[Finding]:
    """Yield, for each engine that pipelines use, the master of submitted applications, or the server that stays up."""
    environment = Environment.from_variables()
    submitting = [pipeline for pipeline in pipelines if not pipeline.spark.submit]
    engines = {engine_of(pipeline, environment) for pipeline in submitting}
    if not pipelines or engines & {Engine.SUBMIT, Engine.CLUSTER}:
        yield ok(NAME, f"connection {SPARK}: {master_of(_connection(SPARK), SPARK)}")
    if Engine.CONNECT in engines:
        yield ok(NAME, f"the Spark Connect server is {remote_of(environment, stored).address}")


def other_connections(pipelines: Sequence[Pipeline]) -> Iterator[Finding]:
    """Check that the connections named by pipelines exist. The checks of source and targets use their content."""
    for conn_id in sorted({conn_id for pipeline in pipelines for conn_id in pipeline.connections()}):
        if stored(conn_id) is None:
            step = f"create it in Admin > Connections, or set {variable_of(conn_id)} for the workers"
            yield failed(NAME, f"there is no connection {conn_id}", step)
        else:
            yield ok(NAME, f"connection {conn_id} exists")


def pools(pipelines: Sequence[Pipeline]) -> Iterator[Finding]:
    """Check that the pools named by pipelines exist: otherwise their tasks stay scheduled, and only Airflow's scheduler
    says so.
    """
    for name in sorted({pipeline.airflow.pool for pipeline in pipelines}):
        if Pool.get_pool(name) is None:
            step = f'create it: airflow pools set {name} SLOTS "why", or in Admin > Pools'
            yield failed(NAME, f"there is no pool {name}: its tasks would never start", step)
        else:
            yield ok(NAME, f"pool {name} exists")


def triggerer(pipelines: Sequence[Pipeline]) -> Iterator[Finding]:
    """Check that a triggerer is alive if pipelines need one: for the watchers of triggers, and for tasks that wait."""
    triggers = ", ".join(sorted(pipeline.name for pipeline in pipelines if pipeline.trigger is not None))
    deferring = ", ".join(sorted(pipeline.name for pipeline in pipelines if defers(pipeline.airflow.deferrable)))
    without = [f"the trigger of {triggers} starts no run"] if triggers else []
    without += [f"tasks of {deferring} that wait do so for ever"] if deferring else []
    if not without:
        return
    newest = most_recent_job("TriggererJob")
    if newest is None or not newest.is_alive():
        step = "start it where Tidemark and its variables are, as for the workers: airflow triggerer"
        yield failed(NAME, f"no triggerer is alive: {' and '.join(without)}", step)
    else:
        yield ok(NAME, "a triggerer is alive")


def limits() -> Iterator[Finding]:
    """Yield how many slices of one run Airflow processes at the same time."""
    tasks, tasks_of_dag = conf.getint("core", "parallelism"), conf.getint("core", "max_active_tasks_per_dag")
    parallel = min(tasks, tasks_of_dag) if tasks else tasks_of_dag  # parallelism 0 means no limit
    if parallel < 2:
        step = "raise [core] parallelism and max_active_tasks_per_dag"
        yield warning(NAME, "Airflow processes the slices of a run one at a time", step)
    else:
        yield ok(NAME, f"Airflow processes up to {parallel} slices of a run at the same time")
