"""What the process that publishes does with one sink, in the words of tests."""

from collections.abc import Sequence
from typing import Any

from tidemark.database.client import ManifestDatabase
from tidemark.lifecycle.expected import work_of
from tidemark.lifecycle.in_target import record_of
from tidemark.model.offsets import Range
from tidemark.model.receipt import Receipt
from tidemark.sinks.base import Fence, Mark, Sink
from tidemark.storage.base import ObjectStore


def prepare(sink: Sink, manifest_id: int, attempt: int, decode: dict[str, Any], database: ManifestDatabase) -> None:
    sink.output.prepare(work_of(database, manifest_id, attempt, decode, ()))


def put_into(sink: Sink, receipt: Receipt, ranges: Sequence[Range], database_id: str, fence: Fence, mark: Mark) -> None:
    sink.output.put(receipt, record_of(sink, receipt, ranges, database_id), fence, mark)


def holds(sink: Sink, receipt: Receipt) -> bool:
    """Whether the record and all objects of a receipt are in the target."""
    return sink.ledger.has(receipt) and sink.output.has(receipt)


def same_output(sink: Sink, before: Receipt, now: Receipt) -> bool:
    """Whether a replay with this receipt would move nothing."""
    return sink.ledger.has(before) and sink.output.same(before, now)


def share_store(sink: Sink, store: ObjectStore) -> None:
    """Give all faces of a sink of files another store."""
    for face in (sink.ledger, sink.staging, sink.output):
        setattr(face, "store", store)  # noqa: B010 - only faces of files have one
