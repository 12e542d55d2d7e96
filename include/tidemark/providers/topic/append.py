"""Sends the staged messages of an attempt inside a transaction, with headers that say where each message comes from."""

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.errors import THEN_RETRY, SinkRefused, WorkFailed
from tidemark.model.digest import Digest, row_digest
from tidemark.model.receipt import ObjectKind, PublishedObject
from tidemark.providers.topic.headers import ATTEMPT, MANIFEST, OFFSET, PARTITION, REASON, ROW, TOPIC
from tidemark.providers.topic.staged import staged_messages
from tidemark.providers.topic.transaction import Headers, Transaction
from tidemark.sinks.base import Fence
from tidemark.storage.base import ObjectStore

CHECKED = 2_000  # messages between two looks at what Kafka has answered


def append(
    transaction: Transaction,
    store: ObjectStore,
    staging: str,
    parts: Sequence[PublishedObject],
    topics: Mapping[ObjectKind, str],
    manifest_id: int,
    fence: Fence,
    *,
    again: int | None,
    keyed: bool,
    same_partition: bool,
) -> None:
    """Send all parts and wait until they are stored, each source partition in the order of its offsets.

    ``again`` is the attempt, if the topic has messages of an earlier one. With ``keyed`` a message without a key is
    refused. With ``same_partition`` a message goes to the partition that has the number of its source's partition.

    Raises ``WorkFailed`` if a part does not hold the messages that the receipt lists. Then nothing may be committed.
    """
    of_manifest = [(MANIFEST, b"%d" % manifest_id)]
    if again is not None:
        of_manifest.append((ATTEMPT, b"%d" % again))
    ordered = sorted(parts, key=lambda part: (part.kind, part.topic, part.spans))
    try:
        for part in ordered:
            to = _partition(part) if same_partition and part.kind is ObjectKind.DATA else None
            digest = Digest.zero()
            for batch in staged_messages(store, f"{staging}/{part.staged}"):
                digest += row_digest(batch)
                if keyed and part.kind is ObjectKind.DATA and batch.column("key").null_count:
                    raise _without_key(topics[part.kind], part, batch)
                _send(transaction, topics[part.kind], batch, part, of_manifest, to)
            if str(digest) != part.digest:
                raise _other_messages(store, f"{staging}/{part.staged}", part, manifest_id)
            fence()
        transaction.flush()
    except SinkRefused as refused:
        if transaction.refused is not None:
            refused.within(**_place_of(transaction.refused.value(), store, staging, ordered))
        raise


def _place_of(
    value: bytes | None, store: ObjectStore, staging: str, parts: Sequence[PublishedObject]
) -> dict[str, object]:
    """Return the source of the first message with this value, because Kafka's client does not return the headers."""
    for part in parts:
        for batch in staged_messages(store, f"{staging}/{part.staged}"):
            row = pc.index(batch.column("value"), pa.scalar(value, pa.binary())).as_py()
            if row >= 0:
                return {
                    "topic": part.topic,
                    "partition": _partition(part),
                    "offset": batch.column("_offset")[row].as_py(),
                }
    return {}


def _send(
    transaction: Transaction,
    topic: str,
    batch: pa.RecordBatch,
    part: PublishedObject,
    of_manifest: Headers,
    to: int | None,
) -> None:
    place = [(TOPIC, part.topic.encode()), (PARTITION, b"%d" % _partition(part))]
    columns = (batch.column(name).to_pylist() for name in ("_offset", "row", "key", "value", "about"))
    for number, (offset, row, key, value, about) in enumerate(zip(*columns, strict=True)):
        headers = [*place, (OFFSET, b"%d" % offset), *of_manifest]
        if row is not None:
            headers.append((ROW, b"%d" % row))
        if about is not None:
            headers.append((REASON, about))
        transaction.send(topic, key, value, headers, to)
        if number % CHECKED == 0:
            transaction.check()


def _other_messages(store: ObjectStore, key: str, part: PublishedObject, manifest_id: int) -> WorkFailed:
    return WorkFailed(
        f"the staged messages {store.root}/{key} are not those that the attempt has staged: somebody has replaced them",
        next_step="the transaction was aborted, and nothing of the manifest is visible; find what else writes there"
        + THEN_RETRY,
        manifest=manifest_id,
        sink=part.sink,
        topic=part.topic,
        partition=_partition(part),
    )


def _without_key(topic: str, part: PublishedObject, batch: pa.RecordBatch) -> SinkRefused:
    offset = batch.column("_offset").filter(batch.column("key").is_null())[0].as_py()
    return SinkRefused(
        f"topic {topic} has cleanup.policy=compact, and a message has no key",
        next_step="nothing of the manifest is visible; set key: of the sink to columns that are never null, or send to "
        "a topic that is not compacted" + THEN_RETRY,
        topic=part.topic,
        partition=_partition(part),
        offset=offset,
    )


def _partition(part: PublishedObject) -> int:
    """Return the partition of a part; each part has exactly one."""
    [(partition, _, _)] = part.spans
    return partition
