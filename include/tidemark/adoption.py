"""Reads a lake's records back into the database: after a restore from an older copy, or into an empty one.

A record names ranges, counts and objects, so it holds all that the database must know of a published manifest. Offsets
between records that the database does not know either are planned anew: ``tidemark retry`` reads them.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from tidemark.accepting import Decision
from tidemark.errors import LakeConflict
from tidemark.layout import RECORDS, RecordName
from tidemark.lifecycle import Lifecycle
from tidemark.model import Manifest, RangeKind, Receipt, RunKind, range_from
from tidemark.offsets import Range, TopicPartition
from tidemark.sinks.files import FilesSink


@dataclass(frozen=True)
class _Record:
    manifest: int
    attempt: int
    ranges: tuple[Range, ...]
    receipts: dict[str, Receipt]  # by sink

    def receipt(self) -> Receipt:
        """All sinks' objects in one receipt, as the attempt had it."""
        first, *others = self.receipts.values()
        objects = (*first.objects, *(one for other in others for one in other.objects))
        return Receipt(self.manifest, self.attempt, first.partitions, objects, first.hours)


def adopt(lifecycle: Lifecycle, why: str, *, dry_run: bool) -> Decision:
    """Bring the database up to what the lake's records say; raises ``LakeConflict`` where both cannot be true."""
    database, pipeline = lifecycle.database, lifecycle.pipeline.name
    records = _records(lifecycle)
    known = {one.id: one for one in database.manifests(ids=[record.manifest for record in records])}
    unknown = [record for record in records if not _is_known(lifecycle, record, known.get(record.manifest))]
    lines = [f"manifest {one.manifest} attempt {one.attempt}: {len(one.receipt().objects)} objects" for one in unknown]
    if dry_run:
        return Decision(tuple(lines), tuple(one.manifest for one in unknown), dry_run)
    with database.because(why):
        database.lock_planning(pipeline)
        _take_identity(lifecycle)
        database.remember_pipeline(pipeline, {sink.name: sink.root for sink in lifecycle.sinks})
        run_key = f"adopt__{datetime.now(UTC).isoformat()}"
        run = database.insert_run(
            pipeline, run_key, RunKind.MANUAL, cut_at=None, reached=False, covered_by=[], notes=[why]
        )
        for slice_number, record in enumerate(unknown):
            if record.manifest not in known:
                database.adopt_manifest(run, pipeline, record.manifest, slice_number)
        database.keep_manifest_ids_above(max(sink.highest_record() for sink in lifecycle.sinks))
        holes = _insert_ranges(lifecycle, run, [one for one in unknown if one.manifest not in known], len(unknown))
        for record in unknown:
            _publish(lifecycle, record)
    lines += [f"{one.at.topic}-{one.at.partition}: offsets [{one.start}, {one.end}) are planned anew" for one in holes]
    return Decision(tuple(lines), tuple(one.manifest for one in unknown))


def _records(lifecycle: Lifecycle) -> list[_Record]:
    """The highest record of each manifest, with what each sink's lake says of it."""
    found: dict[int, _Record] = {}
    for sink in lifecycle.sinks:
        for name in _newest(sink):
            content = json.loads(sink.store.get(str(name)) or b"{}")
            record = found.get(name.manifest)
            if record is None or record.attempt < name.attempt:
                ranges = tuple(range_from(one) for one in content["ranges"])
                record = found[name.manifest] = _Record(name.manifest, name.attempt, ranges, {})
            if record.attempt == name.attempt:
                record.receipts[sink.name] = _receipt(sink, name, content)
    whole = [found[manifest] for manifest in sorted(found) if len(found[manifest].receipts) == len(lifecycle.sinks)]
    return [one for one in whole if all(sink.has_objects(one.receipts[sink.name]) for sink in lifecycle.sinks)]


def _newest(sink: FilesSink) -> list[RecordName]:
    newest: dict[int, RecordName] = {}
    for key, _ in sink.store.list(f"{RECORDS}/{sink.pipeline}"):
        name = RecordName.parse(key)
        if name and (name.manifest not in newest or newest[name.manifest].attempt < name.attempt):
            newest[name.manifest] = name
    return list(newest.values())


def _receipt(sink: FilesSink, name: RecordName, content: dict[str, Any]) -> Receipt:
    objects = [{**one, "sink": sink.name, "staged": ""} for one in content["objects"]]
    raw = {"manifest_id": name.manifest, "attempt": name.attempt, "objects": objects}
    return Receipt.from_raw({**raw, "partitions": content["partitions"], "hours": content["hours"]})


def _is_known(lifecycle: Lifecycle, record: _Record, manifest: Manifest | None) -> bool:
    if manifest is None:
        return False
    if manifest.pipeline != lifecycle.pipeline.name or manifest.ranges != record.ranges:
        raise LakeConflict(
            f"manifest {record.manifest} covers other offsets in the lake than in this database",
            next_step="the database went on after it was restored; restore a copy from before that, then adopt",
            pipeline=lifecycle.pipeline.name,
        )
    return (manifest.published_attempt or 0) >= record.attempt


def _take_identity(lifecycle: Lifecycle) -> None:
    for sink in lifecycle.sinks:
        owner = sink.owner()
        if owner in (None, lifecycle.database.id()):
            continue
        if not lifecycle.database.take_identity(owner):
            sink.claim(lifecycle.database.id())  # raises ForeignLake, which says both


def _insert_ranges(lifecycle: Lifecycle, run: int, records: Sequence[_Record], slice_number: int) -> list[Range]:
    """Chain the records' ranges, with a planned manifest for the holes between them; returns the holes."""
    database, pipeline = lifecycle.database, lifecycle.pipeline.name
    by_place: dict[TopicPartition, list[tuple[Range, int]]] = {}
    for record in records:
        for one in record.ranges:
            by_place.setdefault(one.at, []).append((one, record.manifest))
    chains = {chain.at: chain for chain in database.chains(pipeline)}
    new = [at for at in sorted(by_place) if at not in chains]
    ids = {at: chain.id for at, chain in chains.items()} | database.insert_chains(pipeline, new)
    rows, holes = [], []
    for at, found in by_place.items():
        found.sort()
        end = chains[at].end if at in chains else found[0][0].start
        if at not in chains:
            database.insert_ranges(RangeKind.ANCHOR, [(ids[at], None, end, None)])
        for one, manifest in found:
            if one.start > end:
                holes.append(Range(at, end, one.start))
            rows.append((ids[at], one.start, one.end, manifest))
            end = one.end
    for number, part in enumerate(_one_a_partition(holes)):
        [manifest] = database.insert_manifests(run, pipeline, 1, first=slice_number + number)
        rows += [(ids[one.at], one.start, one.end, manifest) for one in part]
    database.insert_ranges(RangeKind.DATA, rows)
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


def _publish(lifecycle: Lifecycle, record: _Record) -> None:
    database = lifecycle.database
    receipt = record.receipt()
    database.adopt_attempt(receipt, asdict(receipt))
    newest = database.newest_attempt(record.manifest)
    for sink in record.receipts:
        counts = asdict(receipt.counts(sink, record.ranges))
        database.publish(record.manifest, newest, sink, record.attempt, receipt.digest(sink), counts)
    database.finish(record.manifest, newest, list(record.receipts))
