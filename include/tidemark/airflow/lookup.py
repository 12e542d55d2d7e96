"""Connections as Airflow knows them, and the lifecycle of a pipeline inside a task."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from airflow.sdk import BaseHook, Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from tidemark.connections import kafka_connection
from tidemark.errors import ConfigurationError
from tidemark.lifecycle import Lifecycle
from tidemark.manifest.database import ManifestDatabase
from tidemark.named_connections import variable_of
from tidemark.pipeline import Pipeline
from tidemark.settings import Settings


def _connection(conn_id: str) -> Connection | None:
    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        return None


def airflow_lookup(conn_id: str) -> Mapping[str, Any] | None:
    """A connection from wherever Airflow keeps it, in the shape ``connections.py`` reads."""
    found = _connection(conn_id)
    if found is None:
        return None
    return {
        "host": found.host,
        "port": found.port,
        "login": found.login,
        "password": found.password,
        "schema": found.schema,
        "extra": found.extra_dejson,
    }


def spark_master(conn_id: str) -> str:
    """The master a Spark connection names; without one Airflow would silently submit to YARN."""
    found = _connection(conn_id)
    if found is None or not found.host:
        raise ConfigurationError(
            f"there is no Airflow connection {conn_id} with a Spark master as its host",
            next_step=f"create it in Admin > Connections, or set AIRFLOW_CONN_{conn_id.upper()}="
            '\'{"conn_type": "spark", "host": "local[2]"}\'',
        )
    return str(found.host)


@contextmanager
def in_environment(pipeline: Pipeline) -> Iterator[None]:
    """The connections of the pipeline's sinks in the environment, where Spark's processes look them up.

    Not in arguments or Spark properties: those are seen in process lists and in pages.
    """
    named = {one.connection for one in pipeline.sinks if one.connection is not None}
    added = {variable_of(one): json.dumps(airflow_lookup(one)) for one in named if variable_of(one) not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


@contextmanager
def opened(pipeline: Pipeline, context: Any) -> Iterator[Lifecycle]:
    """The lifecycle of a pipeline, acting as this task instance."""
    instance = context["ti"]
    actor = f"airflow {instance.dag_id} {instance.run_id} {instance.task_id} try {instance.try_number}"
    settings = Settings.from_environment()
    connection = kafka_connection(pipeline, airflow_lookup)
    with ManifestDatabase(settings.database(), actor) as database:
        yield Lifecycle(pipeline, database, connection, airflow_lookup)
