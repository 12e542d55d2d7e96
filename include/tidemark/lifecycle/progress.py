"""Reports to the source's own tools up to where all is published. Tidemark itself never reads that again."""

from tidemark.errors import TidemarkError
from tidemark.lifecycle.context import Context
from tidemark.model.offsets import TopicPartition


def report_progress(context: Context) -> str | None:
    """Tell the source, where the pipeline file asks for it; what to say when that failed, since no manifest depends
    on it."""
    if not context.source.reports_progress:
        return None
    reported: dict[TopicPartition, int] | None = None
    try:
        names = context.database.pipelines.former_names(context.pipeline_name)
        former = [row["name"] for row in names if row["pipeline"] == context.pipeline_name]
        database_id = context.database.id()
        # Of two that tell at once, the last asks again, and has then told what is newest.
        while (now := published_ends(context)) != reported:
            context.source.report_progress(now, database_id, former)
            reported = now
    except TidemarkError as error:
        return f"the source is not told how far all is published: {error.what}; {error.next_step}"
    return None


def published_ends(context: Context) -> dict[TopicPartition, int]:
    """For each partition that is planned: the first offset that is neither published nor given up, in any generation of
    its log; at most where the log is known to have been cut."""
    database, name = context.database, context.pipeline_name
    chains = database.chains.of_pipeline(name)  # before what is undone, which may grow meanwhile
    ends = {chain.at: min(chain.end, chain.end if chain.blocked_end is None else chain.blocked_end) for chain in chains}
    for _, covered, _, generation_end in database.ranges.undone(name):
        if covered.at in ends and (generation_end is None or covered.start < generation_end):
            ends[covered.at] = min(ends[covered.at], covered.start)
    return ends
