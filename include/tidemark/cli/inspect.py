"""Commands that show: manifests, published output, lag, differences, decisions."""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta

import click

from tidemark.api import check_pipeline, statuses
from tidemark.cli import log, output
from tidemark.cli.durations import DurationType
from tidemark.cli.opened import (
    connections_of,
    connections_of_sources,
    database_of,
    group_named,
    opened,
    opened_group,
)
from tidemark.cli.options import TIMES, Commands, common_options, pipeline_argument
from tidemark.database.client import ManifestDatabase
from tidemark.environment import Environment
from tidemark.errors import TidemarkError, about
from tidemark.lifecycle.context import Context, open_context
from tidemark.lifecycle.known_sinks import not_in_file
from tidemark.lifecycle.members import (
    never_planned_topics,
    page_of_manifests,
    pipelines_of,
    planned_topics,
    refuse_failed,
)
from tidemark.model.event_hours import HourSelection
from tidemark.model.manifest import ALL_MANIFESTS, COUNTED, Manifest, ManifestSelection, ManifestState, counted
from tidemark.model.problem import Problem
from tidemark.operations.audit import audit as find_differences
from tidemark.operations.audit import audit_between, compared_and_kept
from tidemark.operations.complete import Completeness, completeness
from tidemark.operations.hours import hours as hours_of
from tidemark.operations.lag import lag as measure_lag
from tidemark.pipeline.group import Group
from tidemark.pipeline.loader import find, member
from tidemark.pipeline.settings import Pipeline
from tidemark.times.moments import with_zone
from tidemark.views.manifests import manifest_history_view, manifest_views
from tidemark.views.objects import object_views
from tidemark.views.pipelines import decision_views

commands = Commands()
WITH_LOSSES = 3  # the exit status: all is published, but some records became no rows, or their output was given up
WITH_DAMAGE = 4  # the exit status: all is published, but some of it is damaged, or an audit found more than it kept
PAGE = 50  # manifests in a table: two or three screens


@commands.command()
@pipeline_argument(required=False)
@click.option(
    "--state", type=click.Choice([state.value for state in ManifestState]), help="Only manifests in this state."
)
@click.option("--since", type=TIMES, metavar="TIME", help="Only manifests of runs that read up to a later time.")
@click.option(
    "--until", type=TIMES, metavar="TIME", help="Only manifests of runs that read up to this time or earlier."
)
@click.option("--topic", metavar="NAME", help="Only manifests with offsets of this topic.")
@click.option(
    "--partition", type=click.IntRange(min=0), metavar="N", help="Only manifests with offsets of this partition."
)
@click.option("--lacks", metavar="SINK", help="Only manifests that are done, but not in this sink.")
@click.option("--limit", type=click.IntRange(min=1), help=f"At most so many (default: {PAGE}, with --json all).")
@click.option("--after", type=int, metavar="ID", help="The next page: only manifests older than this one.")
@common_options
@click.pass_obj
def manifests(
    environment: Environment,
    pipeline_name: str | None,
    state: str | None,
    since: datetime | None,
    until: datetime | None,
    topic: str | None,
    partition: int | None,
    lacks: str | None,
    limit: int | None,
    after: int | None,
    as_json: bool,
) -> None:
    """List manifests, newest first: ranges, states, counts.

    With --since or --until, the manifests of one pipeline are ordered by the time that their runs read up to. If there
    are more, standard error has their number and the command for the next page. TIME is UTC without a zone, such as
    2024-03-01T11:00 or 2024-03-01T11:00+01:00.
    """
    in_state = None if state is None else ManifestState(state)
    chosen = ManifestSelection(in_state, since, until, topic, partition, lacks)
    with database_of(environment) as database:
        if pipeline_name is not None:
            check_pipeline(environment, database, pipeline_name)
        size = limit if limit or as_json else PAGE
        names = [None] if pipeline_name is None else pipelines_of(database, pipeline_name)
        page = page_of_manifests(database, pipeline_name, chosen, size, after)
        output.finished(manifest_views(database, page), as_json, nothing="there are no manifests")
        last = page[-1].id if page else None
        older = sum(database.manifests.count(name, chosen, most=1, after=last) for name in names) if page else 0
        matching = len(page)
        if older:
            matching = sum(database.manifests.count(name, chosen, most=COUNTED + 1) for name in names)
    if older:
        options = {
            "--state": state, "--since": since and since.isoformat(), "--until": until and until.isoformat(),
            "--topic": topic, "--partition": partition, "--lacks": lacks, "--limit": limit, "--after": page[-1].id,
        }  # fmt: skip
        words = [f"{option} {shlex.quote(str(given))}" for option, given in options.items() if given is not None]
        command = " ".join(["tidemark manifests", *([pipeline_name] if pipeline_name else []), *words])
        log.note(f"{len(page):,} of {counted(matching)} manifests; the next: {command}{' --json' if as_json else ''}")


