"""Where one record is: the range that covers its offset, the manifest, and the file or row that holds it.

The chain says which manifest, by its index; the receipt which files may hold it; the file itself whether it does.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.database.client import ManifestDatabase
from tidemark.errors import TidemarkError
from tidemark.manifest import Manifest, Publication, RangeKind
from tidemark.offsets import TopicPartition
from tidemark.receipt import ObjectKind, PublishedObject, Receipt
from tidemark.sinks.base import Sink
from tidemark.sinks.files.formats import Unreadable, format_of
from tidemark.sinks.files.sink import FilesSink
from tidemark.sinks.postgres.sink import PostgresSink


class Standing(StrEnum):
    """What became of an offset, in one sink or as a whole; the first that applies to some sink stands for all."""

    HELD = "held"  # a row or a dead letter is there
    MISSING = "missing"  # published, and not where it should be
    UNREAD = "unread"  # published, but the sink could not be asked
    REPLACED = "replaced"  # a newer row of its key has taken its place in the table
    NO_RECORD = "no record"  # published; no reader of Kafka could see a record there
    UNPUBLISHED = "unpublished"
    LOST = "lost"
    NOT_PLANNED = "not planned"
    BEFORE_ANCHOR = "before the anchor"


@dataclass(frozen=True)
class InSink:
    """What one sink holds; ``place`` is a path or a table, ``key`` names the row of a table."""

    sink: str
    attempt: int | None
    standing: Standing
    said: str
    kind: ObjectKind | None = None
    place: str | None = None
    key: dict[str, Any] | None = None


@dataclass(frozen=True)
class Found:
    """What one chain knows of an offset; ``start`` and ``end`` are its range there, None when none covers it."""

    pipeline: str
    at: TopicPartition
    offset: int
    incarnation: int
    retired: bool
    standing: Standing
    said: str
    start: int | None = None
    end: int | None = None
    manifest: Manifest | None = None
    sinks: tuple[InSink, ...] = ()


Sinks = Callable[[str], Sequence[Sink] | str]


def locate(
    database: ManifestDatabase, topic: str, partition: int, offset: int, sinks: Sinks, pipeline: str | None = None
) -> list[Found]:
    """What each chain of a partition knows of an offset: by pipeline, older lives of the topic first.

    ``sinks`` gives those of a pipeline, or says why they cannot be asked.
    """
    rows = database.ranges_at(topic, partition, offset, pipeline)
    return [_found(database, row, offset, sinks) for row in rows]


def _found(database: ManifestDatabase, row: dict[str, Any], offset: int, sinks: Sinks) -> Found:
    at = TopicPartition(row["topic"], row["topic_id"], row["partition"])
    start, end = row["start_offset"], row["end_offset"]
    manifest: Manifest | None = None
    held: tuple[InSink, ...] = ()
    if row["kind"] is None:
        before = offset < row["anchor"]
        standing = Standing.BEFORE_ANCHOR if before else Standing.NOT_PLANNED
        said = (
            f"the chain begins at {row['anchor']:,}: tidemark extend-back {row['pipeline']} --why TEXT reads older ones"
            if before
            else f"the chain ends at {row['chain_end']:,}"
            + ("" if row["retired"] else f": tidemark run {row['pipeline']} plans what is new")
        )
    elif row["kind"] == RangeKind.DATA:
        manifest = database.manifest(row["manifest_id"])
        held = tuple(_in_sinks(database, manifest, at, offset, sinks))
        standing, said = _as_a_whole(manifest, held)
    else:
        standing, said = Standing.LOST, "Kafka dropped it before it was read"
    return Found(
        row["pipeline"], at, offset, row["incarnation"], row["retired"], standing, said, start, end, manifest, held
    )


def _as_a_whole(manifest: Manifest, held: Sequence[InSink]) -> tuple[Standing, str]:
    if not manifest.publications:
        next_step = "an attempt is at work" if manifest.alive else f"next: tidemark retry {manifest.pipeline}"
        return Standing.UNPUBLISHED, f"planned, not published; {next_step}"
    standing = next(one for one in Standing if any(each.standing is one for each in held))
    return standing, next(each.said for each in held if each.standing is standing)


def _in_sinks(
    database: ManifestDatabase, manifest: Manifest, at: TopicPartition, offset: int, sinks: Sinks
) -> list[InSink]:
    opened = sinks(manifest.pipeline) if manifest.publications else []
    by_name = {} if isinstance(opened, str) else {sink.name: sink for sink in opened}
    found = []
    for one in manifest.publications:
        sink = by_name.get(one.sink)
        if sink is None:
            why = opened if isinstance(opened, str) else "the pipeline file has no such sink any more"
            found.append(InSink(one.sink, one.attempt, Standing.UNREAD, f"not looked at: {why}"))
            continue
        receipt = database.receipt(manifest.id, one.attempt)
        assert receipt is not None, "a publication has a receipt"
        try:
            found.append(_in_sink(manifest, one, receipt, sink, at, offset))
        except TidemarkError as error:
            found.append(InSink(one.sink, one.attempt, Standing.UNREAD, f"not looked at: {error.what}"))
    return found


def _in_sink(
    manifest: Manifest,
    published: Publication,
    receipt: Receipt,
    sink: Sink,
    at: TopicPartition,
    offset: int,
) -> InSink:
    gap = _gap(receipt, at, offset)
    if gap:
        return InSink(published.sink, published.attempt, Standing.NO_RECORD, gap)
    match sink:
        case FilesSink():
            return _in_files(published, receipt, sink, at, offset)
        case PostgresSink():
            return _in_table(manifest, published, sink, at, offset)
        case other:
            raise AssertionError(f"no way to look into {type(other).__name__}")


def _gap(receipt: Receipt, at: TopicPartition, offset: int) -> str:
    """Why no record can be there, by what the attempt counted; empty when there may be one."""
    counts = [one for one in receipt.partitions if (one.topic, one.partition) == (at.topic, at.partition)]
    for start, end in (gap for one in counts for gap in one.gaps):
        if start <= offset < end:
            return (
                f"offsets [{start:,}, {end:,}) hold no record that a reader may see: the mark of a transaction, "
                "an aborted one, or compacted"
            )
    return ""


def _in_files(published: Publication, receipt: Receipt, sink: FilesSink, at: TopicPartition, offset: int) -> InSink:
    """The offsets of each file whose lowest and highest enclose the one asked for are read, until one has it."""
    damaged: list[str] = []
    for one in receipt.objects_of(sink.name):
        if (one.topic, one.partition) != (at.topic, at.partition) or not one.first_offset <= offset <= one.last_offset:
            continue
        try:
            with sink.store.open(one.path) as file:
                places = format_of(one.path).places(file)
        except (Unreadable, OSError) as error:
            damaged.append(f"{one.path} cannot be read: {str(error)[:120]}")
            continue
        if _holds(places, at, offset):
            return InSink(sink.name, published.attempt, Standing.HELD, _held(one), one.kind, f"{sink.root}/{one.path}")
    if not damaged and any(one.gap_count > len(one.gaps) for one in receipt.partitions):
        said = "no file holds it, and the manifest has more gaps than its receipt lists"
        return InSink(sink.name, published.attempt, Standing.NO_RECORD, said)
    said = "; ".join(damaged) or "no published file holds it"
    return InSink(sink.name, published.attempt, Standing.MISSING, f"{said}; next: tidemark audit --deep says more")


def _holds(places: pa.Table, at: TopicPartition, offset: int) -> bool:
    same = pc.and_(pc.equal(places["_topic"], at.topic), pc.equal(places["_partition"], at.partition))
    return bool(pc.any(pc.and_(same, pc.equal(places["_offset"], offset))).as_py())


def _held(one: PublishedObject) -> str:
    return "a row" if one.kind is ObjectKind.DATA else "a dead letter"


def _in_table(
    manifest: Manifest, published: Publication, sink: PostgresSink, at: TopicPartition, offset: int
) -> InSink:
    place = (manifest.id, at.topic, at.partition, offset)
    row = sink.row_at(*place)
    if row is not None:
        key = {name: row[name] for name in sink.config.key}
        said = "a row that marks its key as deleted" if row["_deleted"] else "a row"
        return InSink(sink.name, row["_attempt"], Standing.HELD, said, ObjectKind.DATA, sink.target, key)
    reason = sink.dead_letter_at(*place)
    if reason is not None:
        dead = "tidemark_target.dead_letter"
        return InSink(
            sink.name, published.attempt, Standing.HELD, f"a dead letter: {reason}", ObjectKind.DEAD_LETTER, dead
        )
    counts = published.counts
    replaced = f"a newer row of its key is in {sink.target} ({counts.superseded:,} rows of the manifest had a later "
    replaced += f"one in it, {counts.stale:,} met a newer one; any may have been replaced since)"
    return InSink(sink.name, published.attempt, Standing.REPLACED, replaced, place=sink.target)
