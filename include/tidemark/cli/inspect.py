"""Commands that look at single records, and the one that teaches a shell the names."""

import json
from collections.abc import Callable, Sequence

import click
from click.shell_completion import get_completion_class

from tidemark.cli import output, output_records
from tidemark.cli.options import COMPLETE, database_of, json_option, pipeline_argument, pipeline_names
from tidemark.connections import from_environment
from tidemark.environment import Environment
from tidemark.errors import TidemarkError
from tidemark.operations.locate import locate
from tidemark.operations.peek import Wanted, peek
from tidemark.pipeline.loader import find
from tidemark.sinks.base import Sink
from tidemark.sinks.located import Standing
from tidemark.sinks.registry import open_sink
from tidemark.sources.registry import open_source
from tidemark.suggestion import nearest

LOOKING: list[click.Command] = []


def _looking(command: click.Command) -> click.Command:
    LOOKING.append(command)
    return command


@_looking
@click.command()
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0))
@click.argument("offset", type=click.IntRange(min=0))
@click.option("--pipeline", shell_complete=pipeline_names, help="Only what this pipeline made of it.")
@json_option
@click.pass_context
def where(command: click.Context, topic: str, partition: int, offset: int, pipeline: str | None, as_json: bool) -> None:
    """Say which file or row holds a record; exit 1 when none does.

    Names the manifest that covers the offset, or says why there is none: lost, not planned yet, before the anchor, or
    of another life of the topic.
    """
    settings: Environment = command.obj
    with database_of(settings) as database:
        found = locate(database, topic, partition, offset, _sinks_of(settings), pipeline)
        if not found:
            output.note(_unknown(topic, partition, database.topics(pipeline), pipeline))
    output_records.located(found, as_json)
    command.exit(0 if any(one.standing is Standing.HELD for one in found) else 1)


def _sinks_of(settings: Environment) -> Callable[[str], Sequence[Sink] | str]:
    def opened(name: str) -> Sequence[Sink] | str:
        try:
            pipeline = find(settings.pipelines, name)
            return [open_sink(name, one, from_environment) for one in pipeline.sinks]
        except TidemarkError as error:
            return error.what

    return opened


def _unknown(topic: str, partition: int, topics: Sequence[str], pipeline: str | None) -> str:
    whose = f"pipeline {pipeline} has" if pipeline else "this database has"
    if topic in topics:
        return f"{whose} no chain of {topic}-{partition}: that partition was never planned"
    known = f"{nearest(topic, topics)} it has: {', '.join(topics)}" if topics else "nothing was planned yet"
    return " ".join(f"{whose} no chain of topic {topic}; {known}".split())


@_looking
@click.command("peek")
@pipeline_argument
@click.option("-n", "count", type=click.IntRange(1, 10_000), default=100, show_default=True, help="How many records.")
@click.option("--topic", help="Only of this topic.")
@click.option("--partition", type=click.IntRange(min=0), help="Only of this partition.")
@click.option("--from", "start", type=click.IntRange(min=0), metavar="OFFSET",
              help="From this offset of one partition on, instead of the newest.")  # fmt: skip
@json_option
@click.pass_obj
def peek_records(
    settings: Environment, pipeline: str, count: int, topic: str | None, partition: int | None, start: int | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Decode real records and show them; write nothing.

    Shows rows, the folders and tables they would go to, and dead letters with their reasons. Needs no database.
    """
    config = find(settings.pipelines, pipeline)
    source = open_source(config.name, config.source)
    output_records.peeked(peek(config, source, Wanted(count, topic, partition, start)), as_json)


@_looking
@click.command()
@pipeline_argument
@json_option
@click.pass_obj
def history(settings: Environment, pipeline: str, as_json: bool) -> None:
    """Show what people decided about a pipeline: who, when, why.

    Losses, topics and truncations accepted, chains extended back, lakes adopted and repaired. What happened to one
    manifest says tidemark show.
    """
    with database_of(settings) as database:
        output.history(database.decisions(find(settings.pipelines, pipeline).name), as_json)


@_looking
@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@json_option
@click.pass_context
def completion(command: click.Context, shell: str, as_json: bool) -> None:
    """Print the script for completion in a shell.

    \b
    bash   eval "$(tidemark completion bash)" in ~/.bashrc
    zsh    eval "$(tidemark completion zsh)" in ~/.zshrc, after compinit
    fish   tidemark completion fish > ~/.config/fish/completions/tidemark.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows the three shells"
    script = kind(command.find_root().command, {}, "tidemark", COMPLETE).source()
    click.echo(json.dumps({"shell": shell, "script": script}) if as_json else script)