@commands.command()
@click.argument("manifest_id", metavar="MANIFEST", type=int)
@click.option("--compare", is_flag=True, help="Also check that each sink shows what is published.")
@common_options
@click.pass_context
def show(command: click.Context, manifest_id: int, compare: bool, as_json: bool) -> None:
    """Show one manifest with its attempts and history.

    With --compare: exit 1 when a sink does not show what is published, or does not answer.
    """
    environment: Environment = command.obj
    with database_of(environment) as database:
        manifest = database.manifests.get(manifest_id)
        view = manifest_history_view(database, manifest)
    if not compare:
        output.shown(view, None, as_json)
        return
    with opened(environment, manifest.pipeline_name) as context:
        comparisons = compared_and_kept(context, manifest)
    output.shown(view, comparisons, as_json)
    command.exit(1 if any(comparison.differs for comparison in comparisons) else 0)


@commands.command()
@pipeline_argument()
@click.option("--sink", metavar="NAME", help="The sink to read; needed when several sinks have files.")
@click.option("--dead-letters", is_flag=True, help="List the dead letters instead of the data.")
@common_options
@click.pass_obj
def objects(environment: Environment, pipeline_name: str, sink: str | None, dead_letters: bool, as_json: bool) -> None:
    """Print the published paths: the exact reader.

    Of an Iceberg table the files of its current snapshot, of a Delta table those of its newest version.
    """
    if group_named(environment, pipeline_name):
        find(environment.pipelines, pipeline_name)  # raises: a group is refused, because the command is for one topic
    with database_of(environment) as database, ExitStack() as connections:
        check_pipeline(environment, database, pipeline_name)

        def loaded() -> Pipeline:
            pipeline = find(environment.pipelines, pipeline_name)
            if any(sink.names_files for sink in pipeline.sinks):
                connections.enter_context(connections_of(pipeline))
            return pipeline

        views = object_views(database, pipeline_name, loaded, sink=sink, dead_letters=dead_letters)
        for known in () if views else database.sinks.known(pipeline_name):
            if not known.has_files:  # a sink with files has published nothing yet
                log.note(f"sink {known.name} writes {known.target}: read it there, each manifest is whole or absent")
        output.objects(views, as_json)


@commands.command()
@pipeline_argument(required=False)
@click.option("--max-lag", type=click.IntRange(min=0), metavar="N",
    help="The pipeline is late if more offsets than this are not published.",
)  # fmt: skip
@click.option("--max-age", type=DurationType(),
    help="The pipeline is late if its published data ends longer ago, such as 90m or 2h (default: max_age of the "
    "pipeline file; without it, by its schedule and trigger).",
)  # fmt: skip
@click.option("--source/--no-source", default=True, show_default=True,
    help="Ask the sources what is lost and how far each is behind, all at once and for 8 s at most.",
)  # fmt: skip
@common_options
@click.pass_context
def status(
    command: click.Context,
    pipeline_name: str | None,
    max_lag: int | None,
    max_age: timedelta | None,
    source: bool,
    as_json: bool,
) -> None:
    """Say which pipelines need you; exit 1 when one does.

    One word for each pipeline, the worst first: damaged (a plan, an adopt or an audit found it), blocked, lost, failed
    (the last try of a plan, a manifest or a close), dead letters (at least half of the newest records), stale (all of
    the newest rows were older than those in the table), late, unknown (a source does not answer, a file is missing).
    Each has a reason and a next step. The other pipelines are retrying (Airflow makes the next try), working, waiting,
    never planned or ok. Offsets that were given up are counted, and change no state. Without PIPELINE: all of the
    database and the folder.
    """
    if max_lag is not None and not source:
        raise click.UsageError("--max-lag needs the sources: leave out --no-source")
    environment: Environment = command.obj
    with database_of(environment) as database:
        known = statuses(
            environment, database, pipeline_name, max_lag=max_lag, max_age=max_age, source=source,
            connections=lambda pipelines: connections_of_sources(*pipelines),
        )  # fmt: skip
    output.status(known, as_json, folded=pipeline_name is None)
    command.exit(0 if all(each.healthy for each in known) else 1)


@commands.command()
@pipeline_argument()
@common_options
@click.pass_obj
def lag(environment: Environment, pipeline_name: str, as_json: bool) -> None:
    """Show how far each chain is behind the source."""
    if group := group_named(environment, pipeline_name):
        with _of_members(environment, group) as members:
            output.lag([part for context in members for part in measure_lag(context)], as_json)
        return
    with opened(environment, pipeline_name) as context:
        output.lag(measure_lag(context), as_json)


@commands.command()
@pipeline_argument()
@click.option("--until", type=TIMES, required=True, metavar="TIME",
    help="The time of a cut, such as 2024-03-01T11:00 (UTC) or 2024-03-01T11:00+01:00.",
)  # fmt: skip
@click.option("--since", type=TIMES, metavar="TIME",
    help="Count dead letters and losses of what came after this time (default: the cut of the run before).",
)  # fmt: skip
@common_options
@click.pass_context
def complete(
    command: click.Context, pipeline_name: str, until: datetime, since: datetime | None, as_json: bool
) -> None:
    """Say whether all before a time is published; exit 1 if not.

    Compares all runs and each sink. Exit 4 if all is published, but an audit or a plan has found damage in it; exit 3
    if it has dead letters or losses. TIME is the time of a cut, not of events: a record that arrives later belongs to a
    later run.
    """
    if group := group_named(command.obj, pipeline_name):
        with _of_members(command.obj, group, every_topic=True) as members:
            by_name = {
                each.pipeline_name: completeness(each, with_zone(until), since and with_zone(since)) for each in members
            }
            output.completeness_of_members(by_name, as_json)
        command.exit(max(map(_status_of, by_name.values()), key=WORST_LAST.index, default=1))
    with opened(command.obj, pipeline_name) as context:
        view = completeness(context, with_zone(until), with_zone(since) if since else None)
    output.completeness(view, as_json, pipeline_name)
    command.exit(_status_of(view))


