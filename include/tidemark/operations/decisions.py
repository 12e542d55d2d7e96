"""Decisions that you make: about lost offsets, another topic under an old name, a truncated log, records before the
anchor.

Every decision has a dry run, and is made in one transaction. Its history says who decided and why.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from tidemark.errors import IllegalTransition, NotFound, PlanRefused
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.logs.divergence import first_difference_now, vouched_now
from tidemark.lifecycle.logs.generations import Generation, generations_of
from tidemark.lifecycle.plan import limits
from tidemark.lifecycle.preflight import check_for_plan, not_known
from tidemark.lifecycle.reconcile import judgement
from tidemark.lifecycle.renamed import refuse_renamed
from tidemark.lifecycle.select import own_manifest
from tidemark.model.manifest import Decision, Manifest, ManifestState, RangeKind, RunKind, count_of
from tidemark.model.offsets import Range, TopicPartition
from tidemark.model.partitions import Bounds
from tidemark.model.verdict import Verdict
from tidemark.operations.another_log import Begin, NewStart, starts_in
from tidemark.planner import Chain, sliced


class NothingOlder(PlanRefused):
    """The source has no records from before the chains' anchors."""


@dataclass(frozen=True)
class _Planned:
    """A range of a manifest that is not done."""

    chain_id: int
    covered: Range
    manifest: Manifest
    generation_end: int | None  # where the chain's generation ended, if it is retired


@contextmanager
def deciding(context: Context, why: str, also: Sequence[int] = ()) -> Iterator[None]:
    """Open a transaction in which nobody else plans, and no attempt starts at undone manifests or at those in
    ``also``.
    """
    database, pipeline_name = context.database, context.pipeline_name
    with database.because(why):
        database.runs.lock_planning(pipeline_name)
        refuse_renamed(pipeline_name, database)
        database.manifests.lock_undone(pipeline_name, also)
        yield


@contextmanager
def _deciding_if_complete(context: Context, why: str, *, dry_run: bool) -> Iterator[None]:
    """Do the same as ``deciding``. Raises ``LakeConflict`` if a target has records that the database lacks: the
    decision would take the offsets that they cover for unread.
    """
    check_for_plan(context, dry_run=dry_run)
    with deciding(context, why):
        yield


def _noted(context: Context, verb: str, decision: Decision) -> Decision:
    """Return the decision. Unless it is a dry run, add it to the history, and forget why plans were refused."""
    if not decision.dry_run:
        context.database.tasks.forget_refused_plan(context.pipeline_name)
        context.database.decisions.note(context.pipeline_name, verb, decision)
    return decision


def _planned(context: Context) -> list[_Planned]:
    database, pipeline_name = context.database, context.pipeline_name
    manifests = {manifest.id: manifest for manifest in database.manifests.undone(pipeline_name)}
    rows = database.ranges.undone(pipeline_name)
    return [_Planned(chain_id, covered, manifests[manifest_id], end) for chain_id, covered, manifest_id, end in rows]


