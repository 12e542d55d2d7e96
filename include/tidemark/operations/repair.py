"""Removes leftovers of dead attempts from where readers look. It removes only what is certainly a leftover: no file of
others, and nothing that a published record names.
"""

from collections.abc import Collection, Iterator, Sequence

from tidemark.lifecycle.context import Context
from tidemark.lifecycle.expected import ExpectedByDatabase
from tidemark.lifecycle.ownership import belongs_to
from tidemark.lifecycle.preflight import check_for_plan
from tidemark.lifecycle.publish import Publisher
from tidemark.lifecycle.reconcile import judgement
from tidemark.model.manifest import Decision
from tidemark.model.verdict import Verdict
from tidemark.operations.audit import described
from tidemark.paths import RecordName
from tidemark.sinks.base import Sink
from tidemark.sinks.capabilities import TakesBack
from tidemark.sinks.object_store.leftovers import Leftover


def repair(context: Context, why: str, *, dry_run: bool) -> Decision:
    """Remove leftovers from every sink, without reading the source; safe to repeat.

    Raises ``LakeConflict`` if a target has records that the database lacks: a seeming leftover may then be the only
    copy. For output that is missing in a target, a line names the command that restores it.
    """
    check_for_plan(context, dry_run=True)
    publisher = Publisher(context)
    staged = publisher.sweep(dry_run=True)
    verb = "would remove" if dry_run else "removed"
    lines = [f"{verb} the staging of manifest {manifest_id}" for manifest_id in staged]
    if not dry_run:
        if lines:
            _note(context, why, lines, set(staged))
        publisher.sweep()
    manifests = set(staged)
    for sink in context.sinks:
        if not belongs_to(sink, context.database.id()):
            continue  # the last lines name it
        # What looks like a leftover of a dead replay may be whole, and is then what ``retry`` publishes.
        ahead = {manifest_id for manifest_id, is_missing in publisher.out_of_step(sink).items() if not is_missing}
        if isinstance(sink.output, TakesBack):
            candidates = sink.output.leftovers(ExpectedByDatabase(context.database, sink))
            leftovers = [leftover for leftover in candidates if leftover.manifest_id not in ahead]
            if not dry_run:
                leftovers = _take_back(context, sink, leftovers)
            changed = {leftover.manifest_id for leftover in leftovers if leftover.manifest_id}
            removed = [f"{verb} {leftover.key}" for leftover in leftovers]
            if removed and not dry_run:
                _note(context, why, removed, changed)
                sink.output.remove([leftover.key for leftover in leftovers])
            lines += removed
            manifests |= changed
        lines += [f"not repaired: {what}" for what in _waiting(context, sink, ahead)]
    lines += [f"not repaired: {note}" for note in check_for_plan(context, dry_run=True)]
    return Decision(tuple(lines), tuple(sorted(manifests)), dry_run)


def _waiting(context: Context, sink: Sink, ahead: Collection[int]) -> Iterator[str]:
    """Yield what dead attempts left and another command finishes: done manifests with newer evidence, and undone
    ones.
    """
    undone = [manifest for manifest in context.database.manifests.undone(context.pipeline_name) if manifest.attempt]
    for manifest in [*context.database.manifests.find(ids=sorted(ahead)), *undone] if ahead or undone else ():
        if manifest.alive:
            continue
        judged = judgement(context.database, manifest, sink)
        if judged.verdict not in (Verdict.IN_STEP, Verdict.UNSTARTED):
            yield f"manifest {manifest.id}: {described(judged)}; next: {judged.next_step}"


def _take_back(context: Context, sink: Sink, leftovers: Sequence[Leftover]) -> list[Leftover]:
    """Declare the attempts of leftovers as taken back, so that nobody publishes them meanwhile. Return the leftovers
    that may be removed.

    Of a published attempt these are files that its receipt does not name or that were given up; of an unknown attempt,
    all.
    """
    kept: dict[tuple[int, int], set[str]] = {}
    for leftover in leftovers:
        if leftover.manifest_id is None or (leftover.manifest_id, leftover.attempt) in kept:
            continue
        is_declared = context.database.attempts.take_back(leftover.manifest_id, leftover.attempt, sink.name)
        receipt = None if is_declared else context.database.attempts.receipt(leftover.manifest_id, leftover.attempt)
        given_up = context.database.decisions.accepted_damage(leftover.manifest_id, sink.name, leftover.attempt)
        names = {object_.path for object_ in receipt.objects if object_.path not in given_up} if receipt else set()
        if receipt:
            names.add(str(RecordName(context.pipeline_name, leftover.manifest_id, leftover.attempt)))
        kept[leftover.manifest_id, leftover.attempt] = names
    return [
        leftover
        for leftover in leftovers
        if leftover.manifest_id is None or leftover.key not in kept[leftover.manifest_id, leftover.attempt]
    ]


def _note(context: Context, why: str, lines: list[str], manifests: set[int]) -> None:
    """Write the entry into the history, before a file is touched."""
    with context.database.because(why):
        decision = Decision(tuple(lines), tuple(sorted(manifests)))
        context.database.decisions.note(context.pipeline_name, "repair", decision)
