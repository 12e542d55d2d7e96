"""What a command works with, opened for as long as it works."""

import getpass
from collections.abc import Iterator
from contextlib import contextmanager

from tidemark.cli import output
from tidemark.database.client import ManifestDatabase
from tidemark.environment import Environment
from tidemark.errors import about
from tidemark.lifecycle.context import Context, open_context
from tidemark.pipeline.loader import find


@contextmanager
def opened(environment: Environment, pipeline_name: str, *, renaming: bool = False) -> Iterator[Context]:
    """The context of a pipeline, acting as this user on the command line; ``renaming``: as ``open_context`` has it."""
    pipeline = find(environment.pipelines, pipeline_name)
    try:
        with about(pipeline=pipeline_name), database_of(environment) as database:
            context = open_context(pipeline, database, renaming=renaming)
            for warning in context.source.warnings():
                output.note(f"warning: {warning}")
            yield context
    except KeyboardInterrupt:
        finish = f"tidemark retry {pipeline_name} finishes what was begun"
        output.note(f"interrupted; nothing is published half, and {finish}")
        raise


def database_of(environment: Environment) -> ManifestDatabase:
    """A connection to the manifest database, acting as this user."""
    return ManifestDatabase(environment.database(), f"cli {getpass.getuser()}")
