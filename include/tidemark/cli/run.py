"""Commands that do the work of a run without Airflow: plan, run, retry, replay, fill."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime

import click

from tidemark.cli import log, output
from tidemark.cli.opened import (
    LoggedStage,
    SharedByMembers,
    database_of,
    group_named,
    opened,
    opened_group,
    show_members,
)
from tidemark.cli.options import TIMES, Commands, common_options, master_option, pipeline_argument
from tidemark.connections.lookup import from_environment
from tidemark.database.client import ManifestDatabase
from tidemark.environment import Environment
from tidemark.errors import NotFound, TidemarkError, about
from tidemark.lifecycle import events
from tidemark.lifecycle.attempt import Allowed
from tidemark.lifecycle.close import Closing, close
from tidemark.lifecycle.context import Context, open_context
from tidemark.lifecycle.failed_tasks import Task, Watch, watched, watched_work
from tidemark.lifecycle.members import (
    Members,
    for_each_member,
    for_each_opened,
    open_members,
    planned_topics,
    refuse_failed,
)
from tidemark.lifecycle.older import choose_to_take_along, older_unfinished, unfinished_lines
from tidemark.lifecycle.plan import PlannedRun, Tick
from tidemark.lifecycle.plan import plan as plan_ranges
from tidemark.lifecycle.preflight import refuse_unknown_anywhere
from tidemark.lifecycle.publish import Publisher
from tidemark.lifecycle.select import at_work, replayable, unfinished
from tidemark.lifecycle.turns import sort_by_turn
from tidemark.lifecycle.work import refuse_left_out, work_through
from tidemark.model.manifest import Manifest
from tidemark.model.problem import Problem
from tidemark.operations.append_again import note_append_again
from tidemark.operations.audit import damaged_manifests, not_mended
from tidemark.operations.damage import note_shrunken
from tidemark.operations.fill import Filled
from tidemark.operations.fill import fill as fill_sink
from tidemark.pipeline.each_topic import split_name
from tidemark.pipeline.group import Group
from tidemark.pipeline.loader import find, member
from tidemark.views.manifests import ManifestView, manifest_views

commands = Commands()
until_option = click.option("--until", type=TIMES, metavar="TIME",
    help="Read up to this moment, such as 2024-03-01T11:00 (UTC) or 2024-03-01T11:00+01:00.",
)  # fmt: skip
run_key_option = click.option("--run-key", help="Name of the run; to plan a name again changes nothing.")


def _watched(
    environment: Environment, pipeline_name: str, task: Task, *, like_the_next: bool = True
) -> AbstractContextManager[Watch]:
    return watched(lambda: database_of(environment), pipeline_name, task, like_the_next=like_the_next)


@commands.command()
@pipeline_argument()
@until_option
@run_key_option
@click.option("--dry-run", is_flag=True, help="Show the ranges that would be planned; store nothing.")
@common_options
@click.pass_obj
def plan(
    environment: Environment,
    pipeline_name: str,
    until: datetime | None,
    run_key: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Record the next ranges of a pipeline as manifests.

    Of a group: for each of its topics.
    """
    tick = Tick.by_hand(until, run_key)
    group, only = _group_and_topic(environment, pipeline_name)
    if group is not None:
        with opened_group(environment, group) as database:
            members = _plan_members(environment, group, database, tick, only, dry_run=dry_run)
            output.planned_members({name: run for name, (_, run) in members.done.items()}, as_json)
            _refuse_failed(group, members.failed)
        return
    watching = _watched(environment, pipeline_name, Task.PLAN, like_the_next=tick.is_like_the_next)
    with nullcontext(Watch()) if dry_run else watching as watch, opened(environment, pipeline_name) as context:
        planned = plan_ranges(context, tick, dry_run=dry_run)
        watch.end()
        if not dry_run:
            log.emit(events.planned(pipeline_name, planned))
        older = older_unfinished(context, planned.manifests)
        output.planned(planned.with_unfinished(older, unfinished_lines(context, older)), as_json)


