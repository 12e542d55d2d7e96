"""Which file of a lake holds a record: the receipt says which files may, the file itself whether it does."""

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.manifest import Publication
from tidemark.offsets import TopicPartition
from tidemark.receipt import ObjectKind, PublishedObject, Receipt
from tidemark.sinks.files.formats import Unreadable, format_of
from tidemark.sinks.located import Located, Standing
from tidemark.storage.base import ObjectStore


def locate(
    store: ObjectStore, pipeline_name: str, published: Publication, receipt: Receipt, at: TopicPartition, offset: int
) -> Located:
    """The offsets of each file whose lowest and highest enclose the one asked for are read, until one has it."""
    damaged: list[str] = []
    for one in receipt.objects_of(published.sink):
        if (one.topic, one.partition) != (at.topic, at.partition) or not one.first_offset <= offset <= one.last_offset:
            continue
        try:
            with store.open(one.path) as file:
                places = format_of(one.path).places(file)
        except (Unreadable, OSError) as error:
            damaged.append(f"{one.path} cannot be read: {str(error)[:120]}")
            continue
        if _holds(places, at, offset):
            return Located(
                published.sink, published.attempt, Standing.HELD, _held(one), one.kind, f"{store.root}/{one.path}"
            )
    if not damaged and any(one.gap_count > len(one.gaps) for one in receipt.partitions):
        said = "no file holds it, and the manifest has more gaps than its receipt lists"
        return Located(published.sink, published.attempt, Standing.NO_RECORD, said)
    said = "; ".join(damaged) or "no published file holds it"
    return Located(
        published.sink, published.attempt, Standing.MISSING, f"{said}; next: tidemark audit {pipeline_name} --deep"
    )


def _holds(places: pa.Table, at: TopicPartition, offset: int) -> bool:
    same = pc.and_(pc.equal(places["_topic"], at.topic), pc.equal(places["_partition"], at.partition))
    return bool(pc.any(pc.and_(same, pc.equal(places["_offset"], offset))).as_py())


def _held(one: PublishedObject) -> str:
    return "a row" if one.kind is ObjectKind.DATA else "a dead letter"
