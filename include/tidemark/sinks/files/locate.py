"""Finds the file of a lake that holds a record: the receipt names the files to search."""

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.model.manifest import Publication
from tidemark.model.offsets import TopicPartition
from tidemark.model.receipt import ObjectKind, PublishedObject, Receipt
from tidemark.sinks.files.formats import Unreadable, format_of
from tidemark.sinks.located import Located, RecordStatus
from tidemark.storage.base import ObjectStore


def locate(
    store: ObjectStore, pipeline_name: str, published: Publication, receipt: Receipt, at: TopicPartition, offset: int
) -> Located:
    """Reads every file whose lowest and highest offset enclose the one to find, until a file has it."""
    sink_name, attempt = published.sink, published.attempt
    damaged: list[str] = []
    for object_ in receipt.objects_of(sink_name):
        if not _may_hold(object_, at, offset):
            continue
        try:
            with store.open(object_.path) as file:
                places = format_of(object_.path).places(file)
        except (Unreadable, OSError) as error:
            damaged.append(f"{object_.path} cannot be read: {str(error)[:120]}")
            continue
        if _holds(places, at, offset):
            path = f"{store.root}/{object_.path}"
            return Located(sink_name, attempt, RecordStatus.HELD, _what(object_), object_.kind, path)
    if not damaged and any(partition.gap_count > len(partition.gaps) for partition in receipt.partitions):
        what = "no file holds it, and the manifest has more gaps than its receipt lists"
        return Located(sink_name, attempt, RecordStatus.NO_RECORD, what)
    what = "; ".join(damaged) or "no published file holds it"
    return Located(sink_name, attempt, RecordStatus.MISSING, f"{what}; next: tidemark audit {pipeline_name} --deep")


def _may_hold(object_: PublishedObject, at: TopicPartition, offset: int) -> bool:
    same = (object_.topic, object_.partition) == (at.topic, at.partition)
    return same and object_.first_offset <= offset <= object_.last_offset


def _holds(places: pa.Table, at: TopicPartition, offset: int) -> bool:
    same = pc.and_(pc.equal(places["_topic"], at.topic), pc.equal(places["_partition"], at.partition))
    return bool(pc.any(pc.and_(same, pc.equal(places["_offset"], offset))).as_py())


def _what(object_: PublishedObject) -> str:
    return "a row" if object_.kind is ObjectKind.DATA else "a dead letter"
