"""What a person decides about: lost offsets, another topic under an old name, a truncated log, an older region.

Every verb can say what it would do (a dry run), and does it in one transaction whose history names who and why.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from tidemark.errors import IllegalTransition, NotFound, PlanRefused
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.plan import limits
from tidemark.lifecycle.preflight import check_for_plan
from tidemark.lifecycle.recover import lacks_only_the_mark
from tidemark.manifest import UNDONE, Decision, Manifest, RangeKind, RunKind
from tidemark.offsets import Range, TopicPartition
from tidemark.partitions import Bounds
from tidemark.planner import Chain, sliced


@dataclass(frozen=True)
class _Planned:
    """A range of a manifest that is not done."""

    chain: int
    covered: Range
    manifest: Manifest
    life_end: int | None  # of a chain that is retired


@contextmanager
def deciding(context: Context, why: str, also: Sequence[int] = ()) -> Iterator[None]:
    """One transaction in which nobody plans, and no attempt begins at what is not done, nor at those of ``also``."""
    database, pipeline = context.database, context.pipeline_name
    with database.because(why):
        database.lock_planning(pipeline)
        database.lock_undone(pipeline, also)
        yield


@contextmanager
def _deciding_of_all(context: Context, why: str, *, dry_run: bool) -> Iterator[None]:
    """As ``deciding``; refused when a target knows more than the database, which would take that for unread."""
    check_for_plan(context, dry_run=dry_run)
    with deciding(context, why):
        yield


def _noted(context: Context, verb: str, decision: Decision) -> Decision:
    """The decision, and unless it is a dry run its entry in the history."""
    if not decision.dry_run:
        context.database.note_decision(context.pipeline_name, verb, decision)
    return decision


def _planned(context: Context) -> list[_Planned]:
    database, pipeline = context.database, context.pipeline_name
    manifests = {one.id: one for one in database.manifests(pipeline, UNDONE)}
    rows = database.undone_ranges(pipeline)
    return [_Planned(chain, covered, manifests[one], life_end) for chain, covered, one, life_end in rows]


def accept_loss(context: Context, why: str, *, dry_run: bool) -> Decision:
    """Give up every offset that retention took and nobody has read: behind chain ends, and in unpublished ranges."""
    database, pipeline = context.database, context.pipeline_name
    places, _ = context.source.partitions(context.pipeline.source.topics)
    starts = {place: mark.log_start for place, mark in context.source.bounds(places).items()}
    with _deciding_of_all(context, why, dry_run=dry_run):
        chains = database.chains(pipeline)
        if not chains:
            raise NotFound(
                "the pipeline has no chains yet, so nothing of it can be lost",
                next_step="plan it first; when that is refused: on_data_loss: record in the pipeline file, or other "
                "starting_offsets",
                pipeline=pipeline,
            )
        planned = [one for one in _planned(context) if one.covered.start < starts.get(one.covered.at, 0)]
        dropped = [one for one in planned if not one.manifest.alive]
        lost = [(one.chain, _below(one.covered, starts[one.covered.at])) for one in _unpublished(context, dropped)]
        lost += [(chain.id, Range(chain.at, chain.end, starts[chain.at]))
                 for chain in chains if chain.end < starts.get(chain.at, 0)]  # fmt: skip
        if not lost and dropped:
            raise _half_published(context, dropped[0].manifest)
        if not lost:
            _refuse_at_work(planned)
            raise NotFound(
                f"nothing is lost: {context.source.title} still holds every offset that is not published",
                next_step="look at the chains with: tidemark lag",
                pipeline=pipeline,
            )
        changed: list[int] = []
        for chain, one in lost:
            changed += [] if dry_run else database.accept_loss(chain, one.start, one.end)
        lines = [f"{_place(one.at)}: offsets [{one.start}, {one.end}) are given up" for _, one in lost]
        lines += _stay(context, dropped)
        return _noted(context, "accept-loss", Decision(tuple(lines), tuple(sorted(set(changed))), dry_run))


def _below(covered: Range, end: int) -> Range:
    return Range(covered.at, covered.start, min(covered.end, end))


def _unpublished(context: Context, planned: list[_Planned]) -> list[_Planned]:
    """What no sink has: only that can be given up. Output that lacks nothing but its mark is an error."""
    for one in {each.manifest.id: each.manifest for each in planned}.values():
        if lacks_only_the_mark(context, one):
            raise IllegalTransition(
                "nothing of it is lost: an attempt wrote its output and died before the publication",
                next_step=f"finish it with tidemark retry {one.pipeline_name}, which reads nothing again (the pipeline "
                "file must be the same as then); then decide again",
                pipeline=one.pipeline_name,
                manifest=one.id,
            )
    return [one for one in planned if not one.manifest.publications]


def _stay(context: Context, planned: list[_Planned]) -> list[str]:
    """One line for each manifest that some sinks have and others never can have."""
    half = {one.manifest.id: one.manifest for one in planned if one.manifest.publications}
    return [f"manifest {one.id} stays: {(error := _half_published(context, one)).what}; {error.next_step}"
            for one in half.values()]  # fmt: skip


def _half_published(context: Context, manifest: Manifest) -> IllegalTransition:
    have = [one.sink for one in manifest.publications]
    lack = [sink.name for sink in context.sinks if sink.name not in have]
    if not lack:
        return IllegalTransition(
            "every sink has it, and it only has to be ended",
            next_step=f"tidemark retry {manifest.pipeline_name}, which reads nothing for it",
            pipeline=manifest.pipeline_name,
            manifest=manifest.id,
        )
    return IllegalTransition(
        f"it is published in {', '.join(have)}, and the source has lost what {', '.join(lack)} lacks",
        next_step=f"take {', '.join(lack)} out of the pipeline file, end the manifest with tidemark retry "
        f"{manifest.pipeline_name}, and put the sink back: it goes on without these rows",
        pipeline=manifest.pipeline_name,
        manifest=manifest.id,
    )


def accept_topic(context: Context, topic: str, why: str, *, dry_run: bool) -> Decision:
    """The topic under this name is another one now: its old chains end, the next plan reads the new one from 0."""
    places, _ = context.source.partitions([topic])
    with _deciding_of_all(context, why, dry_run=dry_run):
        chains = [one for one in _refused(context, topic) if one.blocked_end is None]
        back = [chain for chain in chains if chain.at in places]
        if not back:
            return _noted(context, "accept-topic", _retire(context, chains, dry_run=dry_run))
        if not dry_run:
            context.database.unblock_chains([chain.id for chain in back])
        lines = tuple(f"{_place(one.at)}: the same topic is back, its chain goes on at {one.end}" for one in back)
        return _noted(context, "accept-topic", Decision(lines, (), dry_run))


def accept_truncation(
    context: Context, topic: str, partition: int, why: str, *, start: int | None, dry_run: bool
) -> Decision:
    """The log was cut and written anew: its chain ends, the next incarnation starts at ``start``.

    Default: where the log ended when the truncation was noticed; what lies above that is lost up to ``start``, what
    lies below it is read again from ``start`` on, since nobody can tell records that were there from those written
    anew. What was planned below ``start`` and is not published yet stays planned.
    """
    if start is not None:
        _refuse_past_the_end(context, topic, partition, start)
    with _deciding_of_all(context, why, dry_run=dry_run):
        refused = [one for one in _refused(context, topic) if one.at.partition == partition]
        chains = [one for one in refused if one.blocked_end is not None]
        if not chains:
            raise NotFound(f"no truncation of {topic}-{partition} was refused", next_step="see tidemark lag")
        [chain] = chains
        ended = chain.blocked_end or 0
        begin = ended if start is None else start
        again = _read_again(context, chain.at, begin, ended)
        skipped = max(0, begin - ended)
        decision = _retire(context, chains, dry_run=dry_run, anchor=min(begin, ended), skipped=skipped)
        decision = replace(decision, lines=(*decision.lines, *again))
        return _noted(context, "accept-truncation", decision)


def _read_again(context: Context, at: TopicPartition, begin: int, end: int) -> Iterator[str]:
    """One line when published offsets are read once more, in whatever life of the partition they were published: only
    a person knows whether other records are there now."""
    known = context.database.manifests(context.pipeline_name) if begin < end else []
    published = [
        str(one.id)
        for one in known
        if one.publications and any(each.at == at and each.start < end and begin < each.end for each in one.ranges)
    ]
    if published:
        yield (
            f"{_place(at)}: offsets [{begin}, {end}) are read again beside what manifests "
            f"{', '.join(published)} have published of them: a record that was not written anew will be there twice"
        )


def _refuse_past_the_end(context: Context, topic: str, partition: int, start: int) -> None:
    places, _ = context.source.partitions([topic])
    marks = context.source.bounds([one for one in places if one.partition == partition])
    for at, mark in marks.items():
        if start > mark.log_end:
            raise PlanRefused(
                f"{_place(at)} ends at {mark.log_end}: nothing can be read from offset {start} on",
                next_step=f"nothing was decided; give --from an offset from {mark.log_start} to {mark.log_end}",
                pipeline=context.pipeline_name,
                topic=topic,
                partition=partition,
            )


def _refused(context: Context, topic: str) -> list[Chain]:
    chains = context.database.chains(context.pipeline_name)
    found = [chain for chain in chains if chain.at.topic == topic and chain.blocked]
    if not found:
        raise NotFound(
            f"no refusal stands for topic {topic}",
            next_step=f"plan first, it says what is refused: tidemark plan {context.pipeline_name} --dry-run",
            pipeline=context.pipeline_name,
        )
    return found


def _retire(
    context: Context, chains: list[Chain], *, dry_run: bool, anchor: int | None = None, skipped: int = 0
) -> Decision:
    """End chains. What they planned and nobody published is lost; with ``anchor`` the next incarnation starts there,
    and only what lies above it is lost; of the next one too the first ``skipped`` offsets are."""
    database, pipeline = context.database, context.pipeline_name
    ended = {chain.at for chain in chains}
    planned = [one for one in _planned(context) if one.covered.at in ended and one.covered.end > (anchor or 0)]
    _refuse_at_work(planned)
    lost = [(one.chain, Range(one.covered.at, max(one.covered.start, anchor or 0), one.covered.end))
            for one in _unpublished(context, planned)]  # fmt: skip
    changed: list[int] = []
    if not dry_run:
        for chain_id, one in lost:
            changed += database.accept_loss(chain_id, one.start, one.end)
        database.retire_chains([chain.id for chain in chains])
        if anchor is not None:
            started = database.insert_chains(pipeline, [chain.at for chain in chains])
            database.insert_ranges(RangeKind.ANCHOR, [(one, None, anchor, None) for one in started.values()])
            if skipped:
                lost_ranges = [(one, anchor, anchor + skipped, None) for one in started.values()]
                database.insert_ranges(RangeKind.LOST, lost_ranges)
    lines = [_is_lost(one) for _, one in lost]
    for chain in chains:
        where = "0 of the new topic" if anchor is None else str(anchor)
        if anchor is not None and skipped:
            where += f", and its offsets [{anchor}, {anchor + skipped}) are lost"
        lines.append(f"{_place(chain.at)}: incarnation {chain.incarnation} ends at {chain.end}, "
                     f"the next starts at {where}")  # fmt: skip
    return Decision((*lines, *_stay(context, planned)), tuple(sorted(set(changed))), dry_run)


def give_up_outlived(context: Context) -> list[str]:
    """What is planned on chains that a newer life of their partition has retired, and is not there any more: one line
    for each range that is lost of it. Called inside a decision's transaction."""
    lines = []
    for one in _planned(context):
        if one.life_end is None or one.manifest.publications:
            continue
        start = max(one.covered.start, one.life_end)
        if start < one.covered.end:
            context.database.accept_loss(one.chain, start, one.covered.end)
            lines.append(_is_lost(Range(one.covered.at, start, one.covered.end)))
    return lines


