"""Locates one record: the range that covers its offset, the manifest, and the file or row that holds it.

The chain's index gives the manifest, the receipt the files that may hold the record; then the files are read.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidemark.database.chains import place_from
from tidemark.database.client import ManifestDatabase
from tidemark.errors import TidemarkError
from tidemark.model.json_values import INLINE
from tidemark.model.manifest import Manifest, ManifestState, Publication
from tidemark.model.offsets import TopicPartition
from tidemark.model.receipt import Receipt
from tidemark.sinks.base import Sink
from tidemark.sinks.located import Located, RecordStatus


@dataclass(frozen=True)
class Span:
    """Offsets ``[start, end)`` of a known partition."""

    start: int
    end: int


@dataclass(frozen=True)
class CoveringManifest:
    """The manifest that covers an offset: its number, its state and its newest attempt."""

    id: int
    state: ManifestState
    attempt: int
    run_key: str
    alive: bool
    reason: str | None


@dataclass(frozen=True)
class ChainOffset:
    """The fate of an offset in one log generation of a partition, for one pipeline. ``retired``: the generation has
    ended.

    ``standing`` is the first of these that is true in a sink: held, missing, unread, replaced, no record, unpublished,
    lost, not planned, before the anchor. ``range`` covers the offset; ``range`` and ``manifest`` are None if nothing
    covers it.
    """

    pipeline_name: str
    at: TopicPartition = field(metadata=INLINE)
    offset: int
    generation: int
    retired: bool
    standing: RecordStatus
    message: str
    range: Span | None
    manifest: CoveringManifest | None
    sinks: tuple[Located, ...]


Sinks = Callable[[str], Sequence[Sink] | str]


def locate(
    database: ManifestDatabase, topic: str, partition: int, offset: int, sinks: Sinks, pipeline_name: str | None = None
) -> list[ChainOffset]:
    """Return what each chain of a partition knows of an offset: by pipeline, older log generations first.

    ``sinks`` takes a pipeline's name and returns its sinks, or a text that says why they cannot be opened.
    """
    rows = database.ranges.at(topic, partition, offset, pipeline_name)
    logs = [(row["pipeline"], row["topic_id"]) for row in rows]
    return [
        _chain_offset(database, row, offset, sinks, first=log not in logs[:number])
        for number, (row, log) in enumerate(zip(rows, logs, strict=True))
    ]


def _chain_offset(
    database: ManifestDatabase, row: dict[str, Any], offset: int, sinks: Sinks, *, first: bool
) -> ChainOffset:
    """Return what one chain knows of the offset. ``first``: its generation is the first one of its log."""
    at = place_from(row)
    start, end = row["start_offset"], row["end_offset"]
    manifest: Manifest | None = None
    held: tuple[Located, ...] = ()
    if row["kind"] is None:
        standing, message = _outside(row, offset, first=first)
    elif row["manifest_id"] is not None:
        manifest = database.manifests.get(row["manifest_id"])
        held = tuple(_locate_in_sinks(database, manifest, at, offset, sinks))
        standing, message = _overall(manifest, held)
    else:
        standing, message = RecordStatus.LOST, "retention took it before it was read"
    covering = None
    if manifest is not None:
        covering = CoveringManifest(
            manifest.id, manifest.state, manifest.attempt, manifest.run_key, manifest.alive, manifest.reason
        )
    span = None if start is None or end is None else Span(start, end)
    return ChainOffset(
        row["pipeline"], at, offset, row["generation"], row["retired"], standing, message, span, covering, held
    )


def _outside(row: dict[str, Any], offset: int, *, first: bool) -> tuple[RecordStatus, str]:
    """Return status and message for an offset that no range of the chain covers."""
    if offset < row["anchor"] and not first:
        return (
            RecordStatus.BEFORE_ANCHOR,
            f"the chain begins at {row['anchor']:,}, where the log of the one before was cut",
        )
    if offset < row["anchor"]:
        extend = f"tidemark extend-back {row['pipeline']} --why TEXT"
        return RecordStatus.BEFORE_ANCHOR, f"the chain begins at {row['anchor']:,}: {extend} reads older records"
    end = f"the chain ends at {row['chain_end']:,}"
    if row["retired"]:
        return RecordStatus.NOT_PLANNED, end
    return RecordStatus.NOT_PLANNED, f"{end}: tidemark run {row['pipeline']} reads new records"


def _overall(manifest: Manifest, held: Sequence[Located]) -> tuple[RecordStatus, str]:
    """Return status and message of the sink whose status comes first in ``RecordStatus``."""
    if not manifest.publications:
        next_step = "an attempt is at work" if manifest.alive else f"next: {manifest.retry}"
        return RecordStatus.UNPUBLISHED, f"planned, not published; {next_step}"
    order = list(RecordStatus)
    first = min(held, key=lambda located: order.index(located.standing))
    return first.standing, first.message


def _locate_in_sinks(
    database: ManifestDatabase, manifest: Manifest, at: TopicPartition, offset: int, sinks: Sinks
) -> list[Located]:
    opened = sinks(manifest.pipeline_name) if manifest.publications else []
    by_name = {} if isinstance(opened, str) else {sink.name: sink for sink in opened}
    located = []
    for publication in manifest.publications:
        sink = by_name.get(publication.sink)
        if sink is None:
            why = opened if isinstance(opened, str) else "the pipeline file has no such sink any more"
            located.append(_unread(publication, why))
            continue
        receipt = database.attempts.receipt(manifest.id, publication.attempt)
        assert receipt is not None, "a publication has a receipt"
        gap = _gap(receipt, at, offset)
        if gap is not None:
            located.append(Located(publication.sink, publication.attempt, RecordStatus.NO_RECORD, gap))
            continue
        try:
            located.append(sink.output.locate(manifest, publication, receipt, at, offset))
        except TidemarkError as error:
            located.append(_unread(publication, error.what))
    return located


def _unread(publication: Publication, why: str) -> Located:
    return Located(publication.sink, publication.attempt, RecordStatus.UNREAD, f"not looked at: {why}")


def _gap(receipt: Receipt, at: TopicPartition, offset: int) -> str | None:
    """Return the reason why the attempt saw no record at the offset; None when there may be one."""
    for count in receipt.partitions:
        if (count.topic, count.partition) != (at.topic, at.partition):
            continue
        for start, end in count.gaps:
            if start <= offset < end:
                return (
                    f"offsets [{start}, {end}) hold no record that a reader may see: the end mark of a "
                    "transaction, records of an aborted transaction, or records removed by compaction"
                )
    return None