@commands.command()
@pipeline_argument()
@until_option
@run_key_option
@master_option
@common_options
@click.pass_obj
def run(
    environment: Environment,
    pipeline_name: str,
    until: datetime | None,
    run_key: str | None,
    master: str | None,
    as_json: bool,
) -> None:
    """Plan, process and close one run without Airflow.

    Of a group: for each of its topics, in one session of Spark.
    """
    tick = Tick.by_hand(until, run_key)
    group, only = _group_and_topic(environment, pipeline_name)
    if group is not None:
        _run_members(environment, group, tick, only, master, as_json)
        return
    with (
        _watched(environment, pipeline_name, Task.PLAN, like_the_next=tick.is_like_the_next) as watch,
        opened(environment, pipeline_name) as context,
    ):
        planned = plan_ranges(context, tick)
        watch.end()
        with watched_work(lambda: database_of(environment), planned.manifests):
            log.emit(events.planned(pipeline_name, planned))
            older = older_unfinished(context, planned.manifests)
            taken = choose_to_take_along(context, older)
            taken_ids = [manifest.id for manifest in taken]
            output.notes(planned.with_unfinished(older, unfinished_lines(context, older, taken_ids)))
            own = context.database.manifests.find(ids=planned.manifests)
            _work(environment, context, sort_by_turn(context, own, taken), master)
        closing = _closed(environment, context, planned.run_key, taken_ids)
        done = context.database.manifests.find(ids=[*closing.manifests, *taken_ids])
        output.closed(closing, manifest_views(context.database, done), as_json)


@commands.command()
@pipeline_argument()
@click.option("--manifest", "manifest_id", type=int, help="Only this manifest; releases it if it is blocked.")
@master_option
@common_options
@click.pass_obj
def retry(
    environment: Environment, pipeline_name: str, manifest_id: int | None, master: str | None, as_json: bool
) -> None:
    """Finish manifests that are planned, failed or abandoned.

    Also removes leftovers of dead attempts. Of a group: for each of its topics, in one session of Spark.
    """
    if group := group_named(environment, pipeline_name):
        _retry_members(environment, group, manifest_id, master, as_json)
        return
    with opened(environment, pipeline_name) as context:
        todo, left_out = _retried(environment, context, manifest_id, SharedByMembers(environment, master))
        output.finished(_views(context, todo, left_out), as_json, nothing="there is nothing to retry")


@commands.command()
@pipeline_argument()
@click.option("--manifest", "manifest_id", type=int, help="The manifest to do once more.")
@click.option("--run-key", help="All manifests of this run.")
@click.option(
    "--damaged",
    is_flag=True,
    help="All manifests whose damage a replay mends; audits first. Exit 1 if there is other damage.",
)
@click.option("--take-over", is_flag=True, help="Also replay manifests with an attempt at work; it is fenced.")
@click.option("--accept-shrunken", is_flag=True, help="Publish it also if the source has fewer records than before.")
@click.option("--append-again", is_flag=True, help="Also if a topic then has other rows behind those of before.")
@click.option("--why", help="Your reason for --accept-shrunken or --append-again, for the history.")
@master_option
@common_options
@click.pass_obj
def replay(
    environment: Environment,
    pipeline_name: str,
    manifest_id: int | None,
    run_key: str | None,
    damaged: bool,
    take_over: bool,
    accept_shrunken: bool,
    append_again: bool,
    why: str | None,
    master: str | None,
    as_json: bool,
) -> None:
    """Do a manifest or run once more, replacing its output."""
    if [manifest_id is not None, run_key is not None, damaged].count(True) != 1:
        raise click.UsageError("name a manifest (--manifest), a run (--run-key), or what is --damaged")
    if (accept_shrunken or append_again) != bool(why):
        raise click.UsageError("--accept-shrunken and --append-again need --why, and --why is for them")
    with opened(environment, pipeline_name) as context:
        others: list[Problem] = []
        if damaged:
            chosen, others = damaged_manifests(context)
        else:
            chosen = replayable(context, manifest_id=manifest_id, run_key=run_key)
        follows = note_append_again(context, chosen, why) if why and append_again else {}
        if why and accept_shrunken:
            note_shrunken(context, chosen, why)
        stage = LoggedStage(environment, context, master)
        allowed = Allowed(accept_shrunken, follows)
        progress = log.LoggedProgress(pipeline_name)
        left_out = work_through(context, chosen, stage, progress, replay=True, take_over=take_over, allowed=allowed)
        output.finished(_views(context, chosen, left_out), as_json, nothing="nothing to replay")
        refuse_left_out(context, left_out)
        if others:
            raise not_mended(pipeline_name, others[0])


