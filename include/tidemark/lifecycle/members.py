"""Plans the members of a group: one pipeline for each topic, each in transactions of its own.

A topic that cannot be planned does not stop the others. A source that does not answer ends the plan for all at once.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Generic, TypeVar

from tidemark.connections.kept import keep_clients
from tidemark.connections.lookup import Lookup
from tidemark.database.client import ManifestDatabase
from tidemark.errors import (
    ConfigurationError,
    NotDone,
    NotFound,
    PlanRefused,
    TidemarkError,
    Unavailable,
    WorkFailed,
    about,
)
from tidemark.lifecycle.context import Context, open_context
from tidemark.lifecycle.failed_tasks import NextTry, OpenDatabase, Task, never, reason_of, watched
from tidemark.lifecycle.preflight import OF_ONE_SINK
from tidemark.model.manifest import Manifest, ManifestSelection, count_of
from tidemark.pipeline.each_topic import split_name
from tidemark.pipeline.folders import way_in
from tidemark.pipeline.group import Group
from tidemark.pipeline.loader import member
from tidemark.pipeline.settings import Pipeline
from tidemark.sources.base import Source
from tidemark.sources.registry import open_source
from tidemark.text import with_nearest

Result = TypeVar("Result")
NAMED = 10  # an error names at most so many members one by one


@dataclass
class Members(Generic[Result]):
    """The outcome of each member of a group, by its name: its context and the result, or its error."""

    done: dict[str, tuple[Context, Result]] = field(default_factory=dict)
    failed: dict[str, TidemarkError] = field(default_factory=dict)


def refuse_failed(group_name: str, failed: Mapping[str, str], next_step: str = "") -> None:
    """Raise ``NotDone`` if members failed; it names them by their errors."""
    if failed:
        by_cause: dict[str, list[str]] = {}
        for name, what in list(failed.items())[:NAMED]:
            by_cause.setdefault(what.splitlines()[0], []).append(name)
        named = [f"{', '.join(names)}: {what}" for what, names in by_cause.items()]
        more = [f"and {len(failed) - NAMED} more"] if len(failed) > NAMED else []
        raise NotDone(
            f"{count_of(len(failed), 'topic')} of {group_name} failed, the others are done: "
            f"{'; '.join([*named, *more])}",
            next_step=next_step
            or f"tidemark status {group_name} has the next step of each; the next run takes them along",
        )


def open_source_of(group: Group, lookup: Lookup) -> Source:
    """Open the source that lists the topics of a group. While the caller keeps it, the members share its client."""
    return open_source(group.name, group.source, lookup)


def topics_of(group: Group, database: ManifestDatabase, source: Source) -> list[str]:
    """Return the topics that the source reads now and those that were planned before, without those that the file
    leaves out and those that are retired. Planned topics come first: a table belongs to the older member."""
    planned = planned_topics(group, database)
    retired = _retired(database)
    topics = sorted(source.selected(*planned), key=lambda topic: (topic not in planned, topic))
    return [topic for topic in topics if group.reads(topic) and group.member_name(topic) not in retired]


def planned_topics(group: Group, database: ManifestDatabase) -> list[str]:
    """Return the topics of a group that were planned and that its file still reads, without the retired ones."""
    return _topics_among(group, database.pipelines.names())


def pipelines_of(database: ManifestDatabase, name: str) -> list[str]:
    """Return the planned members of a group, also retired ones, and also if its file was removed. For the name of a
    pipeline return that name."""
    planned = database.pipelines.names(retired=True)
    return [name] if name in planned else [each for each in planned if split_name(each)[0] == name] or [name]


def page_of_manifests(
    database: ManifestDatabase, name: str | None, selection: ManifestSelection, limit: int | None, after: int | None
) -> list[Manifest]:
    """Return a page of the manifests of a pipeline, of a group or of all, newest first."""
    if name is None or len(names := pipelines_of(database, name)) == 1:
        return database.manifests.page(name if name is None else names[0], selection, limit=limit, after=after)
    pages = (database.manifests.page(each, selection, limit=limit, after=after) for each in names)
    return sorted(chain(*pages), key=lambda manifest: -manifest.id)[:limit]


def never_planned_topics(group: Group, database: ManifestDatabase) -> list[str]:
    """Return the topics of a group that have no plan yet: their first plan is running, was killed, or failed.
    ``status`` has the reason of a failure."""
    known = {*database.pipelines.names(retired=True)}
    return _topics_among(group, [name for name in database.tasks.pipelines_noted() if name not in known])


def _topics_among(group: Group, names: Iterable[str]) -> list[str]:
    named = map(split_name, names)
    return [topic for owner, topic in named if owner == group.name and topic is not None and group.reads(topic)]


@keep_clients()
def for_each_member(
    group: Group,
    database: ManifestDatabase,
    lookup: Lookup,
    open_database: OpenDatabase,
    plan: Callable[[Context, int], Result],
    *,
    only: Collection[str] = (),
    like_the_next: bool = True,
    noted: bool = True,
    next_try: NextTry = never,
) -> Members[Result]:
    """Call ``plan`` with the context of each member and the number of all members, the older ones first.

    ``only`` limits this to some topics; raises ``NotFound`` for one that the source does not read, and stores nothing.
    The error of a member is kept under its name. Raises ``Unavailable`` if a system does not answer that all members
    need; a single sink does not count.
    """
    source = open_source_of(group, lookup)
    topics = topics_of(group, database, source)
    _refuse_unread(group, topics, only)
    if noted:
        _forget_missing_topics(group, database, topics)
    result: Members[Result] = Members()
    owners: dict[str, str] = {}
    for topic in topics:
        name = group.member_name(topic)
        wanted = not only or topic in only
        try:
            with _noting(open_database, database, name, like_the_next, noted=noted and wanted, next_try=next_try):
                pipeline = member(group, topic)
                _refuse_shared(pipeline, owners)
                if wanted:
                    _refuse_copied(pipeline, database)
                    context = open_context(pipeline, database, lookup)
                    result.done[name] = context, plan(context, len(topics))
        except TidemarkError as error:
            if _concerns_all(error):
                raise
            if wanted:
                result.failed[name] = error
        except Exception as defect:
            if not wanted:
                continue
            result.failed[name] = WorkFailed(reason_of(defect), next_step=f"tidemark status {name}", pipeline=name)
    if noted:
        database.tasks.forget_failed(group.name, Task.PLAN)
    return result


def open_members(group: Group, topics: Iterable[str], database: ManifestDatabase) -> Members[None]:
    """Return the contexts of the members of these topics, and the errors of those that cannot be opened."""
    members: Members[None] = Members()
    for topic in topics:
        name = group.member_name(topic)
        try:
            with about(pipeline=name):
                members.done[name] = open_context(member(group, topic), database), None
        except TidemarkError as error:
            members.failed[name] = error
    return members


def for_each_opened(members: Members[None], work: Callable[[Context], Result]) -> Members[Result]:
    """Call ``work`` with the context of each member; an error is kept under its name.

    If a system that all members need does not answer, the others get the same error and are not tried.
    """
    result: Members[Result] = Members(failed=dict(members.failed))
    of_all: TidemarkError | None = None
    for name, (context, _) in members.done.items():
        if of_all is not None:
            result.failed[name] = of_all
            continue
        try:
            with about(pipeline=name):
                result.done[name] = context, work(context)
        except TidemarkError as error:
            result.failed[name] = error
            of_all = error if _concerns_all(error) else None
    return result


def recorded_topics(group: Group, contexts: Iterable[Context], database: ManifestDatabase) -> list[str]:
    """Return the topics whose evidence the targets of these members hold, without the retired ones. A target that
    members share may also hold evidence of topics of other members.

    A new database in place of a lost one does not know these topics, and a topic may no longer exist. A target that
    does not answer is left out; the work on its member reports the error.
    """
    sinks = {sink.target: sink for context in contexts for sink in context.sinks}
    names: set[str] = set()
    for sink in sinks.values():
        with suppress(*OF_ONE_SINK):
            names |= {name.pipeline_name for name in sink.ledger.records(own=False)}
    return _topics_among(group, sorted(names - _retired(database)))


def _retired(database: ManifestDatabase) -> set[str]:
    return {*database.pipelines.names(retired=True)} - {*database.pipelines.names()}


def _concerns_all(error: TidemarkError) -> bool:
    return isinstance(error, Unavailable) and "sink" not in error.context


@contextmanager
def _noting(
    open_database: OpenDatabase,
    database: ManifestDatabase,
    name: str,
    like_the_next: bool,
    *,
    noted: bool,
    next_try: NextTry,
) -> Iterator[None]:
    """Note an error under the name of the member. One that concerns all members is noted once, for the group."""
    with about(pipeline=name):
        if not noted:
            yield
            return
        with watched(open_database, name, Task.PLAN, like_the_next=like_the_next, next_try=next_try) as watch:
            try:
                yield
            except TidemarkError as error:
                if _concerns_all(error):
                    watch.end()
                    database.tasks.forget_begun(name, Task.PLAN)
                raise


def _refuse_unread(group: Group, topics: Sequence[str], only: Collection[str]) -> None:
    for topic in only:
        if topic not in topics:
            raise NotFound(
                with_nearest(f"{group.name} reads no topic {topic}", topic, topics),
                next_step=f"nothing was planned; name one of them: tidemark status {group.name} lists those that were "
                "planned",
            )


def _forget_missing_topics(group: Group, database: ManifestDatabase, topics: Sequence[str]) -> None:
    """Forget the failure of each member that was never planned and whose topic no longer exists: nothing plans it
    again."""
    known = database.pipelines.names(retired=True)
    for name in database.tasks.pipelines_noted():
        owner, topic = split_name(name)
        if owner == group.name and topic is not None and topic not in topics and name not in known:
            database.tasks.forget_failed(name, Task.PLAN)


def _refuse_shared(pipeline: Pipeline, owners: dict[str, str]) -> None:
    """Raise ``ConfigurationError`` for a target that an older member has. Adds this member to ``owners``, which maps
    targets to members.

    Members may share folders, because the files of each topic have different names.
    """
    own = {
        f"{sink.kind} {sink.target}": sink
        for sink in pipeline.sinks
        if not sink.folders_of(pipeline.name, pipeline.source.topics[0])
    }
    for target, sink in own.items():
        if target in owners:
            raise ConfigurationError(
                f"sink {sink.name} would write to {sink.target}, as {owners[target]} does: both topics lead to the "
                "same name",
                next_step=f"name another target for it in the file of the group, below each_topic: "
                f"{pipeline.source.topics[0]}",
            )
    owners.update(dict.fromkeys(own, pipeline.name))


def _refuse_copied(pipeline: Pipeline, database: ManifestDatabase) -> None:
    """Raise ``PlanRefused`` for a new member if another pipeline writes its topic to one of its targets already: every
    record would be read and written once more. Folders of files are compared by the plan (``claim_folders``)."""
    if database.pipelines.is_planned(pipeline.name):
        return
    topic, retired = pipeline.source.topics[0], _retired(database)
    for sink in pipeline.sinks:
        if sink.folders_of(pipeline.name, topic):
            continue
        for other in database.targets.other_writers(pipeline.name, sink.target):
            if other in retired:  # the sink itself decides whether it accepts a target of a retired pipeline
                continue
            if topic in database.chains.topics(other):
                raise PlanRefused(
                    f"sink {sink.name} would write topic {topic} to {sink.target}, where pipeline {other} writes it "
                    "already",
                    next_step=f"nothing was planned; {way_in(pipeline.name, other)}",
                    sink=sink.name,
                    topic=topic,
                )
