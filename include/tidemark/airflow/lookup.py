"""Connections as Airflow knows them, and the context of a pipeline inside a task."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from airflow.sdk import BaseHook, Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from tidemark.connections import variable_of
from tidemark.database.client import ManifestDatabase
from tidemark.errors import ConfigurationError, about
from tidemark.lifecycle.context import Context, open_context
from tidemark.pipeline.settings import Pipeline
from tidemark.settings import Settings


def _connection(conn_id: str) -> Connection | None:
    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        return None


def airflow_lookup(conn_id: str) -> Mapping[str, Any] | None:
    """A connection from wherever Airflow keeps it, in the shape of ``connections``."""
    found = _connection(conn_id)
    return None if found is None else as_mapping(found)


def as_mapping(found: Any) -> Mapping[str, Any]:
    """A connection of Airflow's SDK or of its models in the shape of ``connections``."""
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
    return master_of(_connection(conn_id), conn_id)


def master_of(found: Any, conn_id: str) -> str:
    """The master of a connection (or None) as Airflow's provider makes it of type, host and port."""
    if found is None or not found.host:
        raise ConfigurationError(
            f"there is no Airflow connection {conn_id} with a Spark master as its host",
            next_step=f"create it in Admin > Connections, or set AIRFLOW_CONN_{conn_id.upper()}="
            '\'{"conn_type": "spark", "host": "local[2]"}\'',
        )
    whole = found.conn_type == "spark" and ("://" in found.host or not found.port)
    master = found.host if whole else f"{found.conn_type}://{found.host}"
    return f"{master}:{found.port}" if found.port else str(master)


@contextmanager
def in_environment(pipeline: Pipeline) -> Iterator[None]:
    """Every connection the pipeline names in the environment, as Airflow has it, where Spark's processes look it up.

    Not in arguments or Spark properties: those are seen in process lists and in pages.
    """
    found = {variable_of(one): airflow_lookup(one) for one in pipeline.connections()}
    added = {name: json.dumps(one) for name, one in found.items() if one is not None}
    before = {name: os.environ.get(name) for name in added}
    os.environ.update(added)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def opened(pipeline: Pipeline, task: Any) -> Iterator[Context]:
    """What the verbs of a pipeline need, acting as this task instance; ``task`` is Airflow's context of it."""
    instance = task["ti"]
    actor = f"airflow {instance.dag_id} {instance.run_id} {instance.task_id} try {instance.try_number}"
    database_url = Settings.from_environment().database()
    with about(pipeline=pipeline.name), ManifestDatabase(database_url, actor) as database:
        context = open_context(pipeline, database, airflow_lookup)
        for warning in context.source.warnings():
            print(f"warning: {warning}")
        yield context