def _is_lost(one: Range) -> str:
    return f"{_place(one.at)}: planned and unread offsets [{one.start}, {one.end}) are lost"


def _refuse_at_work(planned: list[_Planned]) -> None:
    for one in planned:
        if one.manifest.alive:
            raise IllegalTransition(
                f"attempt {one.manifest.attempt} is at work on offsets that would be given up",
                next_step="wait for it, or stop that process",
                pipeline=one.manifest.pipeline_name,
                manifest=one.manifest.id,
            )


def extend_back(context: Context, start: datetime | None, why: str, *, dry_run: bool) -> Decision:
    """Plan the region before each chain's anchor in slices, from a time on (None: all that there still is)."""
    database, pipeline = context.database, context.pipeline_name
    places, _ = context.source.partitions(context.pipeline.source.topics)
    marks = context.source.bounds(places)
    at = context.source.offsets_at(places, start) if start else {}
    begin = {place: _first(mark, at.get(place)) if start else mark.log_start for place, mark in marks.items()}
    with _deciding_of_all(context, why, dry_run=dry_run):
        chains = {chain.at: chain for chain in database.chains(pipeline)}
        older = [Range(at, begin[at], chain.anchor) for at, chain in sorted(chains.items()) if _older(begin, chain)]
        if not older:
            raise PlanRefused(
                f"nothing older than the chains' anchors is left in {context.source.title}",
                next_step="see where the log starts with: tidemark lag",
                pipeline=pipeline,
            )
        slices = sliced(older, limits(context))
        manifests = [] if dry_run else _store_older(context, chains, older, slices)
        lines = tuple(f"{_place(one.at)}: offsets [{one.start}, {one.end}) in {len(slices)} slices" for one in older)
        return _noted(context, "extend-back", Decision(lines, tuple(manifests), dry_run))