def accept_loss(context: Context, why: str, *, dry_run: bool) -> Decision:
    """Give up every offset that retention removed before it was read: after chain ends, and in unpublished ranges."""
    database, pipeline_name = context.database, context.pipeline_name
    # Offsets of topics that were removed from the file may be planned too.
    planned_topics = sorted({chain.at.topic for chain in database.chains.of_pipeline(pipeline_name)})
    places, _ = context.source.partitions(context.source.selected(*planned_topics))
    starts = {place: log.log_start for place, log in context.source.bounds(places).items()}
    with _deciding_if_complete(context, why, dry_run=dry_run):
        chains = database.chains.of_pipeline(pipeline_name)
        if not chains:
            raise NotFound(
                "the pipeline has no chains yet, so nothing of it can be lost",
                next_step="plan it first; if planning is refused, write on_data_loss: record in the pipeline file, or "
                "other starting_offsets",
            )
        planned = [part for part in _planned(context) if part.covered.start < starts.get(part.covered.at, 0)]
        dead = [part for part in planned if not part.manifest.alive]
        unpublished = _unpublished(context, dead, ask_all=True)
        lost = [
            (part.chain_id, replace(part.covered, end=min(part.covered.end, starts[part.covered.at])))
            for part in unpublished
        ]
        reads = context.pipeline.source.reads
        behind = [chain for chain in chains if chain.end < starts.get(chain.at, 0) and reads(chain.at.topic)]
        lost += [(chain.id, Range(chain.at, chain.end, starts[chain.at])) for chain in behind]
        if not lost and dead:
            raise _half_published(context, dead[0].manifest)
        if not lost:
            _refuse_at_work(planned)
            raise NotFound(
                f"nothing is lost: {context.source.title} still holds every offset that is not published",
                next_step=f"look at the chains with: tidemark lag {pipeline_name}",
            )
        changed: list[int] = []
        lines: list[str] = []
        for chain_id, covered in lost:
            changed += [] if dry_run else database.decisions.accept_loss(chain_id, covered.start, covered.end)
            lines.append(f"{covered.at.name}: offsets [{covered.start}, {covered.end}) are given up")
        lines += _half_published_lines(context, dead)
        return _noted(context, "accept-loss", Decision(tuple(lines), tuple(sorted(set(changed))), dry_run))


def _unpublished(context: Context, planned: list[_Planned], *, ask_all: bool = False) -> list[_Planned]:
    """Return the ranges of manifests that no sink has published: only they can be given up.

    Raises ``IllegalTransition`` if the output of a manifest is complete and only its publication is missing. Raises
    ``DatabaseBehindLake`` if a sink shows an attempt of which this database has no receipt. A sink need not answer if
    no known attempt has written to it. With ``ask_all`` it must, unless another sink has published the manifest: then
    the manifest is not given up.
    """
    manifests = {part.manifest.id: part.manifest for part in planned}.values()
    if ask_all and any(not manifest.publications for manifest in manifests):
        for sink in context.sinks:
            sink.ledger.owner()  # when it answers, ``check_for_plan`` has compared it
    for manifest in manifests:
        tried = {name for stored in context.database.attempts.receipts(manifest.id) for name in stored.receipt.sinks}
        for sink in context.sinks if manifest.attempt else ():  # without an attempt no sink can have output of it
            if sink.name not in tried and (manifest.publications or not ask_all):
                continue
            verdict = judgement(context.database, manifest, sink).verdict
            if verdict is Verdict.UNKNOWN:
                raise not_known(sink, manifest.id, sink.ledger.recorded_attempt(manifest.id))
            if verdict is Verdict.MARK_MISSING:
                raise IllegalTransition(
                    "nothing of it is lost: an attempt wrote all its output and died, and only its publication is "
                    "missing",
                    next_step=f"finish it with {manifest.retry}, which reads nothing again; then decide again",
                    manifest=manifest.id,
                    sink=sink.name,
                )
    return [part for part in planned if not part.manifest.publications]


def _half_published_lines(context: Context, planned: list[_Planned]) -> list[str]:
    """Return a line for each manifest that some sinks have published and the others can never publish."""
    lines = []
    for manifest in {part.manifest.id: part.manifest for part in planned if part.manifest.publications}.values():
        error = _half_published(context, manifest)
        lines.append(f"manifest {manifest.id} stays: {error.what}; {error.next_step}")
    return lines


def _half_published(context: Context, manifest: Manifest) -> IllegalTransition:
    have = [publication.sink for publication in manifest.publications]
    lack = [sink.name for sink in context.sinks if sink.name not in have]
    if not lack:
        return IllegalTransition(
            "the manifest is published in every sink, but its state is not done yet",
            next_step=f"finish it with {manifest.retry}; this does not read the source again",
            manifest=manifest.id,
        )
    return IllegalTransition(
        f"the manifest is published in {', '.join(have)}, and the source has lost what {', '.join(lack)} lacks",
        next_step=f"accept that with tidemark accept damage {manifest.pipeline_name} --manifest {manifest.id} --why "
        f"TEXT, then finish it with {manifest.retry}",
        manifest=manifest.id,
    )


