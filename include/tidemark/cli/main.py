"""The command line ``tidemark``: the same verbs as Airflow's tasks, by the same functions.

Exit status: 0 done, 1 work failed or a difference was found, 2 wrong use, 130 interrupted. Results go to standard
output (as JSON with ``--json``), progress and errors to standard error. A command is imported when it is used: Kafka's,
PostgreSQL's and Arrow's libraries take longer to import than most commands take to work.
"""

import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Any

import click

from tidemark import __version__
from tidemark.cli.log_format import LogFormat
from tidemark.cli.options import log_format_option, pipelines_option
from tidemark.errors import TidemarkError

INTERRUPTED = 130  # 128 + SIGINT, as shells say it

# By the module that has the commands; in the order of a run's life, decisions last. The words are the first ones of a
# command's own help, for lists of commands.
COMMANDS = {
    "run": {
        "plan": "Record the next ranges of a pipeline as manifests.",
        "run": "Plan, process and close one run without Airflow.",
        "retry": "Finish what is planned, failed or abandoned.",
        "replay": "Do a manifest or run once more, replacing its output.",
        "fill": "Give a sink the manifests done before it was added.",
    },
    "inspect": {
        "manifests": "List manifests, newest first: ranges, states, counts.",
        "show": "Show one manifest with its attempts and history.",
        "objects": "Print the published paths: the exact reader.",
        "status": "Say which pipelines need a person; exit 1 when one does.",
        "lag": "Show how far each chain is behind the source.",
        "complete": "Say whether all before a time is published; exit 1 if not, 3 where some is no rows.",
        "hours": "List event hours: rows, late rows, complete or waiting for what.",
        "audit": "Compare database and sinks; exit 1 on any difference.",
        "history": "Show what people decided about a pipeline: who, when, why.",
    },
    "metrics": {
        "metrics": "Print gauges for monitoring, as OpenMetrics text.",
    },
    "notify": {
        "notify": "Send notices: one when a problem begins, one when it is over.",
    },
    "records": {
        "where": "Say which file or row holds a record; exit 1 when none does.",
        "peek": "Decode real records and show them; write nothing.",
        "dead-letters": "Group what could not be read, or bring it back.",
    },
    "prepare": {
        "validate": "Check pipeline files; exit 2 when one is wrong.",
        "schema": "Print the JSON Schema of pipeline files.",
        "migrate": "Create or upgrade Tidemark's tables; safe to repeat.",
        "completion": "Print the script for completion in a shell.",
        "spark-server": "Run a Spark Connect server for manifests.",
        "spark-classes": "Store Spark's classes: each Spark starts sooner.",
    },
    "doctor": {
        "doctor": "Check all that pipelines need; exit 1 when a check fails.",
    },
    "decide": {
        "accept-loss": "Give up offsets that retention took unread.",
        "accept-topic": "Go on with a topic that was recreated, or vanished.",
        "accept-truncation": "Go on with a partition whose log was cut.",
        "accept-damage": "Give up published output that is gone for good.",
        "extend-back": "Plan what lies before the chains' anchors.",
        "archive": "Fold old manifests away, and keep the proof.",
        "adopt": "Read the targets' records back into the database.",
        "repair": "Remove leftovers of dead attempts.",
        "rename": "Go on with a pipeline under its NEW name.",
        "rename-sink": "Go on with a sink under its new name.",
        "retire-sink": "Give up a sink that left the pipeline file.",
        "retire": "Take a pipeline without a file off the lists.",
    },
}


class NamedCommand(click.Command):
    """A command by its name and one line of help; ``load`` imports the module that has it."""

    def __init__(self, name: str, short_help: str, module: str) -> None:
        super().__init__(name, short_help=short_help)
        self.module = module

    def load(self) -> click.Command:
        commands: click.Group = import_module(f"tidemark.cli.{self.module}").commands
        return commands.commands[str(self.name)]


class _Group(click.Group):
    """Imports a command when it is used, and prints our errors as the two lines they are, without a traceback."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, NamedCommand) else command, rest

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which they were added, not by their letters."""
        del ctx
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TidemarkError as error:
            from tidemark.cli import log  # with rich, which only a command needs

            log.error(error)
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


@click.group(
    cls=_Group,
    commands=[NamedCommand(name, text, module) for module, texts in COMMANDS.items() for name, text in texts.items()],
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="tidemark")
@pipelines_option
@log_format_option(envvar="TIDEMARK_LOG_FORMAT", default=LogFormat.TEXT.value)
def main() -> None:
    """Copies Kafka topics into lakes in recorded batches, exactly once.

    \b
    TIDEMARK_DB            the manifest database,
                           postgresql://user:password@host:port/database
    TIDEMARK_PIPELINES     folder of pipeline files (default: include/pipelines)
    TIDEMARK_HOME          where relative lake roots start (default: this folder)
    TIDEMARK_SPARK_JARS    folder with Spark's Kafka connector
                           (make setup fills .tidemark/jars/spark)
    TIDEMARK_SPARK_MASTER  where Spark works, such as spark://host:7077
                           (default: local[*])
    TIDEMARK_SPARK_REMOTE  a Spark Connect server that stays up and does the
                           work instead, such as sc://host:15002
    TIDEMARK_LOG_FORMAT    text, or json: one object per line on standard
                           error
    TIDEMARK_CONNECTIONS   file of mode 0600 with connections by id;
                           AIRFLOW_CONN_<ID> wins
    PYSPARK_PYTHON         the Python of Spark's executors
                           (default: the driver's)

    Exit status: 0 done, 1 work failed or a difference was found, 2 wrong use or settings, 130 interrupted.
    """
    from tidemark.cli import log

    log.show_warnings()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as standard error: a file's name may be no UTF-8
