"""What commands share: options, the lifecycle of a pipeline, the database."""

import getpass
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from tidemark import presenting
from tidemark.configuration import find
from tidemark.connections import kafka_connection
from tidemark.lifecycle import Lifecycle
from tidemark.manifest.database import ManifestDatabase
from tidemark.settings import Settings

Command = TypeVar("Command", bound=Callable[..., Any])


def json_option(command: Command) -> Command:
    """``--json``, as ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def master_option(command: Command) -> Command:
    """``--master``: where Spark works."""
    return click.option(
        "--master",
        default=lambda: Settings.from_environment().spark_master,
        show_default="$TIDEMARK_SPARK_MASTER, or local[*]",
        help="Spark master to work on, such as spark://host:7077; Airflow's Spark connection is not asked.",
    )(command)


pipeline_argument = click.argument("pipeline")


@contextmanager
def opened(settings: Settings, name: str) -> Iterator[Lifecycle]:
    """The lifecycle of a pipeline, acting as this user on the command line."""
    pipeline = find(settings.pipelines, name)
    connection = kafka_connection(pipeline)
    for warning in connection.warnings():
        presenting.note(f"warning: {warning}")
    with database_of(settings) as database:
        yield Lifecycle(pipeline, database, connection)


def database_of(settings: Settings) -> ManifestDatabase:
    """A connection to the manifest database, acting as this user."""
    return ManifestDatabase(settings.database(), f"cli {getpass.getuser()}")
