"""Where one record is: the range that covers its offset, the manifest, and the file or row that holds it.

The chain says which manifest, by its index; the receipt which files may hold it; the file itself whether it does.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.database.client import ManifestDatabase
from tidemark.errors import TidemarkError
from tidemark.manifest import Manifest, Publication, RangeKind
from tidemark.offsets import TopicPartition
from tidemark.receipt import Receipt
from tidemark.sinks.base import Sink
from tidemark.sinks.located import Located, Standing


@dataclass(frozen=True)
class Found:
    """What one chain knows of an offset; ``start`` and ``end`` are its range there, None when none covers it."""

    pipeline_name: str
    at: TopicPartition
    offset: int
    incarnation: int
    retired: bool
    standing: Standing
    said: str
    start: int | None = None
    end: int | None = None
    manifest: Manifest | None = None
    sinks: tuple[Located, ...] = ()


Sinks = Callable[[str], Sequence[Sink] | str]


def locate(
    database: ManifestDatabase, topic: str, partition: int, offset: int, sinks: Sinks, pipeline_name: str | None = None
) -> list[Found]:
    """What each chain of a partition knows of an offset: by pipeline, older lives of the topic first.

    ``sinks`` gives those of a pipeline, or says why they cannot be asked.
    """
    rows = database.ranges_at(topic, partition, offset, pipeline_name)
    return [_found(database, row, offset, sinks) for row in rows]


def _found(database: ManifestDatabase, row: dict[str, Any], offset: int, sinks: Sinks) -> Found:
    at = TopicPartition(row["topic"], row["topic_id"], row["partition"])
    start, end = row["start_offset"], row["end_offset"]
    manifest: Manifest | None = None
    held: tuple[Located, ...] = ()
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
        standing, said = Standing.LOST, "retention took it before it was read"
    return Found(
        row["pipeline"], at, offset, row["incarnation"], row["retired"], standing, said, start, end, manifest, held
    )


def _as_a_whole(manifest: Manifest, held: Sequence[Located]) -> tuple[Standing, str]:
    if not manifest.publications:
        next_step = "an attempt is at work" if manifest.alive else f"next: tidemark retry {manifest.pipeline_name}"
        return Standing.UNPUBLISHED, f"planned, not published; {next_step}"
    standing = next(one for one in Standing if any(each.standing is one for each in held))
    return standing, next(each.said for each in held if each.standing is standing)


def _in_sinks(
    database: ManifestDatabase, manifest: Manifest, at: TopicPartition, offset: int, sinks: Sinks
) -> list[Located]:
    opened = sinks(manifest.pipeline_name) if manifest.publications else []
    by_name = {} if isinstance(opened, str) else {sink.name: sink for sink in opened}
    found = []
    for one in manifest.publications:
        sink = by_name.get(one.sink)
        if sink is None:
            why = opened if isinstance(opened, str) else "the pipeline file has no such sink any more"
            found.append(Located(one.sink, one.attempt, Standing.UNREAD, f"not looked at: {why}"))
            continue
        receipt = database.receipt(manifest.id, one.attempt)
        assert receipt is not None, "a publication has a receipt"
        try:
            found.append(_in_sink(manifest, one, receipt, sink, at, offset))
        except TidemarkError as error:
            found.append(Located(one.sink, one.attempt, Standing.UNREAD, f"not looked at: {error.what}"))
    return found


def _in_sink(
    manifest: Manifest,
    published: Publication,
    receipt: Receipt,
    sink: Sink,
    at: TopicPartition,
    offset: int,
) -> Located:
    gap = _gap(receipt, at, offset)
    if gap:
        return Located(published.sink, published.attempt, Standing.NO_RECORD, gap)
    return sink.locate(manifest, published, receipt, at, offset)


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
