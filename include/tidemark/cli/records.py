"""Commands about single records: their places, what a pipeline makes of them, and those that it could not read."""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

import click

from tidemark.api import sinks_of
from tidemark.cli import log, output_records
from tidemark.cli.opened import LoggedStage, connections_of, database_of, opened
from tidemark.cli.options import Commands, common_options, master_option, pipeline_argument, pipeline_names
from tidemark.environment import Environment
from tidemark.operations.bring_back import bring_back
from tidemark.operations.dead_letters import DeadLetterSelection
from tidemark.operations.dead_letters import dead_letters as read_dead_letters
from tidemark.operations.locate import locate
from tidemark.operations.peek import RecordSelection
from tidemark.operations.peek import drift as propose_fields
from tidemark.operations.peek import peek as decode_records
from tidemark.pipeline.loader import find
from tidemark.sinks.dead_letters import ERROR_CLASSES
from tidemark.sinks.located import RecordStatus
from tidemark.text import nearest

commands = Commands()


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
    """Say which file or row holds a record; exit 1 if none.

    Names the manifest that covers the offset. If no manifest covers it, says why: lost, not planned yet, before the
    anchor, or of another log generation.
    """
    environment: Environment = command.obj
    with database_of(environment) as database, ExitStack() as connections:
        sinks = partial(
            sinks_of,
            environment,
            database,
            prepare=lambda pipeline: connections.enter_context(connections_of(pipeline)),
        )
        chains = locate(database, topic, partition, offset, sinks, pipeline_name)
        if not chains:
            log.note(_unknown(topic, partition, database.chains.topics(pipeline_name), pipeline_name))
    output_records.located(chains, as_json)
    command.exit(0 if any(chain.standing is RecordStatus.HELD for chain in chains) else 1)


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
@click.option("--drift", is_flag=True, help="Propose lines for fields of JSON that the schema lacks.")
@click.option("--expect", "conditions", multiple=True, metavar="CONDITION",
              help="Try a condition of expect on these records, beside those of the file; repeatable.")  # fmt: skip
@common_options
@click.pass_obj
def peek(
    environment: Environment,
    pipeline_name: str,
    count: int,
    topic: str | None,
    partition: int | None,
    start: int | None,
    drift: bool,
    conditions: tuple[str, ...],
    as_json: bool,
) -> None:
    """Decode real records and show them; write nothing.

    Shows rows, the folders and tables they would go to, dead letters with their reasons, and how many rows do not meet
    what the file expects of them. Needs no database.
    """
    config = find(environment.pipelines, pipeline_name)
    with connections_of(config):
        selection = RecordSelection(count, topic, partition, start)
        if drift:
            output_records.drift(propose_fields(config, selection), as_json)
        else:
            output_records.peeked(decode_records(config, selection, conditions), as_json)


@commands.command("dead-letters")
@pipeline_argument()
@click.option("--manifest", "manifest_id", type=int, help="Only of this manifest.")
@click.option("--sink", help="As this sink keeps them (default: the first; all keep the same).")
@click.option("--class", "error_class", type=click.Choice(ERROR_CLASSES), help="Only this class.")
@click.option("--reason", metavar="TEXT", help="Only with this text in the reason, or in the reason of a group.")
@click.option("--show", is_flag=True, help="Show the records too, with key and value.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=20, show_default=True, help="Records to show.")
@click.option("--replay", is_flag=True, help="Replay the manifests that have such dead letters, to bring them back.")
@click.option("--dry-run", is_flag=True, help="With --replay: say what would be replayed; change nothing.")
@click.option("--why", help="Your reason for --replay, for the history.")
@master_option
@common_options
@click.pass_context
def dead_letters(
    command: click.Context,
    pipeline_name: str,
    manifest_id: int | None,
    sink: str | None,
    error_class: str | None,
    reason: str | None,
    show: bool,
    limit: int,
    replay: bool,
    dry_run: bool,
    why: str | None,
    master: str | None,
    as_json: bool,
) -> None:
    """Group records that could not be read, or bring them back.

    Groups by class and reason, with N and .. for what varies in a reason. After you corrected the schema or the code,
    --replay does the manifests once more: each record then stands where it belongs, and its dead letter is removed.
    Exit status 1 if a manifest cannot be replayed; you may repeat the command.
    """
    environment: Environment = command.obj
    if replay != bool(why):
        raise click.UsageError("--replay needs --why, and --why is for --replay")
    if dry_run and not replay:
        raise click.UsageError("--dry-run is for --replay: without it nothing is changed")
    selection = DeadLetterSelection(manifest_id, sink, error_class, reason)
    with opened(environment, pipeline_name) as context:
        if not replay:
            letters = read_dead_letters(context, selection, limit=limit if show else 0)
            output_records.dead_letters(letters, as_json)
            return
        stage = LoggedStage(environment, context, master)
        progress = log.LoggedProgress(pipeline_name)
        result = bring_back(context, selection, str(why), stage, progress, dry_run=dry_run)
        log.emit_failures(result.errors.values())
        output_records.brought_back(result, as_json)
    command.exit(1 if result.errors or result.left else 0)
