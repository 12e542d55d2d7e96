"""The command line ``tidemark``: the same verbs as Airflow's tasks, by the same functions.

Exit status: 0 done, 1 work failed or a difference was found, 2 wrong use, 130 interrupted. Results go to standard
output (as JSON with ``--json``), progress and errors to standard error.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from tidemark import __version__
from tidemark.cli import output
from tidemark.cli.decide import DECISIONS
from tidemark.cli.doctor import doctor
from tidemark.cli.inspect import LOOKING
from tidemark.cli.options import database_of, json_option, master_option, opened, pipeline_argument, pipeline_names
from tidemark.database.migrate import migrate as create_tables
from tidemark.errors import ConfigurationError, TidemarkError, Unavailable
from tidemark.lifecycle.attempt import Stage, process
from tidemark.lifecycle.close import close
from tidemark.lifecycle.close import lag as measure_lag
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.plan import PlannedRun, Tick
from tidemark.lifecycle.plan import plan as plan_ranges
from tidemark.lifecycle.publish import Publisher
from tidemark.lifecycle.select import at_work, replayable, unfinished
from tidemark.manifest import Manifest, ManifestState, RunKind
from tidemark.operations.audit import audit as find_differences
from tidemark.order import Order
from tidemark.pipeline.loader import find, load_each, load_or_error
from tidemark.pipeline.settings import Pipeline, json_schema
from tidemark.receipt import Receipt
from tidemark.settings import Settings
from tidemark.suggestion import nearest

INTERRUPTED = 130  # 128 + SIGINT, as shells say it
Command = TypeVar("Command", bound=Callable[..., Any])


class _Group(click.Group):
    """Prints our errors as the two lines they are, without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TidemarkError as error:
            output.error(error)
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            output.note("interrupted; nothing is published half, and tidemark retry finishes what was begun")
            ctx.exit(INTERRUPTED)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """``--pipelines`` may stand anywhere, also after the command."""
        for at, word in enumerate(args):
            if word == "--pipelines" or word.startswith("--pipelines="):
                end = at + (1 if "=" in word else 2)
                args = [*args[at:end], *args[:at], *args[end:]]
                break
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of a run's life, decisions last."""
        return sorted(super().list_commands(ctx), key=list(self.commands).index)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        near = nearest(args[0], self.list_commands(ctx))
        if near and self.get_command(ctx, args[0]) is None:
            ctx.fail(f'no such command "{args[0]}"; {near}')
        return super().resolve_command(ctx, args)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tidemark")
@click.option(
    "--pipelines", type=click.Path(path_type=Path), help="Folder of pipeline files (default: $TIDEMARK_PIPELINES)."
)
@click.pass_context
def main(command: click.Context, pipelines: Path | None) -> None:
    """Copies Kafka topics into lakes in recorded batches, exactly once.

    \b
    TIDEMARK_DB          the manifest database, postgresql://user:password@host:port/database
    TIDEMARK_PIPELINES   folder of pipeline files (default: include/pipelines)
    TIDEMARK_HOME        where relative lake roots start (default: this folder)
    TIDEMARK_SPARK_JARS  folder with Spark's Kafka connector (make setup fills .tidemark/jars/spark)
    TIDEMARK_SPARK_MASTER  where Spark works, such as spark://host:7077 (default: local[*])

    TIDEMARK_CONNECTIONS  file of mode 0600 with connections by id; AIRFLOW_CONN_<ID> wins
    PYSPARK_PYTHON       the Python of Spark's executors (default: the driver's)

    Exit status: 0 done, 1 work failed or a difference was found, 2 wrong use or settings, 130 interrupted.
    """
    settings = Settings.from_environment()
    command.obj = replace(settings, pipelines=pipelines) if pipelines else settings


def in_this_process(settings: Settings, master: str, conf: Mapping[str, str]) -> Stage:
    """Stages in a Spark session of this process, opened with properties of the pipeline when the first order comes."""

    def stage(order: Order) -> Receipt:
        from tidemark.spark.job import stage as stage_order  # Spark takes 1 s to import and 8 s to start
        from tidemark.spark.session import open_session

        log = settings.home / "_logs" / "spark.log"
        session = open_session(master, settings.spark_jars, log, home=settings.home, conf=conf)
        return stage_order(session, order)

    return stage


def _tick(until: datetime | None, run_key: str | None) -> Tick:
    now = datetime.now(UTC)
    cut = until and (until if until.tzinfo else until.replace(tzinfo=UTC)).astimezone(UTC)
    if cut is not None and run_key is None:
        return Tick.at(cut, RunKind.MANUAL)
    return Tick(run_key or f"manual__{now.isoformat()}", RunKind.MANUAL, cut)