def accept_topic(context: Context, topic: str, why: str, *, dry_run: bool, begin: Sequence[Begin] = ()) -> Decision:
    """Accept that the topic under this name is a new one: its old chains end. The new ones begin behind the last
    published records, if the new topic has them, or where ``begin`` says.

    Works also for a topic that was removed from the pipeline file, so that no plan refuses it. If the old topic is back
    with its id, its chains go on. Raises ``NotFound`` if nothing of the topic has changed. Raises ``PlanRefused`` if
    the new topic may be a copy at other offsets and ``begin`` does not say where to begin.
    """
    before_asking = {chain.id for chain in context.database.chains.of_pipeline(context.pipeline_name)}
    places, _ = context.source.partitions([topic])
    selected = topic in context.source.selected()
    with _deciding_if_complete(context, why, dry_run=dry_run):
        of_topic = [
            chain for chain in context.database.chains.of_pipeline(context.pipeline_name) if chain.at.topic == topic
        ]
        gone = [chain for chain in of_topic if chain.id in before_asking and chain.at not in places]
        chains = gone or [chain for chain in _refused(context, topic) if chain.blocked_end is None]
        back = [chain for chain in chains if chain.at in places]
        if not back:
            new = [at for at in places if at not in {chain.at for chain in of_topic}] if selected else []
            starts = starts_in(context, gone, new, begin) if new else []
            return _noted(context, "accept-topic", _begin_in_another(context, chains, starts, dry_run=dry_run))
        if not dry_run:
            context.database.chains.unblock([chain.id for chain in back])
        lines = tuple(f"{chain.at.name}: the same topic is back, its chain goes on at {chain.end}" for chain in back)
        return _noted(context, "accept-topic", Decision(lines, (), dry_run))


def accept_expectation(context: Context, manifest_id: int, why: str, *, dry_run: bool) -> Decision:
    """Let a blocked manifest be published, whichever rows do not meet the expectations that the file has now.

    Raises ``IllegalTransition`` if the manifest is not blocked, or if no expectation of the file has ``at_most``.
    """
    with deciding(context, why, also=[manifest_id]):
        manifest = own_manifest(context, manifest_id)
        expectations = [each for each in context.pipeline.expectations() if each.at_most is not None]
        if manifest.state is not ManifestState.BLOCKED or not expectations:
            what = f"it is {manifest.state}" if expectations else "no expectation of the pipeline file has at_most"
            raise IllegalTransition(
                f"no expectation keeps the manifest from being published: {what}",
                next_step=f"look at it: tidemark show {manifest_id}",
                manifest=manifest_id,
            )
        if not dry_run:
            questions = [each.question for each in expectations]
            context.database.decisions.accept_expectations(manifest_id, questions)
        lines = [f"manifest {manifest_id} may have rows that do not meet: {each.name}" for each in expectations]
        lines.append(f"publish it with: {manifest.retry}")
        return _noted(context, "accept-expectation", Decision(tuple(lines), (manifest_id,), dry_run))


def _begin_in_another(context: Context, chains: list[Chain], starts: Sequence[NewStart], *, dry_run: bool) -> Decision:
    """End the chains of a topic, and begin those of another topic under the same name."""
    decision = _retire(context, chains, dry_run=dry_run)
    if starts and not dry_run:
        started = context.database.chains.insert(context.pipeline_name, [each.at for each in starts])
        anchors = [(started[each.at], None, each.offset, None) for each in starts]
        context.database.ranges.insert(RangeKind.ANCHOR, anchors)
        context.database.pipelines.remember_cluster(context.pipeline_name, context.source.cluster_id())
    return replace(decision, lines=(*decision.lines, *(each.line for each in starts)))


