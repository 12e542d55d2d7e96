"""Reads the records of the targets back into the database: after a restore from an older copy, or into an empty one.

A record names ranges, counts and objects: all that the database must know of a published manifest. Offsets between
records that no manifest covers are planned again, and ``tidemark retry`` reads them.
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
    """The sinks' records of one manifest, which may come from different attempts."""

    manifest_id: int
    ranges: tuple[Range, ...]
    receipts: dict[str, Receipt]  # by sink

    @property
    def attempt(self) -> int:
        return max(receipt.attempt for receipt in self.receipts.values())

    @property
    def objects(self) -> int:
        return sum(len(receipt.objects) for receipt in self.receipts.values())

    def by_attempt(self) -> list[Receipt]:
        """One receipt per attempt, lowest attempt first, with the objects of all sinks where it is published."""
        joined: dict[int, Receipt] = {}
        for receipt in sorted(self.receipts.values(), key=lambda receipt: receipt.attempt):
            joined[receipt.attempt] = receipt.joined(joined.get(receipt.attempt))
        return list(joined.values())


def adopt(context: Context, why: str, *, dry_run: bool) -> Decision:
    """Enter into the database what the targets' records say.

    Raises ``LakeConflict`` when the database and the records contradict each other, and ``IllegalTransition`` while an
    attempt is alive at an undone manifest or at one that would be adopted.
    """
    database, pipeline_name = context.database, context.pipeline_name
    records = _records(context)
    ids = [record.manifest_id for record in records]
    with deciding(context, why, ids):
        known = {manifest.id: manifest for manifest in database.manifests(ids=ids)}
        unknown = [record for record in records if not _is_known(context, record, known.get(record.manifest_id))]
        adopted = tuple(record.manifest_id for record in unknown)
        lines = [
            f"manifest {record.manifest_id} attempt {record.attempt}: {record.objects} objects" for record in unknown
        ]
        refuse_at_work([*at_work(context), *(known[manifest_id] for manifest_id in adopted if manifest_id in known)])
        _refuse_changed(context, unknown)
        if dry_run:
            return Decision(tuple(lines), adopted, dry_run)
        _take_identity(context)
        if not unknown:
            return Decision((), ())
        database.remember_pipeline(pipeline_name, {sink.name: sink.target for sink in context.sinks})
        run_key = f"adopt__{datetime.now(UTC).isoformat()}"
        run_id = database.insert_run(
            pipeline_name, run_key, RunKind.MANUAL, cut_at=None, reached=False, covered_by=[], notes=[why]
        )
        for slice_number, record in enumerate(unknown):
            if record.manifest_id not in known:
                database.adopt_manifest(run_id, pipeline_name, record.manifest_id, slice_number)
        names = [name for sink in context.sinks for name in sink.records(own=False)]
        database.keep_manifest_ids_above(max(name.manifest_id for name in names))
        new = [record for record in unknown if record.manifest_id not in known]
        holes = _insert_ranges(context, run_id, new, first_slice=len(unknown))
        for record in unknown:
            _publish(context, record)
        lines += [f"{hole.at.name}: offsets [{hole.start}, {hole.end}) are planned again" for hole in holes]
        lines += give_up_outlived(context)
        decision = Decision(tuple(lines), adopted)
        database.note_decision(pipeline_name, "adopt", decision)
    return decision


def _records(context: Context) -> list[_Record]:
    """The newest record of each manifest in each sink, if the output that it names is there too."""
    records: dict[int, _Record] = {}
    for sink in context.sinks:
        for manifest_id, name in sink.newest_records().items():
            content = sink.record(name)
            if content is None:
                continue
            receipt, ranges = _read(sink, name, content)
            if not sink.has_objects(receipt):
                continue
            record = records.setdefault(manifest_id, _Record(manifest_id, ranges, {}))
            if record.ranges != ranges:
                raise LakeConflict(
                    f"the sinks' records of manifest {manifest_id} cover different offsets",
                    next_step="one of the targets was restored from another copy; correct that first",
                    pipeline=context.pipeline_name,
                    sink=sink.name,
                )
            record.receipts[sink.name] = receipt
    return [records[manifest_id] for manifest_id in sorted(records)]


def _read(sink: Sink, name: RecordName, content: dict[str, Any]) -> tuple[Receipt, tuple[Range, ...]]:
    try:
        objects = [{**part, "sink": sink.name, "staged": ""} for part in content["objects"]]
        raw = {"manifest_id": name.manifest_id, "attempt": name.attempt, "sinks": [sink.name], "objects": objects}
        receipt = Receipt.from_raw({**raw, "partitions": content["partitions"], "hours": content["hours"]})
        return receipt, tuple(range_from(raw_range) for raw_range in content["ranges"])
    except MALFORMED as damaged:
        raise LakeConflict(
            f"{name} cannot be read as a record: it is damaged, or of another version",
            next_step="restore it from a copy of the target; without a copy, move it and its output out of the target, "
            "and its offsets are planned again",
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
            next_step="this database planned manifests after it was restored; restore the copy again, then adopt",
            pipeline=context.pipeline_name,
        )
    published = {publication.sink: publication.attempt for publication in manifest.publications}
    return all(published.get(sink, 0) >= receipt.attempt for sink, receipt in record.receipts.items())


