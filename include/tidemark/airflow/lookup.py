"""Connections from Airflow, and the context of a pipeline inside a task."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

from airflow.sdk import BaseHook, Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from tidemark.connections import lookup as connections
from tidemark.database.client import ManifestDatabase, on_this_machine
from tidemark.environment import Environment
from tidemark.errors import ConfigurationError, about
from tidemark.lifecycle.context import Context, open_context
from tidemark.pipeline.group import Group
from tidemark.pipeline.settings import Pipeline

log = logging.getLogger(__name__)


def _connection(conn_id: str) -> Connection | None:
    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        return None


def airflow_lookup(conn_id: str) -> Mapping[str, Any] | None:
    """Return a connection, wherever Airflow stores it; a ``connections.Lookup``."""
    connection = _connection(conn_id)
    return None if connection is None else as_mapping(connection)


def as_mapping(connection: Any) -> Mapping[str, Any]:
    """Return a connection of Airflow's SDK or of its models in the form of ``Lookup``."""
    return {
        "host": connection.host,
        "port": connection.port,
        "login": connection.login,
        "password": connection.password,
        "schema": connection.schema,
        "extra": connection.extra_dejson,
    }


def spark_master(conn_id: str) -> str:
    """Return the master of a Spark connection. Raises ``ConfigurationError`` without one: Airflow would submit to
    YARN.
    """
    return master_of(_connection(conn_id), conn_id)


def master_of(connection: Any, conn_id: str) -> str:
    """Return the master of a connection, made from type, host and port as Airflow's provider does."""
    if connection is None or not connection.host:
        raise ConfigurationError(
            f"there is no Airflow connection {conn_id} with a Spark master as its host",
            next_step=f"create it in Admin > Connections, or set AIRFLOW_CONN_{conn_id.upper()}="
            '\'{"conn_type": "spark", "host": "local[2]"}\'',
        )
    is_complete = connection.conn_type == "spark" and ("://" in connection.host or not connection.port)
    master = connection.host if is_complete else f"{connection.conn_type}://{connection.host}"
    return f"{master}:{connection.port}" if connection.port else str(master)


def put_in_environment(pipeline: Pipeline | Group, lookup: connections.Lookup) -> AbstractContextManager[None]:
    """Put Airflow's connections that the pipeline, or any member of the group, names into the environment."""
    by_id = {conn_id: lookup(conn_id) for conn_id in pipeline.connections()}
    return connections.put_in_environment({conn_id: entry for conn_id, entry in by_id.items() if entry is not None})


def database_of(task: Any) -> ManifestDatabase:
    """Open the manifest database for a task; ``task`` is Airflow's context. The history names the task instance."""
    instance = task["ti"]
    mapped = f"[{instance.map_index}]" if instance.map_index is not None and instance.map_index >= 0 else ""
    actor = f"airflow {instance.dag_id} {instance.run_id} {instance.task_id}{mapped} try {instance.try_number}"
    return ManifestDatabase(Environment.from_variables().database(), on_this_machine(actor))


@contextmanager
def opened(pipeline: Pipeline, task: Any, *, warns: bool = True) -> Iterator[Context]:
    """Open the context of a pipeline inside a task; ``task`` is Airflow's context.

    ``warns``: log the warnings of the source. A task that opens the context twice logs them once.
    """
    with about(pipeline=pipeline.name), database_of(task) as database:
        # Each look-up is a request to the API server, and a task needs the same connections several times.
        context = open_context(pipeline, database, cache(airflow_lookup))
        for warning in context.source.warnings() if warns else ():
            log.warning(warning)
        yield context