def accept_truncation(
    context: Context, topic: str, partition: int, why: str, *, start: int | None, dry_run: bool
) -> Decision:
    """Accept that a log was truncated: its chain ends, and the next log generation starts at ``start``.

    By default that is the log's end when the truncation was noticed, or, if lower, the first offset whose record
    differs from the published one. It is never below a published record that the log still holds: then a wrong answer
    was taken for a cut, or the log is back, and its chain may even go on. A higher ``start`` loses the offsets between.
    A lower ``start`` reads the offsets between again, also published ones, because old and new records cannot be told
    apart.

    What is planned below ``start`` and not yet published stays planned, and is read from the present log. So no attempt
    may be at work on it, and the output of its earlier attempts is never published.
    """
    if start is not None:
        _refuse_past_the_end(context, topic, partition, start)
    with _deciding_if_complete(context, why, dry_run=dry_run):
        refused = [chain for chain in _refused(context, topic) if chain.at.partition == partition]
        chains = [chain for chain in refused if chain.blocked_end is not None]
        if not chains:
            raise NotFound(
                f"no plan was refused because {topic}-{partition} was truncated",
                next_step=f"look at the chains with: tidemark lag {context.pipeline_name}",
            )
        [chain] = chains
        _forget_what_was_read(context, chain, dry_run=dry_run)
        end = _generation_end(context, chain, is_named=start is not None)
        if start is None and (chain.blocked_end or 0) < end == chain.end:
            if not dry_run:
                context.database.chains.unblock([chain.id])
            line = f"{chain.at.name}: the log holds what is published up to {end}, its chain goes on there"
            return _noted(context, "accept-truncation", Decision((line,), (), dry_run))
        begin = end if start is None else start
        again = _read_again(context, chain.at, begin, end)
        skipped = max(0, begin - end)
        decision = _retire(context, chains, dry_run=dry_run, anchor=min(begin, end), skipped=skipped)
        decision = replace(decision, lines=(*decision.lines, *again))
        return _noted(context, "accept-truncation", decision)


def _forget_what_was_read(context: Context, chain: Chain, *, dry_run: bool) -> None:
    """Take back the output of attempts at undone manifests of the partition: they may have read the log before it was
    cut.

    Raises ``IllegalTransition`` if an attempt is at work on one, or if its output is complete and only its mark is
    missing.
    """
    planned = [part for part in _planned(context) if part.covered.at == chain.at]
    _refuse_at_work(planned)
    _unpublished(context, planned)
    if dry_run:
        return
    for manifest_id in sorted({part.manifest.id for part in planned}):
        for stored in context.database.attempts.receipts(manifest_id):
            for sink in stored.receipt.sinks:
                context.database.attempts.take_back(manifest_id, stored.receipt.attempt, sink)


def _generation_end(context: Context, chain: Chain, *, is_named: bool) -> int:
    """Return where the generation of a refused chain ended: the end noticed when it was refused, or lower, where the
    log now differs from what was published since.

    Unless you have named an offset, it is never below a published record that the log still holds.
    """
    noticed = chain.blocked_end or 0
    differs = first_difference_now(context, chain)
    end = chain.end if differs is None else min(differs, chain.end)
    return min(end, noticed if is_named else max(noticed, vouched_now(context, chain, end)))


def _read_again(context: Context, at: TopicPartition, begin: int, end: int) -> Iterator[str]:
    """Yield one line if published offsets will be read again, whichever log generation they were published from. Only
    you know whether the records there are new.
    """
    if begin >= end:
        return
    manifests = context.database.manifests.find(context.pipeline_name)
    published = [
        str(manifest.id) for manifest in manifests if manifest.publications and _meets(manifest, at, begin, end)
    ]
    if published:
        yield (
            f"{at.name}: offsets [{begin}, {end}) are read again, though manifests {', '.join(published)} have "
            "published some of them: records that were not written again will be there twice"
        )


