"""Removes what dead attempts left where readers look. It does only what is certain: a file of others is left alone, and
what a published record names is never removed."""

from tidemark.lifecycle.context import Context
from tidemark.lifecycle.preflight import check_for_plan
from tidemark.lifecycle.publish import Publisher
from tidemark.manifest import Decision


def repair(context: Context, why: str, *, dry_run: bool) -> Decision:
    """Remove leftovers from every sink, without reading the source; safe to repeat.

    Raises ``LakeConflict`` when a target has records that the database lacks: what looks like a leftover may be the
    only copy. What is missing in a target is named with the command that mends it.
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
        # What looks like a leftover of a dead replay may be whole, and is then what ``retry`` publishes.
        ahead = {manifest_id for manifest_id, is_missing in publisher.out_of_step(sink).items() if not is_missing}
        leftovers = [leftover for leftover in sink.leftovers(context.database) if leftover[1] not in ahead]
        changed = {manifest_id for _, manifest_id in leftovers if manifest_id}
        removed = [f"{verb} {key}" for key, _ in leftovers]
        if removed and not dry_run:
            _note(context, why, removed, changed)
            sink.remove([key for key, _ in leftovers])
        lines += removed
        manifests |= changed
    lines += [f"not repaired: {note}" for note in check_for_plan(context, dry_run=True)]
    return Decision(tuple(lines), tuple(sorted(manifests)), dry_run)


def _note(context: Context, why: str, lines: list[str], manifests: set[int]) -> None:
    """The entry in the history, made before a file is touched."""
    with context.database.because(why):
        decision = Decision(tuple(lines), tuple(sorted(manifests)))
        context.database.note_decision(context.pipeline_name, "repair", decision)
