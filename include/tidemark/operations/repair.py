"""Removes what dead attempts left where readers look, and writes records again that were lost.

Only what is certain: a missing or changed object needs a replay, a file that is not ours needs its owner.
"""

from tidemark.lifecycle.context import Context
from tidemark.lifecycle.preflight import check_for_plan
from tidemark.lifecycle.publish import Publisher
from tidemark.manifest import Decision
from tidemark.paths import RecordName
from tidemark.sinks.base import Sink


def repair(context: Context, why: str, *, dry_run: bool) -> Decision:
    """Bring every sink back to what is published, as far as that needs no reading of the source; safe to repeat.

    Raises ``LakeConflict`` when a target knows more than the database, whose leftovers may be all there is.
    """
    check_for_plan(context, dry_run=True)
    lines: list[str] = []
    manifests: set[int] = set()
    for sink in context.sinks:
        written, lost, displaced = _missing_records(context, sink)
        removed = sink.leftovers(context.database)
        removed = [(key, manifest) for key, manifest in removed if manifest not in displaced]
        found = [f"{'would remove' if dry_run else 'removed'} {key}" for key, _ in removed]
        found += [f"{'would write' if dry_run else 'wrote'} {name}" for name in written]
        lines += found
        lines += [f"not repaired: manifest {one} lost its record and output; tidemark replay {sink.pipeline_name} "
                  f"--manifest {one}" for one in lost]  # fmt: skip
        lines += [f"not repaired: {sink.target} has a record of a higher attempt at manifest {one} than is published; "
                  f"tidemark adopt {sink.pipeline_name} --why TEXT" for one in displaced]  # fmt: skip
        changed = {manifest for _, manifest in removed if manifest} | {name.manifest_id for name in written}
        manifests |= changed
        if not dry_run and found:
            _note(context, why, found, changed)
            sink.remove([key for key, _ in removed])
            for name in written:
                _write_record(context, sink, name)
    left = set(Publisher(context).sweep(dry_run=True))
    found = [f"{'would remove' if dry_run else 'removed'} the staging of manifest {one}" for one in sorted(left)]
    if not dry_run and found:
        _note(context, why, found, left)
    if not dry_run:
        Publisher(context).sweep()
    return Decision((*lines, *found), tuple(sorted(manifests | left)), dry_run)


def _note(context: Context, why: str, lines: list[str], manifests: set[int]) -> None:
    """Before a file is touched: the entry in the history."""
    with context.database.because(why):
        decision = Decision(tuple(lines), tuple(sorted(manifests)))
        context.database.note_decision(context.pipeline_name, "repair", decision)


def _missing_records(context: Context, sink: Sink) -> tuple[list[RecordName], list[int], list[int]]:
    """Records that can be written again, manifests whose output is damaged too, and those that a lake knows better."""
    missing: list[RecordName] = []
    lost: list[int] = []
    displaced: list[int] = []
    for manifest in context.database.manifests(sink.pipeline_name):
        publication = manifest.published(sink.name)
        receipt = context.database.receipt(manifest.id, publication.attempt) if publication else None
        if receipt is None or sink.has_record(receipt):
            continue
        if sink.is_displaced(manifest.id, receipt.attempt):
            displaced += [manifest.id] if sink.way.takes_back else []
        elif sink.has_objects(receipt):
            missing.append(RecordName(sink.pipeline_name, manifest.id, receipt.attempt))
        else:
            lost.append(manifest.id)
    return missing, lost, displaced


def _write_record(context: Context, sink: Sink, name: RecordName) -> None:
    receipt = context.database.receipt(name.manifest_id, name.attempt)
    assert receipt is not None
    sink.write_record(receipt, context.database.manifest(name.manifest_id).ranges, context.database.id())
