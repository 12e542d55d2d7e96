"""Compares the log with the records that are published, and finds the first offset that may differ.

The ends of a log do not show that it was cut and has grown again. So Tidemark reads the last published record of each
chain again. Offsets behind it that held no record, such as those of aborted transactions, must still hold none.

Tidemark compares before it stores a plan, and before it makes a decision on a cut log. It also compares before an
attempt publishes; then it looks at the records that other attempts have staged, too. If an accepted cut went through a
published range, the last record of the remaining part is not known: that part is compared by leader epochs alone.
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

    ``may_vanish``: the topic is compacted, so a missing record is no difference.
    """
    if record is None or record.offset != known.offset:
        return not may_vanish
    content = (record.timestamp_ms, record_digest(record.key, record.value))
    return content != (known.timestamp_ms, known.digest) or _is_newer(record, known.leader_epoch)


def _holds_other(at: TopicPartition, known: LastRecord, answers: Answers, *, may_vanish: bool) -> bool:
    """Return whether the log was read at a known record and holds another one. A record that retention removed, or
    that was not read in time, is no difference."""
    place = (at, known.offset)
    return place in answers and differs(known, answers[place], may_vanish=may_vanish)


def _is_newer(record: Record, leader_epoch: int | None) -> bool:
    """Return whether a later leader wrote the record: after a log was cut, only a later leader can fill it again."""
    return leader_epoch is not None and record.leader_epoch is not None and record.leader_epoch > leader_epoch


@dataclass(frozen=True)
class CheckedLogs:
    """The states of the partitions, with ``diverged`` where the log differs; ``notes`` name what was not compared."""

    states: list[PartitionState]
    notes: tuple[str, ...] = ()


def checked_logs(context: Context, chains: Sequence[Chain], states: Sequence[PartitionState]) -> CheckedLogs:
    """Compare the newest published record of each chain with the log; where they differ, find the first offset that
    may differ.

    Raises ``Unavailable`` if the source stops answering during that search.
    """
    by_place = {chain.at: chain for chain in chains}
    own = {state.at: by_place[state.at] for state in states if state.at in by_place}
    published = Published(context.database, list(own.values()))
    known, empty = published.newest_and_empty()
    logs = {state.at: state for state in states}
    # Read all known records, and the offsets that held none, in one request.
    inside = [(at, part.last.offset) for at, part in known.items() if _holds(logs[at], part.last.offset)]
    behind = _starts(empty, logs)
    answers = context.source.records_from([*inside, *behind]) if inside or behind else {}
    search = Search(context.source, may_vanish=_may_vanish(context))
    first: dict[TopicPartition, int] = {}
    for at in {*known, *empty}:
        # If the newest record differs, search below it. Else look only at the offsets behind it that held no record.
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
        f"{at.name}: offset {offset} and those after it, which held no record, were not read in time; the next plan "
        "reads them"
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
    """Return, by partition, the first offset that may differ in the parts of published ranges that cuts have left."""
    first = {}
    for at, of_log in cut_ranges.items():
        offsets = [search.first_in_cut_range(cut_range, logs[at]) for cut_range in of_log]
        first[at] = min((offset for offset in offsets if offset is not None), default=None)
    return {at: offset for at, offset in first.items() if offset is not None}


def first_difference_now(context: Context, chain: Chain) -> int | None:
    """Return the first offset at which the log of a refused chain may differ from what is published now; None if it
    does not differ, or if the topic is another one.

    Raises ``Unavailable`` if the source does not answer.
    """
    places, _ = context.source.partitions([chain.at.topic])
    if chain.at not in places:
        return None
    logs = checked_logs(context, [chain], list(_logs_now(context.source, [chain.at]).values()))
    if logs.notes:
        raise Unavailable(
            f"the last published record of {chain.at.name} could not be read, so it is not known where the log differs",
            next_step="nothing was decided; decide again",
            **chain.at.context,
        )
    [state] = logs.states
    return state.diverged


def vouched_now(context: Context, chain: Chain, end: int) -> int:
    """Return the end of the newest published range below an offset if the log still holds its last record: then the
    log was not cut below that end. Return 0 if there is no such range, or the log does not hold the record."""
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
    """Return the parts of these offsets that the log still holds and a reader may see, the lowest first. Adjacent parts
    become one."""
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
    """Return the start of each part that held no record when it was read and that the log still holds."""
    return [(at, start) for at, parts in empty.items() for start, _ in _still_held(parts, logs[at])]


