"""The public functions, handed on by ``tidemark`` itself: what the commands of the same names do, from Python.

Settings come from the environment, as for the command line: ``dsn`` stands for TIDEMARK_DB, ``pipelines`` (a folder)
for TIDEMARK_PIPELINES. Every function raises ``TidemarkError`` and its kinds, whose text says what a person can do.
"""

import getpass
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace as changed
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from tidemark.connections.lookup import from_environment
from tidemark.database.client import ManifestDatabase
from tidemark.environment import Environment
from tidemark.errors import ConfigurationError, NotFound, TidemarkError, about
from tidemark.lifecycle.context import Context, open_context
from tidemark.lifecycle.failed_tasks import Task, Watch, watched
from tidemark.lifecycle.known_sinks import not_in_file, with_known_keys
from tidemark.lifecycle.members import page_of_manifests, pipelines_of
from tidemark.lifecycle.older import older_unfinished, unfinished_lines
from tidemark.lifecycle.plan import PlannedRun, Tick
from tidemark.lifecycle.plan import plan as plan_ranges
from tidemark.lifecycle.renamed import refuse_renamed
from tidemark.lifecycle.select import replayable
from tidemark.lifecycle.work import Progress, refuse_left_out, work_through
from tidemark.model.event_hours import HourSelection
from tidemark.model.manifest import ALL_MANIFESTS, ManifestSelection, ManifestState
from tidemark.model.problem import Problem
from tidemark.operations.audit import Compared, audit_between, compared_and_kept
from tidemark.operations.audit import audit as find_differences
from tidemark.operations.bring_back import BroughtBack, bring_back
from tidemark.operations.complete import Completeness, completeness
from tidemark.operations.dead_letters import DeadLetters, DeadLetterSelection
from tidemark.operations.dead_letters import dead_letters as read_dead_letters
from tidemark.operations.hours import Hour
from tidemark.operations.hours import hours as hours_of
from tidemark.operations.lag import Lag
from tidemark.operations.lag import lag as measure_lag
from tidemark.operations.lags import LIMIT, Answer, Lags, ask_sources
from tidemark.operations.locate import ChainOffset, locate
from tidemark.operations.status import Status
from tidemark.operations.status import status as status_of
from tidemark.operations.timeline import Step, Timeline
from tidemark.operations.timeline import timeline as timeline_of
from tidemark.pipeline.deployed import Deployed, known_files
from tidemark.pipeline.each_topic import split_name
from tidemark.pipeline.loader import find, name_in, pipeline_files
from tidemark.pipeline.problems import InvalidPipelines
from tidemark.pipeline.settings import Pipeline
from tidemark.sinks.base import Sink
from tidemark.sinks.registry import open_sink
from tidemark.spark import engines
from tidemark.text import nearest
from tidemark.times.moments import with_zone
from tidemark.views.lanes import LaneView, lane_views
from tidemark.views.manifests import ManifestHistoryView, ManifestView, manifest_history_view, manifest_views
from tidemark.views.objects import ObjectView, object_views
from tidemark.views.pipelines import DecisionView, decision_views

LOG = logging.getLogger(__name__)


def objects(
    pipeline_name: str,
    *,
    sink: str | None = None,
    dead_letters: bool = False,
    dsn: str | None = None,
    pipelines: Path | str | None = None,
) -> list[ObjectView]:
    """The published files of a pipeline, each manifest whole or not at all; ``dead_letters`` gives those instead.

    When several sinks have files, each has a copy of every record: then ``sink`` must name one of them. A replay may
    take a path away while you read it: then ask again. For lakes it needs the manifest database only. The files of an
    Iceberg table are those of its current snapshot; for them it needs the pipeline file and the catalog.
    """
    environment = _environment(dsn, pipelines)
    with _database_with(pipeline_name, environment) as database:
        pipeline = partial(find, environment.pipelines, pipeline_name)
        return object_views(database, pipeline_name, pipeline, sink=sink, dead_letters=dead_letters)