@commands.command()
@pipeline_argument()
@click.argument("sink")
@click.option("--why", required=True, help="Your reason, for the history.")
@click.option("--dry-run", is_flag=True, help="Say what would be done; change nothing.")
@master_option
@common_options
@click.pass_context
def fill(
    command: click.Context, pipeline_name: str, sink: str, why: str, dry_run: bool, master: str | None, as_json: bool
) -> None:
    """Give a sink the manifests done before it was added.

    They are replayed, and published to this sink alone. Exit status 1 if one of them can no longer be read. Of a group:
    for each topic that has the sink.
    """
    environment: Environment = command.obj
    if group := group_named(environment, pipeline_name):
        filled_members = _fill_members(environment, group, sink, why, master, as_json, dry_run=dry_run)
        command.exit(1 if any(each.errors or each.left for each in filled_members) else 0)
    with opened(environment, pipeline_name) as context:
        stage = LoggedStage(environment, context, master)
        filled = fill_sink(context, sink, why, stage, log.LoggedProgress(pipeline_name), dry_run=dry_run)
        log.emit_failures(filled.errors.values())
        output.filled(filled, as_json)
    command.exit(1 if filled.errors or filled.left else 0)


def _group_and_topic(environment: Environment, name: str) -> tuple[Group | None, list[str]]:
    """Return the group of a name, and the topic if it names a member; no group for the name of a pipeline."""
    owner, topic = split_name(name)
    group = group_named(environment, owner)
    if group is None or topic is None:
        return group, []
    find(environment.pipelines, name)  # raises for a wrong member, and for a topic that is left out
    return group, [topic]


def _plan_members(
    environment: Environment,
    group: Group,
    database: ManifestDatabase,
    tick: Tick,
    only: Sequence[str],
    *,
    dry_run: bool = False,
) -> Members[PlannedRun]:
    def planned(context: Context, members: int) -> PlannedRun:
        del members
        run = plan_ranges(context, tick, dry_run=dry_run)
        if not dry_run:
            log.emit(events.planned(context.pipeline_name, run))
        older = older_unfinished(context, run.manifests)
        return run.with_unfinished(older, unfinished_lines(context, older))

    watching = _watched(environment, group.name, Task.PLAN, like_the_next=tick.is_like_the_next)
    with nullcontext(Watch()) if dry_run else watching as watch:
        members = for_each_member(
            group, database, from_environment, lambda: database_of(environment), planned, only=only,
            like_the_next=tick.is_like_the_next, noted=not dry_run,
        )  # fmt: skip
        watch.end()
    log.errors_of_members(members.failed.values())
    return members


def _run_members(
    environment: Environment, group: Group, tick: Tick, only: Sequence[str], master: str | None, as_json: bool
) -> None:
    """Plan all members, then process and close one after the other, with one Spark. A failed member does not stop the
    others.
    """
    with opened_group(environment, group) as database:
        members = _plan_members(environment, group, database, tick, only)
        todo: dict[str, tuple[Context, PlannedRun, list[Manifest], list[Manifest]]] = {}
        for name, (context, run) in members.done.items():
            taken = choose_to_take_along(context, older_unfinished(context, run.manifests))
            own = database.manifests.find(ids=run.manifests)
            todo[name] = context, run, taken, sort_by_turn(context, own, taken)
        stage = SharedByMembers(environment, master)
        done: list[int] = []
        for name, (context, run, taken, manifests) in todo.items():
            taken_ids = [manifest.id for manifest in taken]

            def work(
                context: Context = context, manifests: list[Manifest] = manifests, run: PlannedRun = run,
                taken_ids: list[int] = taken_ids,
            ) -> list[int]:  # fmt: skip
                with watched_work(lambda: database_of(environment), run.manifests):
                    work_through(context, manifests, stage.of(context), log.LoggedProgress(context.pipeline_name))
                closing = _closed(environment, context, run.run_key, taken_ids)
                return [*closing.manifests, *taken_ids]

            done += _done_by(members.failed, name, work)
        views = manifest_views(database, database.manifests.find(ids=sorted({*done})))
        nothing = f"nothing is new in any {'other ' if members.failed else ''}topic"
        if views or as_json or members.done:
            output.finished(views, as_json, nothing=nothing)
        _refuse_failed(group, members.failed)


