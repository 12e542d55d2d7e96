"""Commands that do a run's work without Airflow: plan, run, retry, replay, fill."""

from contextlib import AbstractContextManager, nullcontext
from datetime import datetime

import click

from tidemark.cli import log, output
from tidemark.cli.opened import LoggedStage, database_of, opened
from tidemark.cli.options import TIMES, Commands, common_options, master_option, pipeline_argument
from tidemark.environment import Environment
from tidemark.lifecycle import events
from tidemark.lifecycle.attempt import Allowed
from tidemark.lifecycle.close import close
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.failed_tasks import Task, Watch, watched, watched_work
from tidemark.lifecycle.older import choose_to_take_along, older_unfinished, unfinished_lines
from tidemark.lifecycle.plan import Tick
from tidemark.lifecycle.plan import plan as plan_ranges
from tidemark.lifecycle.preflight import refuse_unknown_anywhere
from tidemark.lifecycle.publish import Publisher
from tidemark.lifecycle.select import at_work, replayable, unfinished
from tidemark.lifecycle.turns import sort_by_turn
from tidemark.lifecycle.work import refuse_left_out, work_through
from tidemark.model.manifest import Manifest
from tidemark.operations.append_again import note_append_again
from tidemark.operations.damage import note_shrunken
from tidemark.operations.fill import fill as fill_sink
from tidemark.views.manifests import ManifestView, manifest_views

commands = Commands()
until_option = click.option("--until", type=TIMES, metavar="TIME",
    help="Read up to this moment, such as 2024-03-01T11:00 (UTC) or 2024-03-01T11:00+01:00.",
)  # fmt: skip
run_key_option = click.option("--run-key", help="Name of the run; planning a name again changes nothing.")


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
    """Record the next ranges of a pipeline as manifests."""
    tick = Tick.by_hand(until, run_key)
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
    """Plan, process and close one run without Airflow."""
    tick = Tick.by_hand(until, run_key)
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
        with _watched(environment, pipeline_name, Task.CLOSE):
            closing = close(context, planned.run_key, processed=taken_ids)
        if closing.closed_hours:
            log.emit(events.hours_complete(pipeline_name, closing.closed_hours))
        done = context.database.manifests.find(ids=[*closing.manifests, *closing.taken_along])
        output.closed(closing, manifest_views(context.database, done), as_json)


@commands.command()
@pipeline_argument()
@click.option("--manifest", "manifest_id", type=int, help="Only this one; also releases a blocked one.")
@master_option
@common_options
@click.pass_obj
def retry(
    environment: Environment, pipeline_name: str, manifest_id: int | None, master: str | None, as_json: bool
) -> None:
    """Finish what is planned, failed or abandoned.

    Also removes what dead attempts left.
    """
    with opened(environment, pipeline_name) as context:
        refuse_unknown_anywhere(context)
        Publisher(context).sweep(also=[manifest_id] if manifest_id else [])
        todo = unfinished(context, manifest_id)
        for manifest in [] if manifest_id else at_work(context):
            log.left_out(manifest)
        with watched_work(lambda: database_of(environment), [manifest.id for manifest in todo]):
            left_out = _work(environment, context, todo, master)
        output.finished(_views(context, todo, left_out), as_json, nothing="there is nothing to retry")


@commands.command()
@pipeline_argument()
@click.option("--manifest", "manifest_id", type=int, help="The manifest to do once more.")
@click.option("--run-key", help="All manifests of this run.")
@click.option("--take-over", is_flag=True, help="Also those an attempt is working on; it is fenced.")
@click.option("--accept-shrunken", is_flag=True, help="Publish it also when fewer records are left than before.")
@click.option("--append-again", is_flag=True, help="Also where other rows then follow what a topic has already.")
@click.option("--why", help="Your reason for --accept-shrunken or --append-again, for the history.")
@master_option
@common_options
@click.pass_obj
def replay(
    environment: Environment,
    pipeline_name: str,
    manifest_id: int | None,
    run_key: str | None,
    take_over: bool,
    accept_shrunken: bool,
    append_again: bool,
    why: str | None,
    master: str | None,
    as_json: bool,
) -> None:
    """Do a manifest or run once more, replacing its output."""
    if (manifest_id is None) == (run_key is None):
        raise click.UsageError("name either a manifest (--manifest) or a run (--run-key)")
    if (accept_shrunken or append_again) != bool(why):
        raise click.UsageError("--accept-shrunken and --append-again need --why, and --why is for them")
    with opened(environment, pipeline_name) as context:
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

    They are replayed, and published to this sink alone. Exit status 1 when one of them cannot be read any more.
    """
    environment: Environment = command.obj
    with opened(environment, pipeline_name) as context:
        stage = LoggedStage(environment, context, master)
        filled = fill_sink(context, sink, why, stage, log.LoggedProgress(pipeline_name), dry_run=dry_run)
        log.emit_failures(filled.errors.values())
        output.filled(filled, as_json)
    command.exit(1 if filled.errors or filled.left else 0)


def _work(environment: Environment, context: Context, manifests: list[Manifest], master: str | None) -> list[Manifest]:
    stage = LoggedStage(environment, context, master)
    return work_through(context, manifests, stage, log.LoggedProgress(context.pipeline_name))


def _views(context: Context, manifests: list[Manifest], left_out: list[Manifest]) -> list[ManifestView]:
    """Those that were worked on, as they are now."""
    ids = {manifest.id for manifest in manifests} - {manifest.id for manifest in left_out}
    return manifest_views(context.database, context.database.manifests.find(ids=sorted(ids)))