def manifests(
    pipeline_name: str | None = None,
    *,
    state: ManifestState | str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    topic: str | None = None,
    partition: int | None = None,
    lacks: str | None = None,
    limit: int | None = None,
    after: int | None = None,
    dsn: str | None = None,
    pipelines: Path | str | None = None,
) -> list[ManifestView]:
    """Manifests of a pipeline, or of all, newest first; all of them without ``limit``.

    ``since`` and ``until`` (without a zone: UTC) choose those of the runs that read up to a time in ``(since, until]``,
    ``topic`` and ``partition`` those with offsets of them, ``lacks`` those that are done and not in the sink of this
    name. For the next page give the last id as ``after``: it is left out, and older ones follow. A manifest planned
    meanwhile does not shift pages. Needs the manifest database only.
    """
    environment = _environment(dsn, pipelines)
    with _database(environment) as database:
        if pipeline_name is not None:
            check_pipeline(environment, database, pipeline_name)
        chosen = None if state is None else ManifestState(state)
        selection = ManifestSelection(chosen, since, until, topic, partition, lacks)
        page = page_of_manifests(database, pipeline_name, selection, limit, after)
        return manifest_views(database, page)


def show(manifest_id: int, *, dsn: str | None = None) -> ManifestHistoryView:
    """One manifest with its attempts and its history; raises ``NotFound`` for a number that was never given out.

    Needs the manifest database only.
    """
    with _database(_environment(dsn, None)) as database:
        return manifest_history_view(database, database.manifests.get(manifest_id))


def compare(manifest_id: int, *, dsn: str | None = None, pipelines: Path | str | None = None) -> list[Compared]:
    """Return what each sink shows of a manifest, against what is published; what differs is kept as the last audit.

    A sink that does not answer has its error in its place. Needs the pipeline file and the sinks.
    """
    environment = _environment(dsn, pipelines)
    with _database(environment) as database:
        manifest = database.manifests.get(manifest_id)
    with _opened(environment, manifest.pipeline_name) as context:
        return compared_and_kept(context, manifest)


def plan(
    pipeline_name: str,
    *,
    until: datetime | None = None,
    run_key: str | None = None,
    dry_run: bool = False,
    dsn: str | None = None,
    pipelines: Path | str | None = None,
) -> PlannedRun:
    """Record the next ranges of a pipeline as manifests, up to ``until`` (without a zone: UTC) or all there is now.

    A ``run_key`` that was planned before is answered as it was. ``dry_run`` stores nothing. Raises ``PlanRefused`` when
    a person must decide first.
    """
    environment, tick = _environment(dsn, pipelines), Tick.by_hand(until, run_key)
    watching = watched(lambda: _database(environment), pipeline_name, Task.PLAN, like_the_next=tick.is_like_the_next)
    with nullcontext(Watch()) if dry_run else watching as watch, _opened(environment, pipeline_name) as context:
        run = plan_ranges(context, tick, dry_run=dry_run)
        watch.end()
        older = older_unfinished(context, run.manifests)
        return run.with_unfinished(older, unfinished_lines(context, older))


def replay(
    pipeline_name: str,
    *,
    manifest_id: int | None = None,
    run_key: str | None = None,
    take_over: bool = False,
    master: str | None = None,
    dsn: str | None = None,
    pipelines: Path | str | None = None,
) -> list[ManifestView]:
    """Do one manifest, or all of a run, once more: the new output replaces the published one.

    Spark works in this process, on ``master`` (without one: TIDEMARK_SPARK_MASTER, or ``local[*]``); without a master,
    and where the pipeline or TIDEMARK_SPARK_REMOTE says so, on a Spark Connect server. An attempt that is at work is
    left alone, and the call then raises after the others are done; ``take_over`` fences it.
    """
    if (manifest_id is None) == (run_key is None):
        raise ConfigurationError(
            "a replay is of one manifest or of one run", next_step="give either manifest_id or run_key"
        )
    environment = _environment(dsn, pipelines)
    with _opened(environment, pipeline_name) as context:
        chosen = replayable(context, manifest_id=manifest_id, run_key=run_key)
        stage = engines.stage_in(context, environment, master)
        left_out = work_through(context, chosen, stage, Progress(), replay=True, take_over=take_over)
        refuse_left_out(context, left_out)
        done = context.database.manifests.find(ids=[manifest.id for manifest in chosen])
        return manifest_views(context.database, done)


def dead_letters(
    pipeline_name: str,
    *,
    manifest_id: int | None = None,
    sink: str | None = None,
    error_class: str | None = None,
    reason: str | None = None,
    limit: int = 0,
    dsn: str | None = None,
    pipelines: Path | str | None = None,
) -> DeadLetters:
    """The published dead letters of a pipeline in groups, and the first ``limit`` of them with key, value and headers.

    ``reason`` is a part of the reason, or of a group's. Every sink keeps the same: without ``sink`` the first is read.
    Reads all that is published of them, and keeps only groups and ``limit`` records in memory.
    """
    with _opened(_environment(dsn, pipelines), pipeline_name) as context:
        selection = DeadLetterSelection(manifest_id, sink, error_class, reason)
        return read_dead_letters(context, selection, limit=limit)


