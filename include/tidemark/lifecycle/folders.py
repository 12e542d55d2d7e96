"""Refuses a pipeline that would write a topic into folders of another pipeline, unless a file says that it may."""

from collections.abc import Sequence

from tidemark.database.client import ManifestDatabase
from tidemark.errors import PlanRefused
from tidemark.lifecycle.context import Context
from tidemark.pipeline.folders import StreamFolders, meetings, remedy, stream_folders, what_is_wrong


def claim_folders(context: Context, topics: Sequence[str], *, dry_run: bool) -> None:
    """Store the folders of the topics that are planned; raises ``PlanRefused`` for what cannot be one, and when
    another pipeline has one of them.

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
    new = [folders for folders in own if folders not in stored_folders(context.database, topics)]
    if new and not dry_run:
        database.sinks.lock_folders()  # of two pipelines that come at once the second sees the first
    for mine, other in meetings(own, stored_folders(context.database, topics)):
        raise PlanRefused(
            what_is_wrong(mine, other),
            next_step=f"nothing was planned; {remedy(mine, other)}",
            sink=mine.sink,
            topic=mine.topic,
        )
    if not dry_run:
        database.sinks.remember_folders([vars(folders) for folders in new])


def stored_folders(database: ManifestDatabase, topics: Sequence[str]) -> list[StreamFolders]:
    """Return where pipelines that were planned write these topics."""
    rows = database.sinks.folders(topics)
    return [StreamFolders(**{**row, "shared_with": tuple(row["shared_with"])}) for row in rows]
