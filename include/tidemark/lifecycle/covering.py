"""Finds the manifests that a run stands for, also of other runs: it is green when all of them are published.

- A backfilled run stands for its interval: from where the interval before it ended to its own end.
- A scheduled run stands for what comes after the scheduled run before it: with ``catchup: false`` Airflow skips
  intervals, and what others have planned of them is in the run of no other interval.
- A run by hand up to a time stands for everything before that time: nobody has said where it begins.
- A run by hand without a time stands for what it plans; when that is nothing, for everything there is.
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


def begins(context: Context, kind: RunKind, since: datetime | None, chains: Sequence[Chain]) -> Begins | None:
    """Return where an interval begins in the log of each chain; None as an offset: it has no record of then or later.

    That is where the run before it ended, so that no offset is between two intervals. When no such run is planned yet,
    the source is asked: what that run then plans ends there or later. None without ``since``: the run has no begin.
    """
    if since is None:
        return None
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
    """Return where runs that ended at these offsets, by chain id, stop in a log; ``unseen`` if they have not seen
    it."""
    return min(
        [min(ended[generation.chain_id], generation.end) for generation in generations if generation.chain_id in ended],
        default=unseen,
    )


def covering_manifests(
    context: Context, planned: Plan, chains: Sequence[Chain], begin: Begins | None, *, by_time: bool
) -> list[int]:
    """The manifests of other runs that hold what a new run stands for; of a run by hand those that are not done.

    A run by hand that plans nothing also names those that hold its last offsets, so that a person sees what covers it.
    ``chains`` are those of the plan, also the new ones. Must be called before the ranges of the run are stored.
    """
    database = context.database
    if planned.slices and not by_time and begin is None:
        return []
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
    """The manifests that hold the offsets between two times, [start, end), as the source translates them.

    Raises ``DataLost`` when retention took offsets of them, and ``TopicChanged`` when the log was cut since some were
    made: the rest would not be the interval.
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
    damaged = database.manifests.between([part for at, *gone in taken for part in parts_of(logs[at], *gone)])
    if damaged:
        raise _lost(context, taken, damaged, sorted({*manifest_ids} - {*damaged}))
    _refuse_of_ended_generations(context, chains, parts, manifest_ids)
    return manifest_ids


def _refuse_of_ended_generations(
    context: Context, chains: Sequence[Chain], parts: Sequence[tuple[int, int, int]], manifest_ids: Sequence[int]
) -> None:
    """Raise ``TopicChanged`` when manifests of an interval were made in a generation of a log that has ended."""
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
    """The offsets between two times that retention has taken: (partition, from, up to).

    The source has forgotten when those were written, and the ends of runs say it: offsets below the end of a run that
    was planned up to ``start`` are older, those above the end of a run that was planned past ``end`` are newer.
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
        # Otherwise the first record that is left is older than the interval, and what is gone is older still.
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
    """The manifests of an interval that can still be replayed, as a part of a next step."""
    replays = [f"tidemark replay {context.pipeline_name} --manifest {manifest_id}" for manifest_id in whole[:LISTED]]
    return f", or replay only what is whole: {'; '.join(replays)}" if replays else ""