def _status_of(view: Completeness) -> int:
    if not view.published:
        return 1
    return 0 if view.whole else WITH_LOSSES if view.complete else WITH_DAMAGE


WORST_LAST = 0, WITH_LOSSES, WITH_DAMAGE, 1


@commands.command()
@pipeline_argument()
@click.option("--incomplete", is_flag=True, help="Only hours that are not complete, or damaged.")
@common_options
@click.pass_obj
def hours(environment: Environment, pipeline_name: str, incomplete: bool, as_json: bool) -> None:
    """List event hours: rows, late rows, complete or not.

    For each incomplete hour, says what it waits for. Hours are in UTC. An hour is complete when everything planned up
    to its end plus the allowed lateness is published. Late rows or a replay open it again; then it gets its next
    revision. This is decided at the end of a run.
    """
    lateness = find(environment.pipelines, pipeline_name).event_time.allowed_lateness
    with database_of(environment) as database:
        output.hours(hours_of(database, pipeline_name, lateness, HourSelection(incomplete)), as_json)


@commands.command()
@pipeline_argument()
@click.option("--deep", is_flag=True, help="Read every row back and compare offsets and digests.")
@click.option("--since", type=TIMES, metavar="TIME", help="Only manifests of runs that read up to a later time.")
@click.option(
    "--until", type=TIMES, metavar="TIME", help="Only manifests of runs that read up to this time or earlier."
)
@common_options
@click.pass_context
def audit(
    command: click.Context,
    pipeline_name: str,
    deep: bool,
    since: datetime | None,
    until: datetime | None,
    as_json: bool,
) -> None:
    """Compare database and sinks; exit 1 on any difference.

    With --since or --until it compares these manifests only, however long the history is. It then does not look for
    output that belongs to no manifest. TIME is UTC without a zone.
    """
    part = ManifestSelection(since=since, until=until)
    if deep and part != ALL_MANIFESTS:
        raise click.UsageError("--deep reads all rows of the pipeline: leave out --since and --until")
    if group := group_named(command.obj, pipeline_name):
        with _of_members(command.obj, group) as members:
            audits = [_audited(context, part, deep=deep) for context in members]
    else:
        with opened(command.obj, pipeline_name) as context:
            audits = [_audited(context, part, deep=deep)]
    differences = [difference for audited, _ in audits for difference in audited]
    output.audited(differences, as_json, [manifest for _, manifests in audits for manifest in manifests])
    command.exit(1 if differences else 0)


def _audited(context: Context, part: ManifestSelection, *, deep: bool) -> tuple[Sequence[Problem], Sequence[Manifest]]:
    if part != ALL_MANIFESTS:
        manifests, differences = audit_between(context, part)
        return differences, manifests
    differences = find_differences(context, deep=deep)
    for text in not_in_file(context.pipeline, context.database):
        log.note(text)
    return differences, context.database.manifests.find(context.pipeline_name)


@contextmanager
def _of_members(environment: Environment, group: Group, *, every_topic: bool = False) -> Iterator[Iterator[Context]]:
    """Open the contexts of the planned members of a group, one after the other.

    At the end, ``NotDone`` names the members that could not be opened. An error in the work on a member ends the loop.
    """
    failed: dict[str, str] = {}

    def contexts(database: ManifestDatabase) -> Iterator[Context]:
        if every_topic:
            never_planned = map(group.member_name, never_planned_topics(group, database))
            failed.update(dict.fromkeys(never_planned, "no plan has included it"))
        for topic in planned_topics(group, database):
            name = group.member_name(topic)
            with about(pipeline=name):
                try:
                    context = open_context(member(group, topic), database)
                except TidemarkError as error:
                    log.error(error)
                    failed[name] = error.what
                    continue
                yield context

    with opened_group(environment, group) as database:
        yield contexts(database)
    refuse_failed(group.name, failed)


@commands.command()
@pipeline_argument()
@common_options
@click.pass_obj
def history(environment: Environment, pipeline_name: str, as_json: bool) -> None:
    """Show what people decided: who, when, why.

    Losses, topics and truncations that were accepted; chains extended back; lakes adopted and repaired; sinks renamed,
    retired and filled; retries and replays from the page; the pipeline itself retired and brought back. For the history
    of one manifest: tidemark show.
    """
    with database_of(environment) as database:
        check_pipeline(environment, database, pipeline_name)
        output.history(decision_views(database, pipeline_name), as_json)
