"""Finds the manifests that a run stands for, also those of other runs: the run succeeds when all are published.

- A backfilled run stands for its interval: from the end of the interval before it to its own end.
- A scheduled run stands for everything after the scheduled run before it. With ``catchup: false`` Airflow skips
  intervals, and no other scheduled run stands for what other runs have planned of them.
- A run by hand up to a time stands for everything before that time, because it names no begin.
- A run by hand without a time stands for what it plans; if it plans nothing, for everything that there is.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from tidemark.errors import DataLost, TopicChanged
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.logs.generations import Generation, Logs, generations_of, parts_of, start_of
from tidemark.model.manifest import LISTED, ManifestState, RunKind, listed
from tidemark.model.offsets import TopicPartition
from tidemark.planner import Chain, Plan

Begins = Mapping[TopicPartition, int | None]


def begins(context: Context, kind: RunKind, since: datetime, chains: Sequence[Chain]) -> Begins:
    """Return the offset where an interval begins in the log of each chain; None for a log without records since then.

    An interval begins where the run before it ended, so that no offset lies between two intervals. If no such run is
    planned yet, ask the source: that run, planned later, will end there or later.
    """
    database, pipeline_name = context.database, context.pipeline_name
    ended = database.runs.ends_of_schedule(pipeline_name, since) if kind is RunKind.SCHEDULED else {}
    ended = ended or database.runs.ends_of_cut(pipeline_name, since)
    if ended:
        return {
            at: _after(ended, generations, start_of(generations))
            for at, generations in generations_of(database, chains).items()
        }
    answers = context.source.offsets_at([chain.at for chain in chains], since)
    return {at: answer and answer[0] for at, answer in answers.items()}


def _after(ended: Mapping[int, int], generations: Sequence[Generation], unseen: int) -> int:
    """Return the offset of a log at which runs stopped; ``unseen`` if they did not read that log. ``ended`` has their
    ends by chain id."""
    return min(
        [min(ended[generation.chain_id], generation.end) for generation in generations if generation.chain_id in ended],
        default=unseen,
    )


def covering_manifests(context: Context, planned: Plan, chains: Sequence[Chain], begin: Begins | None) -> list[int]:
    """Return the manifests of other runs that hold what a new run stands for; for a run by hand only unfinished ones.

    If a run by hand plans nothing, also return the manifests with its last offsets, so that you see what covers it.
    ``chains`` are those of the plan, also the new ones. Must be called before the ranges of the run are stored.
    """
    database = context.database
    logs = generations_of(database, chains)
    if begin is not None:
        starts = {chain.at: begin.get(chain.at, chain.anchor) for chain in chains}
        ends = [(at, starts[at], end) for at, end in planned.ends]
        between = [part for at, start, end in ends if start is not None for part in parts_of(logs[at], start, end)]
        return database.manifests.between(between)
    below = [part for at, end in planned.ends for part in parts_of(logs[at], 0, end)]
    unpublished = database.manifests.unpublished_before(
        context.pipeline_name, [(chain, end) for chain, _, end in below]
    )
    if planned.slices:
        return unpublished
    last = [max(parts_of(logs[at], 0, end), key=lambda part: part[2], default=None) for at, end in planned.ends]
    holding = database.manifests.covering([(chain, end) for chain, _, end in filter(None, last)])
    return sorted({*unpublished, *holding})


def manifests_between(context: Context, start: datetime, end: datetime) -> list[int]:
    """Return the manifests with the offsets between two times, [start, end), as the source translates times.

    Raises ``DataLost`` if retention removed offsets of the interval, and ``TopicChanged`` if some of the manifests were
    made before the log was cut: the rest would not be the whole interval.
    """
    database, chains = context.database, context.chains()
    places = [chain.at for chain in chains]
    first, last = (context.source.offsets_at(places, moment) for moment in (start, end))
    logs = generations_of(database, chains)
    parts = []
    for chain in chains:
        begin, stop = first[chain.at], last[chain.at]
        if begin is not None:
            parts += parts_of(logs[chain.at], begin[0], chain.end if stop is None else stop[0])
    manifest_ids = database.manifests.between(parts)
    taken = _taken(context, logs, first, start, end)
    damaged = database.manifests.between([part for at, *offsets in taken for part in parts_of(logs[at], *offsets)])
    if damaged:
        raise _lost(context, taken, damaged, sorted({*manifest_ids} - {*damaged}))
    _refuse_of_ended_generations(context, chains, parts, manifest_ids)
    return manifest_ids


def _refuse_of_ended_generations(
    context: Context, chains: Sequence[Chain], parts: Sequence[tuple[int, int, int]], manifest_ids: Sequence[int]
) -> None:
    """Raise ``TopicChanged`` if done manifests of an interval are of a log generation that has ended."""
    present = {chain.id for chain in chains}
    ended = context.database.manifests.between([part for part in parts if part[0] not in present])
    done = [each.id for each in context.database.manifests.find(ids=ended) if each.state is ManifestState.DONE]
    if done:
        raise TopicChanged(
            f"manifests {listed(done)} were made before their log was cut, and cannot be replayed",
            next_step="nothing is replayed, and what is published stays"
            + _or_only(context, sorted({*manifest_ids} - {*done})),
            manifest=done[0],
        )


def _taken(
    context: Context,
    logs: Logs,
    first: Mapping[TopicPartition, tuple[int, datetime] | None],
    start: datetime,
    end: datetime,
) -> list[tuple[TopicPartition, int, int]]:
    """Return the offsets between two times that retention has removed: (partition, from, up to).

    The source no longer knows when those were written, but the ends of runs tell it: offsets below the end of a run
    that was planned up to ``start`` are older, offsets above the end of a run that was planned past ``end`` are newer.
    ``first`` is the source's answer for ``start``.
    """
    database, pipeline_name = context.database, context.pipeline_name
    bounds = context.source.bounds(list(logs))
    older, past = database.runs.ends_before(pipeline_name, start), database.runs.past(pipeline_name, end)
    newer = database.runs.ends(past["id"]) if past else {}
    taken = []
    for at, generations in logs.items():
        log, answer = bounds[at], first[at]
        begin = _after(older, generations, start_of(generations))
        stop = min(log.log_start, _after(newer, generations, generations[0].end))
        # Otherwise the log still holds a record from before the interval, and what retention removed is older.
        reaches = log.log_start >= log.log_end if answer is None else answer[0] <= log.log_start
        if reaches and begin < stop:
            taken.append((at, begin, stop))
    return taken


def _lost(
    context: Context, taken: Sequence[tuple[TopicPartition, int, int]], damaged: Sequence[int], whole: Sequence[int]
) -> DataLost:
    offsets = ", ".join(f"[{start}, {end}) of {at.name}" for at, start, end in taken)
    return DataLost(
        f"retention took offsets {offsets}: manifests {', '.join(map(str, damaged))} were made from them and cannot be "
        "replayed",
        next_step="nothing is replayed, and what is published stays; bring the records back" + _or_only(context, whole),
        **taken[0][0].context,
    )


def _or_only(context: Context, whole: Sequence[int]) -> str:
    """Return the end of a next step: the replays that are still possible. Empty if there are none."""
    replays = [f"tidemark replay {context.pipeline_name} --manifest {manifest_id}" for manifest_id in whole[:LISTED]]
    return f", or replay only what is whole: {'; '.join(replays)}" if replays else ""
