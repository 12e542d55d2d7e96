"""The command line ``tidemark``: the same steps as Airflow's tasks, by the same functions.

Exit status: 0 done, 1 work failed or a difference was found, 2 wrong use, 130 interrupted. Results go to standard
output (as JSON with ``--json``), progress and errors to standard error. A command is imported when it is used: the
libraries of sources, of PostgreSQL and of Arrow take longer to import than most commands take to work.
"""

import os
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Any

import click
from click.exceptions import NoSuchCommand

from tidemark import __version__
from tidemark.cli.log_format import LogFormat
from tidemark.cli.options import Helped, log_format_option, pipelines_option
from tidemark.connections.kept import keep_clients
from tidemark.errors import ConfigurationError, TidemarkError

INTERRUPTED = 130  # 128 + SIGINT, as shells say it

# By section and by the name of a command: its module, and the first line of its own help. Daily work comes first.
# Related commands that are seldom needed form a group, whose line names them.
COMMANDS = {
    "See what is there": {
        "status": ("inspect", "Say which pipelines need you; exit 1 when one does."),
        "manifests": ("inspect", "List manifests, newest first: ranges, states, counts."),
        "show": ("inspect", "Show one manifest with its attempts and history."),
        "lag": ("inspect", "Show how far each chain is behind the source."),
        "hours": ("inspect", "List event hours: rows, late rows, complete or not."),
        "complete": ("inspect", "Say whether all before a time is published; exit 1 if not."),
        "objects": ("inspect", "Print the published paths: the exact reader."),
        "where": ("records", "Say which file or row holds a record; exit 1 if none."),
        "dead-letters": ("records", "Group records that could not be read, or bring them back."),
        "history": ("inspect", "Show what people decided: who, when, why."),
    },
    "Process": {
        "plan": ("run", "Record the next ranges of a pipeline as manifests."),
        "run": ("run", "Plan, process and close one run without Airflow."),
        "retry": ("run", "Finish manifests that are planned, failed or abandoned."),
        "replay": ("run", "Do a manifest or run once more, replacing its output."),
        "fill": ("run", "Give a sink the manifests done before it was added."),
        "extend-back": ("decide", "Plan records from before the chains' anchors."),
    },
    "Check": {
        "validate": ("prepare", "Check pipeline files; exit 2 when one is wrong."),
        "doctor": ("doctor", "Check all that pipelines need; exit 1 when a check fails."),
        "audit": ("inspect", "Compare database and sinks; exit 1 on any difference."),
        "peek": ("records", "Decode real records and show them; write nothing."),
    },
    "Decide, with a reason": {
        "accept loss": ("decide", "Accept that retention took offsets before they were read."),
        "accept topic": ("decide", "Go on with a topic that was recreated, moved or vanished."),
        "accept truncation": ("decide", "Go on with a partition whose log was cut."),
        "accept damage": ("decide", "Accept that published output is gone for good."),
        "accept expectation": ("decide", "Let a manifest be published whose rows do not meet expectations."),
        "rename pipeline": ("decide", "Go on with a pipeline under its NEW name."),
        "rename sink": ("decide", "Go on with a sink under its new name."),
        "retire pipeline": ("decide", "Take a pipeline without a file off the lists."),
        "retire sink": ("decide", "Give up a sink that left the pipeline file."),
        "repair": ("decide", "Remove leftovers of dead attempts."),
    },
    "Set up and keep running": {
        "init": ("prepare", "Make a small project: a pipeline, its DAG, a first run."),
        "db migrate": ("prepare", "Create or upgrade Tidemark's tables; safe to repeat."),
        "db adopt": ("decide", "Read the targets' records back into the database."),
        "monitor metrics": ("metrics", "Print gauges for monitoring, as OpenMetrics text."),
        "monitor notify": ("notify", "Send notices: when a problem begins, and when it is over."),
        "spark serve": ("prepare", "Run a Spark Connect server for manifests."),
        "spark jars": ("prepare", "Fetch the connector's jars that fit PySpark."),
        "spark classes": ("prepare", "Store Spark's classes: each Spark starts sooner."),
        "print member": ("prepare", "Print the pipeline file of one topic of a group."),
        "print schema": ("prepare", "Print the JSON Schema of pipeline files."),
        "print completion": ("prepare", "Print the script for completion in a shell."),
    },
}
GROUPS = {
    "accept": "Accept a fact: loss, topic, truncation, damage, expectation.",
    "rename": "Go on under another name: pipeline, sink.",
    "retire": "Give up what the files no longer have: pipeline, sink.",
    "db": "Care for the manifest database: migrate, adopt.",
    "monitor": "Tell other programs the state of pipelines: metrics, notify.",
    "spark": "Have Spark ready: serve, jars, classes.",
    "print": "Print what files and editors need: member, schema, completion.",
}


