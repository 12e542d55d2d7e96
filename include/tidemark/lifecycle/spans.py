"""Cuts slices by time: at the first record of each ``max_span`` of the source's timestamps, counted from 1970 in
UTC, so that two plans cut at the same offsets.

Timestamps may be in any order. So this is a hint where to cut, and no promise about the records of a slice.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from tidemark.lifecycle.context import Context
from tidemark.model.offsets import TopicPartition
from tidemark.model.partitions import EPOCH
from tidemark.planner import Chain, PartitionState, SpanStarts

ASKED = 2_000  # a plan asks for at most so many times; an answer takes some milliseconds
LATEST = datetime(8965, 1, 1, tzinfo=UTC)  # a record stamped later, by a broken clock, is no reason to cut


def span_starts(
    context: Context,
    states: Sequence[PartitionState],
    chains: Sequence[Chain],
    max_span: timedelta,
    *,
    first_plan: bool,
) -> SpanStarts:
    """Return the offsets at which slices are cut by time, for at most ``max_slices`` slices."""
    # Take the unread part of each partition, and begin with the oldest of their first timestamps.
    planned = {chain.at: chain.end for chain in chains}
    unread: dict[TopicPartition, int] = {}
    for state in states:
        start = planned.get(state.at, state.start_offset if first_plan else 0)
        if (start := max(start, state.log_start)) < state.last_stable:
            unread[state.at] = start
    ends = {state.at: min(state.last_stable, state.cut[0] if state.cut else state.last_stable) for state in states}
    first = context.source.records_from(unread.items())
    stamps = [record.stamped_at for record in first.values() if record is not None]
    times = [stamp for stamp in stamps if stamp is not None and stamp < LATEST]
    if not times:
        return SpanStarts()
    # Step from span to span. Skip spans without records: the next step starts at the earliest record found.
    offsets: list[Mapping[TopicPartition, int]] = []
    slices, when = 0, _next(min(times), max_span)
    for _ in range(ASKED):
        answers = context.source.offsets_at(list(unread), when)
        later = {at: answer for at, answer in answers.items() if answer is not None and answer[0] < ends[at]}
        if not later:
            return SpanStarts(tuple(offsets))
        start_of_span = {at: max(unread[at], later[at][0] if at in later else ends[at]) for at in unread}
        slices += any(start_of_span[at] > (offsets[-1] if offsets else unread)[at] for at in unread)
        offsets.append(start_of_span)
        if slices >= context.pipeline.source.slice.max_slices:
            break
        earliest = min(moment for _, moment in later.values())
        if earliest >= LATEST:
            return SpanStarts(tuple(offsets))
        when = _next(earliest, max_span)
    return SpanStarts(tuple(offsets), complete=False)


def _next(moment: datetime, span: timedelta) -> datetime:
    """Return the end of the span that a moment is in."""
    return EPOCH + ((moment - EPOCH) // span + 1) * span
