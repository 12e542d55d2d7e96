"""The verb ``plan``: asks the source, lets the pure planner decide, and stores ranges in one transaction."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from tidemark import planner
from tidemark.errors import CutConflict, PlanRefused
from tidemark.failpoints import failpoint
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.preflight import check_for_plan
from tidemark.manifest import RangeKind, RunKind
from tidemark.offsets import Range
from tidemark.partitions import Bounds
from tidemark.pipeline.settings import Pipeline
from tidemark.planner import Chain, Limits, PartitionState, Plan
from tidemark.sources.settings import Cut, Gaps

AHEAD = timedelta(minutes=5)  # how far the clock that asks for a plan may be ahead of this one


@dataclass(frozen=True)
class Tick:
    """What asks for a plan: its run key, its kind, and the moment to read up to (aware; None = all there is now)."""

    run_key: str
    kind: RunKind
    cut_at: datetime | None

    @classmethod
    def at(cls, cut_at: datetime, kind: RunKind) -> "Tick":
        """A tick with a logical date: its cut in UTC is its key."""
        return cls(cut_at.astimezone(UTC).isoformat(), kind, cut_at.astimezone(UTC))


@dataclass(frozen=True)
class PlannedRun:
    """A stored run, or with ``dry_run`` what would be stored; ``repeated`` when the key was planned before."""

    run_key: str
    manifests: tuple[int, ...]
    covered_by: tuple[int, ...]
    reached: bool
    notes: tuple[str, ...]
    repeated: bool = False
    dry_run: bool = False
    slices: tuple[tuple[Range, ...], ...] = ()


class _Overtaken(Exception):
    """The pipeline has other chains than when the source was asked."""


def plan(context: Context, tick: Tick, *, dry_run: bool = False) -> PlannedRun:
    """Cut the chains up to the tick's moment; a key that was planned before is answered without asking the source.

    Raises ``PlanRefused`` and its kinds, ``LakeConflict``, ``Unavailable``; then nothing is stored but the refusal.
    """
    pipeline, database = context.pipeline, context.database
    known = _known(context, tick)
    if known is not None:
        return known
    _refuse_future(pipeline, tick, datetime.now(UTC))
    silent = check_for_plan(context, dry_run=dry_run)
    first_plan = database.targets(pipeline.name) is None
    before_asking = _chains(context)
    states = observe(context, tick, before_asking, first_plan=first_plan)
    held_back = _held_back(context, states, datetime.now(UTC))
    try:
        with database.transaction():
            database.lock_planning(pipeline.name)
            known = _known(context, tick)
            if known is not None:
                return known
            chains = _chains(context)
            if {one.id for one in chains} != {one.id for one in before_asking}:
                raise _Overtaken
            planned = planner.plan(
                pipeline.name, states, chains, limits(context),
                pipeline.source.on_data_loss, datetime.now(UTC),
                first_plan=first_plan and database.targets(pipeline.name) is None,
                ended=database.ended_chains(pipeline.name),
            )  # fmt: skip
            planned = replace(planned, notes=(*silent, *planned.notes, *held_back))
            if dry_run:
                return PlannedRun(
                    tick.run_key, (), (), planned.reached, planned.notes, dry_run=True, slices=planned.slices
                )
            run = _store(context, tick, planned, chains)
            failpoint("plan.before_commit")
    except _Overtaken:  # a plan or a person began or ended chains since: the source was asked about others
        return plan(context, tick, dry_run=dry_run)
    except planner.Refused as refused:
        if chains != before_asking:  # another planner went on since: this answer is older than the chain, ask again
            return plan(context, tick, dry_run=dry_run)
        if not dry_run:
            for refusal in refused.refusals:
                database.block_chains([refusal.chain_id], refusal.reason, refusal.log_end)
        raise refused.cause from None
    failpoint("plan.after_commit")
    return run


def _chains(context: Context) -> list[Chain]:
    """The chains of the topics the pipeline file names; one that it names no longer just rests."""
    return [
        chain
        for chain in context.database.chains(context.pipeline_name)
        if chain.at.topic in context.pipeline.source.topics
    ]


def _known(context: Context, tick: Tick) -> PlannedRun | None:
    row = context.database.find_run(context.pipeline_name, tick.run_key)
    if row is None:
        return None
    if tick.cut_at is not None and row["cut_at"] != tick.cut_at:
        raise CutConflict(
            f"run {tick.run_key} was planned up to {row['cut_at']}, now {tick.cut_at} is asked for",
            next_step="a run's cut never changes; use another run key",
            pipeline=context.pipeline_name,
        )
    return PlannedRun(
        tick.run_key, tuple(row["manifests"]), tuple(row["covered_by"]), row["reached"], tuple(row["notes"]), True
    )


def observe(context: Context, tick: Tick, chains: Sequence[Chain], *, first_plan: bool) -> list[PartitionState]:
    """What the source says of every partition of the pipeline's topics, committed records only."""
    source, settings = context.source, context.pipeline.source
    places, missing = source.partitions(settings.topics)
    never_planned = [topic for topic in missing if all(chain.at.topic != topic for chain in chains)]
    if never_planned:
        raise source.missing_topic(never_planned[0])
    if settings.gaps is not Gaps.COMPACTED:
        _refuse_compacted(context, sorted({place.topic for place in places}))
    bounds = source.bounds(places)
    starts = source.starting_offsets(bounds) if first_plan else {}
    by_time = tick.cut_at is not None and settings.cut is Cut.SCHEDULE
    cuts = source.offsets_at(places, tick.cut_at) if tick.cut_at and by_time else {}
    return [
        PartitionState(
            place,
            held.log_start,
            held.last_stable,
            held.log_end,
            start_offset=starts.get(place, held.log_start),
            cut=cuts.get(place),
            by_time=by_time,
        )
        for place, held in bounds.items()
    ]


