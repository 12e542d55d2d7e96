"""Removes what dead attempts left where readers look, and writes lost records again.

It does only what is certain: a missing or changed object needs a replay, and a file of others is left alone.
"""

from dataclasses import dataclass

from tidemark.lifecycle.context import Context
from tidemark.lifecycle.preflight import check_for_plan
from tidemark.lifecycle.publish import Publisher
from tidemark.manifest import Decision
from tidemark.paths import RecordName
from tidemark.sinks.base import Sink


def repair(context: Context, why: str, *, dry_run: bool) -> Decision:
    """Bring every sink back to what is published, without reading the source; safe to repeat.

    Raises ``LakeConflict`` when a target has records that the database lacks: what looks like a leftover may be the
    only copy.
    """
    check_for_plan(context, dry_run=True)
    lines: list[str] = []
    manifests: set[int] = set()
    for sink in context.sinks:
        sink_lines, changed = _repair_sink(context, sink, why, dry_run=dry_run)
        lines += sink_lines
        manifests |= changed
    staged = Publisher(context).sweep(dry_run=True)
    verb = "would remove" if dry_run else "removed"
    removed = [f"{verb} the staging of manifest {manifest_id}" for manifest_id in staged]
    if not dry_run:
        if removed:
            _note(context, why, removed, set(staged))
        Publisher(context).sweep()
    return Decision((*lines, *removed), tuple(sorted(manifests | set(staged))), dry_run)


def _repair_sink(context: Context, sink: Sink, why: str, *, dry_run: bool) -> tuple[list[str], set[int]]:
    """The lines about one sink, and the manifests that change."""
    missing = _missing_records(context, sink)
    leftovers = [
        (key, manifest_id) for key, manifest_id in sink.leftovers(context.database) if manifest_id not in missing.higher
    ]
    lines = [f"{'would remove' if dry_run else 'removed'} {key}" for key, _ in leftovers]
    lines += [f"{'would write' if dry_run else 'wrote'} {name}" for name in missing.writable]
    changed = {name.manifest_id for name in missing.writable}
    changed |= {manifest_id for _, manifest_id in leftovers if manifest_id}
    if not dry_run and lines:
        _note(context, why, lines, changed)
        sink.remove([key for key, _ in leftovers])
        for name in missing.writable:
            _write_record(context, sink, name)
    for manifest_id in missing.damaged:
        lines.append(
            f"not repaired: manifest {manifest_id} lost its record and output; "
            f"tidemark replay {sink.pipeline_name} --manifest {manifest_id}"
        )
    for manifest_id in missing.higher:
        lines.append(
            f"not repaired: {sink.target} has a record of a higher attempt at manifest {manifest_id} than is "
            f"published; tidemark adopt {sink.pipeline_name} --why TEXT"
        )
    return lines, changed


def _note(context: Context, why: str, lines: list[str], manifests: set[int]) -> None:
    """The entry in the history, made before a file is touched."""
    with context.database.because(why):
        decision = Decision(tuple(lines), tuple(sorted(manifests)))
        context.database.note_decision(context.pipeline_name, "repair", decision)


@dataclass(frozen=True)
class _MissingRecords:
    """Published attempts whose record is missing, in one sink."""

    writable: list[RecordName]  # the output is there, so the record can be written again
    damaged: list[int]  # the output is damaged too
    higher: list[int]  # a record of a higher attempt is there instead


def _missing_records(context: Context, sink: Sink) -> _MissingRecords:
    missing = _MissingRecords([], [], [])
    for manifest in context.database.manifests(sink.pipeline_name):
        publication = manifest.published(sink.name)
        receipt = context.database.receipt(manifest.id, publication.attempt) if publication else None
        if receipt is None or sink.has_record(receipt):
            continue
        if sink.is_displaced(manifest.id, receipt.attempt):
            if sink.way.takes_back:
                missing.higher.append(manifest.id)
        elif sink.has_objects(receipt):
            missing.writable.append(RecordName(sink.pipeline_name, manifest.id, receipt.attempt))
        else:
            missing.damaged.append(manifest.id)
    return missing


def _write_record(context: Context, sink: Sink, name: RecordName) -> None:
    receipt = context.database.receipt(name.manifest_id, name.attempt)
    assert receipt is not None
    sink.write_record(receipt, context.database.manifest(name.manifest_id).ranges, context.database.id())