_TIMES = click.DateTime(
    ["%Y-%m-%d", *(f"%Y-%m-%dT%H:%M{seconds}{zone}" for seconds in ("", ":%S", ":%S.%f") for zone in ("", "%z"))]
)
until_option = click.option("--until", type=_TIMES, metavar="TIME",
    help="Read up to this moment, such as 2024-03-01T11:00 (UTC) or 2024-03-01T11:00+01:00.",
)  # fmt: skip
run_key_option = click.option("--run-key", help="Name of the run; planning a name again changes nothing.")


@main.command()
@pipeline_argument
@until_option
@run_key_option
@click.option("--dry-run", is_flag=True, help="Show the ranges that would be planned; store nothing.")
@json_option
@click.pass_obj
def plan(
    settings: Settings, pipeline: str, until: datetime | None, run_key: str | None, dry_run: bool, as_json: bool
) -> None:
    """Record the next ranges of a pipeline as manifests."""
    with opened(settings, pipeline) as context:
        run = plan_ranges(context, _tick(until, run_key), dry_run=dry_run)
        output.planned(run, as_json)


@main.command()
@pipeline_argument
@until_option
@run_key_option
@master_option
@json_option
@click.pass_obj
def run(
    settings: Settings, pipeline: str, until: datetime | None, run_key: str | None, master: str, as_json: bool
) -> None:
    """Plan, process and close one run without Airflow."""
    with opened(settings, pipeline) as context:
        planned = plan_ranges(context, _tick(until, run_key))
        output.notes(planned)
        _process(settings, context, context.database.manifests(ids=planned.manifests), master)
        _print_closing(context, planned, as_json)


def _print_closing(context: Context, planned: PlannedRun, as_json: bool) -> None:
    closing = close(context, planned.run_key)
    output.closed(closing, _views(context, list(closing.manifests)), as_json)


def _views(context: Context, ids: list[int]) -> list[dict[str, Any]]:
    return output.manifest_views(context.database, context.pipeline_name, ids=ids)


def _process(
    settings: Settings,
    context: Context,
    manifests: list[Manifest],
    master: str,
    *,
    replay: bool = False,
    take_over: bool = False,
) -> list[Manifest]:
    """Process each; one that fails does not stop the others, unless an outside system is down: they would all wait.

    When it is one sink of several that is down, the others still get all of it. Returns what it left out, since an
    attempt has begun at it after they were listed.
    """
    stage = in_this_process(settings, master, context.pipeline.spark.conf)
    errors: list[TidemarkError] = []
    left_out: list[Manifest] = []
    for number, manifest in enumerate(manifests, 1):
        try:
            now = context.database.manifest(manifest.id)
            if now.alive and not take_over:
                output.note(_left_out(now))
                left_out.append(now)
                continue
            output.working(manifest, number, len(manifests))
            output.worked(process(context, manifest.id, stage, replay=replay))
        except TidemarkError as error:
            if len(manifests) > 1:
                output.error(error)
            errors.append(error)
            of_one_sink = len(context.sinks) > 1 and "sink" in error.context
            if isinstance(error, Unavailable) and not of_one_sink:
                break
    if errors:
        raise errors[0] if len(manifests) == 1 else _several(context, errors, len(manifests))
    return left_out


def _several(context: Context, errors: list[TidemarkError], of: int) -> TidemarkError:
    return TidemarkError(
        f"{len(errors)} of {of} manifests failed",
        next_step=f"mend what the messages above say, then: tidemark retry {context.pipeline_name}",
        pipeline=context.pipeline_name,
    )


@main.command()
@pipeline_argument
@click.option("--manifest", type=int, help="Only this one; also releases a blocked one.")
@master_option
@json_option
@click.pass_obj
def retry(settings: Settings, pipeline: str, manifest: int | None, master: str, as_json: bool) -> None:
    """Finish what is planned, failed or abandoned."""
    with opened(settings, pipeline) as context:
        Publisher(context).sweep()
        todo = unfinished(context, manifest)
        for one in [] if manifest else at_work(context):
            output.note(_left_out(one))
        busy = _process(settings, context, todo, master)
        done = [one.id for one in todo if one.id not in {each.id for each in busy}]
        output.finished(_views(context, done), as_json, nothing="nothing is unfinished")


