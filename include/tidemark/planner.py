"""Turns chain ends, the source's offsets and limits into ranges, or refuses. Pure: no clock, no network.

What a plan promises: the new ranges of each chain start where its last range ended; every partition gets an anchor;
nothing past the last stable offset is planned; loss, truncation and another topic under an old name are refused.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from tidemark.errors import DataLost, PlanRefused, TopicChanged
from tidemark.model.offsets import Range, TopicPartition, split

CLOCK_TOLERANCE = timedelta(hours=1)  # a timestamp further in the future than this is taken for wrong


class OnDataLoss(StrEnum):
    """The treatment of offsets that retention removed before they were read."""

    FAIL = "fail"
    RECORD = "record"


@dataclass(frozen=True)
class PartitionState:
    """The source's answer about one partition; committed records only.

    ``cut`` is (offset, timestamp) of the first record at or after the cut time (None: there is no such record, or the
    run has no cut time); ``by_time`` is true when the run has a cut time. ``start_offset`` is where
    ``starting_offsets`` of the pipeline file points to. ``diverged`` is the first offset whose record may differ from
    the published one; None if the last published record is still there, or cannot be compared.
    """

    at: TopicPartition
    log_start: int
    last_stable: int
    log_end: int
    start_offset: int
    cut: tuple[int, datetime] | None = None
    by_time: bool = False
    diverged: int | None = None

    def cut_offset(self, now: datetime) -> int | None:
        """Return the offset of the cut; None without a cut, or if its record is stamped far in the future."""
        return None if self.cut is None or self.cut[1] > now + CLOCK_TOLERANCE else self.cut[0]

    def capped(self, now: datetime) -> bool:
        """Return whether the last stable offset lies before the end of the run: before the cut, or without a cut
        before the end of the log."""
        offset = self.cut_offset(now)
        return self.last_stable < (self.log_end if offset is None else offset)


@dataclass(frozen=True)
class Chain:
    """One chain of the pipeline: its ranges cover ``[anchor, end)``.

    ``blocked`` is the reason why nothing may be planned on it; None if it is not blocked. After a truncation,
    ``blocked_end`` is the first offset that may hold another record than was planned.
    """

    id: int
    at: TopicPartition
    generation: int
    anchor: int
    end: int
    blocked: str | None = None
    blocked_end: int | None = None


@dataclass(frozen=True)
class Limits:
    max_records: int
    max_bytes: int
    max_slices: int
    record_bytes: float | None = None  # measured on earlier manifests; None before the first

    @property
    def records_per_slice(self) -> int:
        by_bytes = int(self.max_bytes / self.record_bytes) if self.record_bytes else self.max_records
        return max(1, min(self.max_records, by_bytes))


@dataclass(frozen=True)
class SpanStarts:
    """The offsets at which ``max_span`` cuts slices: one mapping for each cut, in ascending order. A partition that a
    mapping does not name is not cut there.

    Unless ``complete`` is true, the next plan takes the offsets after the last cut.
    """

    offsets: tuple[Mapping[TopicPartition, int], ...] = ()
    complete: bool = True


@dataclass(frozen=True)
class Plan:
    """The rows to insert: ``anchors`` for partitions without a chain, ``lost`` ranges, and a list of ranges per slice.

    ``ends`` is where the run ends, one offset per partition: the cut, or less if ``max_slices`` or an open transaction
    ended the plan before it; then ``reached`` is false. ``seen`` is false if the source held records of this run that
    could not be read yet (``PartitionState.capped``); then no time can be named up to which the run read everything.
    ``notes`` are for the user.
    """

    anchors: tuple[tuple[TopicPartition, int], ...]
    lost: tuple[Range, ...]
    slices: tuple[tuple[Range, ...], ...]
    ends: tuple[tuple[TopicPartition, int], ...]
    reached: bool
    seen: bool
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Refusal:
    """A chain on which nothing is planned until you accept what happened to its topic.

    ``generation_end`` is the first offset where a truncated log differs from what was planned; None if the topic itself
    is another one now.
    """

    chain_id: int
    reason: str
    generation_end: int | None = None


class Refused(PlanRefused):
    """Planning is refused, and the caller must store the ``refusals``; ``cause`` is the error for the user."""

    def __init__(self, cause: PlanRefused, refusals: Sequence[Refusal]) -> None:
        self.cause = cause
        self.refusals = tuple(refusals)
        super().__init__(cause.what, next_step=cause.next_step, **cause.context)


def plan(
    pipeline_name: str,
    partitions: Sequence[PartitionState],
    chains: Sequence[Chain],
    limits: Limits,
    on_data_loss: OnDataLoss,
    now: datetime,
    *,
    first_plan: bool,
    ended: Mapping[TopicPartition, int],
    span_starts: SpanStarts = SpanStarts(),
    clusters: tuple[str | None, str | None] = (None, None),
) -> Plan:
    """Return the next ranges of every chain up to the cut; raises ``PlanRefused`` or a subclass.

    Only a pipeline's ``first_plan`` looks at ``start_offset``. A partition that appears later is read from offset 0.
    What retention removed of it is recorded as lost, whatever ``on_data_loss`` says. ``ended`` has the ends of chains
    that a decision has ended: if the topic comes back with its old id, reading goes on there, or where its log was cut.
    ``clusters`` are the ids of the cluster that was planned on and of the one that is asked now; None if not known.
    """
    by_place = {chain.at: chain for chain in chains}
    _refuse_changed_topics(pipeline_name, partitions, chains, clusters)
    anchors: list[tuple[TopicPartition, int]] = []
    lost: list[Range] = []
    open_ranges: list[Range] = []
    ends: dict[TopicPartition, int] = {}
    notes: list[str] = []
    for state in sorted(partitions, key=lambda state: state.at):
        # Begin where the chain ends. A partition without a chain gets an anchor there.
        chain = by_place.get(state.at)
        if chain is None:
            covered = state.start_offset if first_plan else _begin_again(state, ended.get(state.at, 0))
            if state.at in ended:
                notes.append(f"{state.at.name}: the topic is back with its old id, reading goes on at offset "
                             f"{covered}; offsets that were given up stay lost")  # fmt: skip
            anchors.append((state.at, covered))
            if first_plan and state.start_offset > state.last_stable:
                raise _unreached_start(state)
        else:
            covered = chain.end
            if state.log_end < covered or state.diverged is not None:
                raise _truncated(pipeline_name, state, chain)
        # Skip what retention removed: refuse the plan, or record the offsets as lost.
        if state.log_start > covered:
            if on_data_loss is OnDataLoss.FAIL and (chain is not None or first_plan or state.at in ended):
                raise _loss(pipeline_name, state, covered, chain=chain, first_plan=first_plan)
            lost.append(Range(state.at, covered, state.log_start))
            notes.append(f"{state.at.name}: offsets [{covered}, {state.log_start}) are lost, retention took them")
            covered = state.log_start
        end, note = _end(state, now)
        ends[state.at] = min(end, covered)
        notes += [note] if note else []
        if end > covered:
            open_ranges.append(Range(state.at, covered, end))
    # Cut the open ranges into slices, first by time, then by size. What ``max_slices`` leaves over is the next run's.
    parts = [part for window in _windows(open_ranges, span_starts) for part in sliced(window, limits)]
    slices = tuple(tuple(part) for part in parts[: limits.max_slices])
    for part in slices:
        ends |= {range_.at: range_.end for range_ in part}
    capped = [state for state in partitions if state.capped(now)]
    to_the_cut = not any(state.by_time for state in capped)
    reached = len(parts) <= limits.max_slices and span_starts.complete and to_the_cut
    return Plan(tuple(anchors), tuple(lost), slices, tuple(ends.items()), reached, not capped, tuple(notes))


def sliced(ranges: list[Range], limits: Limits) -> list[list[Range]]:
    """Cut all the ranges into as few slices as the size limits allow. The caller applies ``max_span`` and
    ``max_slices``."""
    return split(ranges, -(-sum(range_.span for range_ in ranges) // limits.records_per_slice))


def _windows(ranges: Sequence[Range], span_starts: SpanStarts) -> Iterator[list[Range]]:
    """Yield the ranges cut where spans start: one list for each span in which a range has offsets."""
    starts = {range_.at: range_.start for range_ in ranges}
    rest: list[Mapping[TopicPartition, int]] = [{}] if span_starts.complete else []
    for window_end in [*span_starts.offsets, *rest]:
        window = []
        for range_ in ranges:
            start = starts[range_.at]
            end = max(start, min(range_.end, window_end.get(range_.at, range_.end)))
            if start < end:
                window.append(Range(range_.at, start, end))
            starts[range_.at] = end
        if window:
            yield window


def _begin_again(state: PartitionState, ended: int) -> int:
    """Return the offset at which to go on reading a log whose chain a decision has ended: ``ended``, the end of that
    chain, or a lower offset if the log was truncated meanwhile."""
    return min(ended, state.log_end, ended if state.diverged is None else state.diverged)


def _end(state: PartitionState, now: datetime) -> tuple[int, str | None]:
    """Return the offset at which this run stops reading, never past the last stable offset, and a note for the user or
    None."""
    offset = state.cut_offset(now)
    if offset is not None and offset > state.last_stable == state.log_end:
        return state.last_stable, (
            f"{state.at.name}: records before the cut came while the source was asked, so the run ends at offset "
            f"{state.last_stable}, not at {offset}; the next run reads them"
        )
    if offset is not None:
        return min(offset, state.last_stable), None
    if state.cut is None:
        return state.last_stable, None
    offset, timestamp = state.cut
    return state.last_stable, (
        f"{state.at.name}: offset {offset} has the timestamp {timestamp.isoformat()}, more than an hour ahead "
        f"of this clock; so the run reads up to the last stable offset {state.last_stable}"
    )


def _refuse_changed_topics(
    pipeline_name: str,
    partitions: Sequence[PartitionState],
    chains: Sequence[Chain],
    clusters: tuple[str | None, str | None],
) -> None:
    for chain in chains:
        if chain.blocked:
            raise TopicChanged(
                f"planning was refused before, and nobody has decided yet: {chain.blocked}",
                next_step="when what changed it is known, accept it: " + acceptance_of(pipeline_name, chain),
                **chain.at.context,
            )
    seen = {state.at for state in partitions}
    for chain in chains:
        if chain.at not in seen:
            ids = {state.at.topic: state.at.topic_id for state in partitions}
            raise _gone(pipeline_name, chain, ids.get(chain.at.topic), chains, clusters)


def _gone(
    pipeline_name: str,
    chain: Chain,
    now_id: str | None,
    chains: Sequence[Chain],
    clusters: tuple[str | None, str | None],
) -> Refused:
    """Return the error for a planned partition that the source does not have; ``now_id`` is the id of its topic."""
    if now_id is None:
        what = f"topic {chain.at.topic} no longer exists"
    elif now_id != chain.at.topic_id:
        what = another_topic(chain.at.topic, chain.at.topic_id, now_id, clusters)
    else:
        what = f"partition {chain.at.partition} of topic {chain.at.topic} no longer exists"
    cause = TopicChanged(
        what,
        next_step="nothing was planned; if this change is intended: "
        + acceptance(pipeline_name, chain.at.topic, cut=None),
        **chain.at.context,
        end=chain.end,
    )
    return Refused(cause, [Refusal(other.id, what) for other in chains if other.at.topic == chain.at.topic])


def _truncated(pipeline_name: str, state: PartitionState, chain: Chain) -> Refused:
    generation_end = state.log_end if state.diverged is None else min(state.diverged, state.log_end)
    what = f"{state.at.name} was truncated"
    if state.log_end < chain.end:
        what += f": it ends at {state.log_end}, the chain at {chain.end}"
    if generation_end < state.log_end:
        what += f" and has grown again: from offset {generation_end} on it holds other records than those that are "
        what += "published"
    cause = TopicChanged(
        what,
        next_step="nothing was planned; find out what changed the log (an unclean leader election, a restored disk), "
        "then: " + acceptance(pipeline_name, chain.at.topic, cut=chain.at.partition),
        **state.at.context,
        log_end=state.log_end,
        chain_end=chain.end,
        generation_end=generation_end,
    )
    return Refused(cause, [Refusal(chain.id, what, generation_end)])


def another_topic(
    name: str, planned_id: str, now_id: str, clusters: tuple[str | None, str | None] = (None, None)
) -> str:
    """Return a sentence: the topic of this name is not the one that was planned. ``clusters`` is as for ``plan``."""
    ids = f"its id was {planned_id} and is {now_id} now"
    planned_on, now_on = clusters
    if planned_on is None or now_on is None:
        return f"topic {name} was recreated, or is of another cluster: {ids}"
    if planned_on == now_on:
        return f"topic {name} was recreated: {ids}"
    return f"topic {name} is of another cluster, {now_on} and not {planned_on}: {ids}"


def acceptance(pipeline_name: str, topic: str, *, cut: int | None) -> str:
    """Return the command that accepts the truncation of partition ``cut``; without ``cut``, the command that accepts
    that the topic is another one now."""
    if cut is not None:
        return f"tidemark accept truncation {pipeline_name} --topic {topic} --partition {cut} --why TEXT"
    return f"tidemark accept topic {pipeline_name} --topic {topic} --why TEXT"


def acceptance_of(pipeline_name: str, chain: Chain) -> str:
    """Return the command that accepts the reason why a chain is blocked."""
    cut = None if chain.blocked_end is None else chain.at.partition
    return acceptance(pipeline_name, chain.at.topic, cut=cut)


def _unreached_start(state: PartitionState) -> PlanRefused:
    """Return the error if ``starting_offsets`` is past the last stable offset: records before it would be left out."""
    if state.start_offset <= state.log_end:
        why = "an open transaction holds back the records before that offset: plan again when it has ended"
    else:
        why = (
            "the topic was restored or created again since, or this is another topic's offset: correct starting_offsets"
        )
    return PlanRefused(
        f"starting_offsets points to offset {state.start_offset} of {state.at.name}, past the last stable offset "
        f"{state.last_stable} (it ends at {state.log_end})",
        next_step=f"nothing was planned; {why}",
        **state.at.context,
    )


def _loss(
    pipeline_name: str, state: PartitionState, covered: int, *, chain: Chain | None, first_plan: bool
) -> DataLost:
    if chain is None:  # accept loss needs a chain
        remedy = "on_data_loss: record in the pipeline file, at least for this plan"
        remedy += ", or another starting_offsets" if first_plan else ""
    else:
        remedy = f"tidemark accept loss {pipeline_name} --why TEXT, or on_data_loss: record in the pipeline file"
    return DataLost(
        f"retention took offsets [{covered}, {state.log_start}) of {state.at.name} before they were read",
        next_step=f"nothing was planned; to continue without them: {remedy}; and give the topic a longer retention",
        **state.at.context,
        lost_start=covered,
        lost_end=state.log_start,
    )
