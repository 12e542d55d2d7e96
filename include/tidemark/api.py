"""The public functions of ``tidemark``: they do from Python what the commands of the same names do.

Settings come from the environment, as for the command line: ``dsn`` stands for TIDEMARK_DB, ``pipelines`` (a folder)
for TIDEMARK_PIPELINES. Every function raises ``TidemarkError`` or a subclass; its text says what you can do next.
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
from tidemark.database.client import ManifestDatabase, on_this_machine
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
from tidemark.operations.status import Status, worst_first
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
    """Return the published files of a pipeline: all files of a manifest, or none of them.

    ``dead_letters`` returns the files of dead letters instead. If several sinks have files, each has a copy of every
    record, and ``sink`` must name one of them. A replay may remove a path while you read it: then ask again. For lakes
    this needs the manifest database only. For an Iceberg table it returns the files of the current snapshot, and needs
    the pipeline file and the catalog.
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
    """Return the manifests of one pipeline or of all, newest first; all of them without ``limit``.

    ``since`` and ``until`` (without a zone: UTC) select manifests of the runs that read up to a time in ``(since,
    until]``. ``topic`` and ``partition`` select manifests with offsets of them, and ``lacks`` done manifests whose
    output is not in the sink of this name. For the next page give the last id as ``after``: older manifests follow. A
    manifest that is planned meanwhile does not shift pages. Needs the manifest database only.
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
    """Return one manifest with its attempts and its history; raises ``NotFound`` for an id that does not exist.

    Needs the manifest database only.
    """
    with _database(_environment(dsn, None)) as database:
        return manifest_history_view(database, database.manifests.get(manifest_id))


def compare(manifest_id: int, *, dsn: str | None = None, pipelines: Path | str | None = None) -> list[Compared]:
    """Compare what each sink holds of a manifest with what is published, and return one result per sink.

    The differences of a done manifest are stored as the last audit. For a sink that does not answer the result has its
    error. Needs the pipeline file and the sinks.
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
    """Plan the next ranges of a pipeline as manifests, up to ``until`` (without a zone: UTC) or all there is now.

    For a ``run_key`` that was planned before, return the stored run. ``dry_run`` stores nothing. Raises ``PlanRefused``
    if you must decide something first.
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
    """Process one manifest, or all manifests of a run, once more: the new output replaces the published one.

    Spark runs in this process, on ``master`` (default: TIDEMARK_SPARK_MASTER, or ``local[*]``). Without ``master`` it
    runs on a Spark Connect server if the pipeline or TIDEMARK_SPARK_REMOTE asks for one. A manifest with a running
    attempt is left out, and the call raises after the others are done; with ``take_over`` that attempt is fenced.
    """
    if (manifest_id is None) == (run_key is None):
        raise ConfigurationError(
            "a replay needs one manifest or one run, not both", next_step="give either manifest_id or run_key"
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
    """Return the published dead letters of a pipeline: grouped by class and reason, and the first ``limit`` of them.

    Those come with key, value and headers. ``reason`` is a part of the reason, or of a group's reason. Every sink keeps
    the same dead letters: without ``sink`` the first sink is read. Reads all published dead letters, but keeps only the
    groups and ``limit`` records in memory.
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
    """Replay the manifests with such dead letters: records that the pipeline can read now become rows.

    May be repeated. If a manifest fails, the others go on, and its error is in ``failed`` of the result.
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
    """Return the differences between the manifest database and the sinks; an empty list if there are none.

    ``deep`` reads every row back and compares offsets and digests. Changes only the stored result of the last audit.
    ``since`` or ``until`` (without a zone: UTC) select the manifests of runs that read up to a time in ``(since,
    until]``; then each manifest is compared by itself.
    """
    part = ManifestSelection(since=since, until=until)
    if deep and part != ALL_MANIFESTS:
        raise ConfigurationError(
            "a deep audit reads all rows of the pipeline, but since and until leave some of them out",
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

    ``until`` is not an event time, and records that reach the source after the runs were planned do not count. Asks the
    source only if a run read past ``until`` and a part of it is not published. Dead letters and losses are counted from
    ``since`` on, by default from the time up to which the run before read. Changes nothing.
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
    """Return the event hours of a pipeline, oldest first; each incomplete hour says what it waits for.

    ``incomplete`` returns only those. Hours are in UTC, and become complete when a run ends. Needs the pipeline file
    and the manifest database.
    """
    environment = _environment(dsn, pipelines)
    lateness = find(environment.pipelines, pipeline_name).event_time.allowed_lateness
    with about(pipeline=pipeline_name), _database(environment) as database:
        return hours_of(database, pipeline_name, lateness, HourSelection(incomplete))


def lag(pipeline_name: str, *, dsn: str | None = None, pipelines: Path | str | None = None) -> list[Lag]:
    """Return how many offsets each partition is behind the source: not planned yet, or planned but not published.

    Asks the source; raises ``Unavailable`` when it does not answer. Needs the pipeline file.
    """
    with _opened(_environment(dsn, pipelines), pipeline_name) as context:
        return measure_lag(context)


def lanes(pipeline_name: str, *, dsn: str | None = None, pipelines: Path | str | None = None) -> list[LaneView]:
    """Return the chains of a pipeline by topic and partition, with the parts of their offsets that are not done.

    An older log generation of a partition comes before the newer one. Needs the manifest database only.
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
    """Return the 48 hours, days or weeks up to ``until`` (without a zone: UTC) or now, with their manifests by state.

    ``by`` is "hour", "day" or "week"; by default the shortest of them that reaches back to the newest runs. Needs the
    manifest database only.
    """
    with _database_with(pipeline_name, _environment(dsn, pipelines)) as database:
        step = None if by is None else Step(by)
        end = until and with_zone(until)
        return timeline_of(database, pipeline_name, datetime.now(UTC), step=step, until=end)


