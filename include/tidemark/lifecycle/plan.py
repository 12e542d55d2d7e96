"""Plans a run: asks the source, calls the pure planner, and stores the ranges in one transaction."""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from tidemark import planner
from tidemark.connections.kept import keep_clients
from tidemark.errors import CutConflict, PlanRefused, Unavailable
from tidemark.failpoints import failpoint
from tidemark.lifecycle import covering, spans
from tidemark.lifecycle.context import Context, refuse_out_of_use
from tidemark.lifecycle.covering import Begins
from tidemark.lifecycle.failed_tasks import Task, begun
from tidemark.lifecycle.folders import claim_folders
from tidemark.lifecycle.gone_rows import refuse_gone_rows
from tidemark.lifecycle.known_sinks import not_in_file, remember_sinks
from tidemark.lifecycle.logs import divergence
from tidemark.lifecycle.logs.generations import generations_of, start_of
from tidemark.lifecycle.own_output import refuse_own_output
from tidemark.lifecycle.preflight import OF_ONE_SINK, check_for_plan
from tidemark.lifecycle.renamed import refuse_looks_renamed
from tidemark.model.json_values import INLINE
from tidemark.model.manifest import Manifest, RangeKind, RunKind
from tidemark.model.offsets import Range, TopicPartition
from tidemark.model.partitions import Bounds, OpenTransaction
from tidemark.pipeline.decoded_topics import refuse_undecoded
from tidemark.planner import Chain, Limits, PartitionState, Plan
from tidemark.sinks.capabilities import WritesTopics
from tidemark.sources.settings import Cut, Gaps
from tidemark.times.moments import with_zone

TRIES = 5  # to ask about topics that are deleted or created again meanwhile
AHEAD = timedelta(minutes=5)  # the clock of the caller may be ahead of the database's by so much
LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tick:
    """A request to plan: run key, kind, and the time to read up to (aware; None: up to what there is now).

    ``since`` is the begin of the interval that the run stands for; None without an interval, such as by hand.
    """

    run_key: str
    kind: RunKind
    cut_at: datetime | None
    since: datetime | None = None

    @property
    def is_like_the_next(self) -> bool:
        """Return whether the same obstacle will stop the next run too; false for a backfill, and for a run by hand up
        to a time."""
        return self.kind is RunKind.SCHEDULED or (self.kind is RunKind.MANUAL and self.cut_at is None)

    @classmethod
    def at(cls, cut_at: datetime, kind: RunKind) -> "Tick":
        """Return a tick with a logical date: the cut in UTC is also the run key."""
        return cls(cut_at.astimezone(UTC).isoformat(), kind, cut_at.astimezone(UTC))

    @classmethod
    def by_hand(cls, cut_at: datetime | None, run_key: str | None) -> "Tick":
        """Return the tick of a run by hand. A cut without a zone is UTC; without a run key, the cut is the key."""
        cut = cut_at and with_zone(cut_at).astimezone(UTC)
        if cut is not None and run_key is None:
            return cls.at(cut, RunKind.MANUAL)
        return cls(run_key or f"manual__{datetime.now(UTC).isoformat()}", RunKind.MANUAL, cut)


@dataclass(frozen=True, order=True)
class End:
    """The end of a run in one partition: the first ``offset`` that it does not read."""

    at: TopicPartition = field(metadata=INLINE)
    offset: int


@dataclass(frozen=True)
class PlannedRun:
    """A run that was planned, or with ``dry_run`` would be.

    It is done when ``manifests``, which are new, and ``covered_by``, older ones with the rest of its records, are
    published. ``reached``: no record before its cut is left unplanned. ``repeated``: the run key was planned before,
    and ``slices`` is empty. ``not_done`` are unfinished manifests of earlier runs without a live attempt; ``notes``
    describe them. ``ends`` has the run's end offset in each partition.
    """

    run_key: str
    manifests: tuple[int, ...]
    covered_by: tuple[int, ...]
    reached: bool
    notes: tuple[str, ...]
    repeated: bool = False
    dry_run: bool = False
    slices: tuple[tuple[Range, ...], ...] = ()
    ends: tuple[End, ...] = ()
    not_done: tuple[int, ...] = ()

    def with_unfinished(self, older: Sequence[Manifest], lines: Sequence[str]) -> "PlannedRun":
        """Return the run with unfinished manifests of earlier runs; ``lines`` describe them, after its own notes."""
        return replace(self, notes=(*self.notes, *lines), not_done=tuple(manifest.id for manifest in older))


