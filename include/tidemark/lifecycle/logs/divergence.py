"""Compares the log with the records that are published, and finds the first offset that may differ.

A log that was cut and has grown again looks well by its ends alone. So the last published record of each chain is read
again, and where no record was behind it, as where transactions were aborted, there must still be none: before a plan is
stored, and before a person's decision on a cut log. The records are compared before an attempt publishes, too, which
looks at what other attempts have staged. Where an accepted cut went through a published range, no last record is known
of what it has left: that is compared by leader epochs alone.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tidemark.database.client import ManifestDatabase
from tidemark.errors import TopicChanged, Unavailable
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.logs.generations import generations_of
from tidemark.model.digest import record_digest
from tidemark.model.manifest import CutRange, Manifest, PublishedRange, StagedRecord
from tidemark.model.offsets import TopicPartition
from tidemark.model.partitions import LastRecord, Record
from tidemark.model.receipt import Receipt
from tidemark.planner import Chain, PartitionState
from tidemark.sources.base import Source
from tidemark.sources.settings import Gaps

Answers = Mapping[tuple[TopicPartition, int], Record | None]


def differs(known: LastRecord, record: Record | None, *, may_vanish: bool) -> bool:
    """Return whether the log holds another record than the known one. ``record`` is the first at or after its offset.

    ``may_vanish``: the topic is compacted, so a record that is gone says nothing.
    """
    if record is None or record.offset != known.offset:
        return not may_vanish
    content = (record.timestamp_ms, record_digest(record.key, record.value))
    return content != (known.timestamp_ms, known.digest) or _is_newer(record, known.leader_epoch)


def _holds_other(at: TopicPartition, known: LastRecord, answers: Answers, *, may_vanish: bool) -> bool:
    """Return whether the log was read at a known record and holds another one. What retention took, or was not read in
    time, is no other."""
    place = (at, known.offset)
    return place in answers and differs(known, answers[place], may_vanish=may_vanish)


def _is_newer(record: Record, leader_epoch: int | None) -> bool:
    """Return whether a later leader took the record in: after a log was cut, only a later leader can fill it again."""
    return leader_epoch is not None and record.leader_epoch is not None and record.leader_epoch > leader_epoch


@dataclass(frozen=True)
class CheckedLogs:
    """The states of the partitions, with ``diverged`` where the log differs; ``notes`` name what was not compared."""

    states: list[PartitionState]
    notes: tuple[str, ...] = ()


def checked_logs(context: Context, chains: Sequence[Chain], states: Sequence[PartitionState]) -> CheckedLogs:
    """Compare the newest published record of each chain with the log.

    Where they differ, the first offset that may differ is looked for; raises ``Unavailable`` when the source does not
    answer meanwhile.
    """
    by_place = {chain.at: chain for chain in chains}
    own = {state.at: by_place[state.at] for state in states if state.at in by_place}
    published = Published(context.database, list(own.values()))
    known, empty = published.newest_and_empty()
    logs = {state.at: state for state in states}
    inside = [(at, part.last.offset) for at, part in known.items() if _holds(logs[at], part.last.offset)]
    behind = _starts(empty, logs)
    answers = context.source.records_from([*inside, *behind]) if inside or behind else {}
    search = Search(context.source, may_vanish=_may_vanish(context))
    first: dict[TopicPartition, int] = {}
    for at in {*known, *empty}:
        if at in known and search.is_other(known[at], logs[at], answers):
            first[at] = search.first_difference(known[at], logs[at], published.below(own[at]))
            filled = search.first_filled(logs[at], published.empty_below(own[at], first[at]))
        else:
            filled = search.first_filled(logs[at], empty.get(at, []), answers)
        if filled is not None:
            first[at] = filled
    for at, offset in _first_in_cut_ranges(search, published.cut_ranges(known, first.keys()), logs).items():
        first[at] = min(offset, first.get(at, offset))
    notes = [
        f"{at.name}: the last published record (offset {offset}) was not read in time; the next plan compares it"
        for at, offset in inside
        if (at, offset) not in answers
    ]
    notes += [
        f"{at.name}: whether there is still no record from offset {offset} on was not read in time; the next plan does"
        for at, offset in behind
        if (at, offset) not in answers
    ]
    checked = [replace(state, diverged=first[state.at]) if state.at in first else state for state in states]
    return CheckedLogs(checked, tuple(notes))


def _first_in_cut_ranges(
    search: "Search",
    cut_ranges: Mapping[TopicPartition, Sequence[CutRange]],
    logs: Mapping[TopicPartition, PartitionState],
) -> dict[TopicPartition, int]:
    """Return the first offset in each partition whose log holds what cuts have left of published ranges."""
    first = {}
    for at, of_log in cut_ranges.items():
        offsets = [search.first_in_cut_range(cut_range, logs[at]) for cut_range in of_log]
        first[at] = min((offset for offset in offsets if offset is not None), default=None)
    return {at: offset for at, offset in first.items() if offset is not None}


def first_difference_now(context: Context, chain: Chain) -> int | None:
    """The first offset from which the log of a refused chain may differ from what is published by now; None when it
    does not differ, or the topic is another one.

    Raises ``Unavailable`` when the source does not answer.
    """
    places, _ = context.source.partitions([chain.at.topic])
    if chain.at not in places:
        return None
    logs = checked_logs(context, [chain], list(_logs_now(context.source, [chain.at]).values()))
    if logs.notes:
        raise Unavailable(
            f"the last published record of {chain.at.name} could not be read, so where the log differs is not known",
            next_step="nothing was decided; decide again",
            **chain.at.context,
        )
    [state] = logs.states
    return state.diverged


def vouched_now(context: Context, chain: Chain, end: int) -> int:
    """The end of the newest published range up to an offset, when the log holds its last record: then it was not cut
    below that. 0 when there is none, or it holds another record."""
    part = Published(context.database, [chain]).below(chain)(end)
    places, _ = context.source.partitions([chain.at.topic])
    if part is None or chain.at not in places:
        return 0
    if not _holds(_logs_now(context.source, [chain.at])[chain.at], part.last.offset):
        return 0
    place = (chain.at, part.last.offset)
    record = context.source.records_from([place]).get(place)
    return 0 if record is None or differs(part.last, record, may_vanish=False) else part.end


def _logs_now(source: Source, places: Collection[TopicPartition]) -> dict[TopicPartition, PartitionState]:
    return {
        at: PartitionState(at, log.log_start, log.last_stable, log.log_end, start_offset=log.log_start)
        for at, log in source.bounds(sorted(places)).items()
    }


def _may_vanish(context: Context) -> bool:
    return context.pipeline.source.gaps is Gaps.COMPACTED


def _holds(log: PartitionState, offset: int) -> bool:
    return log.log_start <= offset < log.log_end


def _still_held(parts: Sequence[tuple[int, int]], log: PartitionState) -> list[tuple[int, int]]:
    """Return those of these offsets that the log still holds and a reader may see, the lowest first; what meets is one
    part."""
    remaining: list[tuple[int, int]] = []
    for start, end in sorted(parts):
        start, end = max(start, log.log_start), min(end, log.last_stable)
        if remaining and start == remaining[-1][1]:
            remaining[-1] = (remaining[-1][0], max(end, start))
        elif start < end:
            remaining.append((start, end))
    return remaining


def _starts(
    empty: Mapping[TopicPartition, Sequence[tuple[int, int]]], logs: Mapping[TopicPartition, PartitionState]
) -> list[tuple[TopicPartition, int]]:
    """Return where each part begins that was read without a record and that the log still holds."""
    return [(at, start) for at, parts in empty.items() for start, _ in _still_held(parts, logs[at])]


class Published:
    """The published ranges of logs, over all their generations: of an earlier one, what lies below the next."""

    def __init__(self, database: ManifestDatabase, chains: Sequence[Chain]) -> None:
        self._database = database
        self._logs = generations_of(database, chains)

    def newest_and_empty(
        self,
    ) -> tuple[dict[TopicPartition, PublishedRange], dict[TopicPartition, list[tuple[int, int]]]]:
        """The newest published range with a record of each partition that has one, and the offsets behind it that were
        published and held no record."""
        newest: dict[TopicPartition, PublishedRange] = {}
        empty: dict[TopicPartition, list[tuple[int, int]]] = {}
        generations = {at: self._ends(at) for at in self._logs}
        while generations:  # the present ones of all partitions at once, then the earlier of those that have no answer
            published, without = self._database.ranges.newest_published(
                [of_place[0] for of_place in generations.values()]
            )
            for at, of_place in generations.items():
                chain_id = of_place[0][0]
                empty.setdefault(at, []).extend(without.get(chain_id, []))
                if chain_id in published:
                    newest[at] = published[chain_id]
            generations = {
                at: of_place[1:] for at, of_place in generations.items() if at not in newest and of_place[1:]
            }
        return newest, {at: parts for at, parts in empty.items() if parts}

    def empty_below(self, chain: Chain, end: int) -> list[tuple[int, int]]:
        """The published offsets that held no record, up to an offset and behind the newest record below it."""
        empty: list[tuple[int, int]] = []
        for chain_id, generation_end in self._ends(chain.at):
            newest, without = self._database.ranges.newest_published([(chain_id, min(end, generation_end))])
            empty += without.get(chain_id, [])
            if newest:
                break
        return empty

    def _ends(self, at: TopicPartition) -> list[tuple[int, int]]:
        """(chain id, end) of each generation of a log, the newest first."""
        return [(generation.chain_id, generation.end) for generation in self._logs[at]]

    def cut_ranges(
        self, known: Mapping[TopicPartition, PublishedRange], different: Collection[TopicPartition]
    ) -> dict[TopicPartition, list[CutRange]]:
        """Return what cuts have left of published ranges, unless a later record confirms it: ``known`` are the newest
        published ranges, in whose logs nothing below them has changed, but in the ``different`` ones."""
        ends = {part[0]: (at, part) for at in self._logs for part in self._ends(at)[1:]}
        cut_ranges: dict[TopicPartition, list[CutRange]] = {}
        if ends:
            for chain_id, cut_range in self._database.ranges.cut_ranges([part for _, part in ends.values()]).items():
                at = ends[chain_id][0]
                if at in different or at not in known or known[at].end < cut_range.end:
                    cut_ranges.setdefault(at, []).append(cut_range)
        return cut_ranges

    def below(self, chain: Chain) -> Callable[[int], PublishedRange | None]:
        """Gives the newest published range with a record that ends at or below an offset."""
        generations = self._ends(chain.at)

        def newest_below(end: int) -> PublishedRange | None:
            for chain_id, generation_end in generations:
                part = self._database.ranges.newest_published([(chain_id, min(end, generation_end))])[0].get(chain_id)
                if part is not None:
                    return part
            return None

        return newest_below


class Search:
    """Finds where the log of a partition leaves what was published of it."""

    def __init__(self, source: Source, *, may_vanish: bool) -> None:
        self._source = source
        self._may_vanish = may_vanish

    def is_other(self, part: PublishedRange, log: PartitionState, answers: Answers) -> bool:
        """Return whether the log differs at the last record of a published range."""
        if part.last.offset >= log.log_end:
            return True
        return _holds_other(log.at, part.last, answers, may_vanish=self._may_vanish)

    def first_difference(
        self, part: PublishedRange, log: PartitionState, below: Callable[[int], PublishedRange | None]
    ) -> int:
        """The first offset that may hold another record than was published; the log differs at the end of ``part``.

        ``below`` gives the newest published range that ends at or below an offset.
        """
        low, high = 0, part.end  # the first range where the log differs ends in [low, high]
        while low < high:
            middle = (low + high) // 2
            earlier = below(middle)
            if earlier is None or not self._read_and_is_other(earlier, log):
                low = middle + 1
            else:
                part, high = earlier, earlier.end
        return self._first_inside(part, log)

    def first_filled(
        self, log: PartitionState, parts: Sequence[tuple[int, int]], answers: Answers | None = None
    ) -> int | None:
        """Return the first offset that was published without a record and holds one now; None when all are as they
        were.

        ``answers`` has the first record from each of them on, where it was read in time; without it the log is read.
        """
        for start, end in _still_held(parts, log):
            record = self._read(log, start) if answers is None else answers.get((log.at, start))
            if record is None or record.offset >= end:
                continue
            if (
                self._source.first_record_in(log.at, [(record.offset, end)]) is not None
            ):  # not of an aborted transaction
                return start
        return None

    def first_in_cut_range(self, cut_range: CutRange, log: PartitionState) -> int | None:
        """The first offset of what a cut has left of a range from which a later leader took the records in; None when
        there is none. What is not read in time is compared the next time."""
        low, high = max(cut_range.start, log.log_start), min(cut_range.end, log.log_end)
        cut = log.log_end if low <= log.log_end < cut_range.end else None
        middle = high - 1  # most often it holds a record, and nothing has changed
        while low < high:
            answers = self._source.records_from([(log.at, middle)])
            if (log.at, middle) not in answers:
                return cut
            record = answers[log.at, middle]
            if record is not None and record.offset < cut_range.end and not _is_newer(record, cut_range.leader_epoch):
                low = record.offset + 1
            else:
                high = middle
                cut = middle if record is not None and record.offset < cut_range.end else cut
            middle = (low + high) // 2
        return cut

    def _read_and_is_other(self, part: PublishedRange, log: PartitionState) -> bool:
        if not _holds(log, part.last.offset):
            return part.last.offset >= log.log_end
        return self.is_other(part, log, {(log.at, part.last.offset): self._read(log, part.last.offset)})

    def _first_inside(self, part: PublishedRange, log: PartitionState) -> int:
        """By leader epochs, which only grow along a log, the exact offset; without them the start of the range."""
        low, high = max(part.start, log.log_start), min(part.last.offset, log.log_end)
        if not self._is_of_later_leader(part, log, high):
            return low
        while low < high:
            middle = (low + high) // 2
            if self._is_of_later_leader(part, log, middle):
                high = middle
            else:
                low = middle + 1
        return low

    def _is_of_later_leader(self, part: PublishedRange, log: PartitionState, offset: int) -> bool:
        """Return whether no record from an offset on, up to the last one of the range, is of the leaders that were
        read."""
        if part.last.leader_epoch is None:
            return False
        record = self._read(log, offset) if offset < log.log_end else None
        return record is None or record.offset > part.last.offset or _is_newer(record, part.last.leader_epoch)

    def _read(self, log: PartitionState, offset: int) -> Record | None:
        answers = self._source.records_from([(log.at, offset)])
        if (log.at, offset) not in answers:
            raise Unavailable(
                f"{log.at.name} was truncated, and offset {offset} could not be read to find out where",
                next_step="nothing was planned; plan again",
                **log.at.context,
            )
        return answers[log.at, offset]


def confirmed(context: Context, manifest: Manifest, receipt: Receipt, *, may_shrink: bool) -> Receipt:
    """The receipt with the leader epochs of its last records, if the log holds them and what was read below them.

    That is what is published up to there, and what other attempts have staged. The receipt is stored already: of two
    attempts that overlap, the one that looks second sees what the other has read, or that its own is gone. So they
    never publish records of two generations of a log, one above the other.

    Raises ``TopicChanged`` when the log was cut since: the offsets of the manifest may hold others now.
    ``may_shrink``: a person has accepted that published records are gone.
    """
    database, may_vanish = context.database, may_shrink or _may_vanish(context)
    # Collect the records that the log should still hold: our own last ones, the newest published ones, and those that
    # other attempts have staged.
    counts = {(count.topic, count.partition): count for count in receipt.partitions}
    read = {covered.at: counts[covered.at.topic, covered.at.partition].last_record for covered in manifest.ranges}
    own = [(at, last) for at, last in read.items() if last is not None]
    # In this order: what is published between the two questions is in both answers.
    staged = database.ranges.staged_below(manifest.id, receipt.attempt, receipt.sinks)
    all_published = Published(database, database.chains.of_manifest(manifest.id))
    known, empty = all_published.newest_and_empty()
    published = [(at, part.last) for at, part in known.items()]
    for each in staged:
        if each.last.offset + 1 < each.end:
            empty.setdefault(each.at, []).append((each.last.offset + 1, each.end))
    readings = [(at, last, "the one that was read before", _find_out(context)) for at, last in own + published]
    readings += [(each.at, each.last, *_other_record_read(manifest, each)) for each in staged]
    # Read all of them once. Search further, which is slower, only when these are right: first the offsets that were
    # empty, then the first record of each published range.
    answers = context.source.records_from(list(dict.fromkeys((at, last.offset) for at, last, *_ in readings)))
    differs = (
        [
            (at, f"offset {last.offset} holds another record than {which}", next_step)
            for at, last, which, next_step in readings
            if _holds_other(at, last, answers, may_vanish=may_vanish)
        ]
        or [
            (at, f"from offset {offset} on it held no record when that was read, and holds one now", _find_out(context))
            for at, offset in _filled(context, empty).items()
        ]
        or [
            (at, f"from offset {offset} on it holds other records than those that are published", _find_out(context))
            for at, offset in _changed_in_cut_ranges(context, all_published.cut_ranges(known, ())).items()
        ]
    )
    for at, what, next_step in differs:
        raise TopicChanged(
            f"the log was truncated: {what}",
            next_step=f"nothing of this attempt is published; {next_step}",
            **at.context,
        )
    records = {(at.topic, at.partition): answers.get((at, last.offset)) for at, last in own}
    epochs = {place: record.leader_epoch for place, record in records.items() if record is not None}
    return receipt.with_epochs(epochs)


def _filled(context: Context, empty: Mapping[TopicPartition, Sequence[tuple[int, int]]]) -> dict[TopicPartition, int]:
    """Return, for each partition, the first offset that was read without a record and holds one now, if there is
    one."""
    source = context.source
    logs = _logs_now(source, empty)
    starts = _starts(empty, logs)
    answers = source.records_from(starts) if starts else {}
    search = Search(source, may_vanish=_may_vanish(context))
    filled = {at: search.first_filled(log, empty[at], answers) for at, log in logs.items()}
    return {at: offset for at, offset in filled.items() if offset is not None}


def _changed_in_cut_ranges(
    context: Context, cut_ranges: Mapping[TopicPartition, Sequence[CutRange]]
) -> Mapping[TopicPartition, int]:
    search = Search(context.source, may_vanish=_may_vanish(context))
    return _first_in_cut_ranges(search, cut_ranges, _logs_now(context.source, cut_ranges)) if cut_ranges else {}


def _find_out(context: Context) -> str:
    return (
        f"tidemark plan {context.pipeline_name} finds out whether published records are gone too, and from which "
        f"offset on; when it refuses nothing: tidemark retry {context.pipeline_name}"
    )


def _other_record_read(manifest: Manifest, staged: StagedRecord) -> tuple[str, str]:
    """Return which record another attempt has read, and the next step when the log does not hold it any more."""
    which = f"the one that attempt {staged.attempt} of manifest {staged.manifest_id} read, which may be published yet"
    next_step = f"when all its sinks answer: tidemark retry {manifest.pipeline_name} --manifest {staged.manifest_id}"
    return which, next_step if staged.manifest_id == manifest.id else f"{next_step}; then this manifest"
