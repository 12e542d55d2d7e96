"""Commands for what a person must decide. Each takes ``--why``, which stands in the history, and ``--dry-run``."""

from collections.abc import Callable
from datetime import UTC, datetime

import click

from tidemark.cli import output
from tidemark.cli.options import Command, json_option, opened, pipeline_argument
from tidemark.environment import Environment
from tidemark.lifecycle.context import Context
from tidemark.manifest import Decision
from tidemark.operations import adopt, decisions, repair

DECISIONS: list[click.Command] = []

topic_option = click.option("--topic", required=True, help="The topic it is about.")


def _deciding(name: str) -> Callable[[Command], click.Command]:
    """A command that decides: PIPELINE, --why, --dry-run and --json come from here."""

    def decorate(command: Command) -> click.Command:
        for option in (
            json_option,
            click.option("--dry-run", is_flag=True, help="Say what would be done; change nothing."),
            click.option("--why", required=True, help="Your reason, for the history."),
            pipeline_argument,
        ):
            command = option(command)
        made = click.command(name)(click.pass_obj(command))
        DECISIONS.append(made)
        return made

    return decorate


def _decide(settings: Environment, pipeline: str, as_json: bool, decide: Callable[[Context], Decision]) -> None:
    with opened(settings, pipeline) as context:
        output.decided(decide(context), as_json)


@_deciding("accept-loss")
def accept_loss(settings: Environment, pipeline: str, why: str, dry_run: bool, as_json: bool) -> None:
    """Give up offsets that Kafka dropped unread."""
    _decide(settings, pipeline, as_json, lambda one: decisions.accept_loss(one, why, dry_run=dry_run))


@_deciding("accept-topic")
@topic_option
def accept_topic(settings: Environment, pipeline: str, why: str, dry_run: bool, as_json: bool, topic: str) -> None:
    """Go on with a topic that was recreated, or vanished.

    The next plan reads the new topic from offset 0; one that is gone must leave the pipeline file too. When the same
    topic is back, its chain goes on.
    """
    _decide(settings, pipeline, as_json, lambda one: decisions.accept_topic(one, topic, why, dry_run=dry_run))


@_deciding("accept-truncation")
@topic_option
@click.option("--partition", type=int, required=True, help="The partition it is about.")
@click.option(
    "--from", "start", type=click.IntRange(min=0), help="First offset to read (default: the log's end when noticed)."
)
def accept_truncation(
    settings: Environment,
    pipeline: str,
    why: str,
    dry_run: bool,
    as_json: bool,
    topic: str,
    partition: int,
    start: int | None,
) -> None:
    """Go on with a partition whose log was cut."""
    _decide(
        settings,
        pipeline,
        as_json,
        lambda one: decisions.accept_truncation(one, topic, partition, why, start=start, dry_run=dry_run),
    )


@_deciding("extend-back")
@click.option(
    "--from",
    "start",
    type=click.DateTime(["%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d"]),
    help="Oldest record time to read (UTC; default: all that Kafka still has).",
)
def extend_back(
    settings: Environment, pipeline: str, why: str, dry_run: bool, as_json: bool, start: datetime | None
) -> None:
    """Plan what lies before the chains' anchors.

    tidemark retry then reads it, while live runs go on.
    """
    moment = start if start is None or start.tzinfo else start.replace(tzinfo=UTC)
    _decide(settings, pipeline, as_json, lambda one: decisions.extend_back(one, moment, why, dry_run=dry_run))


@_deciding("adopt")
def adopt_command(settings: Environment, pipeline: str, why: str, dry_run: bool, as_json: bool) -> None:
    """Read a lake's records back into the database.

    After a restore from an older copy, or into an empty one.
    """
    _decide(settings, pipeline, as_json, lambda one: adopt.adopt(one, why, dry_run=dry_run))


@_deciding("repair")
def repair_command(settings: Environment, pipeline: str, why: str, dry_run: bool, as_json: bool) -> None:
    """Remove leftovers, write lost records again."""
    _decide(settings, pipeline, as_json, lambda one: repair.repair(one, why, dry_run=dry_run))
