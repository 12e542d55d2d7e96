"""The command that sends notices about pipelines that need you."""

import os
from datetime import timedelta

import click

from tidemark.api import statuses
from tidemark.cli import log
from tidemark.cli.durations import DurationType
from tidemark.cli.opened import connections_of_sources, database_of
from tidemark.cli.options import Commands, common_options, pipeline_argument
from tidemark.cli.output import print_json
from tidemark.cli.terminal import echo
from tidemark.environment import Environment
from tidemark.errors import ConfigurationError
from tidemark.operations import notify as operation
from tidemark.operations.notify import WEBHOOK, Notice
from tidemark.operations.status import Status
from tidemark.pipeline.deployed import known_files

commands = Commands()
MEMORY = "_notified.json"


@commands.command("monitor notify")
@pipeline_argument(required=False)
@click.option("--command", metavar="PROGRAM", help="Run this for each notice, with the message as JSON on its input.")
@click.option("--after", type=DurationType(), default="5m", show_default=True,
    help="How long a problem that may end by itself must last; blocked, lost and damaged are sent at once.",
)  # fmt: skip
@click.option("--source/--no-source", "asks", default=True, show_default=True,
    help="Ask the sources, all at once and for 8 s at most.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Print the notices; send nothing.")
@common_options
@click.pass_obj
def notify(
    environment: Environment,
    pipeline_name: str | None,
    command: str | None,
    after: timedelta,
    asks: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Send notices: when a problem begins, and when it is over.

    A problem is what `tidemark status` shows with exit status 1. Run this command each minute, by cron or in Airflow.
    It sends notices to the address in TIDEMARK_WEBHOOK (POST of JSON), or to PROGRAM. Without PIPELINE: all of them.
    """
    url = os.environ.get(WEBHOOK)
    if not command and not url and not dry_run:
        raise ConfigurationError(
            "there is no address for notices",
            next_step=f"export {WEBHOOK}=https://.., or give --command PROGRAM; or look with --dry-run",
        )
    deliver = operation.deliver_by_command(command) if command else operation.deliver_by_webhook(url or "https://")

    def look() -> list[Status]:
        with database_of(environment) as database:
            return statuses(
                environment, database, pipeline_name, source=asks,
                connections=lambda pipelines: connections_of_sources(*pipelines),
            )  # fmt: skip

    def is_gone(notice: Notice) -> bool:
        """Return whether the problem of a pipeline that was not looked at can be over. With a named PIPELINE, that is
        so for a wrong file, such as a second file of its name, that may be right by now.
        """
        if pipeline_name is None:
            return True
        of_file = notice.what.startswith(f"{environment.pipelines / notice.pipeline}:")
        return of_file and notice.pipeline not in known_files(environment.pipelines, ())

    told = operation.notify(look, environment.home / MEMORY, deliver, after=after, is_gone=is_gone, dry_run=dry_run)
    if as_json:
        print_json([notice.message() for notice in told])
        return
    for notice in told:
        echo(notice.text())
    if not told:
        log.note("nothing is new")
