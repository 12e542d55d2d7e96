"""Folds the oldest ranges of each chain into one of kind ``archived``, and keeps the proof of what they held.

A manifest is archived whole or not at all: all its ranges, on all its chains. On each chain it stops at the first
manifest that may not be archived. That is done in batches, each in a transaction of its own, so nobody waits for long;
after a kill between two of them the same command goes on.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tidemark.database.statements import Row
from tidemark.errors import ConfigurationError, IllegalTransition, NotFound
from tidemark.failpoints import failpoint
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.preflight import check_for_plan
from tidemark.model.manifest import Decision, Manifest
from tidemark.model.problem import Problem
from tidemark.model.verdict import NextStep, command

BATCH = 5_000  # ranges of all chains in one transaction: half a second, in which nobody plans
NAMED = 10  # manifests at which it stops, in a message


@dataclass
class NewArchive:
    """What was archived, and in a dry run would be; ``archive`` is its number, None when that is nothing.

    ``manifests`` counts them, from the first to the last, ``offsets`` those of all chains, lost ones too. ``stops`` are
    manifests that may not be archived although they are old enough.
    """

    pipeline_name: str
    before: datetime
    dry_run: bool
    archive: int | None = None
    manifests: int = 0
    first_manifest: int | None = None
    last_manifest: int | None = None
    offsets: int = 0
    stops: list[Problem] = field(default_factory=list)

    def add(self, manifests: Sequence[int], offsets: int) -> None:
        self.manifests += len(manifests)
        self.first_manifest = min(self.first_manifest or manifests[0], *manifests)
        self.last_manifest = max(self.last_manifest or 0, *manifests)
        self.offsets += offsets


def foldable(
    chains: Mapping[int, Sequence[int | None]], ranges_of: Mapping[int, int], refused: Collection[int]
) -> list[int]:
    """The manifests that can be folded together: each has all its ranges among the oldest of their chains.

    ``chains`` has the manifests of each chain's oldest ranges, in order; None is a range of no manifest, which is
    folded with what follows it. ``ranges_of`` says how many ranges a manifest has on all chains.
    """
    chosen = {manifest_id for parts in chains.values() for manifest_id in parts if manifest_id is not None}
    chosen -= set(refused)
    while True:
        reached: Counter[int] = Counter()
        for parts in chains.values():
            for manifest_id in parts:
                if manifest_id is not None and manifest_id not in chosen:
                    break
                if manifest_id is not None:
                    reached[manifest_id] += 1
        complete = {manifest_id for manifest_id in chosen if reached[manifest_id] == ranges_of[manifest_id]}
        if complete == chosen:
            return sorted(chosen)
        chosen = complete


def archive(context: Context, before: datetime, why: str, *, batch: int = BATCH, dry_run: bool) -> NewArchive:
    """Archive what was done, and not touched since, before a time (aware).

    Raises ``ConfigurationError`` for a time in the future, ``NotFound`` for a pipeline that was never planned, and
    ``IllegalTransition`` when something is old enough and nothing of it may be archived. Every target must answer and
    show what is published; a manifest that is not in step in one of them is not archived.
    """
    if before > datetime.now(UTC):
        raise ConfigurationError(
            f"{before.isoformat()} is in the future",
            next_step=f"nothing was archived; name a time that has passed: tidemark db archive {context.pipeline_name} "
            "--before TIME --why TEXT",
        )
    if not context.database.pipelines.is_planned(context.pipeline_name):
        raise NotFound(
            "the pipeline was never planned, so there is nothing to archive",
            next_step=f"first: tidemark plan {context.pipeline_name}",
        )
    check_for_plan(context, dry_run=True)
    apart = {
        manifest_id
        for sink in context.sinks
        for manifest_id in context.database.publications.out_of_step(
            context.pipeline_name, sink.name, sink.ledger.evidence()
        )
    }
    result = NewArchive(context.pipeline_name, before, dry_run)
    of_chain = max(1, batch // max(1, len(context.database.chains.lanes(context.pipeline_name))))
    while True:
        oldest = _fold_oldest(context, result, apart, why, None if dry_run else of_chain)
        if dry_run or not oldest.folded:
            break
        failpoint("archive.batch")
    result.stops += _stops(context, before, oldest)
    if result.stops and not result.manifests:
        first = result.stops[0]
        raise IllegalTransition(
            f"nothing can be archived: {first.what}", next_step=first.next_step, manifest=first.manifest_id
        )
    return result


@dataclass(frozen=True)
class _Oldest:
    """The oldest ranges of each chain, why each manifest of them may not be archived, and what was folded."""

    chains: Mapping[int, Sequence[Row]]
    refused: Mapping[int, str]
    folded: Sequence[int]

    def offsets(self) -> int:
        """Those that were folded, with the lost ones between them."""
        folded, total = set(self.folded), 0
        for parts in self.chains.values():
            numbers = [number for number, part in enumerate(parts) if part["manifest_id"] in folded]
            reached = parts[: numbers[-1] + 1] if numbers else []
            total += sum(part["end_offset"] - part["start_offset"] for part in reached if part["kind"] != "archived")
        return total


def _fold_oldest(context: Context, result: NewArchive, apart: Collection[int], why: str, limit: int | None) -> _Oldest:
    """One transaction, in which nobody plans. The decision is noted together with the first batch."""
    database, pipeline_name = context.database, context.pipeline_name
    with database.because(why):
        if not result.dry_run:
            database.runs.lock_planning(pipeline_name)
        oldest = _look(context, result.before, apart, limit)
        if oldest.folded:
            if not result.dry_run:
                _fold(context, result, oldest.folded, why)
            result.add(oldest.folded, oldest.offsets())
    return oldest


def _look(context: Context, before: datetime, apart: Collection[int], limit: int | None) -> _Oldest:
    """What can be folded of the oldest ranges; of more of them when a manifest has others further up."""
    while True:
        chains: dict[int, list[Row]] = {}
        for row in context.database.archives.oldest_ranges(context.pipeline_name, limit):
            chains.setdefault(row["chain_id"], []).append(row)
        seen = Counter(row["manifest_id"] for parts in chains.values() for row in parts)
        del seen[None]
        manifests = context.database.archives.may_be_archived(sorted(seen), before)
        refused = {row["id"]: row["why"] for row in manifests if row["why"] is not None}
        refused |= {manifest_id: "apart" for manifest_id in apart if manifest_id in seen.keys() - refused.keys()}
        ranges_of = {row["id"]: row["ranges"] for row in manifests}
        of_chains = {chain: [row["manifest_id"] for row in parts] for chain, parts in chains.items()}
        folded = foldable(of_chains, ranges_of, refused)
        first = {next((part for part in parts if part is not None), None) for parts in of_chains.values()} - {None}
        if folded or limit is None or all(seen[part] == ranges_of[part] for part in first - refused.keys()):
            return _Oldest(chains, refused, folded)
        limit *= 4


def _fold(context: Context, result: NewArchive, manifests: Sequence[int], why: str) -> None:
    database, pipeline_name = context.database, context.pipeline_name
    if result.archive is None:
        result.archive = database.archives.begin(pipeline_name, result.before, why)
        line = f"archive {result.archive}: what was done before {result.before.isoformat()}"
        database.decisions.note(pipeline_name, "archive", Decision((line,)))
    database.archives.fold(result.archive, manifests)
    database.manifests.add_up_sums(pipeline_name)


def _stops(context: Context, before: datetime, oldest: _Oldest) -> list[Problem]:
    """The first manifest of each chain that is old enough and may not be archived; by id, at most ``NAMED``."""
    folded, ids = set(oldest.folded), set()
    for parts in oldest.chains.values():
        rest = [row["manifest_id"] for row in parts if row["manifest_id"] not in (None, *folded)]
        ids |= {manifest_id for manifest_id in rest[:1] if oldest.refused.get(manifest_id, "recent") != "recent"}
    manifests = context.database.manifests.find(ids=sorted(ids)[:NAMED]) if ids else []
    return [_stop(manifest, oldest.refused[manifest.id], before) for manifest in manifests]


def _stop(manifest: Manifest, why: str, before: datetime) -> Problem:
    pipeline_name = manifest.pipeline_name
    name = f"manifest {manifest.id}"
    match why:
        case "unfinished":
            return Problem(manifest.id, f"{name} is {manifest.state.value}", manifest.retry)
        case "open" if manifest.alive:
            what = f"attempt {manifest.attempt} at {name} is at work"
            return Problem(manifest.id, what, f"wait for it: tidemark show {manifest.id}")
        case "open":
            what = f"attempt {manifest.attempt} at {name} has not ended, and its process is dead or paused"
            return Problem(manifest.id, what, command(NextStep.REPLAY, pipeline_name, manifest.id, ""))
        case "unfilled":
            fills = [command(NextStep.FILL, pipeline_name, manifest.id, sink) for sink in manifest.unfilled]
            return Problem(manifest.id, f"{name} is not in {', '.join(manifest.unfilled)}", " and ".join(fills))
        case "behind":
            return Problem(manifest.id, f"a replay of {name} has not reached every sink", manifest.retry)
        case "apart":
            what = f"a target does not show what is published of {name}"
            return Problem(manifest.id, what, f"tidemark show {manifest.id} --compare")
    return Problem(
        manifest.id,
        f"{name} was replayed, or tried again, since {before.isoformat()}",
        f"archive it when that is long ago, with a later time; who did it: tidemark show {manifest.id}",
    )