class _Overtaken(Exception):
    """The chains of the pipeline have changed since the source was asked."""


@keep_clients()
def plan(context: Context, tick: Tick, *, dry_run: bool = False) -> PlannedRun:
    """Plan all chains up to the tick's time; for a run key that was planned before, return the stored run.

    If the database's clock has not reached the cut, wait for it, at most ``AHEAD``: records that arrive until then
    belong to the run. Raises ``PlanRefused`` or a subclass, ``LakeConflict``, ``Unavailable``; then only the refusal is
    stored.
    """
    known = _known(context, tick)
    if known is not None:
        return known
    if dry_run:
        return _plan(context, tick, dry_run=True)
    note_of_failure = begun(context.database, context.pipeline_name, Task.PLAN, tick.run_key)
    with note_of_failure if tick.is_like_the_next else nullcontext():
        return _plan(context, tick, dry_run=False)


def _plan(context: Context, tick: Tick, *, dry_run: bool) -> PlannedRun:
    """Ask the source and store the plan. Ask again if another plan or a decision has changed the chains meanwhile."""
    while True:
        _await_cut(context, tick)
        asked = _ask(context, tick, dry_run=dry_run)
        with suppress(_Overtaken):
            return _plan_from(context, tick, asked, dry_run=dry_run)


@dataclass(frozen=True)
class _Asked:
    """The answers of the source and the database that one plan is made from, read before it takes the planner lock.

    ``chains`` are those that were known before the source was asked; ``ended`` those that a decision has ended.
    """

    at: datetime
    first_plan: bool
    chains: Sequence[Chain]
    ended: Sequence[Chain]
    states: Sequence[PartitionState]
    seen: AbstractSet[TopicPartition]
    clusters: tuple[str | None, str | None]
    span_starts: planner.SpanStarts
    begin: Begins | None
    notes: tuple[str, ...]
    last_notes: tuple[str, ...]  # these follow the notes of the planner


def _ask(context: Context, tick: Tick, *, dry_run: bool) -> _Asked:
    pipeline, database = context.pipeline, context.database
    first_plan = not database.pipelines.is_planned(pipeline.name)
    if first_plan:
        refuse_looks_renamed(pipeline, database)
    refuse_gone_rows(database, pipeline.name)
    notes = [*check_for_plan(context, dry_run=dry_run), *not_in_file(pipeline, database)]
    chains = context.chains()
    if not dry_run:
        context.source.name_topics({chain.at.topic for chain in chains})
    asked_at = database.now()

    # Ask where the logs begin and end, and whether they still hold the records that were published.
    logs = divergence.CheckedLogs(observe(context, tick, chains, first_plan=first_plan))
    ended = _ended(context, chains)
    if not any(chain.blocked for chain in chains):  # else the plan is refused in any case
        logs = divergence.checked_logs(context, [*chains, *ended], logs.states)
    states = logs.states
    seen = {state.at for state in states}
    clusters = _clusters(context, {chain.at for chain in chains}, seen)

    # Topics that this pipeline itself writes, or cannot decode, are refused before anything is stored.
    for output in [sink.output for sink in context.sinks if isinstance(sink.output, WritesTopics)]:
        with suppress(*OF_ONE_SINK):
            refuse_own_output(output, seen)
    refuse_undecoded(pipeline, sorted({at.topic for at in seen}))

    max_span, span_starts = pipeline.source.slice.max_span, planner.SpanStarts()
    if max_span is not None:
        span_starts = spans.span_starts(context, states, chains, max_span, first_plan=first_plan)
    begin = None
    if tick.since is not None:
        begin = covering.begins(context, tick.kind, tick.since, [chain for chain in chains if chain.at in seen])
    transactions = _open_transactions(context, states, asked_at)
    held_back = tuple(transaction.described(asked_at) for _, transaction in sorted(transactions.items()))
    return _Asked(
        asked_at, first_plan, chains, ended, states, seen, clusters, span_starts, begin, tuple(notes),
        (*logs.notes, *held_back),
    )  # fmt: skip


