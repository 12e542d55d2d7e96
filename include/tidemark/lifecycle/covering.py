"""What a run stands for, and which manifests of other runs hold it: a run is green when all of that is published.

- A backfilled run stands for its interval: from where the interval before it ended to its own end.
- A scheduled run stands for what comes after the scheduled run before it: with ``catchup: false`` Airflow skips
  intervals, and what others have planned of them is in the run of no other interval.
- A run by hand up to a time stands for everything before that time: nobody has said where it begins.
- A run by hand without a time stands for what it plans; when that is nothing, for everything there is.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from tidemark.errors import DataLost, IllegalTransition
from tidemark.lifecycle.context import Context
from tidemark.manifest import RunKind
from tidemark.offsets import Range, TopicPartition
from tidemark.planner import Chain, Plan

Begins = Mapping[TopicPartition, int | None]


def begins(context: Context, kind: RunKind, since: datetime | None, chains: Sequence[Chain]) -> Begins | None:
    """Where an interval begins on each chain; None as an offset: the chain has no record of then or later.

    That is where the run before it ended, so that no offset is between two intervals. When no such run is planned yet,
    the source is asked: what that run then plans ends there or later. None without ``since``: the run has no begin.
    """
    if since is None:
        return None
    database, pipeline_name = context.database, context.pipeline_name
    ended = database.ends_of_schedule(pipeline_name, since) if kind is RunKind.SCHEDULED else {}
    ended = ended or database.ends_of_cut(pipeline_name, since)
    if ended:
        return {chain.at: ended.get(chain.id, chain.anchor) for chain in chains}
    answers = context.source.offsets_at([chain.at for chain in chains], since)
    return {at: answer and answer[0] for at, answer in answers.items()}


def covering_manifests(
    context: Context, planned: Plan, ids: Mapping[TopicPartition, int], begin: Begins | None, *, by_time: bool
) -> list[int]:
    """The manifests of other runs that hold what a new run stands for; of a run by hand those that are not done.

    A run by hand that plans nothing also names those that hold its last offsets, so that a person sees what covers it.
    ``ids`` are the chains by partition. Must be called before the ranges of the run are stored.
    """
    database = context.database
    if begin is not None:
        parts = [(ids[at], begin.get(at, 0), end) for at, end in planned.ends]
        return database.manifests_between([(chain, start, end) for chain, start, end in parts if start is not None])
    if planned.slices and not by_time:
        return []
    ends = [(ids[at], end) for at, end in planned.ends]
    unpublished = database.unpublished_before(context.pipeline_name, ends)
    return unpublished if planned.slices else sorted({*unpublished, *database.covering_manifests(ends)})


def manifests_between(context: Context, chains: Sequence[Chain], start: datetime, end: datetime) -> list[int]:
    """The manifests that hold the offsets between two times, [start, end), as the source translates them.

    Raises ``DataLost`` when retention took offsets of them: the rest would not be the interval.
    """
    database, places = context.database, [chain.at for chain in chains]
    first, last = (context.source.offsets_at(places, moment) for moment in (start, end))
    parts = []
    for chain in chains:
        begin, stop = first[chain.at], last[chain.at]
        if begin is not None:
            parts.append((chain.id, begin[0], chain.end if stop is None else stop[0]))
    _refuse_archived(context, chains, parts)
    manifest_ids = database.manifests_between(parts)
    taken = _taken(context, chains, first, start, end)
    damaged = database.manifests_between([(chain.id, part.start, part.end) for chain, part in taken])
    if damaged:
        raise _lost(context, [part for _, part in taken], damaged, sorted({*manifest_ids} - {*damaged}))
    return manifest_ids


def _refuse_archived(context: Context, chains: Sequence[Chain], parts: Sequence[tuple[int, int, int]]) -> None:
    """Raise ``IllegalTransition`` when offsets of an interval are archived: the rest would not be the interval."""
    ends = context.database.archived_below([chain.id for chain in chains])
    names = {chain.id: chain.at for chain in chains}
    for chain_id, start, stop in parts:
        if start < min(stop, ends.get(chain_id, 0)):
            at = names[chain_id]
            raise IllegalTransition(
                f"offsets [{start}, {min(stop, ends[chain_id])}) of {at.name} are archived, and cannot be replayed",
                next_step=f"nothing is replayed; name a later time, from which on {at.name} is at {ends[chain_id]} or "
                f"later; which manifest has an offset: tidemark where {at.topic} {at.partition} {start}",
                pipeline=context.pipeline_name,
                topic=at.topic,
                partition=at.partition,
            )


def _taken(
    context: Context,
    chains: Sequence[Chain],
    first: Mapping[TopicPartition, tuple[int, datetime] | None],
    start: datetime,
    end: datetime,
) -> list[tuple[Chain, Range]]:
    """The offsets between two times that retention has taken.

    The source has forgotten when those were written, and the ends of runs say it: offsets below the end of a run that
    was planned up to ``start`` are older, those above the end of a run that was planned past ``end`` are newer.
    ``first`` is the source's answer for ``start``.
    """
    database, pipeline_name = context.database, context.pipeline_name
    bounds = context.source.bounds([chain.at for chain in chains])
    older, past = database.ends_before(pipeline_name, start), database.run_past(pipeline_name, end)
    newer = database.run_ends(past["id"]) if past else {}
    taken = []
    for chain in chains:
        log, answer = bounds[chain.at], first[chain.at]
        begin, stop = older.get(chain.id, chain.anchor), min(log.log_start, newer.get(chain.id, chain.end))
        # Otherwise the first record that is left is older than the interval, and what is gone is older still.
        reaches = log.log_start >= log.log_end if answer is None else answer[0] <= log.log_start
        if reaches and begin < stop:
            taken.append((chain, Range(chain.at, begin, stop)))
    return taken


def _lost(context: Context, taken: Sequence[Range], damaged: Sequence[int], whole: Sequence[int]) -> DataLost:
    offsets = ", ".join(f"[{part.start}, {part.end}) of {part.at.name}" for part in taken)
    rest = [f"tidemark replay {context.pipeline_name} --manifest {manifest_id}" for manifest_id in whole[:10]]
    return DataLost(
        f"retention took offsets {offsets}: manifests {', '.join(map(str, damaged))} were made from them and cannot be "
        "replayed",
        next_step="nothing is replayed, and what is published stays; bring the records back"
        + (f", or replay only what is whole: {'; '.join(rest)}" if rest else ""),
        pipeline=context.pipeline_name,
        topic=taken[0].at.topic,
        partition=taken[0].at.partition,
    )
