"""Removes what dead attempts left where readers look, and writes records again that were lost.

Only what is certain: a missing or changed object needs a replay, a file that is not ours needs its owner.
"""

from collections.abc import Mapping

from tidemark.lifecycle.attempt import Lifecycle
from tidemark.lifecycle.preflight import check_for_plan
from tidemark.manifest import Decision, Manifest, ManifestState
from tidemark.paths import ObjectName, RecordName
from tidemark.sinks.base import Sink
from tidemark.sinks.files.audit import strays
from tidemark.sinks.files.formats import Unreadable, format_of
from tidemark.sinks.files.sink import FilesSink


def repair(lifecycle: Lifecycle, why: str, *, dry_run: bool) -> Decision:
    """Bring every sink back to what is published, as far as that needs no reading of Kafka; safe to repeat.

    Raises ``LakeConflict`` when a target knows more than the database, whose leftovers may be all there is.
    """
    check_for_plan(lifecycle.pipeline.name, lifecycle.database, lifecycle.sinks, dry_run=True)
    lines: list[str] = []
    manifests: set[int] = set()
    for sink in lifecycle.sinks:
        written, lost, displaced = _missing_records(lifecycle, sink)
        removed = _leftovers(lifecycle, sink) if isinstance(sink, FilesSink) else []
        removed = [(key, manifest) for key, manifest in removed if manifest not in displaced]
        found = [f"{'would remove' if dry_run else 'removed'} {key}" for key, _ in removed]
        found += [f"{'would write' if dry_run else 'wrote'} {name}" for name in written]
        lines += found
        lines += [f"not repaired: manifest {one} lost its record and output; tidemark replay {sink.pipeline} "
                  f"--manifest {one}" for one in lost]  # fmt: skip
        lines += [f"not repaired: {sink.target} has a record of a higher attempt at manifest {one} than is published; "
                  f"tidemark adopt {sink.pipeline} --why TEXT" for one in displaced]  # fmt: skip
        changed = {manifest for _, manifest in removed if manifest} | {name.manifest for name in written}
        manifests |= changed
        if not dry_run and found:
            _note(lifecycle, why, found, changed)
            if isinstance(sink, FilesSink):
                sink.store.delete(key for key, _ in removed)
            for name in written:
                _write_record(lifecycle, sink, name)
    left = set(lifecycle.publisher.sweep(dry_run=True))
    found = [f"{'would remove' if dry_run else 'removed'} the staging of manifest {one}" for one in sorted(left)]
    if not dry_run and found:
        _note(lifecycle, why, found, left)
    if not dry_run:
        lifecycle.publisher.sweep()
    return Decision((*lines, *found), tuple(sorted(manifests | left)), dry_run)


def _note(lifecycle: Lifecycle, why: str, lines: list[str], manifests: set[int]) -> None:
    """Before a file is touched: the entry in the history."""
    with lifecycle.database.because(why):
        decision = Decision(tuple(lines), tuple(sorted(manifests)))
        lifecycle.database.note_decision(lifecycle.pipeline.name, "repair", decision)


def _leftovers(lifecycle: Lifecycle, sink: FilesSink) -> list[tuple[str, int | None]]:
    """What attempts at done manifests left, and attempts that a restored database forgot (their manifest is None).

    What an unfinished manifest has, its retry may still need.
    """
    own = {one.id: one for one in lifecycle.database.manifests(sink.pipeline)}
    found = strays(lifecycle, sink, own)
    done = [(key, one) for key, one in found if one is not None and own[one].state is ManifestState.DONE]
    unknown = {key: name for key, one in found if one is None and (name := ObjectName.parse(key))}
    return [*done, *((key, None) for key in _forgotten(sink, own, unknown))]


def _forgotten(sink: FilesSink, own: Mapping[int, Manifest], unknown: Mapping[str, ObjectName]) -> list[str]:
    """Those of the objects whose manifest left no record, and whose every record is published by another one.

    Such a manifest was never published: the database was restored from a copy without it, and planned anew.
    """
    recorded = {name.manifest for name in sink.records(own=False)} if unknown else set()
    published = [one for one in own.values() if one.published(sink.name)]
    spans: dict[tuple[str, int], list[range]] = {}
    for covered in (each for one in published for each in one.ranges):
        spans.setdefault((covered.at.topic, covered.at.partition), []).append(range(covered.start, covered.end))
    return [
        key
        for key, name in unknown.items()
        if name.manifest not in recorded
        if all(any(offset in span for span in spans.get(place, ())) for place, offset in _places(sink, key))
    ]


def _places(sink: FilesSink, key: str) -> list[tuple[tuple[str, int], int]]:
    """Topic, partition and offset of each row of an object; none is known when it cannot be read."""
    try:
        with sink.store.open(key) as file:
            table = format_of(key).places(file)
    except (Unreadable, OSError):
        return [(("", -1), -1)]
    topics, partitions, offsets = (table[name].to_pylist() for name in table.column_names)
    return [((topic, partition), offset) for topic, partition, offset in zip(topics, partitions, offsets, strict=True)]


def _missing_records(lifecycle: Lifecycle, sink: Sink) -> tuple[list[RecordName], list[int], list[int]]:
    """Records that can be written again, manifests whose output is damaged too, and those that a lake knows better."""
    missing: list[RecordName] = []
    lost: list[int] = []
    displaced: list[int] = []
    for manifest in lifecycle.database.manifests(sink.pipeline):
        publication = manifest.published(sink.name)
        receipt = lifecycle.database.receipt(manifest.id, publication.attempt) if publication else None
        if receipt is None or sink.has_record(receipt):
            continue
        if sink.is_displaced(manifest.id, receipt.attempt):
            displaced += [] if sink.merges else [manifest.id]
        elif sink.has_objects(receipt):
            missing.append(RecordName(sink.pipeline, manifest.id, receipt.attempt))
        else:
            lost.append(manifest.id)
    return missing, lost, displaced


def _write_record(lifecycle: Lifecycle, sink: Sink, name: RecordName) -> None:
    receipt = lifecycle.database.receipt(name.manifest, name.attempt)
    assert receipt is not None
    sink.write_record(receipt, lifecycle.database.manifest(name.manifest).ranges, lifecycle.database.id())