def _meets(manifest: Manifest, at: TopicPartition, begin: int, end: int) -> bool:
    return any(range_.at == at and range_.start < end and begin < range_.end for range_ in manifest.ranges)


def _refuse_past_the_end(context: Context, topic: str, partition: int, start: int) -> None:
    places, _ = context.source.partitions([topic])
    bounds = context.source.bounds([place for place in places if place.partition == partition])
    for at, log in bounds.items():
        if start > log.log_end:
            raise PlanRefused(
                f"{at.name} ends at {log.log_end}: nothing can be read from offset {start} on",
                next_step=f"nothing was decided; give --from an offset from {log.log_start} to {log.log_end}",
                topic=topic,
                partition=partition,
            )


def _refused(context: Context, topic: str) -> list[Chain]:
    chains = context.database.chains.of_pipeline(context.pipeline_name)
    blocked = [chain for chain in chains if chain.at.topic == topic and chain.blocked]
    if not blocked:
        raise NotFound(
            f"no plan of topic {topic} was refused",
            next_step=f"plan first, which says what is refused: tidemark plan {context.pipeline_name} --dry-run",
        )
    return blocked


def _retire(
    context: Context, chains: list[Chain], *, dry_run: bool, anchor: int | None = None, skipped: int = 0
) -> Decision:
    """End chains. What is planned on them and not published is lost.

    With an ``anchor`` the next generation starts there, and only what is planned above it is lost. The first
    ``skipped`` offsets of the next generation are lost too.
    """
    database, pipeline_name = context.database, context.pipeline_name
    ended = {chain.at for chain in chains}
    planned = [part for part in _planned(context) if part.covered.at in ended and part.covered.end > (anchor or 0)]
    _refuse_at_work(planned)
    lost: list[tuple[int, Range]] = []
    for part in _unpublished(context, planned):
        start = max(part.covered.start, anchor or 0)
        lost.append((part.chain_id, Range(part.covered.at, start, part.covered.end)))
    changed: list[int] = []
    if not dry_run:
        for chain_id, covered in lost:
            changed += database.decisions.accept_loss(chain_id, covered.start, covered.end)
        database.chains.retire([chain.id for chain in chains])
        if anchor is not None:
            started = database.chains.insert(pipeline_name, [chain.at for chain in chains])
            database.ranges.insert(RangeKind.ANCHOR, [(chain_id, None, anchor, None) for chain_id in started.values()])
            if skipped:
                rows = [(chain_id, anchor, anchor + skipped, None) for chain_id in started.values()]
                database.ranges.insert(RangeKind.LOST, rows)
    lines = [_is_lost(covered) for _, covered in lost]
    for chain in chains:
        ends = f"{chain.at.name}: log generation {chain.generation} ends at {chain.end}"
        if anchor is not None:
            ends += f", the next starts at {anchor}"
            ends += f", and its offsets [{anchor}, {anchor + skipped}) are lost" if skipped else ""
        lines.append(ends)
    return Decision((*lines, *_half_published_lines(context, planned)), tuple(sorted(set(changed))), dry_run)


def give_up_beyond_generations(context: Context) -> list[str]:
    """Give up what is planned on retired chains above the end of their generation; return one line per lost range.

    The caller has opened the transaction of a decision.
    """
    lines = []
    for part in _planned(context):
        if part.generation_end is None or part.manifest.publications:
            continue
        start = max(part.covered.start, part.generation_end)
        if start < part.covered.end:
            context.database.decisions.accept_loss(part.chain_id, start, part.covered.end)
            lines.append(_is_lost(Range(part.covered.at, start, part.covered.end)))
    return lines


def _is_lost(covered: Range) -> str:
    return f"{covered.at.name}: planned and unread offsets [{covered.start}, {covered.end}) are lost"