def _plan_from(context: Context, tick: Tick, asked: _Asked, *, dry_run: bool) -> PlannedRun:
    """Turn the answers into ranges, and store them in one transaction.

    Raises ``_Overtaken`` if the chains have changed since the answers were read; then nothing is stored.
    """
    pipeline, database = context.pipeline, context.database
    chains = asked.chains
    try:
        with database.transaction():
            # From here on no other plan of this pipeline can change anything. Check again what was asked without the
            # lock: the run key, whether the pipeline is in use, and the chains.
            database.runs.lock_planning(pipeline.name)
            refuse_out_of_use(pipeline.name, database)
            known = _known(context, tick)
            if known is not None:
                return known
            claim_folders(context, sorted({at.topic for at in asked.seen}), dry_run=dry_run)
            chains = context.chains()
            if {chain.id for chain in chains} != {chain.id for chain in asked.chains}:
                raise _Overtaken

            planned = planner.plan(
                pipeline.name, asked.states, chains, limits(context),
                pipeline.source.on_data_loss, database.now(),
                first_plan=asked.first_plan and not database.pipelines.is_planned(pipeline.name),
                ended={chain.at: chain.end for chain in asked.ended}, span_starts=asked.span_starts,
                clusters=asked.clusters,
            )  # fmt: skip
            planned = replace(planned, notes=(*asked.notes, *planned.notes, *asked.last_notes))
            if dry_run:
                return _planned_run(tick, planned, dry_run=True)
            stands_for = tick.cut_at if _ends_by_time(context, tick) else asked.at
            known_up_to = stands_for if planned.reached and planned.seen else None
            run = _store(context, tick, planned, chains, asked, planned_up_to=known_up_to)
            database.pipelines.remember_cluster(pipeline.name, asked.clusters[1])
            failpoint("plan.before_commit")
    except planner.Refused as refused:
        if chains != asked.chains:  # another planner extended a chain since: the source's answer is older
            raise _Overtaken from None
        if not dry_run:
            for refusal in refused.refusals:
                database.chains.block([refusal.chain_id], refusal.reason, refusal.generation_end)
        raise refused.cause from None
    failpoint("plan.after_commit")
    return run


def _clusters(
    context: Context, planned: AbstractSet[TopicPartition], seen: AbstractSet[TopicPartition]
) -> tuple[str | None, str | None]:
    """Return the id of the cluster that was planned on, and of the one that is asked now. The source is asked for its
    id only if none is stored, or if a planned partition is missing."""
    planned_on = context.database.pipelines.cluster(context.pipeline_name)
    return planned_on, planned_on if planned_on is not None and planned <= seen else context.source.cluster_id()


def _ended(context: Context, chains: Sequence[Chain]) -> list[Chain]:
    """Return the chains that a decision has ended, of partitions that have no other chain: the topic may be back with
    its old id."""
    places = {chain.at for chain in chains}
    return [chain for chain in context.database.chains.ended(context.pipeline_name) if chain.at not in places]


def _planned_run(
    tick: Tick, planned: Plan, manifests: Sequence[int] = (), covered_by: Sequence[int] = (), *, dry_run: bool = False
) -> PlannedRun:
    return PlannedRun(
        tick.run_key, tuple(manifests), tuple(covered_by), planned.reached, planned.notes, dry_run=dry_run,
        slices=planned.slices, ends=_ends(planned.ends),
    )  # fmt: skip


def _ends(ends: Iterable[tuple[TopicPartition, int]]) -> tuple[End, ...]:
    return tuple(sorted(End(at, offset) for at, offset in ends))


def nothing_new(run: PlannedRun) -> str:
    """Return where a run without manifests ends, as a sentence: ``nothing new up to offset 120 of flights-0, ..``."""
    shown = ", ".join(f"{end.offset} of {end.at.name}" for end in run.ends[:8])
    more = f" and {len(run.ends) - 8} more partitions" if len(run.ends) > 8 else ""
    return f"nothing new up to offset {shown}{more}{covered(run)}"


def covered(run: PlannedRun) -> str:
    """Return the words that name the older manifests that hold a part of a run; empty if there are none."""
    return f"; covered by manifests {', '.join(map(str, run.covered_by))}" if run.covered_by else ""