def replay_dead_letters(
    pipeline_name: str,
    *,
    why: str,
    manifest_id: int | None = None,
    error_class: str | None = None,
    reason: str | None = None,
    dry_run: bool = False,
    master: str | None = None,
    dsn: str | None = None,
    pipelines: Path | str | None = None,
) -> BroughtBack:
    """Replay the manifests with such dead letters, as ``replay`` does: what the pipeline can read now becomes rows.

    May be repeated. An error of one manifest does not stop the others: it is in ``failed``.
    """
    environment = _environment(dsn, pipelines)
    with _opened(environment, pipeline_name) as context:
        stage = engines.stage_in(context, environment, master)
        selection = DeadLetterSelection(manifest_id, None, error_class, reason)
        return bring_back(context, selection, why, stage, Progress(), dry_run=dry_run)


def audit(
    pipeline_name: str,
    *,
    deep: bool = False,
    since: datetime | None = None,
    until: datetime | None = None,
    dsn: str | None = None,
    pipelines: Path | str | None = None,
) -> list[Problem]:
    """Find the differences between the manifest database and the sinks; an empty list when all agrees.

    ``deep`` reads every row back and compares offsets and digests. Changes nothing but the time of the last audit. With
    ``since`` or ``until`` (without a zone: UTC) only the manifests of runs that read up to a time in ``(since, until]``
    are compared, each by itself, and nothing is changed.
    """
    part = ManifestSelection(since=since, until=until)
    if deep and part != ALL_MANIFESTS:
        raise ConfigurationError(
            "a deep audit reads all rows of the pipeline, and since or until leaves some out",
            next_step="leave out deep, or since and until",
            pipeline=pipeline_name,
        )
    with _opened(_environment(dsn, pipelines), pipeline_name) as context:
        if part != ALL_MANIFESTS:
            return audit_between(context, part)[1]
        for note in not_in_file(context.pipeline, context.database):
            LOG.warning(note)
        return find_differences(context, deep=deep)


def complete(
    pipeline_name: str,
    *,
    until: datetime,
    since: datetime | None = None,
    dsn: str | None = None,
    pipelines: Path | str | None = None,
) -> Completeness:
    """Return whether everything before a cut time (without a zone: UTC) is published, over all runs and for each sink.

    It is no time of events, and what reaches the source after the runs were planned does not count. The source is asked
    only when a run went past ``until`` and something of it is missing. Dead letters and losses are counted ``since`` a
    time: if not given, that up to which the run before read. Changes nothing.
    """
    with _opened(_environment(dsn, pipelines), pipeline_name) as context:
        return completeness(context, with_zone(until), with_zone(since) if since else None)


def hours(
    pipeline_name: str,
    *,
    incomplete: bool = False,
    dsn: str | None = None,
    pipelines: Path | str | None = None,
) -> list[Hour]:
    """The event hours of a pipeline, oldest first, and what those wait for that are not complete.

    ``incomplete`` gives only those. Hours are in UTC, and become complete when a run ends. Needs the pipeline file, and
    of the services the manifest database only.
    """
    environment = _environment(dsn, pipelines)
    lateness = find(environment.pipelines, pipeline_name).event_time.allowed_lateness
    with about(pipeline=pipeline_name), _database(environment) as database:
        return hours_of(database, pipeline_name, lateness, HourSelection(incomplete))


def lag(pipeline_name: str, *, dsn: str | None = None, pipelines: Path | str | None = None) -> list[Lag]:
    """Return how far each partition is behind the source: offsets that are not planned yet, or planned and not
    published.

    Asks the source; raises ``Unavailable`` when it does not answer. Needs the pipeline file.
    """
    with _opened(_environment(dsn, pipelines), pipeline_name) as context:
        return measure_lag(context)


def lanes(pipeline_name: str, *, dsn: str | None = None, pipelines: Path | str | None = None) -> list[LaneView]:
    """The chains of a pipeline by topic and partition, and what is not done along their offsets.

    An older log generation of a partition stands before the newer one. Needs the manifest database only.
    """
    with _database_with(pipeline_name, _environment(dsn, pipelines)) as database:
        return lane_views(database, pipeline_name)


