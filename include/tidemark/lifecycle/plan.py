"""The verb ``plan``: asks Kafka, lets the pure planner decide, and stores ranges in one transaction."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from tidemark import planner
from tidemark.database.client import ManifestDatabase
from tidemark.errors import CutConflict, PlanRefused
from tidemark.failpoints import failpoint
from tidemark.kafka.cluster import KafkaCluster, Watermarks
from tidemark.lifecycle.preflight import check_for_plan
from tidemark.manifest import RangeKind, RunKind
from tidemark.offsets import Range
from tidemark.pipeline.settings import Cut, Gaps, Pipeline
from tidemark.planner import Chain, Limits, PartitionState, Plan
from tidemark.sinks.base import Sink
from tidemark.sources.kafka.starting import starts

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
    """The pipeline has other chains than when Kafka was asked."""


def plan(
    pipeline: Pipeline,
    database: ManifestDatabase,
    cluster: KafkaCluster,
    sinks: Sequence[Sink],
    tick: Tick,
    *,
    dry_run: bool = False,
) -> PlannedRun:
    """Cut the chains up to the tick's moment; a key that was planned before is answered without asking Kafka.

    Raises ``PlanRefused`` and its kinds, ``LakeConflict``, ``Unavailable``; then nothing is stored but the refusal.
    """
    known = _known(pipeline, database, tick)
    if known is not None:
        return known
    _refuse_future(pipeline, tick, datetime.now(UTC))
    silent = check_for_plan(pipeline.name, database, sinks, dry_run=dry_run)
    first_plan = database.targets(pipeline.name) is None
    before_asking = _chains(pipeline, database)
    states = observe(pipeline, cluster, tick, before_asking, first_plan=first_plan)
    held_back = _held_back(cluster, states, datetime.now(UTC))
    try:
        with database.transaction():
            database.lock_planning(pipeline.name)
            known = _known(pipeline, database, tick)
            if known is not None:
                return known
            chains = _chains(pipeline, database)
            if {one.id for one in chains} != {one.id for one in before_asking}:
                raise _Overtaken
            planned = planner.plan(
                pipeline.name, states, chains, limits(pipeline, database),
                pipeline.source.kafka.on_data_loss, datetime.now(UTC),
                first_plan=first_plan and database.targets(pipeline.name) is None,
                ended=database.ended_chains(pipeline.name),
            )  # fmt: skip
            planned = replace(planned, notes=(*silent, *planned.notes, *held_back))
            if dry_run:
                return PlannedRun(
                    tick.run_key, (), (), planned.reached, planned.notes, dry_run=True, slices=planned.slices
                )
            run = _store(pipeline, database, sinks, tick, planned, chains)
            failpoint("plan.before_commit")
    except _Overtaken:  # a plan or a person began or ended chains since: Kafka was asked about others
        return plan(pipeline, database, cluster, sinks, tick, dry_run=dry_run)
    except planner.Refused as refused:
        if chains != before_asking:  # another planner went on since: this answer is older than the chain, ask again
            return plan(pipeline, database, cluster, sinks, tick, dry_run=dry_run)
        if not dry_run:
            for refusal in refused.refusals:
                database.block_chains([refusal.chain_id], refusal.reason, refusal.log_end)
        raise refused.cause from None
    failpoint("plan.after_commit")
    return run


def _chains(pipeline: Pipeline, database: ManifestDatabase) -> list[Chain]:
    """The chains of the topics the pipeline file names; one that it names no longer just rests."""
    return [chain for chain in database.chains(pipeline.name) if chain.at.topic in pipeline.source.kafka.topics]


def _known(pipeline: Pipeline, database: ManifestDatabase, tick: Tick) -> PlannedRun | None:
    row = database.find_run(pipeline.name, tick.run_key)
    if row is None:
        return None
    if tick.cut_at is not None and row["cut_at"] != tick.cut_at:
        raise CutConflict(
            f"run {tick.run_key} was planned up to {row['cut_at']}, now {tick.cut_at} is asked for",
            next_step="a run's cut never changes; use another run key",
            pipeline=pipeline.name,
        )
    return PlannedRun(
        tick.run_key, tuple(row["manifests"]), tuple(row["covered_by"]), row["reached"], tuple(row["notes"]), True
    )


def observe(
    pipeline: Pipeline, cluster: KafkaCluster, tick: Tick, chains: Sequence[Chain], *, first_plan: bool
) -> list[PartitionState]:
    """What Kafka says of every partition of the pipeline's topics, at ``read_committed``."""
    kafka = pipeline.source.kafka
    places, missing = cluster.partitions(kafka.topics)
    never_planned = [topic for topic in missing if all(chain.at.topic != topic for chain in chains)]
    if never_planned:
        raise cluster.missing_topic(never_planned[0], pipeline.name)
    if kafka.gaps is not Gaps.COMPACTED:
        _refuse_compacted(pipeline, cluster, sorted({place.topic for place in places}))
    marks = cluster.watermarks(places)
    start_offsets = starts(pipeline, cluster, marks) if first_plan else {}
    cuts = cluster.offsets_at(places, tick.cut_at) if tick.cut_at and kafka.cut is Cut.SCHEDULE else {}
    return [
        PartitionState(
            place,
            mark.log_start,
            mark.last_stable,
            mark.log_end,
            start_offset=start_offsets.get(place, mark.log_start),
            cut=cuts.get(place),
            by_time=tick.cut_at is not None and kafka.cut is Cut.SCHEDULE,
        )
        for place, mark in marks.items()
    ]


def _held_back(cluster: KafkaCluster, states: Sequence[PartitionState], now: datetime) -> tuple[str, ...]:
    """A line for each partition that would be read further if a transaction had ended."""
    capped = [one for one in states if one.cut is None or one.cut[0] > one.last_stable]
    found = cluster.open_transactions(
        {one.at: Watermarks(one.log_start, one.last_stable, one.log_end) for one in capped}
    )
    return tuple(one.described(now) for _, one in sorted(found.items()))


def between(
    pipeline: Pipeline, database: ManifestDatabase, cluster: KafkaCluster, start: datetime, end: datetime
) -> list[int]:
    """The manifests that hold records stamped in [start, end), as far as Kafka's answer for both moments tells."""
    chains = {chain.at: chain for chain in _chains(pipeline, database)}
    begins, ends = (cluster.offsets_at(list(chains), moment) for moment in (start, end))
    parts = []
    for at, chain in chains.items():
        begin, stop = begins[at], ends[at]
        if begin is not None:
            parts.append((chain.id, begin[0], chain.end if stop is None else stop[0]))
    return database.manifests_between(parts)


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


def _refuse_compacted(pipeline: Pipeline, cluster: KafkaCluster, topics: Sequence[str]) -> None:
    compacted = cluster.compacted(topics)
    if compacted:
        raise PlanRefused(
            f"topic {compacted[0]} is compacted: records vanish from it between a run and its replay",
            next_step="if that is meant, write gaps: compacted under source.kafka",
            pipeline=pipeline.name,
            topic=compacted[0],
        )


def limits(pipeline: Pipeline, database: ManifestDatabase) -> Limits:
    """How much one slice may hold, by the record size measured on earlier manifests."""
    one = pipeline.source.kafka.slice
    return Limits(one.max_records, one.max_bytes, one.max_slices, database.record_bytes(pipeline.name))


def _store(
    pipeline: Pipeline,
    database: ManifestDatabase,
    sinks: Sequence[Sink],
    tick: Tick,
    planned: Plan,
    chains: Sequence[Chain],
) -> PlannedRun:
    """Insert the run, the new chains with their anchors, lost ranges, manifests and their ranges."""
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