def _known(context: Context, tick: Tick) -> PlannedRun | None:
    """Return the run of this key as it was stored, or None. Forgets that a plan failed after it had stored the run."""
    row = context.database.runs.find(context.pipeline_name, tick.run_key)
    if row is None:
        return None
    context.database.tasks.forget_failed_plan_of(context.pipeline_name, tick.run_key)
    if tick.cut_at is not None and row["cut_at"] != tick.cut_at:
        raise CutConflict(
            f"run {tick.run_key} was planned up to {row['cut_at']} before, and now up to {tick.cut_at}",
            next_step="a run's cut never changes; use another run key",
        )
    return PlannedRun(
        tick.run_key, tuple(row["manifests"]), tuple(row["covered_by"]), row["reached"], tuple(row["notes"]), True,
        ends=_ends(context.database.runs.places_of_ends(row["id"])),
    )  # fmt: skip


def observe(context: Context, tick: Tick, chains: Sequence[Chain], *, first_plan: bool) -> list[PartitionState]:
    """Return the state of every partition of the pipeline's topics in the source; committed records only.

    Offsets are asked by topic name. So the topic's id is asked before and after: if it is the same, the whole answer is
    about one topic.
    """
    source, planned = context.source, sorted({chain.at.topic for chain in chains})
    for _ in range(TRIES):
        states = _answers(context, tick, planned, first_plan=first_plan)
        now, _ = source.partitions(source.selected(*planned))
        if {state.at for state in states} <= {*now}:
            return states
    raise Unavailable(
        f"topics were created again or deleted {TRIES} times while {source.title} was asked about them",
        next_step="nothing was planned; find the program that deletes or creates topics again, then plan again",
    )


def _answers(context: Context, tick: Tick, planned: Sequence[str], *, first_plan: bool) -> list[PartitionState]:
    source, settings = context.source, context.pipeline.source
    places, missing = source.partitions(source.selected(*planned))
    never_planned = [topic for topic in missing if topic not in planned and topic in settings.topics]
    if never_planned:
        raise source.missing_topic(never_planned[0])
    if settings.gaps is not Gaps.COMPACTED:
        _refuse_compacted(context, sorted({place.topic for place in places}))
    bounds = source.bounds(places)
    starts = source.starting_offsets(bounds) if first_plan else {}
    by_time = _ends_by_time(context, tick)
    cuts = source.offsets_at(places, tick.cut_at) if tick.cut_at and by_time else {}
    return [
        PartitionState(
            place,
            log.log_start,
            log.last_stable,
            log.log_end,
            start_offset=starts.get(place, log.log_start),
            cut=cuts.get(place),
            by_time=by_time,
        )
        for place, log in bounds.items()
    ]


def _ends_by_time(context: Context, tick: Tick) -> bool:
    """Return whether the run ends at its cut time in the log; else it ends where the log ends now."""
    return tick.cut_at is not None and context.pipeline.source.cut is Cut.SCHEDULE


def _open_transactions(
    context: Context, states: Sequence[PartitionState], now: datetime
) -> Mapping[TopicPartition, OpenTransaction]:
    """Return the open transactions that make the plan end early."""
    capped = [state for state in states if state.capped(now)]
    bounds = {state.at: Bounds(state.log_start, state.last_stable, state.log_end) for state in capped}
    return context.source.open_transactions(bounds) if bounds else {}


def _refuse_before_logs(context: Context, planned: Plan, chains: Sequence[Chain]) -> None:
    """Raise ``PlanRefused`` for a backfill that ends before the pipeline's chains begin: it would do nothing."""
    begin = {at: start_of(generations) for at, generations in generations_of(context.database, chains).items()}
    before = [at for at, end in planned.ends if end < begin.get(at, 0)]
    if before and not any(end > begin.get(at, 0) for at, end in planned.ends):
        raise PlanRefused(
            f"the backfill ends before offset {begin[before[0]]}, where this pipeline's chain begins",
            next_step=f"to read older records: tidemark extend-back {context.pipeline_name} --why TEXT",
            **before[0].context,
        )


