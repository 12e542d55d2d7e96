"""Options that commands share. They are used before a command is imported, so nothing here is slow to import."""

import errno
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from tidemark.cli.log_format import LogFormat, choose_format
from tidemark.environment import Environment
from tidemark.errors import TidemarkError

COMPLETE = "_TIDEMARK_COMPLETE"  # the variable by which a shell asks click for completions
_NAMED = re.compile(r"""^pipeline:\s*["']?([a-z][a-z0-9_-]*)""", re.MULTILINE)
TIMES = click.DateTime(
    ["%Y-%m-%d", *(f"%Y-%m-%dT%H:%M{seconds}{zone}" for seconds in ("", ":%S", ":%S.%f") for zone in ("", "%z"))]
)
Command = TypeVar("Command", bound=Callable[..., Any])


class Helped(click.Command):
    """Prints its help or the version while click reads its arguments. Reports it if standard output cannot be written;
    click itself reports a closed pipe.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except OSError as unwritten:
            if unwritten.errno == errno.EPIPE or unwritten.filename is not None:
                raise
            from tidemark.cli import log, terminal  # with rich, which no help needs

            refused = terminal.not_written(unwritten)
            log.error(refused)
            terminal.forget_unwritten()
            ctx.exit(refused.exit_code)


class _Command(Helped):
    """Refuses an option that is given twice: click would silently take the last one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            _, _, given = self.make_parser(ctx).parse_args(args=[*args])
            for option in given:
                times = given.count(option)
                if times > 1 and isinstance(option, click.Option) and _takes_one(option):
                    raise click.UsageError(f"{option.opts[0]} is given {times} times, and takes one value", ctx)
        return super().parse_args(ctx, args)


def _takes_one(option: click.Option) -> bool:
    return not option.multiple and (not option.is_flag or bool(option.secondary_opts))


class Commands(click.Group):
    """The commands of one module."""

    command_class = _Command


def _choose_folder(command: click.Context, parameter: click.Parameter, folder: Path | None) -> None:
    """Set the environment of this command and its subcommands. Also called while a shell completes a line."""
    del parameter
    environment: Environment = command.obj or Environment.from_variables()
    command.obj = replace(environment, pipelines=folder) if folder else environment


pipelines_option = click.option(
    "--pipelines",
    type=click.Path(path_type=Path),
    expose_value=False,
    is_eager=True,
    callback=_choose_folder,
    help="Folder of pipeline files (default: $TIDEMARK_PIPELINES).",
)


def _choose_format(command: click.Context, parameter: click.Parameter, log_format: str | None) -> None:
    del command, parameter
    if log_format:
        choose_format(LogFormat(log_format))


def log_format_option(**settings: Any) -> Callable[[Command], Command]:
    """Add ``--log-format``. Only the option before the command has a default, so the one after it wins."""
    return click.option(
        "--log-format",
        type=click.Choice([log_format.value for log_format in LogFormat]),
        expose_value=False,
        is_eager=True,
        callback=_choose_format,
        help="What goes to standard error: text, or one JSON object per line (default: $TIDEMARK_LOG_FORMAT, or text).",
        **settings,
    )


def common_options(command: Command) -> Command:
    """Add ``--json``, as ``as_json``; and ``--pipelines`` and ``--log-format``, which may also stand before the
    command.
    """
    with_others = pipelines_option(log_format_option()(command))
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(with_others)


def master_option(command: Command) -> Command:
    """Add ``--master``, the address of Spark."""
    return click.option(
        "--master",
        default=None,
        show_default="$TIDEMARK_SPARK_MASTER, or local[*]",
        help="Spark master to work on, such as spark://host:7077, also if the pipeline has engine: connect. Airflow's "
        "Spark connection is not used.",
    )(command)


def pipeline_names(command: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
    """Return, for shells, names of pipelines that begin with ``typed``. Files are not checked, and no error is
    shown.
    """
    from tidemark.pipeline.loader import pipeline_files  # for shells alone: it takes 0.3 s to import

    del parameter
    environment: Environment = command.obj
    names: list[str] = []
    with suppress(OSError, TidemarkError):
        for file in pipeline_files(environment.pipelines):
            names += _NAMED.findall(file.read_text(encoding="utf-8-sig", errors="replace"))
    return sorted({name for name in names if name.startswith(typed)})


def pipeline_argument(*, required: bool = True) -> Callable[[Command], Command]:
    """Add PIPELINE, as ``pipeline_name``."""
    return click.argument(
        "pipeline_name",
        metavar="PIPELINE" if required else "[PIPELINE]",
        required=required,
        shell_complete=pipeline_names,
    )
