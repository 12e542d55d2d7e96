"""Refuses a pipeline that would write a topic into folders of another pipeline, unless a file says that it may."""

from collections.abc import Sequence
from datetime import datetime

from tidemark.errors import PlanRefused
from tidemark.lifecycle.context import Context
from tidemark.paths import Layout
from tidemark.pipeline.folders import StreamFolders, meetings, remedy, shared, sharing, stream_folders, what_is_wrong
from tidemark.sinks.capabilities import ShowsHours


def claim_folders(context: Context, topics: Sequence[str], *, dry_run: bool) -> list[str]:
    """Store the folders of the topics that are planned; raises ``PlanRefused`` for what cannot be one, and when
    another pipeline has one of them. Returns the topics whose folders are new.

    Must be called in the transaction that plans. What was stored is kept when the file changes, as the files are.
    """
    for sink in context.pipeline.sinks:
        for topic in topics:
            if problem := sink.problem_with_topic(context.pipeline_name, topic):
                raise PlanRefused(
                    f"sink {sink.name} has no place for a topic: {problem}",
                    next_step="nothing was planned; change the layout of the sink, or leave the topic out",
                    sink=sink.name,
                    topic=topic,
                )
    database, own = context.database, stream_folders(context.pipeline, topics)
    new = [folders for folders in own if folders not in _stored(context, topics)]
    if new and not dry_run:
        database.sinks.lock_folders()  # of two pipelines that come at once the second sees the first
    for mine, other in meetings(own, _stored(context, topics)):
        raise PlanRefused(
            what_is_wrong(mine, other),
            next_step=f"nothing was planned; {remedy(other)}",
            sink=mine.sink,
            topic=mine.topic,
        )
    if not dry_run:
        database.sinks.remember_folders([vars(folders) for folders in new])
    return sorted({folders.topic for folders in new})


def sinks_with_shared_folders(context: Context, topics: Sequence[str]) -> set[str]:
    """The sinks of the pipeline that write a topic into folders where another pipeline writes it too, or may."""
    return sharing(stream_folders(context.pipeline, topics), _stored(context, topics))


def name_success_files(
    context: Context, topics: Sequence[str], sinks: Sequence[str], hours: Sequence[datetime] | None = None
) -> None:
    """Give the success files of other pipelines, in folders where these sinks write too, the name of their pipeline:
    an hour is not complete there for whoever reads what both write. ``hours``: those meant, None for all.

    May be repeated. What the database says of the files stays: the other pipeline, when it closes hours again, finds
    the new files there. Those it has in folders above the root of the sink are left to it.
    """
    own = [folders for folders in stream_folders(context.pipeline, topics) if folders.sink in sinks]
    stored = _stored(context, topics) if own else []
    by_name = {sink.name: sink.output for sink in context.sinks if isinstance(sink.output, ShowsHours)}
    for mine, other in shared(own, stored):
        names = {folders.pipeline for folders in stored if folders.topic == mine.topic}
        for hour in context.database.success_files.plain(other.pipeline, other.sink, hours):
            folder = Layout(other.folders).folder(other.pipeline, other.topic, hour)
            by_name[mine.sink].name_shown(folder, other.pipeline, names)


def _stored(context: Context, topics: Sequence[str]) -> list[StreamFolders]:
    rows = context.database.sinks.folders(topics)
    return [StreamFolders(**{**row, "shared_with": tuple(row["shared_with"])}) for row in rows]
