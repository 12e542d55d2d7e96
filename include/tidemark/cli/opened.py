"""Opens what a command works with, while it works."""

import getpass
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, TypeVar

from tidemark.airflow import shell
from tidemark.cli import log
from tidemark.connections.lookup import from_environment, put_in_environment
from tidemark.database.client import ManifestDatabase, on_this_machine
from tidemark.environment import Environment
from tidemark.errors import ConfigurationError, NotFound, TidemarkError, Unavailable, about
from tidemark.lifecycle import events
from tidemark.lifecycle.context import Context, Renaming, open_context
from tidemark.lifecycle.members import Members, planned_topics, refuse_failed
from tidemark.model.order import Order
from tidemark.model.receipt import Receipt
from tidemark.operations.lags import LOOK_UP
from tidemark.pipeline.each_topic import split_name
from tidemark.pipeline.group import Group
from tidemark.pipeline.loader import find, find_file, member
from tidemark.pipeline.settings import Engine, Pipeline
from tidemark.spark import engines

Result = TypeVar("Result")
AGAIN = "follow the next step of each, then repeat the command: what is done stays as it is"


def group_named(environment: Environment, name: str | None) -> Group | None:
    """Return the group of that name, or None: for any other name, also of a member, and if the file cannot be read. The
    caller that opens the pipeline reports that error.
    """
    if name is None or split_name(name)[1] is not None:
        return None
    try:
        file = find_file(environment.pipelines, name)
    except TidemarkError:
        return None
    return file if isinstance(file, Group) else None


def planned_members(group: Group, database: ManifestDatabase) -> list[Pipeline]:
    """Return the pipelines of ``planned_topics``. Raises the error of a wrong member."""
    return [member(group, topic) for topic in planned_topics(group, database)]


@contextmanager
def opened(environment: Environment, pipeline_name: str, *, renaming: Renaming | None = None) -> Iterator[Context]:
    """Open the context of a pipeline, acting as this user on the command line; ``renaming``: as in ``open_context``."""
    pipeline = _pipeline_named(environment, pipeline_name)
    try:
        with about(pipeline=pipeline_name), connections_of(pipeline), database_of(environment) as database:
            context = open_context(pipeline, database, renaming=renaming)
            for warning in context.source.warnings():
                log.note(f"warning: {warning}")
            yield context
    except KeyboardInterrupt:
        finish = f"tidemark retry {pipeline_name} finishes what was begun"
        log.note(f"interrupted; nothing is published half, and {finish}")
        raise


def _pipeline_named(environment: Environment, pipeline_name: str) -> Pipeline:
    """Return the pipeline of that name. If it was planned and its file is missing, ``NotFound`` says so: the name is
    right.
    """
    try:
        return find(environment.pipelines, pipeline_name)
    except NotFound as error:
        if not _is_planned(environment, pipeline_name):
            raise
        raise NotFound(
            f"pipeline {pipeline_name} was planned and has no file in {environment.pipelines}",
            next_step=f"put its file back, or, when nobody needs it any more: tidemark retire pipeline {pipeline_name} "
            "--why TEXT",
            **error.context,
        ) from None


def _is_planned(environment: Environment, pipeline_name: str) -> bool:
    """Return whether the pipeline was planned; False also if the manifest database does not answer."""
    with suppress(TidemarkError), database_of(environment) as database:
        return pipeline_name in database.pipelines.names()
    return False


def connections_of_sources(*pipelines: Pipeline) -> AbstractContextManager[None]:
    """Do the same as ``connections_of`` for the sources of these pipelines, for a command that asks them for the
    lag.
    """
    return _connections({conn_id for each in pipelines for conn_id in each.source.connections()}, LOOK_UP)


def connections_of(*pipelines: Pipeline | Group) -> AbstractContextManager[None]:
    """Put connections of Airflow into the environment: those that the pipelines name and this shell lacks."""
    return _connections({conn_id for each in pipelines for conn_id in each.connections()}, shell.TIMEOUT_S)


def _connections(named: Collection[str], limit: float) -> AbstractContextManager[None]:
    lacking = [conn_id for conn_id in sorted(named) if _is_missing(conn_id)]
    return put_in_environment(_from_airflow(lacking, limit) if lacking else {})


def _from_airflow(lacking: Sequence[str], limit: float) -> Mapping[str, Mapping[str, Any]]:
    """Ask Airflow only if this shell is set up for it, for ``limit`` seconds at most. Notes say which Airflow answered,
    and which connections are still missing.
    """
    configured = shell.configuration()
    if configured is None:
        log.note(
            f"warning: connection {', '.join(lacking)} is not in the environment, and this shell is set up for no "
            f"Airflow: {shell.SET_UP}"
        )
        return {}
    stored: Mapping[str, Mapping[str, Any]] = {}
    try:
        stored = shell.connections(configured, lacking, limit=limit)
    except Unavailable as error:
        log.note(f"warning: {error.what}; try: {error.next_step}")
    else:
        missing = ", ".join(conn_id for conn_id in lacking if conn_id not in stored)
        if stored:
            log.note(f"connection {', '.join(sorted(stored))} from Airflow ({shell.named(configured)})")
        if missing:
            log.note(
                f"warning: connection {missing} is not in the environment, and not in the Airflow of this shell "
                f"({shell.named(configured)})"
            )
    return stored


def _is_missing(conn_id: str) -> bool:
    """Return whether a connection is missing. One that cannot be read is not missing: the code that needs it reports
    the error.
    """
    try:
        return from_environment(conn_id) is None
    except ConfigurationError:
        return False


def database_of(environment: Environment) -> ManifestDatabase:
    """Open a connection to the manifest database, acting as this user."""
    return ManifestDatabase(environment.database(), on_this_machine(f"cli {getpass.getuser()}"))


@contextmanager
def opened_group(environment: Environment, group: Group) -> Iterator[ManifestDatabase]:
    """Open the manifest database for the members of a group, with the connections that the file names."""
    try:
        with connections_of(group), database_of(environment) as database:
            yield database
    except KeyboardInterrupt:
        finish = f"tidemark retry {group.name} finishes what was begun"
        log.note(f"interrupted; nothing is published half, and {finish}")
        raise


def show_members(group: Group, members: Members[Result], show: Callable[[dict[str, Result]], None]) -> None:
    """Show the results of the members. ``NotDone`` names the members that failed."""
    for error in dict.fromkeys(members.failed.values()):
        log.error(error)
    show({name: result for name, (_, result) in members.done.items()})
    failed = {name: error.what for name, error in members.failed.items()}
    refuse_failed(group.name, failed, AGAIN)


class SharedByMembers:
    """The stage of each member of a group. Members in a session of this process share one stage, because ``spark`` is
    the same for all of them.
    """

    def __init__(self, environment: Environment, master: str | None) -> None:
        self._environment, self._master = environment, master
        self._stage: LoggedStage | None = None

    def of(self, context: Context) -> "LoggedStage":
        on_server = self._master is None and engines.engine_of(context.pipeline, self._environment) is Engine.CONNECT
        if self._stage is None or on_server:  # a server needs the connections of each member
            self._stage = LoggedStage(self._environment, context, self._master)
        return self._stage


class LoggedStage:
    """Stages manifests as ``stage_in`` does. Logs that an attempt begins, and the progress of Spark."""

    def __init__(self, environment: Environment, context: Context, master: str | None) -> None:
        self._spark = engines.stage_in(context, environment, master, report=log.note)
        self.start, self.end_jobs = self._spark.start, self._spark.end_jobs

    def __call__(self, order: Order) -> Receipt:
        log.emit(events.attempt_begins(order))
        return self._spark(order)
