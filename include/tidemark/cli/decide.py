"""Commands for your decisions. Each takes ``--why``, which is stored in the history, and ``--dry-run``."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import wraps
from typing import Any

import click

from tidemark.cli import log, output
from tidemark.cli.opened import AGAIN, database_of, group_named, opened, opened_group, show_members
from tidemark.cli.options import TIMES, Command, Commands, common_options, pipeline_argument
from tidemark.connections.lookup import from_environment
from tidemark.database.client import ManifestDatabase
from tidemark.environment import Environment
from tidemark.errors import TidemarkError, about
from tidemark.lifecycle import events
from tidemark.lifecycle.context import Context, Renaming
from tidemark.lifecycle.failed_tasks import Task
from tidemark.lifecycle.members import (
    Members,
    for_each_opened,
    open_members,
    open_source_of,
    pipelines_of,
    planned_topics,
    recorded_topics,
    refuse_failed,
    topics_of,
)
from tidemark.lifecycle.preflight import OF_ONE_SINK
from tidemark.model.manifest import ALL_MANIFESTS, Decision, ManifestSelection
from tidemark.operations import damage, decisions, sinks
from tidemark.operations.adopt import adopt as adopt_lake
from tidemark.operations.adopt import keep_ids_of
from tidemark.operations.another_log import Begin
from tidemark.operations.rename import refuse_files as refuse_old_files
from tidemark.operations.rename import rename_pipeline
from tidemark.operations.repair import repair as repair_lake
from tidemark.operations.retire import bring_back_pipeline, refuse_files, retire_pipeline
from tidemark.pipeline.deployed import files_of
from tidemark.pipeline.each_topic import split_name
from tidemark.pipeline.group import Group
from tidemark.pipeline.loader import find
from tidemark.times.moments import with_zone

commands = Commands()

topic_option = click.option("--topic", required=True, help="The topic to decide about.")


def _with_why(words: str) -> Callable[[Command], click.Command]:
    """Return a decorator that makes a command of this name with PIPELINE, --why, --dry-run and --json."""

    def made(command: Command) -> click.Command:
        for option in (
            common_options,
            click.option("--dry-run", is_flag=True, help="Say what would be done; change nothing."),
            click.option("--why", required=True, help="Your reason, for the history."),
            pipeline_argument(),
        ):
            command = option(command)
        return commands.command(words)(click.pass_obj(command))

    return made


MembersOf = Callable[[Group, ManifestDatabase, bool], Members[None]]


def _deciding(
    words: str,
    decision_name: str | None = None,
    *,
    renaming: Renaming | None = None,
    members_of: MembersOf | None = None,
) -> Callable[[Callable[..., Decision]], click.Command]:
    """Return a decorator that makes a command of this name from a function that decides.

    The function gets the pipeline's context, ``why``, ``dry_run`` and its own options. ``decision_name`` is the name in
    the history, if not that of the command. ``members_of`` opens the members of a group, and the command decides about
    one after the other. Without it, the command refuses a group.
    """
    name = decision_name or words.replace(" ", "-")

    def made(decide: Callable[..., Decision]) -> click.Command:
        @wraps(decide)
        def command(environment: Environment, pipeline_name: str, as_json: bool, **options: Any) -> None:
            if members_of is not None and (group := group_named(environment, pipeline_name)):
                with opened_group(environment, group) as database:
                    members = members_of(group, database, options["dry_run"])
                    decided = for_each_opened(members, lambda context: _decision_if_any(context, decide, options))
                    _show_members(group, name, decided, as_json)
                return
            with opened(environment, pipeline_name, renaming=renaming) as context:
                _show(name, decide(context, **options), pipeline_name, as_json)

        return _with_why(words)(command)

    return made


def _decision_if_any(context: Context, decide: Callable[..., Decision], options: Mapping[str, Any]) -> Decision:
    """Return the decision about a member of a group; an empty one if the member has nothing to decide about."""
    try:
        return decide(context, **options)
    except decisions.NothingOlder:
        return Decision((), (), options["dry_run"])


def _show_members(group: Group, decision_name: str, members: Members[Decision], as_json: bool) -> None:
    for name, (_, decision) in members.done.items():
        if decision.lines:
            log.emit(events.decided(name, decision_name, decision))
    show_members(group, members, lambda by_name: output.decided_members(by_name, as_json, group.name))


def _planned(group: Group, database: ManifestDatabase, dry_run: bool) -> Members[None]:
    del dry_run
    return open_members(group, planned_topics(group, database), database)


def _recorded(group: Group, database: ManifestDatabase, dry_run: bool) -> Members[None]:
    """Return the members that the source, the database or the targets know, those with records first.

    Before the first member is adopted, all must be known and their ids be reserved: its adoption may take over a target
    that other members share.
    """
    read_now = topics_of(group, database, open_source_of(group, from_environment))
    members = open_members(group, read_now, database)
    recorded = recorded_topics(group, [context for context, _ in members.done.values()], database)
    gone = open_members(group, [topic for topic in recorded if topic not in read_now], database)
    everybody = {**members.done, **gone.done}
    if not dry_run:
        for context, _ in everybody.values():
            with suppress(*OF_ONE_SINK):  # the adoption of this member reports the error
                keep_ids_of(context)
    with_records = {group.member_name(topic) for topic in recorded}
    in_order = dict(sorted(everybody.items(), key=lambda each: each[0] not in with_records))
    return Members(in_order, {**members.failed, **gone.failed})


def _show(decision_name: str, decision: Decision, pipeline_name: str, as_json: bool) -> None:
    log.emit(events.decided(pipeline_name, decision_name, decision))
    output.decided(decision, as_json, pipeline_name)


@_deciding("accept loss")
def accept_loss(context: Context, *, why: str, dry_run: bool) -> Decision:
    """Accept that retention took offsets before they were read."""
    return decisions.accept_loss(context, why, dry_run=dry_run)


class _BeginType(click.ParamType[Begin]):
    """An offset, the offset of one partition, or a time in UTC."""

    name = "OFFSET|PARTITION:OFFSET|TIME"
    _OFFSET = re.compile(r"(?:(\d+):)?(\d+)")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Begin:
        if offset := self._OFFSET.fullmatch(value):
            return Begin(int(offset[2]), int(offset[1]) if offset[1] else None)
        try:
            return Begin(with_zone(datetime.fromisoformat(value)))
        except ValueError:
            self.fail(
                f"{value!r} is no offset, no PARTITION:OFFSET and no time such as 2026-11-28T14:00:00", param, ctx
            )


@_deciding("accept topic")
@topic_option
@click.option(
    "--from",
    "begin",
    type=_BeginType(),
    multiple=True,
    help="Where to begin in the new topic: for all partitions or, repeated, for each one (default: behind the last "
    "published record, if the new topic has it at its offset; at 0, if it has only newer records).",
)
def accept_topic(context: Context, *, why: str, dry_run: bool, topic: str, begin: Sequence[Begin]) -> Decision:
    """Go on with a topic that was recreated, moved or vanished.

    A copy with the old offsets, for example in another cluster, goes on behind the last published record. A copy with
    other offsets is refused without --from; --dry-run says how much of it is older than what is published. If the topic
    no longer exists, remove it from the pipeline file too. If the same topic is back, its chain goes on.
    """
    return decisions.accept_topic(context, topic, why, dry_run=dry_run, begin=begin)


@_deciding("accept truncation")
@topic_option
@click.option("--partition", type=int, required=True, help="The partition whose log was cut.")
@click.option(
    "--from",
    "start",
    type=click.IntRange(min=0),
    help="First offset to read (default: the log's end when the cut was noticed).",
)
def accept_truncation(
    context: Context, *, why: str, dry_run: bool, topic: str, partition: int, start: int | None
) -> Decision:
    """Go on with a partition whose log was cut."""
    return decisions.accept_truncation(context, topic, partition, why, start=start, dry_run=dry_run)


@_deciding("extend-back", members_of=_planned)
@click.option(
    "--from",
    "start",
    type=click.DateTime(["%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d"]),
    help="Oldest record time to read (UTC; default: all that the source still has).",
)
def extend_back(context: Context, *, why: str, dry_run: bool, start: datetime | None) -> Decision:
    """Plan records from before the chains' anchors.

    The command retry then reads them, while live runs go on. Of a group: for each of its topics.
    """
    return decisions.extend_back(context, start and with_zone(start), why, dry_run=dry_run)


@_deciding("accept damage")
@click.option("--manifest", "manifest_id", type=int, help="The manifest whose output is lost.")
@click.option("--since", type=TIMES, metavar="TIME", help="All manifests of runs that read up to a later time.")
@click.option("--until", type=TIMES, metavar="TIME", help="All manifests of runs that read up to this time or earlier.")
def accept_damage(
    context: Context,
    *,
    why: str,
    dry_run: bool,
    manifest_id: int | None,
    since: datetime | None,
    until: datetime | None,
) -> Decision:
    """Accept that published output is gone for good.

    This is for records that the source has lost too; otherwise a replay writes them again. With --since or --until: all
    manifests of this time whose output an audit misses, without reading rows. TIME is UTC without a zone.
    """
    selection = ManifestSelection(since=since, until=until)
    if (manifest_id is None) == (selection == ALL_MANIFESTS):
        raise click.UsageError("name either a manifest, or a time with --since or --until")
    if manifest_id is None:
        return damage.accept_damage_between(context, selection, why, dry_run=dry_run)
    return damage.accept_damage(context, manifest_id, why, dry_run=dry_run)


@_deciding("accept expectation")
@click.option("--manifest", "manifest_id", type=int, required=True, help="The blocked manifest to publish.")
def accept_expectation(context: Context, *, why: str, dry_run: bool, manifest_id: int) -> Decision:
    """Let a manifest be published whose rows do not meet expectations.

    You accept the conditions that the pipeline file has now. The command retry then publishes the manifest. Rows that
    do not meet a condition with dead_letter stay dead letters.
    """
    return decisions.accept_expectation(context, manifest_id, why, dry_run=dry_run)


@_deciding("db adopt", "adopt", members_of=_recorded)
def adopt(context: Context, *, why: str, dry_run: bool) -> Decision:
    """Read the targets' records back into the database.

    Use it after a restore of database or target from an older copy, or with an empty database. Of a group: for each of
    its topics, also those that no longer exist.
    """
    return adopt_lake(context, why, dry_run=dry_run)


@_deciding("repair")
def repair(context: Context, *, why: str, dry_run: bool) -> Decision:
    """Remove leftovers of dead attempts."""
    return repair_lake(context, why, dry_run=dry_run)


@_with_why("rename pipeline")
@click.argument("new")
def rename(environment: Environment, pipeline_name: str, why: str, dry_run: bool, as_json: bool, new: str) -> None:
    """Go on with a pipeline under its NEW name.

    First write the new name into the pipeline file, and wait until no run is at work. Manifests, hours and history then
    belong to NEW, also in its targets. If the command dies or a target does not answer, repeat it: until then other
    commands are refused. The old name can never be used again for another pipeline.
    """
    refuse_old_files(pipeline_name, files_of(environment.pipelines, pipeline_name))
    with opened(environment, new, renaming=Renaming.PIPELINE) as context:
        _show("rename", rename_pipeline(context, pipeline_name, why, dry_run=dry_run), new, as_json)


@_deciding("rename sink", renaming=Renaming.SINK)
@click.argument("old")
@click.argument("new")
def rename_sink(context: Context, *, why: str, dry_run: bool, old: str, new: str) -> Decision:
    """Go on with a sink under its new name.

    First write the NEW name into the pipeline file; the target stays the same. If the command dies or the target does
    not answer, repeat it: until then other commands are refused.
    """
    return sinks.rename_sink(context, old, new, why, dry_run=dry_run)


@_deciding("retire sink")
@click.argument("name")
def retire_sink(context: Context, *, why: str, dry_run: bool, name: str) -> Decision:
    """Give up a sink that left the pipeline file.

    Its publications no longer count. Its output stays where it is, and Tidemark does not remove it.
    """
    return sinks.retire_sink(context, name, why, dry_run=dry_run)


@_with_why("retire pipeline")
@click.option("--undo", is_flag=True, help="Bring a retired pipeline back.")
def retire(environment: Environment, pipeline_name: str, why: str, dry_run: bool, as_json: bool, undo: bool) -> None:
    """Take a pipeline without a file off the lists.

    Its published output and its history stay; status, page, metrics and notices no longer show it. You may retire one
    topic of a group that has its file: it is no longer planned. Of a group without a file, each topic is retired.
    """
    with database_of(environment) as database:
        members = pipelines_of(database, pipeline_name)
        if members != [pipeline_name]:
            _retire_members(environment, database, pipeline_name, members, why, as_json, dry_run=dry_run, undo=undo)
            return
        if group_named(environment, pipeline_name):
            find(environment.pipelines, pipeline_name)  # raises: none of its topics was planned
        if undo:
            decision = bring_back_pipeline(database, pipeline_name, why, dry_run=dry_run)
        else:
            files = [] if _is_member(environment, pipeline_name) else files_of(environment.pipelines, pipeline_name)
            decision = retire_pipeline(database, pipeline_name, files, why, dry_run=dry_run)
    _show("retire", decision, pipeline_name, as_json)


def _retire_members(
    environment: Environment,
    database: ManifestDatabase,
    group_name: str,
    members: Sequence[str],
    why: str,
    as_json: bool,
    *,
    dry_run: bool,
    undo: bool,
) -> None:
    """Retire the members of a group, or bring them back. Leave out members that are retired, or are not, already."""
    if not undo:
        refuse_files(group_name, files_of(environment.pipelines, group_name))
    decided: dict[str, Decision] = {}
    failed: dict[str, str] = {}
    for name in members:
        if (database.pipelines.retired_at(name) is None) == undo:
            continue
        try:
            with about(pipeline=name):
                if undo:
                    decided[name] = bring_back_pipeline(database, name, why, dry_run=dry_run)
                else:
                    decided[name] = retire_pipeline(database, name, [], why, dry_run=dry_run)
        except TidemarkError as error:
            log.error(error)
            failed[name] = error.what
    if not undo and not dry_run:
        database.tasks.forget_failed(group_name, Task.PLAN)
    for name, decision in decided.items():
        log.emit(events.decided(name, "retire", decision))
    output.decided_members(decided, as_json, group_name)
    refuse_failed(group_name, failed, AGAIN)


def _is_member(environment: Environment, pipeline_name: str) -> bool:
    group, topic = split_name(pipeline_name)
    return topic is not None and group_named(environment, group) is not None
