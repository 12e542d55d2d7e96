"""Reads a lake's records back into the database: after a restore from an older copy, or into an empty one.

A record names ranges, counts and objects, so it holds all that the database must know of a published manifest. Offsets
between records that the database does not know either are planned anew: ``tidemark retry`` reads them.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from tidemark.errors import LakeConflict, Unavailable
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.select import at_work, refuse_at_work
from tidemark.manifest import Decision, Manifest, RangeKind, RunKind
from tidemark.offsets import Range, TopicPartition, range_from
from tidemark.operations.decisions import deciding, give_up_outlived
from tidemark.paths import RecordName
from tidemark.planner import Chain
from tidemark.receipt import MALFORMED, Receipt
from tidemark.sinks.base import Sink


@dataclass(frozen=True)
class _Record:
    """What the sinks' records say of one manifest; sinks may have been published by different attempts."""

    manifest_id: int
    ranges: tuple[Range, ...]
    receipts: dict[str, Receipt]  # by sink

    @property
    def attempt(self) -> int:
        return max(one.attempt for one in self.receipts.values())

    @property
    def objects(self) -> int:
        return sum(len(one.objects) for one in self.receipts.values())

    def by_attempt(self) -> list[Receipt]:
        """One receipt per attempt, lowest first, with the objects of all sinks that it published."""
        joined: dict[int, Receipt] = {}
        for one in sorted(self.receipts.values(), key=lambda receipt: receipt.attempt):
            joined[one.attempt] = one.joined(joined.get(one.attempt))
        return list(joined.values())


def adopt(context: Context, why: str, *, dry_run: bool) -> Decision:
    """Bring the database up to what the lake's records say; raises ``LakeConflict`` where both cannot be true, and
    ``IllegalTransition`` while an attempt is at work on what is not done, or on what would be adopted."""
    database, pipeline = context.database, context.pipeline_name
    records = _records(context)
    ids = [record.manifest_id for record in records]
    with deciding(context, why, ids):
        known = {one.id: one for one in database.manifests(ids=ids)}
        unknown = [record for record in records if not _is_known(context, record, known.get(record.manifest_id))]
        adopted = tuple(one.manifest_id for one in unknown)
        lines = [f"manifest {one.manifest_id} attempt {one.attempt}: {one.objects} objects" for one in unknown]
        refuse_at_work([*at_work(context), *(known[one] for one in adopted if one in known)])
        _refuse_changed(context, unknown)
        if dry_run:
            return Decision(tuple(lines), adopted, dry_run)
        _take_identity(context)
        if not unknown:
            return Decision((), ())
        database.remember_pipeline(pipeline, {sink.name: sink.target for sink in context.sinks})
        run_key = f"adopt__{datetime.now(UTC).isoformat()}"
        run = database.insert_run(
            pipeline, run_key, RunKind.MANUAL, cut_at=None, reached=False, covered_by=[], notes=[why]
        )
        for slice_number, record in enumerate(unknown):
            if record.manifest_id not in known:
                database.adopt_manifest(run, pipeline, record.manifest_id, slice_number)
        names = [name for sink in context.sinks for name in sink.records(own=False)]
        database.keep_manifest_ids_above(max(one.manifest_id for one in names))
        holes = _insert_ranges(context, run, [one for one in unknown if one.manifest_id not in known], len(unknown))
        for record in unknown:
            _publish(context, record)
        lines += [f"{one.at.topic}-{one.at.partition}: offsets [{one.start}, {one.end}) are planned anew"
                  for one in holes]  # fmt: skip
        lines += give_up_outlived(context)
        decision = Decision(tuple(lines), adopted)
        database.note_decision(pipeline, "adopt", decision)
    return decision


def _records(context: Context) -> list[_Record]:
    """The newest record of each manifest in each sink, where the output that it names is there too."""
    found: dict[int, _Record] = {}
    for sink in context.sinks:
        for manifest, name in sink.newest_records().items():
            content = sink.record(name)
            if content is None:
                continue
            receipt, ranges = _read(sink, name, content)
            if not sink.has_objects(receipt):
                continue
            record = found.setdefault(manifest, _Record(manifest, ranges, {}))
            if record.ranges != ranges:
                raise LakeConflict(
                    f"the sinks' records of manifest {manifest} cover different offsets",
                    next_step="one of the targets was restored from another copy; mend that first",
                    pipeline=context.pipeline_name,
                    sink=sink.name,
                )
            record.receipts[sink.name] = receipt
    return [found[manifest] for manifest in sorted(found)]


def _read(sink: Sink, name: RecordName, content: dict[str, Any]) -> tuple[Receipt, tuple[Range, ...]]:
    try:
        objects = [{**one, "sink": sink.name, "staged": ""} for one in content["objects"]]
        raw = {"manifest_id": name.manifest_id, "attempt": name.attempt, "sinks": [sink.name], "objects": objects}
        receipt = Receipt.from_raw({**raw, "partitions": content["partitions"], "hours": content["hours"]})
        return receipt, tuple(range_from(one) for one in content["ranges"])
    except MALFORMED as damaged:
        raise LakeConflict(
            f"{name} cannot be read as a record: it is damaged, or of another version",
            next_step="bring it back from a copy of the target; without one, move it and the output it is about away, "
            "and its offsets are planned anew",
            pipeline=sink.pipeline_name,
            sink=sink.name,
            manifest=name.manifest_id,
        ) from damaged