def _retry_members(
    environment: Environment, group: Group, manifest_id: int | None, master: str | None, as_json: bool
) -> None:
    failed: dict[str, TidemarkError] = {}
    with opened_group(environment, group) as database:
        own = database.manifests.get(manifest_id).pipeline_name if manifest_id else None
        stage = SharedByMembers(environment, master)
        done: list[int] = []
        topics = planned_topics(group, database)
        if own is not None and own not in {group.member_name(topic) for topic in topics}:
            raise NotFound(
                f"there is no manifest {manifest_id} of group {group.name}: it is of pipeline {own}",
                next_step=f"tidemark retry {own} --manifest {manifest_id}",
            )
        for topic in topics:
            name = group.member_name(topic)
            if own not in (None, name):
                continue

            def work(topic: str = topic) -> list[int]:
                context = open_context(member(group, topic), database)
                todo, left_out = _retried(environment, context, manifest_id, stage)
                return sorted({manifest.id for manifest in todo} - {manifest.id for manifest in left_out})

            done += _done_by(failed, name, work)
        views = manifest_views(database, database.manifests.find(ids=done))
        output.finished(views, as_json, nothing="there is nothing to retry")
    _refuse_failed(group, failed)


def _fill_members(
    environment: Environment, group: Group, sink: str, why: str, master: str | None, as_json: bool, *, dry_run: bool
) -> list[Filled]:
    """Fill the sink of each member that has it. If no member has it, each one fails with ``NotFound``."""
    shared = SharedByMembers(environment, master)

    def filled(context: Context) -> Filled:
        progress = log.LoggedProgress(context.pipeline_name)
        done = fill_sink(context, sink, why, shared.of(context), progress, dry_run=dry_run)
        log.emit_failures(done.errors.values())
        return done

    with opened_group(environment, group) as database:
        members = open_members(group, planned_topics(group, database), database)
        having = {name: each for name, each in members.done.items() if sink in each[0].sink_names()}
        members.done = having or members.done  # if no member has the sink, each one fails
        result = for_each_opened(members, filled)
        show_members(group, result, lambda by_name: output.filled_members(by_name, as_json, sink))
    return [each for _, each in result.done.values()]


def _retried(
    environment: Environment, context: Context, manifest_id: int | None, stage: SharedByMembers
) -> tuple[list[Manifest], list[Manifest]]:
    """Finish one manifest of a pipeline, or all. Return the manifests to finish, and those of them that were left
    out.
    """
    refuse_unknown_anywhere(context)
    Publisher(context).sweep(also=[manifest_id] if manifest_id else [])
    todo = unfinished(context, manifest_id)
    for manifest in [] if manifest_id else at_work(context):
        log.left_out(manifest)
    with watched_work(lambda: database_of(environment), [manifest.id for manifest in todo]):
        return todo, work_through(context, todo, stage.of(context), log.LoggedProgress(context.pipeline_name))


def _closed(environment: Environment, context: Context, run_key: str, taken_along: Sequence[int]) -> Closing:
    with _watched(environment, context.pipeline_name, Task.CLOSE):
        closing = close(context, run_key, processed=taken_along)
    if closing.closed_hours:
        log.emit(events.hours_complete(context.pipeline_name, closing.closed_hours))
    return closing


def _done_by(failed: dict[str, TidemarkError], name: str, work: Callable[[], list[int]]) -> list[int]:
    """Do the work of a member. Keep its error in ``failed``, under its name."""
    try:
        with about(pipeline=name):
            return work()
    except TidemarkError as error:
        log.error(error)
        failed[name] = error
        return []


def _refuse_failed(group: Group, failed: Mapping[str, TidemarkError]) -> None:
    refuse_failed(group.name, {name: error.what for name, error in failed.items()})


def _work(environment: Environment, context: Context, manifests: list[Manifest], master: str | None) -> list[Manifest]:
    stage = LoggedStage(environment, context, master)
    return work_through(context, manifests, stage, log.LoggedProgress(context.pipeline_name))


def _views(context: Context, manifests: list[Manifest], left_out: list[Manifest]) -> list[ManifestView]:
    """Return the manifests that were worked on, in their present state."""
    ids = {manifest.id for manifest in manifests} - {manifest.id for manifest in left_out}
    return manifest_views(context.database, context.database.manifests.find(ids=sorted(ids)))
