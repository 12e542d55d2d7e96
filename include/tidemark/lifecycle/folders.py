"""Refuses a pipeline that would write a topic into folders of another pipeline, unless a file says that it may."""

from tidemark.errors import PlanRefused
from tidemark.lifecycle.context import Context
from tidemark.pipeline.folders import StreamFolders, meetings, remedy, stream_folders, what_is_wrong


def claim_folders(context: Context, *, dry_run: bool) -> None:
    """Store the folders of the pipeline's topics; raises ``PlanRefused`` when another pipeline has one of them.

    Must be called in the transaction that plans. What was stored is kept when the file changes, as the files are.
    """
    database, own = context.database, stream_folders(context.pipeline)
    new = [folders for folders in own if folders not in _stored(context)]
    if new and not dry_run:
        database.lock_folders()  # of two pipelines that come at once the second sees the first
    for mine, other in meetings(own, _stored(context)):
        raise PlanRefused(
            what_is_wrong(mine, other),
            next_step=f"nothing was planned; {remedy(other)}",
            pipeline=context.pipeline_name,
            sink=mine.sink,
            topic=mine.topic,
        )
    if not dry_run:
        database.remember_folders([vars(folders) for folders in new])


def _stored(context: Context) -> list[StreamFolders]:
    rows = context.database.stream_folders(context.pipeline.source.topics)
    return [StreamFolders(**{**row, "shared_with": tuple(row["shared_with"])}) for row in rows]
