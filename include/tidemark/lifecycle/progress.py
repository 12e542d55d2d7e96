"""Reports the published offsets to the source's own tools, such as a consumer group. Tidemark never reads them back."""

from tidemark.errors import TidemarkError
from tidemark.lifecycle.context import Context
from tidemark.model.offsets import TopicPartition


def report_progress(context: Context) -> str | None:
    """Report the published offsets to the source, if the pipeline file asks for it. Return a note if that failed; it
    is no error, because no manifest depends on it."""
    if not context.source.reports_progress:
        return None
    reported: dict[TopicPartition, int] | None = None
    try:
        names = context.database.pipelines.former_names(context.pipeline_name)
        former = [row["name"] for row in names if row["pipeline"] == context.pipeline_name]
        database_id = context.database.id()
        # If two processes report at once, the last one asks again, so the newest offsets are reported.
        while (now := published_ends(context)) != reported:
            context.source.report_progress(now, database_id, former)
            reported = now
    except TidemarkError as error:
        return f"the published offsets could not be reported to the source: {error.what}; {error.next_step}"
    return None


def published_ends(context: Context) -> dict[TopicPartition, int]:
    """Return by partition the first offset that is neither published nor given up, in any generation of its log; at
    most the offset where the log is known to have been cut."""
    database, name = context.database, context.pipeline_name
    chains = database.chains.of_pipeline(name)  # read before the unfinished ranges, which may grow meanwhile
    ends = {chain.at: min(chain.end, chain.end if chain.blocked_end is None else chain.blocked_end) for chain in chains}
    for _, covered, _, generation_end in database.ranges.undone(name):
        if covered.at in ends and (generation_end is None or covered.start < generation_end):
            ends[covered.at] = min(ends[covered.at], covered.start)
    return ends