def _is_known(context: Context, record: _Record, manifest: Manifest | None) -> bool:
    if manifest is None:
        return False
    if manifest.pipeline_name != context.pipeline_name:
        raise LakeConflict(
            f"manifest {record.manifest_id} belongs to pipeline {manifest.pipeline_name} in this database: it was "
            "planned after a restore and before this pipeline was adopted, so its id was given out twice",
            next_step=f"restore the copy again, move the output and the record of manifest {record.manifest_id} of "
            f"{manifest.pipeline_name} out of its target, and adopt every pipeline before you plan any of them",
            pipeline=context.pipeline_name,
            manifest=record.manifest_id,
        )
    if manifest.ranges != record.ranges:
        raise LakeConflict(
            f"manifest {record.manifest_id} covers other offsets in the lake than in this database",
            next_step="the database went on after it was restored; restore a copy from before that, then adopt",
            pipeline=context.pipeline_name,
        )
    published = {one.sink: one.attempt for one in manifest.publications}
    return all(published.get(sink, 0) >= receipt.attempt for sink, receipt in record.receipts.items())


def _refuse_changed(context: Context, unknown: Sequence[_Record]) -> None:
    """Reading many records takes its time; an attempt may have removed output since."""
    for record in unknown:
        for sink in context.sinks:
            receipt = record.receipts.get(sink.name)
            if receipt is None:
                continue
            if sink.recorded_attempt(record.manifest_id) != receipt.attempt or not sink.has_objects(receipt):
                raise Unavailable(
                    f"{sink.target} changed while its records were read",
                    next_step=f"nothing was adopted; again: tidemark adopt {sink.pipeline_name} --why TEXT",
                    pipeline=sink.pipeline_name,
                    manifest=record.manifest_id,
                    sink=sink.name,
                )


def _take_identity(context: Context) -> None:
    for sink in context.sinks:
        owner = sink.owner()
        if owner in (None, context.database.id()):
            continue
        if not context.database.take_identity(owner):
            sink.claim(context.database.id())  # raises ForeignLake, which says both


Life = tuple[TopicPartition, int]  # a partition and its incarnation


def _insert_ranges(context: Context, run: int, records: Sequence[_Record], slice_number: int) -> list[Range]:
    """Chain the records' ranges, with a planned manifest for the holes between them; returns the holes."""
    database, pipeline = context.database, context.pipeline_name
    by_life: dict[Life, list[tuple[Range, int]]] = {}
    for record in records:
        for one in record.ranges:
            by_life.setdefault((one.at, one.incarnation), []).append((one, record.manifest_id))
    chains = {(chain.at, chain.incarnation): chain for chain in database.chains(pipeline)}
    ids = {life: chain.id for life, chain in chains.items()}
    ids |= database.adopt_chains(pipeline, [life for life in sorted(by_life) if life not in ids])
    rows, holes = [], []
    for life, found in by_life.items():
        rows += [(ids[life], one.start, one.end, manifest) for one, manifest in found]
        holes += _holes(context, ids[life], chains.get(life), [one for one, _ in found])
    for number, part in enumerate(_one_a_partition(holes)):
        [manifest] = database.insert_manifests(run, pipeline, 1, first=slice_number + number)
        rows += [(ids[one.at, one.incarnation], one.start, one.end, manifest) for one in part]
    database.insert_ranges(RangeKind.DATA, rows)
    return holes


def _holes(context: Context, chain_id: int, chain: Chain | None, found: Sequence[Range]) -> list[Range]:
    """Set the anchor of a chain that is new, or began later, and say what lies between the ranges found and its own."""
    anchor = min(one.anchor for one in found)
    pieces = sorted(found)
    if chain is None:
        context.database.insert_ranges(RangeKind.ANCHOR, [(chain_id, None, anchor, None)])
    elif anchor < chain.anchor:
        context.database.extend_back(chain.id, anchor)
    if chain and chain.anchor < chain.end:
        pieces = sorted([*pieces, Range(chain.at, chain.anchor, chain.end, chain.incarnation)])
    end = min(anchor, chain.anchor) if chain else anchor
    holes = []
    for one in pieces:
        if one.start < end:
            raise LakeConflict(
                f"the records of {one.at.topic}-{one.at.partition} cover [{one.start}, {min(end, one.end)}) twice",
                next_step="the database went on after it was restored; restore a copy from before that, then adopt",
                pipeline=context.pipeline_name,
            )
        if one.start > end:
            holes.append(Range(one.at, end, one.start, one.incarnation))
        end = one.end
    if chain and end < chain.anchor:
        holes.append(Range(chain.at, end, chain.anchor, chain.incarnation))
    return holes


def _one_a_partition(holes: Sequence[Range]) -> list[list[Range]]:
    """The holes as lists with at most one of each partition: a manifest has one range on a chain."""
    parts: list[list[Range]] = []
    for one in holes:
        free = next((part for part in parts if all(other.at != one.at for other in part)), None)
        if free is None:
            parts.append(free := [])
        free.append(one)
    return parts


def _publish(context: Context, record: _Record) -> None:
    """Enter the attempts and what each sink shows; done when every sink of the pipeline has a record."""
    database = context.database
    database.unblock(record.manifest_id)
    for receipt in record.by_attempt():
        whole = receipt.joined(database.receipt(record.manifest_id, receipt.attempt))
        database.adopt_attempt(whole, asdict(whole))
    newest = database.newest_attempt(record.manifest_id)
    for sink in context.sinks:
        if sink.name in record.receipts:
            receipt = record.receipts[sink.name]
            counts = asdict(sink.counts(receipt, record.ranges))
            database.publish(record.manifest_id, newest, sink.name, receipt.attempt, receipt.digest(sink.name), counts)
    if not database.finish(record.manifest_id, newest, [sink.name for sink in context.sinks]):
        database.fail(record.manifest_id, newest, "adopted; not every sink has a record of it")