class Published:
    """The published ranges of logs, over all their generations; of an earlier one only what lies below the next."""

    def __init__(self, database: ManifestDatabase, chains: Sequence[Chain]) -> None:
        self._database = database
        self._logs = generations_of(database, chains)

    def newest_and_empty(
        self,
    ) -> tuple[dict[TopicPartition, PublishedRange], dict[TopicPartition, list[tuple[int, int]]]]:
        """Return two mappings by partition: the newest published range with a record, and the published offsets behind
        it, which held no record."""
        newest: dict[TopicPartition, PublishedRange] = {}
        empty: dict[TopicPartition, list[tuple[int, int]]] = {}
        generations = {at: self._ends(at) for at in self._logs}
        while generations:  # ask for the present generation of all partitions, then for earlier ones where none has any
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
        """Return the published offsets below ``end`` that held no record and lie behind the newest record there."""
        empty: list[tuple[int, int]] = []
        for chain_id, generation_end in self._ends(chain.at):
            newest, without = self._database.ranges.newest_published([(chain_id, min(end, generation_end))])
            empty += without.get(chain_id, [])
            if newest:
                break
        return empty

    def _ends(self, at: TopicPartition) -> list[tuple[int, int]]:
        """Return (chain id, end) of each generation of a log, the newest first."""
        return [(generation.chain_id, generation.end) for generation in self._logs[at]]

    def cut_ranges(
        self, known: Mapping[TopicPartition, PublishedRange], different: Collection[TopicPartition]
    ) -> dict[TopicPartition, list[CutRange]]:
        """Return the parts of published ranges that cuts have left, without those that a later record confirms.

        ``known`` are the newest published ranges. They confirm all that lies below them, except in ``different`` logs.
        """
        ends = {part[0]: (at, part) for at in self._logs for part in self._ends(at)[1:]}
        cut_ranges: dict[TopicPartition, list[CutRange]] = {}
        if ends:
            for chain_id, cut_range in self._database.ranges.cut_ranges([part for _, part in ends.values()]).items():
                at = ends[chain_id][0]
                if at in different or at not in known or known[at].end < cut_range.end:
                    cut_ranges.setdefault(at, []).append(cut_range)
        return cut_ranges

    def below(self, chain: Chain) -> Callable[[int], PublishedRange | None]:
        """Return a function that returns the newest published range with a record that ends at or below an offset."""
        generations = self._ends(chain.at)

        def newest_below(end: int) -> PublishedRange | None:
            for chain_id, generation_end in generations:
                part = self._database.ranges.newest_published([(chain_id, min(end, generation_end))])[0].get(chain_id)
                if part is not None:
                    return part
            return None

        return newest_below


class Search:
    """The search for the first offset where the log of a partition differs from what was published of it."""

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
        """Return the first offset that may hold another record than was published. The log differs at the end of
        ``part``.

        ``below`` returns the newest published range that ends at or below an offset.
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
        """Return the start of the first part that was published without a record and holds one now; None if there is
        none.

        ``answers`` has the first record from each start on, if it was read in time; without ``answers`` read the log.
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
        """Return the first offset, in the part of a range that a cut has left, from which a later leader wrote the
        records; None if there is none. What is not read in time is compared the next time."""
        low, high = max(cut_range.start, log.log_start), min(cut_range.end, log.log_end)
        cut = log.log_end if low <= log.log_end < cut_range.end else None
        middle = high - 1  # look at the end first: usually it holds a record, and nothing has changed
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
        """Return the first offset that differs inside a range: exactly if leader epochs are known, which only grow
        along a log; else the start of the range."""
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
        """Return whether, from an offset up to the last one of the range, no record is of the leaders whose records
        were read."""
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
    """Return the receipt with the leader epochs of its last records. Checks that the log still holds them, and the last
    records that were published or staged below them.

    The caller has stored the receipt. So of two attempts that overlap, the second to check sees what the first has
    read, or that its own records are gone. They never publish records of two generations of a log, one above the other.

    Raises ``TopicChanged`` if the log was cut since: the offsets of the manifest may hold other records now.
    ``may_shrink``: you have accepted that published records are gone.
    """
    database, may_vanish = context.database, may_shrink or _may_vanish(context)
    # Collect the records that the log should still hold: our own last ones, the newest published ones, and those that
    # other attempts have staged.
    counts = {(count.topic, count.partition): count for count in receipt.partitions}
    read = {covered.at: counts[covered.at.topic, covered.at.partition].last_record for covered in manifest.ranges}
    own = [(at, last) for at, last in read.items() if last is not None]
    # Ask for staged records first: what is published between the two queries is then in both answers.
    staged = database.ranges.staged_below(manifest.id, receipt.attempt, receipt.sinks)
    all_published = Published(database, database.chains.of_manifest(manifest.id))
    known, empty = all_published.newest_and_empty()
    published = [(at, part.last) for at, part in known.items()]
    for each in staged:
        if each.last.offset + 1 < each.end:
            empty.setdefault(each.at, []).append((each.last.offset + 1, each.end))
    readings = [(at, last, "the one that was read before", _find_out(context)) for at, last in own + published]
    readings += [(each.at, each.last, *_other_record_read(manifest, each)) for each in staged]
    # Read all of them once. Search further, which is slower, only if none differs: first in the offsets that were
    # empty, then in the parts of published ranges that cuts have left.
    answers = context.source.records_from(list(dict.fromkeys((at, last.offset) for at, last, *_ in readings)))
    differs = (
        [
            (at, f"offset {last.offset} holds another record than {which}", next_step)
            for at, last, which, next_step in readings
            if _holds_other(at, last, answers, may_vanish=may_vanish)
        ]
        or [
            (at, f"offset {offset} and those after it held no record before, and hold one now", _find_out(context))
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
    """Return, by partition, the start of the first part that held no record when it was read and holds one now."""
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
    """Return which record another attempt has read, and the next step if the log no longer holds it."""
    which = f"the one that attempt {staged.attempt} of manifest {staged.manifest_id} read, which may be published yet"
    next_step = f"when all its sinks answer: tidemark retry {manifest.pipeline_name} --manifest {staged.manifest_id}"
    return which, next_step if staged.manifest_id == manifest.id else f"{next_step}; then this manifest"
