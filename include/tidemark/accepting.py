"""What a person decides about: lost offsets, another topic under an old name, a truncated log, an older region.

Every verb can say what it would do (a dry run), and does it in one transaction whose history names who and why.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from tidemark.errors import IllegalTransition, NotFound, PlanRefused
from tidemark.kafka import Watermarks
from tidemark.lifecycle import Lifecycle
from tidemark.model import UNDONE, RangeKind, RunKind
from tidemark.offsets import Range, TopicPartition
from tidemark.planner import Chain, sliced


@dataclass(frozen=True)
class Decision:
    """What was decided, or with a dry run would be: one line per chain, and the manifests that change or are new."""

    lines: tuple[str, ...]
    manifests: tuple[int, ...] = ()
    dry_run: bool = False


def accept_loss(lifecycle: Lifecycle, why: str, *, dry_run: bool) -> Decision:
    """Give up every offset that Kafka dropped and nobody has read: behind chain ends, and in unpublished ranges."""
    database, pipeline = lifecycle.database, lifecycle.pipeline.name
    places, _ = lifecycle.cluster.partitions(lifecycle.pipeline.source.kafka.topics)
    starts = {place: mark.log_start for place, mark in lifecycle.cluster.watermarks(places).items()}
    with database.because(why):
        database.lock_planning(pipeline)
        chains = {chain.at: chain for chain in database.chains(pipeline)}
        if not chains:
            raise NotFound(
                "the pipeline has no chains yet, so nothing of it can be lost",
                next_step="plan it first; when that is refused: on_data_loss: record in the pipeline file, or other "
                "starting_offsets",
                pipeline=pipeline,
            )
        lost = [(chains[at], one) for at, log_start in starts.items() if at in chains
                for one in _dropped(lifecycle, chains[at], log_start)]  # fmt: skip
        if not lost:
            raise NotFound(
                "nothing is lost: Kafka still holds every offset that is not published",
                next_step="look at the chains with: tidemark lag",
                pipeline=pipeline,
            )
        changed: list[int] = []
        for chain, one in lost:
            changed += [] if dry_run else database.accept_loss(chain.id, one.start, one.end)
    lines = tuple(f"{_place(one.at)}: offsets [{one.start}, {one.end}) are given up" for _, one in lost)
    return Decision(lines, tuple(sorted(set(changed))), dry_run)


def _dropped(lifecycle: Lifecycle, chain: Chain, log_start: int) -> Iterable[Range]:
    """The parts of a chain below Kafka's log start that are not published, and the hole behind its end."""
    for manifest in lifecycle.database.manifests(lifecycle.pipeline.name, UNDONE):
        for one in manifest.ranges:
            if one.at == chain.at and one.start < log_start and not manifest.alive:
                yield Range(one.at, one.start, min(one.end, log_start))
    if chain.end < log_start:
        yield Range(chain.at, chain.end, log_start)


def accept_topic(lifecycle: Lifecycle, topic: str, why: str, *, dry_run: bool) -> Decision:
    """The topic under this name is another one now: its old chains end, the next plan reads the new one from 0."""
    chains = [one for one in _refused(lifecycle, topic) if one.blocked_end is None]
    places, _ = lifecycle.cluster.partitions([topic])
    back = [chain for chain in chains if chain.at in places]
    if not back:
        return _retire(lifecycle, why, chains, dry_run=dry_run)
    if not dry_run:
        with lifecycle.database.because(why):
            lifecycle.database.unblock_chains([chain.id for chain in back])
    lines = tuple(f"{_place(one.at)}: the same topic is back, its chain goes on at {one.end}" for one in back)
    return Decision(lines, (), dry_run)


def accept_truncation(
    lifecycle: Lifecycle, topic: str, partition: int, why: str, *, start: int | None, dry_run: bool
) -> Decision:
    """The log was cut and written anew: its chain ends, the next incarnation starts at ``start``.

    Default: where the log ended when the truncation was noticed. Records written before that are not told apart.
    """
    refused = [one for one in _refused(lifecycle, topic) if one.at.partition == partition]
    chains = [one for one in refused if one.blocked_end is not None]
    if not chains:
        raise NotFound(f"no truncation of {topic}-{partition} was refused", next_step="see tidemark lag")
    noticed = chains[0].blocked_end
    assert noticed is not None
    unread = [one.start for _, one in _unread(lifecycle, chains)]
    anchor = min([noticed, *unread]) if start is None else start
    return _retire(lifecycle, why, chains, dry_run=dry_run, anchor=anchor)