def history(pipeline_name: str, *, dsn: str | None = None, pipelines: Path | str | None = None) -> list[DecisionView]:
    """Return the decisions about a pipeline, oldest first; ``show`` returns what happened to one manifest.

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
    """Return the place of an offset in one pipeline or in all: its manifest, and the file or row in each sink.

    Empty if no pipeline has planned the partition. Reads the files that may hold the record; for a sink that cannot be
    read the result says why. Needs pipeline files and targets.
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
    """Return the sinks of a pipeline, or the reason why they cannot be opened. Calls ``prepare`` with the pipeline
    first."""
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
    """Return the state of one pipeline, or of all that the database or a file knows, the worst first, then by name.

    For one pipeline also return each invalid file with its name, such as a second file. A pipeline is late if more
    than ``max_lag`` offsets are not published, or if its published data ends longer ago than ``max_age``; without a
    file it is never late. Asks the sources in parallel, for 8 s at most; a source that does not answer is a problem in
    the result. Without ``source`` asks none. Changes nothing.
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
    """Return the states of one pipeline or of all. A file that cannot be read has a state of its own, under the file's
    name.

    ``connections`` puts the connections of these pipelines into the environment while their sources are asked.
    """
    needs_files = max_lag is not None or max_age is not None
    known = known_pipelines(environment, database, pipeline_name, needs_files=needs_files)
    heard = answers_of_sources(database, known, connections) if source else {}
    with database.reading_ahead(known):
        states = [
            status_of(database, name, deployed, heard=heard.get(name), max_lag=max_lag, max_age=max_age)
            for name, deployed in known.items()
        ]
    return sorted(states, key=worst_first)


def known_pipelines(
    environment: Environment, database: ManifestDatabase, pipeline_name: str | None, *, needs_files: bool = False
) -> dict[str, Deployed | ConfigurationError | None]:
    """Return what the files say of one pipeline or of all, by name, as ``known_files`` returns it. For one pipeline
    also return the invalid files with its name, such as a second file.

    With ``needs_files``, raise ``ConfigurationError`` if the folder of pipeline files does not exist.
    """
    if pipeline_name is not None:
        check_pipeline(environment, database, pipeline_name)
    if needs_files:
        pipeline_files(environment.pipelines)
    planned, every = set(database.pipelines.names()), set(database.pipelines.names(retired=True))
    never_planned = _known_by_failed_plans(database, every)
    named = {pipeline_name} if pipeline_name in every or (pipeline_name and split_name(pipeline_name)[1]) else set()
    known = known_files(environment.pipelines, {*planned, *never_planned, *filter(None, named)})
    return {
        name: deployed
        for name, deployed in sorted(known.items())
        if pipeline_name in (None, name, split_name(name)[0], _name_in_wrong_file(deployed))
        and (deployed is not None or name not in never_planned)  # without a file its topic is no longer read
    }


def _known_by_failed_plans(database: ManifestDatabase, planned: Collection[str]) -> set[str]:
    """Return the members whose first plan failed, and the groups whose own plan failed. The database knows these names
    only from its notes about failed tasks."""
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
    """Return the answers of the sources of these pipelines within 8 s. Leaves out retired pipelines and those without
    a valid file."""
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
    """Raise ``NotFound``, with the known names, if neither the database nor a file knows the pipeline; an invalid file
    counts too. Raise ``ConfigurationError``, with the new name, if it was renamed."""
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
    """Open the manifest database. Its history names the operating system's user and the machine as the actor."""
    return ManifestDatabase(environment.database(), on_this_machine(f"python {getpass.getuser()}"))


@contextmanager
def _database_with(pipeline_name: str, environment: Environment) -> Iterator[ManifestDatabase]:
    """Open the manifest database; raises as ``check_pipeline``, and for the name of a group with members."""
    with _database(environment) as database:
        check_pipeline(environment, database, pipeline_name)
        if pipelines_of(database, pipeline_name) != [pipeline_name]:
            find(environment.pipelines, pipeline_name)  # raises: the caller needs one member of the group
        yield database


@contextmanager
def _opened(environment: Environment, pipeline_name: str) -> Iterator[Context]:
    pipeline = find(environment.pipelines, pipeline_name)
    with about(pipeline=pipeline_name), _database(environment) as database:
        context = open_context(pipeline, database)
        for warning in context.source.warnings():
            LOG.warning(warning)
        yield context