class NamedCommand(click.Command):
    """A command with its name and one line of help; ``load`` imports its module."""

    def __init__(self, words: str, module: str, short_help: str) -> None:
        super().__init__(words.split()[-1], short_help=short_help)
        self.words = words
        self.module = module

    def load(self) -> click.Command:
        commands: click.Group = import_module(f"tidemark.cli.{self.module}").commands
        return commands.commands[self.words]


NAMED = {
    words: NamedCommand(words, *module_and_text)
    for section in COMMANDS.values()
    for words, module_and_text in section.items()
}


class _Group(Helped, click.Group):
    """Imports a command when it is used."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, NamedCommand) else command, rest

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order in which they were added, not by their letters."""
        del ctx
        return list(self.commands)


class _Sections(_Group):
    """All commands, in sections. Prints Tidemark's errors as two lines, without a traceback."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for number, word in enumerate(args, 1):
            if word.encode(errors="replace").decode() != word:  # the shell passes on bytes that are not UTF-8
                raise click.UsageError(f"word {number} is not text in UTF-8: {word!a}", ctx)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except NoSuchCommand as unknown:  # click compares it with the commands of this group alone
            raise NoSuchCommand(unknown.command_name, possibilities=NAMED, ctx=ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        width = max(map(len, self.commands))
        for title, section in COMMANDS.items():
            with formatter.section(title):
                names = dict.fromkeys(words.split()[0] for words in section)
                formatter.write_dl([(f"{name:{width}}", self.commands[name].get_short_help_str(99)) for name in names])

    def invoke(self, ctx: click.Context) -> Any:
        from tidemark.cli.terminal import forget_unwritten  # with rich, which only a command needs

        ctx.call_on_close(forget_unwritten)
        try:
            _refuse_removed_folder()
            with keep_clients():
                return super().invoke(ctx)
        except TidemarkError as error:
            from tidemark.cli import log

            log.error(error)
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


def _refuse_removed_folder() -> None:
    """Raise ``ConfigurationError`` if the current folder of this process was removed."""
    try:
        os.getcwd()  # noqa: PTH109 - Path.cwd() is the same
    except FileNotFoundError:
        raise ConfigurationError(
            "the current folder was removed", next_step="change to another one, then repeat the command"
        ) from None


def _tree() -> dict[str, click.Command]:
    """Return, by their first word, the commands of one word and the groups."""
    groups = {name: _Group(name, help=text) for name, text in GROUPS.items()}
    tree: dict[str, click.Command] = {}
    for words, command in NAMED.items():
        first, _, second = words.partition(" ")
        if second:
            groups[first].add_command(command)
        tree[first] = groups[first] if second else command
    return tree


@click.group(
    cls=_Sections,
    commands=_tree(),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="tidemark")
@pipelines_option
@log_format_option(envvar="TIDEMARK_LOG_FORMAT", default=LogFormat.TEXT.value)
def main() -> None:
    """Copies Kafka topics and RabbitMQ streams into lakes in recorded batches, exactly once.

    \b
    TIDEMARK_DB            the manifest database,
                           postgresql://user:password@host:port/database
    TIDEMARK_PIPELINES     folder of pipeline files (default: include/pipelines)
    TIDEMARK_HOME          where relative lake roots start (default: this folder)
    TIDEMARK_SPARK_JARS    folder with Spark's Kafka connector
                           (tidemark spark jars fills it)
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
        sys.stdout.reconfigure(errors="backslashreplace")  # like standard error: a file's name may not be UTF-8