def timeline(
    pipeline_name: str,
    *,
    by: Step | str | None = None,
    until: datetime | None = None,
    dsn: str | None = None,
    pipelines: Path | str | None = None,
) -> Timeline:
    """The 48 hours, days or weeks up to ``until`` (without a zone: UTC) or up to now, with their manifests by state.

    Without ``by`` ("hour", "day" or "week") the shortest that reaches back to the newest runs. Needs the manifest
    database only.
    """
    with _database_with(pipeline_name, _environment(dsn, pipelines)) as database:
        step = None if by is None else Step(by)
        end = until and with_zone(until)
        return timeline_of(database, pipeline_name, datetime.now(UTC), step=step, until=end)


def history(pipeline_name: str, *, dsn: str | None = None, pipelines: Path | str | None = None) -> list[DecisionView]:
    """Return what people decided about a pipeline, oldest first; ``show`` has what happened to one manifest.

    Needs the manifest database only.
    """
    with _database_with(pipeline_name, _environment(dsn, pipelines)) as database:
        return decision_views(database, pipeline_name)


def where(
    topic: str,
    partition: int,
    offset: int,
    *,
    pipeline_name: str | None = None,
    dsn: str | None = None,
    pipelines: Path | str | None = None,
) -> list[ChainOffset]:
    """Return the place of an offset in each pipeline, or in the one that is named: the manifest, and the file or row in
    each sink.

    Empty when no pipeline has planned the partition. Reads the files that may hold the record; a sink that cannot be
    read says so. Needs pipeline files and targets.
    """
    environment = _environment(dsn, pipelines)
    with _database(environment) as database:
        sinks = partial(sinks_of, environment, database)
        return locate(database, topic, partition, offset, sinks, pipeline_name)


def sinks_of(
    environment: Environment,
    database: ManifestDatabase,
    pipeline_name: str,
    prepare: Callable[[Pipeline], object] | None = None,
) -> Sequence[Sink] | str:
    """The sinks of a pipeline, or why they cannot be opened; ``prepare`` gets the pipeline first."""
    try:
        pipeline = find(environment.pipelines, pipeline_name)
        if prepare is not None:
            prepare(pipeline)
        pinned = with_known_keys(pipeline, database, from_environment)
        return [open_sink(pipeline_name, sink, from_environment) for sink in pinned.sinks]
    except TidemarkError as error:
        return error.what


def status(
    pipeline_name: str | None = None,
    *,
    max_lag: int | None = None,
    max_age: timedelta | None = None,
    source: bool = True,
    dsn: str | None = None,
    pipelines: Path | str | None = None,
) -> list[Status]:
    """Return the state of one pipeline, or of all that the database or a file knows, by name. Beside one stands each
    wrong file that says its name, such as a second one of that name.

    A pipeline is late when more than ``max_lag`` offsets are not published, and when what is published ends longer ago
    than ``max_age``; one without a file is never late. The sources are asked side by side, for 8 s at most; a silent
    one is a problem. Without ``source`` nobody asks them. Changes nothing.
    """
    environment = _environment(dsn, pipelines)
    with _database(environment) as database:
        return statuses(environment, database, pipeline_name, max_lag=max_lag, max_age=max_age, source=source)


def statuses(
    environment: Environment,
    database: ManifestDatabase,
    pipeline_name: str | None,
    *,
    max_lag: int | None = None,
    max_age: timedelta | None = None,
    source: bool = True,
    connections: Callable[[Sequence[Pipeline]], AbstractContextManager[object]] = nullcontext,
) -> list[Status]:
    """Return the states of one pipeline or of all. A file that cannot be read stands for itself, with its name as the
    pipeline's.

    ``connections`` puts those that these pipelines name into the environment, while the sources are asked.
    """
    needs_files = max_lag is not None or max_age is not None
    known = known_pipelines(environment, database, pipeline_name, needs_files=needs_files)
    heard = answers_of_sources(database, known, connections) if source else {}
    with database.reading_ahead(known):
        return [
            status_of(database, name, deployed, heard=heard.get(name), max_lag=max_lag, max_age=max_age)
            for name, deployed in known.items()
        ]