def _first(mark: Bounds, found: tuple[int, datetime] | None) -> int:
    """Where a time begins that the source was asked for: nothing is that young, or retention took its beginning."""
    return mark.last_stable if found is None else max(found[0], mark.log_start)


def _older(begin: dict[TopicPartition, int], chain: Chain) -> bool:
    """Before a later incarnation's anchor lies what an earlier one has read."""
    return chain.incarnation == 1 and begin.get(chain.at, chain.anchor) < chain.anchor


def _store_older(
    context: Context, chains: dict[TopicPartition, Chain], older: list[Range], slices: list[list[Range]]
) -> list[int]:
    database, pipeline = context.database, context.pipeline_name
    for one in older:
        database.extend_back(chains[one.at].id, one.start)
    run = database.insert_run(
        pipeline, f"extend-back__{datetime.now(UTC).isoformat()}", RunKind.MANUAL,
        cut_at=None, reached=True, covered_by=[], notes=[],
    )  # fmt: skip
    manifests = database.insert_manifests(run, pipeline, len(slices))
    rows = [
        (chains[one.at].id, one.start, one.end, manifest)
        for manifest, part in zip(manifests, slices, strict=True)
        for one in part
    ]
    database.insert_ranges(RangeKind.DATA, rows)
    return manifests


def _place(at: TopicPartition) -> str:
    return f"{at.topic}-{at.partition}"