def _refuse_at_work(planned: list[_Planned]) -> None:
    for part in planned:
        if part.manifest.alive:
            raise IllegalTransition(
                f"attempt {part.manifest.attempt} is at work on offsets of this decision",
                next_step="wait for it, or stop that process",
                manifest=part.manifest.id,
            )


def extend_back(context: Context, start: datetime | None, why: str, *, dry_run: bool) -> Decision:
    """Plan slices of the records before the first generation of each log, from time ``start`` on; None means from the
    oldest record of the source.

    One call plans at most ``max_slices`` slices, those with the highest offsets. It moves the anchor of each chain back
    to where these slices start; the next call goes on from there. Raises ``NothingOlder`` if the source has no such
    records.
    """
    database, pipeline_name = context.database, context.pipeline_name
    places, _ = context.source.partitions(context.source.selected())
    bounds = context.source.bounds(places)
    if start is None:
        begin = {place: log.log_start for place, log in bounds.items()}
    else:
        offsets = context.source.offsets_at(places, start)
        begin = {place: _first(log, offsets.get(place)) for place, log in bounds.items()}
    with _deciding_if_complete(context, why, dry_run=dry_run):
        logs = generations_of(database, database.chains.of_pipeline(pipeline_name))
        first = {at: min(generations, key=lambda each: each.start) for at, generations in logs.items()}
        older = [
            Range(at, begin[at], generation.start)
            for at, generation in sorted(first.items())
            if begin.get(at, generation.start) < generation.start
        ]
        if not older:
            raise NothingOlder(
                f"{context.source.title} has no records from before the chains' anchors any more",
                next_step=f"see where the log starts with: tidemark lag {pipeline_name}",
            )
        limit = limits(context)
        every = sliced(older, limit)
        slices = every[-limit.max_slices :]
        reached = [Range(range_.at, _begin(range_.at, slices), range_.end) for range_ in older]
        manifest_ids = [] if dry_run else _store_older(context, first, reached, slices)
        parts = count_of(len(slices), "slice")
        lines = [f"{range_.at.name}: offsets [{range_.start}, {range_.end}) in {parts}" for range_ in reached]
        if context.pipeline.look_back is not None:
            lines.append("dedupe looks back: a key that newer manifests have published already is published again")
        if len(every) > len(slices):
            lines.append(
                f"{len(every) - len(slices)} slices of older records are left, because max_slices is "
                f"{limit.max_slices}; for them give the same command again"
            )
        return _noted(context, "extend-back", Decision(tuple(lines), tuple(manifest_ids), dry_run))


def _begin(at: TopicPartition, slices: Sequence[Sequence[Range]]) -> int:
    return min(range_.start for part in slices for range_ in part if range_.at == at)


def _first(log: Bounds, answer: tuple[int, datetime] | None) -> int:
    """Return the first offset to read, from the source's answer for a time. An answer of None means that all records
    are older.
    """
    return log.last_stable if answer is None else max(answer[0], log.log_start)


def _store_older(
    context: Context, first: Mapping[TopicPartition, Generation], older: list[Range], slices: list[list[Range]]
) -> list[int]:
    database, pipeline_name = context.database, context.pipeline_name
    for range_ in older:
        database.chains.extend_back(first[range_.at].chain_id, range_.start)
    run_id = database.runs.insert(
        pipeline_name, f"extend-back__{datetime.now(UTC).isoformat()}", RunKind.MANUAL,
        cut_at=None, reached=True, covered_by=[], notes=[],
    )  # fmt: skip
    manifest_ids = database.manifests.insert(run_id, pipeline_name, len(slices))
    rows: list[tuple[int, int | None, int, int | None]] = []
    for manifest_id, ranges in zip(manifest_ids, slices, strict=True):
        rows += [(first[range_.at].chain_id, range_.start, range_.end, manifest_id) for range_ in ranges]
    database.ranges.insert(RangeKind.DATA, rows)
    return manifest_ids
