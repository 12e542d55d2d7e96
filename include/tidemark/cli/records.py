"""Commands that look at single records: where they are, and what a pipeline makes of them."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack

import click

from tidemark.cli import output, output_records
from tidemark.cli.opened import connections_of, database_of
from tidemark.cli.options import common_options, pipeline_argument, pipeline_names
from tidemark.connections import from_environment
from tidemark.environment import Environment
from tidemark.errors import TidemarkError
from tidemark.operations.locate import locate
from tidemark.operations.peek import Wanted
from tidemark.operations.peek import peek as decode_records
from tidemark.pipeline.loader import find
from tidemark.sinks.base import Sink
from tidemark.sinks.located import Standing
from tidemark.sinks.registry import open_sink
from tidemark.sources.registry import open_source
from tidemark.suggestion import nearest

commands = click.Group()


@commands.command()
@click.argument("topic")
@click.argument("partition", type=click.IntRange(min=0))
@click.argument("offset", type=click.IntRange(min=0))
@click.option("--pipeline", "pipeline_name", shell_complete=pipeline_names, help="Only what this pipeline made of it.")
@common_options
@click.pass_context
def where(
    command: click.Context, topic: str, partition: int, offset: int, pipeline_name: str | None, as_json: bool
) -> None:
    """Say which file or row holds a record; exit 1 when none does.

    Names the manifest that covers the offset, or says why there is none: lost, not planned yet, before the anchor, or
    of another life of the topic.
    """
    environment: Environment = command.obj
    with database_of(environment) as database, ExitStack() as connections:
        found = locate(database, topic, partition, offset, _sinks_of(environment, connections), pipeline_name)
        if not found:
            output.note(_unknown(topic, partition, database.topics(pipeline_name), pipeline_name))
    output_records.located(found, as_json)
    command.exit(0 if any(one.standing is Standing.HELD for one in found) else 1)


def _sinks_of(environment: Environment, connections: ExitStack) -> Callable[[str], Sequence[Sink] | str]:
    def opened(pipeline_name: str) -> Sequence[Sink] | str:
        try:
            pipeline = find(environment.pipelines, pipeline_name)
            connections.enter_context(connections_of(pipeline))
            return [open_sink(pipeline_name, sink, from_environment) for sink in pipeline.sinks]
        except TidemarkError as error:
            return error.what

    return opened


def _unknown(topic: str, partition: int, topics: Sequence[str], pipeline_name: str | None) -> str:
    whose = f"pipeline {pipeline_name} has" if pipeline_name else "this database has"
    if topic in topics:
        return f"{whose} no chain of {topic}-{partition}: that partition was never planned"
    known = f"{nearest(topic, topics)} it has: {', '.join(topics)}" if topics else "nothing was planned yet"
    return " ".join(f"{whose} no chain of topic {topic}; {known}".split())


@commands.command()
@pipeline_argument()
@click.option("-n", "count", type=click.IntRange(1, 10_000), default=100, show_default=True, help="How many records.")
@click.option("--topic", help="Only of this topic.")
@click.option("--partition", type=click.IntRange(min=0), help="Only of this partition.")
@click.option("--from", "start", type=click.IntRange(min=0), metavar="OFFSET",
              help="From this offset of one partition on, instead of the newest.")  # fmt: skip
@common_options
@click.pass_obj
def peek(
    environment: Environment,
    pipeline_name: str,
    count: int,
    topic: str | None,
    partition: int | None,
    start: int | None,
    as_json: bool,
) -> None:
    """Decode real records and show them; write nothing.

    Shows rows, the folders and tables they would go to, and dead letters with their reasons. Needs no database.
    """
    config = find(environment.pipelines, pipeline_name)
    with connections_of(config):
        source = open_source(config.name, config.source)
        output_records.peeked(decode_records(config, source, Wanted(count, topic, partition, start)), as_json)
