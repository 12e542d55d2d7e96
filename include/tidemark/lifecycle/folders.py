"""Refuses a pipeline that would write a topic into folders of another one, unless a pipeline file allows that."""

from collections.abc import Sequence

from tidemark.database.client import ManifestDatabase
from tidemark.errors import PlanRefused
from tidemark.lifecycle.context import Context
from tidemark.pipeline.folders import StreamFolders, meetings, remedy, stream_folders, what_is_wrong


def claim_folders(context: Context, topics: Sequence[str], *, dry_run: bool) -> None:
    """Store the folders of the planned topics. Raises ``PlanRefused`` if a sink cannot make a folder of a topic, and if
    another pipeline writes the topic to the same folder.

    Must be called in the transaction that plans. Stored folders stay when the pipeline file changes, because their
    files stay too.
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
        database.sinks.lock_folders()  # serializes two pipelines that plan at the same time
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
    """Return the folders to which planned pipelines write these topics."""
    rows = database.sinks.folders(topics)
    return [StreamFolders(**{**row, "shared_with": tuple(row["shared_with"])}) for row in rows]