@main.command()
@pipeline_argument
@click.option("--manifest", type=int, help="The manifest to do once more.")
@click.option("--run-key", help="All manifests of this run.")
@click.option("--take-over", is_flag=True, help="Also those an attempt is working on; it is fenced.")
@master_option
@json_option
@click.pass_obj
def replay(
    settings: Settings,
    pipeline: str,
    manifest: int | None,
    run_key: str | None,
    take_over: bool,
    master: str,
    as_json: bool,
) -> None:
    """Do a manifest or run once more, replacing its output."""
    if (manifest is None) == (run_key is None):
        raise click.UsageError("name either --manifest ID or --run-key KEY")
    with opened(settings, pipeline) as context:
        found = replayable(context, manifest_id=manifest, run_key=run_key)
        busy = _process(settings, context, found, master, replay=True, take_over=take_over)
        done = [one.id for one in found if one.id not in {each.id for each in busy}]
        output.finished(_views(context, done), as_json, nothing="nothing to replay")
    if busy:
        raise TidemarkError(
            "not everything was replayed", next_step="wait for it, or add --take-over", pipeline=pipeline
        )


def _left_out(one: Manifest) -> str:
    return f"manifest {one.id} is left out: attempt {one.attempt} is at work; tidemark replay --take-over fences it"


@main.command()
@click.argument("pipeline", required=False, shell_complete=pipeline_names)
@click.option("--state", type=click.Choice([one.value for one in ManifestState]), help="Only those in this state.")
@json_option
@click.pass_obj
def manifests(settings: Settings, pipeline: str | None, state: str | None, as_json: bool) -> None:
    """List manifests with their ranges, states and counts."""
    with database_of(settings) as database:
        states = [ManifestState(state)] if state else None
        views = output.manifest_views(database, pipeline, states=states)
        output.finished(views, as_json, nothing="there are no manifests")


@main.command()
@click.argument("manifest", type=int)
@json_option
@click.pass_obj
def show(settings: Settings, manifest: int, as_json: bool) -> None:
    """Show one manifest with its attempts and history."""
    with database_of(settings) as database:
        output.shown(database, database.manifest(manifest), as_json)


@main.command()
@pipeline_argument
@click.option("--dead-letters", is_flag=True, help="List the dead letters instead of the data.")
@json_option
@click.pass_obj
def objects(settings: Settings, pipeline: str, dead_letters: bool, as_json: bool) -> None:
    """Print the published paths: the exact reader."""
    with database_of(settings) as database:
        output.objects(database, find(settings.pipelines, pipeline), dead_letters=dead_letters, as_json=as_json)


@main.command()
@pipeline_argument
@json_option
@click.pass_obj
def lag(settings: Settings, pipeline: str, as_json: bool) -> None:
    """Show how far each chain is behind Kafka."""
    with opened(settings, pipeline) as context:
        output.lag(measure_lag(context), as_json)


@main.command()
@pipeline_argument
@click.option("--deep", is_flag=True, help="Read every row back and compare offsets and digests.")
@json_option
@click.pass_context
def audit(command: click.Context, pipeline: str, deep: bool, as_json: bool) -> None:
    """Compare database and lake; exit 1 on any difference."""
    with opened(command.obj, pipeline) as context:
        differences = list(find_differences(context, deep=deep))
        output.audited(context, differences, as_json)
    command.exit(1 if differences else 0)


@main.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@json_option
@click.pass_context
def validate(command: click.Context, files: tuple[Path, ...], as_json: bool) -> None:
    """Check pipeline files; exit 2 when one is wrong.

    Without FILES: all of the folder.
    """
    found = [(file, load_or_error(file)) for file in files] if files else load_each(command.obj.pipelines)
    if not found:
        raise ConfigurationError(
            f"there are no pipeline files (*.yaml, *.yml) in {command.obj.pipelines}",
            next_step="set TIDEMARK_PIPELINES, or give --pipelines DIR",
        )
    output.validated(found, as_json)
    command.exit(2 if any(not isinstance(one, Pipeline) for _, one in found) else 0)


@main.command()
@json_option
def schema(as_json: bool) -> None:
    """Print the JSON Schema of pipeline files."""
    del as_json  # it is JSON either way
    click.echo(json.dumps(json_schema(), indent=2))


@main.command()
@json_option
@click.pass_obj
def migrate(settings: Settings, as_json: bool) -> None:
    """Create Tidemark's tables; safe to repeat."""
    created = create_tables(settings.database())
    with database_of(settings) as database:
        output.migrated(created, database.id(), as_json)


for command in (doctor, *LOOKING, *DECISIONS):
    main.add_command(command)