def _refused(lifecycle: Lifecycle, topic: str) -> list[Chain]:
    chains = lifecycle.database.chains(lifecycle.pipeline.name)
    found = [chain for chain in chains if chain.at.topic == topic and chain.blocked]
    if not found:
        raise NotFound(
            f"no refusal stands for topic {topic}",
            next_step=f"plan first, it says what is refused: tidemark plan {lifecycle.pipeline.name} --dry-run",
            pipeline=lifecycle.pipeline.name,
        )
    return found


def _retire(
    lifecycle: Lifecycle, why: str, chains: list[Chain], *, dry_run: bool, anchor: int | None = None
) -> Decision:
    """End chains. What they planned and nobody published is lost; with ``anchor`` the next incarnation starts there."""
    database, pipeline = lifecycle.database, lifecycle.pipeline.name
    unread = _unread(lifecycle, chains)
    changed: list[int] = []
    if not dry_run:
        with database.because(why):
            database.lock_planning(pipeline)
            for chain, one in unread:
                changed += database.accept_loss(chain.id, one.start, one.end)
            database.retire_chains([chain.id for chain in chains])
            if anchor is not None:
                started = database.insert_chains(pipeline, [chain.at for chain in chains])
                database.insert_ranges(RangeKind.ANCHOR, [(one, None, anchor, None) for one in started.values()])
    lines = [f"{_place(one.at)}: planned and unread offsets [{one.start}, {one.end}) are lost" for _, one in unread]
    for chain in chains:
        where = "0 of the new topic" if anchor is None else str(anchor)
        ended = f"{_place(chain.at)}: incarnation {chain.incarnation} ends at {chain.end}"
        lines.append(f"{ended}, the next starts at {where}")
    return Decision(tuple(lines), tuple(sorted(set(changed))), dry_run)


def _unread(lifecycle: Lifecycle, chains: list[Chain]) -> list[tuple[Chain, Range]]:
    """What was planned on chains and is not published; an attempt at work on it is an error."""
    found = []
    for manifest in lifecycle.database.manifests(lifecycle.pipeline.name, UNDONE):
        mine = [(chain, one) for one in manifest.ranges for chain in chains if one.at == chain.at]
        if mine and manifest.alive:
            raise IllegalTransition(
                f"attempt {manifest.attempt} is at work on offsets that would be given up",
                next_step="wait for it, or stop that process",
                pipeline=manifest.pipeline,
                manifest=manifest.id,
            )
        found += mine
    return found


def extend_back(lifecycle: Lifecycle, start: datetime | None, why: str, *, dry_run: bool) -> Decision:
    """Plan the region before each chain's anchor in slices, from a time on (None: all that Kafka still has)."""
    database, pipeline = lifecycle.database, lifecycle.pipeline.name
    places, _ = lifecycle.cluster.partitions(lifecycle.pipeline.source.kafka.topics)
    marks = lifecycle.cluster.watermarks(places)
    at = lifecycle.cluster.offsets_at(places, start) if start else {}
    begin = {place: _first(mark, at.get(place)) if start else mark.log_start for place, mark in marks.items()}
    with database.because(why):
        database.lock_planning(pipeline)
        chains = {chain.at: chain for chain in database.chains(pipeline)}
        older = [Range(at, begin[at], chain.anchor) for at, chain in sorted(chains.items()) if _older(begin, chain)]
        if not older:
            raise PlanRefused(
                "nothing older than the chains' anchors is left in Kafka",
                next_step="see where the log starts with: tidemark lag",
                pipeline=pipeline,
            )
        slices = sliced(older, lifecycle.limits())
        manifests = [] if dry_run else _store_older(lifecycle, chains, older, slices)
    lines = tuple(f"{_place(one.at)}: offsets [{one.start}, {one.end}) in {len(slices)} slices" for one in older)
    return Decision(lines, tuple(manifests), dry_run)


def _first(mark: Watermarks, found: tuple[int, datetime] | None) -> int:
    """Where a time begins that Kafka was asked for: nothing is that young, or retention took its beginning."""
    return mark.last_stable if found is None else max(found[0], mark.log_start)


def _older(begin: dict[TopicPartition, int], chain: Chain) -> bool:
    """Before a later incarnation's anchor lies what an earlier one has read."""
    return chain.incarnation == 1 and begin.get(chain.at, chain.anchor) < chain.anchor


def _store_older(
    lifecycle: Lifecycle, chains: dict[TopicPartition, Chain], older: list[Range], slices: list[list[Range]]
) -> list[int]:
    database, pipeline = lifecycle.database, lifecycle.pipeline.name
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
