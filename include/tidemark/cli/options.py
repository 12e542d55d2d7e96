"""What commands share: options, the context of a pipeline, the database."""

import getpass
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import click

from tidemark.cli import output
from tidemark.database.client import ManifestDatabase
from tidemark.environment import Environment
from tidemark.errors import TidemarkError
from tidemark.lifecycle.context import Context, open_context
from tidemark.pipeline.loader import find, pipeline_files

COMPLETE = "_TIDEMARK_COMPLETE"  # click's name for the variable by which a shell asks
_NAMED = re.compile(r"""^pipeline:\s*["']?([a-z][a-z0-9_-]*)""", re.MULTILINE)
Command = TypeVar("Command", bound=Callable[..., Any])


def json_option(command: Command) -> Command:
    """``--json``, as ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def master_option(command: Command) -> Command:
    """``--master``: where Spark works."""
    return click.option(
        "--master",
        default=lambda: Environment.from_variables().spark_master,
        show_default="$TIDEMARK_SPARK_MASTER, or local[*]",
        help="Spark master to work on, such as spark://host:7077; Airflow's Spark connection is not asked.",
    )(command)


def pipeline_names(command: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    """For shells: names of pipelines that begin with what is typed. Files are not checked, and no error is shown."""
    del parameter
    given = command.find_root().params.get("pipelines")
    folder = Path(given) if given else Environment.from_variables().pipelines
    names: list[str] = []
    with suppress(OSError, TidemarkError):
        for file in pipeline_files(folder):
            names += _NAMED.findall(file.read_text(encoding="utf-8-sig", errors="replace"))
    return sorted({name for name in names if name.startswith(typed)})


pipeline_argument = click.argument("pipeline", shell_complete=pipeline_names)


@contextmanager
def opened(settings: Environment, name: str) -> Iterator[Context]:
    """The context of a pipeline, acting as this user on the command line."""
    pipeline = find(settings.pipelines, name)
    with database_of(settings) as database:
        context = open_context(pipeline, database)
        for warning in context.source.warnings():
            output.note(f"warning: {warning}")
        yield context


def database_of(settings: Environment) -> ManifestDatabase:
    """A connection to the manifest database, acting as this user."""
    return ManifestDatabase(settings.database(), f"cli {getpass.getuser()}")