def known_pipelines(
    environment: Environment, database: ManifestDatabase, pipeline_name: str | None, *, needs_files: bool = False
) -> dict[str, Deployed | ConfigurationError | None]:
    """By name what the files say, as ``known_files`` has it, of one pipeline or all; of one also the files that are
    wrong and say its name, such as a second one.

    With ``needs_files`` a folder of pipeline files that is not there is an error.
    """
    if pipeline_name is not None:
        check_pipeline(environment, database, pipeline_name)
    if needs_files:
        pipeline_files(environment.pipelines)
    planned, every = set(database.pipelines.names()), set(database.pipelines.names(retired=True))
    noted = _noted_of_groups(database, every)
    named = {pipeline_name} if pipeline_name in every or (pipeline_name and split_name(pipeline_name)[1]) else set()
    known = known_files(environment.pipelines, {*planned, *noted, *filter(None, named)})
    return {
        name: deployed
        for name, deployed in sorted(known.items())
        if pipeline_name in (None, name, split_name(name)[0], _name_in_wrong_file(deployed))
        and (deployed is not None or name not in noted)  # of a topic that is not read any more
    }


def _noted_of_groups(database: ManifestDatabase, planned: Collection[str]) -> set[str]:
    """Members whose first plan has failed, and groups whose own plan has: nothing but a note says so."""
    groups = {split_name(name)[0] for name in planned if split_name(name)[1] is not None}
    noted = set(database.tasks.pipelines_noted()) - set(planned)
    return {name for name in noted if split_name(name)[1] is not None or name in groups}


def _name_in_wrong_file(deployed: Deployed | ConfigurationError | None) -> str | None:
    return name_in(Path(deployed.problems[0].file)) if isinstance(deployed, InvalidPipelines) else None


def answers_of_sources(
    database: ManifestDatabase,
    known: Mapping[str, Deployed | ConfigurationError | None],
    connections: Callable[[Sequence[Pipeline]], AbstractContextManager[object]] = nullcontext,
) -> dict[str, Answer]:
    """Return what the sources of these pipelines answer within 8 s; a retired pipeline, and one without a file, has
    none."""
    retired = set(database.pipelines.names(retired=True)) - set(database.pipelines.names())
    right = {name: deployed.pipeline for name, deployed in known.items() if isinstance(deployed, Deployed)}
    active = {
        name: pipeline for name, pipeline in right.items() if name not in retired and isinstance(pipeline, Pipeline)
    }

    if not active:
        return {}
    begin = time.monotonic()
    with connections(list(active.values())):
        return ask_sources(database, active, from_environment, Lags(LIMIT - (time.monotonic() - begin)))


def check_pipeline(environment: Environment, database: ManifestDatabase, pipeline_name: str) -> None:
    """Raise ``NotFound`` with the names there are, when neither the database nor a file knows a pipeline, also one that
    is wrong or gone, and ``ConfigurationError`` with its name for one that was renamed."""
    planned = database.pipelines.names(retired=True)
    if pipeline_name in {*planned, *(split_name(name)[0] for name in planned)}:
        return
    if split_name(pipeline_name)[1] is not None:
        refuse_renamed(pipeline_name, database)
        find(environment.pipelines, pipeline_name)
        return
    refuse_renamed(pipeline_name, database)
    files = known_files(environment.pipelines, ())
    of_files = {_name_in_wrong_file(deployed) or name for name, deployed in files.items()}
    if pipeline_name in of_files:
        return
    known = sorted({*planned, *of_files})
    names = f"known: {', '.join(known)}" if known else "none is known"
    raise NotFound(
        " ".join(f"there is no pipeline {pipeline_name}; {nearest(pipeline_name, known)} {names}".split()),
        next_step=f"name a known one, or set TIDEMARK_PIPELINES to another folder than {environment.pipelines}",
    )


def _environment(dsn: str | None, pipelines: Path | str | None) -> Environment:
    environment = Environment.from_variables()
    return changed(environment, dsn=dsn or environment.dsn, pipelines=Path(pipelines or environment.pipelines))


def _database(environment: Environment) -> ManifestDatabase:
    """A connection to the manifest database, acting as this user."""
    return ManifestDatabase(environment.database(), f"python {getpass.getuser()}")


@contextmanager
def _database_with(pipeline_name: str, environment: Environment) -> Iterator[ManifestDatabase]:
    """The manifest database, which knows the pipeline, or the pipeline has a file: see ``check_pipeline``."""
    with _database(environment) as database:
        check_pipeline(environment, database, pipeline_name)
        if pipelines_of(database, pipeline_name) != [pipeline_name]:
            find(environment.pipelines, pipeline_name)  # raises: it is about one member of the group
        yield database


@contextmanager
def _opened(environment: Environment, pipeline_name: str) -> Iterator[Context]:
    pipeline = find(environment.pipelines, pipeline_name)
    with about(pipeline=pipeline_name), _database(environment) as database:
        context = open_context(pipeline, database)
        for warning in context.source.warnings():
            LOG.warning(warning)
        yield context