def _held_back(context: Context, states: Sequence[PartitionState], now: datetime) -> tuple[str, ...]:
    """A line for each partition that would be read further if a transaction had ended."""
    capped = [state for state in states if state.cut is None or state.cut[0] > state.last_stable]
    transactions = context.source.open_transactions(
        {state.at: Bounds(state.log_start, state.last_stable, state.log_end) for state in capped}
    )
    return tuple(transaction.described(now) for _, transaction in sorted(transactions.items()))


def manifests_between(context: Context, start: datetime, end: datetime) -> list[int]:
    """The manifests that hold records stamped in [start, end), as far as the source's answer for both moments tells."""
    chains = {chain.at: chain for chain in _chains(context)}
    begins, ends = (context.source.offsets_at(list(chains), moment) for moment in (start, end))
    parts = []
    for at, chain in chains.items():
        begin, stop = begins[at], ends[at]
        if begin is not None:
            parts.append((chain.id, begin[0], chain.end if stop is None else stop[0]))
    return context.database.manifests_between(parts)


def _refuse_before_anchors(pipeline: Pipeline, planned: Plan, chains: Sequence[Chain]) -> None:
    """A backfill of a time from before the pipeline began would pass and have done nothing."""
    anchors = {chain.at: chain.anchor for chain in chains}
    before = [at for at, end in planned.ends if end < anchors.get(at, 0)]
    if before:
        raise PlanRefused(
            f"the backfill ends before offset {anchors[before[0]]}, where this pipeline's chain begins",
            next_step=f"to read what is older: tidemark extend-back {pipeline.name} --why TEXT",
            pipeline=pipeline.name,
            topic=before[0].topic,
            partition=before[0].partition,
        )


def _refuse_future(pipeline: Pipeline, tick: Tick, now: datetime) -> None:
    """A cut that has not come would end at what there is now, under the key of the run that comes then."""
    if tick.cut_at is not None and tick.cut_at > now + AHEAD:
        raise PlanRefused(
            f"the run is to read up to {tick.cut_at.isoformat()}, and it is {now.isoformat(timespec='seconds')} now",
            next_step="nothing was planned; give a moment that has passed, or none to read all there is",
            pipeline=pipeline.name,
        )


def _refuse_compacted(context: Context, topics: Sequence[str]) -> None:
    compacted = context.source.compacted(topics)
    if compacted:
        raise PlanRefused(
            f"topic {compacted[0]} is compacted: records vanish from it between a run and its replay",
            next_step=f"if that is meant, write gaps: compacted under source.{context.pipeline.source.kind}",
            pipeline=context.pipeline_name,
            topic=compacted[0],
        )


def limits(context: Context) -> Limits:
    """How much one slice may hold, by the record size measured on earlier manifests."""
    wanted = context.pipeline.source.slice
    measured = context.database.record_bytes(context.pipeline_name)
    return Limits(wanted.max_records, wanted.max_bytes, wanted.max_slices, measured)


def _store(context: Context, tick: Tick, planned: Plan, chains: Sequence[Chain]) -> PlannedRun:
    """Insert the run, the new chains with their anchors, lost ranges, manifests and their ranges."""
    pipeline, database, sinks = context.pipeline, context.database, context.sinks
    name = pipeline.name
    database.remember_pipeline(name, {sink.name: sink.target for sink in sinks})
    ids = {chain.at: chain.id for chain in chains}
    ids |= database.insert_chains(name, [place for place, _ in planned.anchors])
    database.insert_ranges(RangeKind.ANCHOR, [(ids[place], None, offset, None) for place, offset in planned.anchors])
    database.insert_ranges(RangeKind.LOST, [(ids[one.at], one.start, one.end, None) for one in planned.lost])
    covered_by = () if planned.slices else database.covering_manifests([(ids[at], end) for at, end in planned.ends])
    if tick.kind is RunKind.BACKFILL and not planned.slices and not covered_by:
        _refuse_before_anchors(pipeline, planned, chains)
    run_id = database.insert_run(
        name, tick.run_key, tick.kind, cut_at=tick.cut_at, reached=planned.reached,
        covered_by=list(covered_by), notes=list(planned.notes),
    )  # fmt: skip
    manifests = database.insert_manifests(run_id, name, len(planned.slices))
    database.insert_ranges(
        RangeKind.DATA,
        [
            (ids[one.at], one.start, one.end, manifest)
            for manifest, ranges in zip(manifests, planned.slices, strict=True)
            for one in ranges
        ],
    )
    return PlannedRun(
        tick.run_key, tuple(manifests), tuple(covered_by), planned.reached, planned.notes, slices=planned.slices
    )