def _refuse_changed(context: Context, unknown: Sequence[_Record]) -> None:
    """Raise ``Unavailable`` when an attempt removed output while the records were read, which takes time."""
    for record in unknown:
        for sink in context.sinks:
            receipt = record.receipts.get(sink.name)
            if receipt is None:
                continue
            if sink.recorded_attempt(record.manifest_id) != receipt.attempt or not sink.has_objects(receipt):
                raise Unavailable(
                    f"{sink.target} changed while its records were read",
                    next_step=f"nothing was adopted; repeat: tidemark adopt {sink.pipeline_name} --why TEXT",
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
            sink.claim(context.database.id())  # raises ForeignLake, which names both databases


Life = tuple[TopicPartition, int]  # a partition and its incarnation


def _insert_ranges(context: Context, run_id: int, records: Sequence[_Record], *, first_slice: int) -> list[Range]:
    """Put the records' ranges on their chains, and plan manifests for the holes between them; returns the holes."""
    database, pipeline_name = context.database, context.pipeline_name
    by_life: dict[Life, list[tuple[Range, int]]] = {}
    for record in records:
        for range_ in record.ranges:
            by_life.setdefault((range_.at, range_.incarnation), []).append((range_, record.manifest_id))
    chains = {(chain.at, chain.incarnation): chain for chain in database.chains(pipeline_name)}
    ids = {life: chain.id for life, chain in chains.items()}
    ids |= database.adopt_chains(pipeline_name, [life for life in sorted(by_life) if life not in ids])
    rows, holes = [], []
    for life, recorded in by_life.items():
        rows += [(ids[life], range_.start, range_.end, manifest_id) for range_, manifest_id in recorded]
        ranges = sorted(range_ for range_, _ in recorded)
        _set_anchor(context, ids[life], chains.get(life), ranges)
        holes += _holes(context, chains.get(life), ranges)
    for number, part in enumerate(_one_per_partition(holes)):
        [manifest_id] = database.insert_manifests(run_id, pipeline_name, 1, first=first_slice + number)
        rows += [(ids[hole.at, hole.incarnation], hole.start, hole.end, manifest_id) for hole in part]
    database.insert_ranges(RangeKind.DATA, rows)
    return holes


def _set_anchor(context: Context, chain_id: int, chain: Chain | None, ranges: Sequence[Range]) -> None:
    """Anchor a chain that is new; move the anchor of a known chain back if the recorded ranges begin before it."""
    anchor = min(range_.anchor for range_ in ranges)
    if chain is None:
        context.database.insert_ranges(RangeKind.ANCHOR, [(chain_id, None, anchor, None)])
    elif anchor < chain.anchor:
        context.database.extend_back(chain.id, anchor)


def _holes(context: Context, chain: Chain | None, ranges: Sequence[Range]) -> list[Range]:
    """The offsets from the anchor on that neither the recorded ranges nor the chain as the database knew it cover.

    Raises ``LakeConflict`` when two of them overlap.
    """
    covered = list(ranges)
    if chain and chain.anchor < chain.end:
        covered.append(Range(chain.at, chain.anchor, chain.end, chain.incarnation))
    anchors = [range_.anchor for range_ in ranges] + ([chain.anchor] if chain else [])
    end = min(anchors)
    holes = []
    for range_ in sorted(covered):
        if range_.start < end:
            raise LakeConflict(
                f"the records of {range_.at.name} cover [{range_.start}, {min(end, range_.end)}) twice",
                next_step="this database planned manifests after it was restored; restore the copy again, then adopt",
                pipeline=context.pipeline_name,
            )
        if range_.start > end:
            holes.append(Range(range_.at, end, range_.start, range_.incarnation))
        end = range_.end
    if chain and end < chain.anchor:
        holes.append(Range(chain.at, end, chain.anchor, chain.incarnation))
    return holes


def _one_per_partition(holes: Sequence[Range]) -> list[list[Range]]:
    """The holes as lists with at most one hole per partition: a manifest has one range on a chain."""
    parts: list[list[Range]] = []
    for hole in holes:
        free = next((part for part in parts if all(other.at != hole.at for other in part)), None)
        if free is None:
            parts.append(free := [])
        free.append(hole)
    return parts


def _publish(context: Context, record: _Record) -> None:
    """Enter the attempts and publications; the manifest is done when every sink of the pipeline has a record."""
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