def _await_cut(context: Context, tick: Tick) -> None:
    """Wait until the database's clock has reached the cut: records that arrive until then belong to the run, and its
    key can be planned only once. Raises ``PlanRefused`` if the cut is more than ``AHEAD`` in the future."""
    if tick.cut_at is None or tick.cut_at <= (now := context.database.now()):
        return
    if tick.cut_at > now + AHEAD:
        raise PlanRefused(
            f"the run reads up to {tick.cut_at.isoformat()}, which is in the future: it is "
            f"{now.isoformat(timespec='seconds')} now",
            next_step="nothing was planned; give a time in the past, or none to read all there is",
        )
    LOG.warning(
        "pipeline %s: waiting for %s, the time that the run reads up to", context.pipeline_name, tick.cut_at.isoformat()
    )
    while tick.cut_at > context.database.now():
        time.sleep(0.1)


def _refuse_compacted(context: Context, topics: Sequence[str]) -> None:
    compacted = context.source.compacted(topics)
    if compacted:
        raise PlanRefused(
            f"topic {compacted[0]} is compacted: records disappear from it between a run and its replay",
            next_step=f"if you accept that, write gaps: compacted under source.{context.pipeline.source.kind}",
            topic=compacted[0],
        )


def limits(context: Context) -> Limits:
    """Return how much one slice may hold, by the record size measured on earlier manifests."""
    settings = context.pipeline.source.slice
    record_bytes = context.database.publications.record_bytes(context.pipeline_name)
    return Limits(settings.max_records, settings.max_bytes, settings.max_slices, record_bytes)


def _store(
    context: Context,
    tick: Tick,
    planned: Plan,
    chains: Sequence[Chain],
    asked: _Asked,
    *,
    planned_up_to: datetime | None,
) -> PlannedRun:
    """Insert the run with its ends, the new chains with their anchors, lost ranges, manifests and their ranges."""
    pipeline, database = context.pipeline, context.database
    pipeline_name = pipeline.name
    remember_sinks(pipeline, database)
    # New chains with their anchors first: lost and planned ranges refer to them.
    ids = {chain.at: chain.id for chain in chains}
    ids |= database.chains.insert(pipeline_name, [place for place, _ in planned.anchors])
    database.ranges.insert(RangeKind.ANCHOR, [(ids[place], None, offset, None) for place, offset in planned.anchors])
    every = context.chains() if planned.anchors else chains
    lost = [(ids[range_.at], range_.start, range_.end, None) for range_ in planned.lost]
    database.ranges.insert(RangeKind.LOST, lost)
    # Find what covers the run before its own manifests exist, then insert the run with its manifests and their ranges.
    covered_by: list[int] = []
    if not planned.slices or tick.cut_at is not None or asked.begin is not None:  # else for what it plans alone
        covered_by = covering.covering_manifests(context, planned, every, asked.begin)
    if tick.kind is RunKind.BACKFILL and not planned.slices and not covered_by:
        _refuse_before_logs(context, planned, chains)
    run_id = database.runs.insert(
        pipeline_name, tick.run_key, tick.kind, cut_at=tick.cut_at, reached=planned.reached,
        planned_up_to=planned_up_to, covered_by=covered_by, notes=list(planned.notes),
        unplanned=_unplanned(planned, chains, asked.states),
    )  # fmt: skip
    database.tasks.forget_failed(pipeline_name, Task.PLAN)
    database.runs.insert_ends(run_id, {ids[at]: end for at, end in planned.ends})
    manifest_ids = database.manifests.insert(run_id, pipeline_name, len(planned.slices))
    rows: list[tuple[int, int | None, int, int | None]] = []
    for manifest_id, ranges in zip(manifest_ids, planned.slices, strict=True):
        rows += [(ids[range_.at], range_.start, range_.end, manifest_id) for range_ in ranges]
    database.ranges.insert(RangeKind.DATA, rows)
    return _planned_run(tick, planned, manifest_ids, covered_by)


def _unplanned(planned: Plan, chains: Sequence[Chain], states: Sequence[PartitionState]) -> int:
    """Return how many offsets of the source no earlier run has planned: those of this run, and those beyond it.

    If the run ends below the end of a chain, as a backfill does, only offsets beyond the chain count.
    """
    reached = {chain.at: chain.end for chain in chains}
    for at, end in planned.ends:
        reached[at] = max(reached.get(at, end), end)
    beyond = sum(max(0, state.last_stable - reached.get(state.at, state.last_stable)) for state in states)
    return beyond + sum(range_.span for ranges in planned.slices for range_ in ranges)
