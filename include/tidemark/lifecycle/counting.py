"""Checks the two equations: ``end - start = lost + read + invisible`` and ``read + exploded = written + dead-lettered +
filtered + deduplicated``. Every term is measured; if a sum is wrong, the manifest becomes ``blocked``."""

from collections.abc import Sequence

from tidemark.errors import Blocked
from tidemark.model.manifest import Manifest
from tidemark.model.offsets import Range
from tidemark.model.reasons import DeadLetterLimit, too_many_dead_letters
from tidemark.model.receipt import ObjectKind, PartitionCount, Receipt
from tidemark.pipeline.settings import Pipeline
from tidemark.sources.base import Source
from tidemark.sources.settings import Gaps

NAMED_GAPS = 20  # named in a message; the receipt has more
PROBED_GAPS = 100  # a probe takes about 10 ms: with more gaps it is faster to read the range again


def check_equations(
    pipeline: Pipeline, source: Source, manifest: Manifest, receipt: Receipt, sinks: Sequence[str]
) -> None:
    """Raise ``Blocked`` unless all records that were read lie in the ranges, came once, and count in each sink."""
    counts = {(count.topic, count.partition): count for count in receipt.partitions}
    for covered in manifest.ranges:
        _check_range(pipeline, source, manifest, covered, counts[covered.at.topic, covered.at.partition])
    for sink in sinks:
        _check_sink(manifest, receipt, sink)


def check_dead_letters(pipeline: Pipeline, receipt: Receipt) -> None:
    """Raise ``TooManyDeadLetters`` when more records of the manifest are dead letters than the pipeline allows."""
    read = sum(count.read for count in receipt.partitions)
    dead_lettered = sum(count.dead_lettered for count in receipt.partitions)
    allowed = DeadLetterLimit(pipeline.max_dead_letters).allowed(read)
    if allowed is not None and dead_lettered > allowed:
        what = f"{dead_lettered:,} of {read:,} records cannot be used"
        raise too_many_dead_letters(what, pipeline.max_dead_letters, receipt.reasons)


def _check_range(pipeline: Pipeline, source: Source, manifest: Manifest, covered: Range, count: PartitionCount) -> None:
    inside = count.first is None or (count.first >= covered.start and (count.last or 0) < covered.end)
    if not inside or count.distinct != count.read:
        raise Blocked(
            f"records came twice, or from outside of the range: {count.read:,} records at {count.distinct:,} offsets "
            f"from {count.first} to {count.last}",
            next_step="nothing is published; the reader returned records twice or outside the range, please report it",
            **covered.context,
        )
    if count.read < covered.span:
        _check_gaps(pipeline, source, manifest, covered, count)


def _check_gaps(pipeline: Pipeline, source: Source, manifest: Manifest, covered: Range, count: PartitionCount) -> None:
    gaps = [f"[{start},{end})" for start, end in count.gaps]
    named = ", ".join(gaps[:NAMED_GAPS]) + (" .." if len(gaps) > NAMED_GAPS else "")
    match pipeline.source.gaps:
        case Gaps.NONE:
            raise Blocked(
                f"{covered.span - count.read:,} offsets hold no record a reader may see: {named}",
                next_step=f"{pipeline.source.gaps_advice} under source.{pipeline.source.kind}, then: "
                f"tidemark retry {pipeline.name} --manifest {manifest.id}",
                **covered.context,
            )
        case Gaps.TRANSACTIONS | Gaps.TRACKING:
            _check_second_read(source, covered, count)
        case Gaps.COMPACTED:
            pass


def _check_second_read(source: Source, covered: Range, count: PartitionCount) -> None:
    """Raise ``Blocked`` if a second client finds records in the gaps. With many gaps it counts the whole range."""
    if count.gap_count <= PROBED_GAPS:
        offset = source.first_record_in(covered.at, count.gaps)
        difference = None if offset is None else f"a record at offset {offset} where the batch saw none"
    else:
        records = source.count_records(covered)
        difference = None if records == count.read else f"{records:,} records where the batch saw {count.read:,}"
    if difference:
        raise Blocked(
            f"two reads of the same offsets differ: a second read found {difference}",
            next_step="nothing is published; report it if it happens again; now: tidemark retry {pipeline} --manifest "
            "{manifest}",
            **covered.context,
        )


def _check_sink(manifest: Manifest, receipt: Receipt, sink: str) -> None:
    counts = receipt.counts(sink, manifest.ranges)
    kept = sum(part.rows for part in receipt.objects_of(sink) if part.kind is ObjectKind.DEAD_LETTER)
    wrong = None
    if not counts.adds_up:
        wrong = (
            f"the counts do not add up: {counts.read:,} read + {counts.exploded:,} more by transforms, but "
            f"{counts.written:,} written + {counts.dead_lettered:,} dead-lettered + {counts.filtered:,} filtered + "
            f"{counts.deduplicated:,} deduplicated"
        )
    elif kept != counts.dead_lettered:
        wrong = f"{counts.dead_lettered:,} dead letters were counted, but {kept:,} are stored"
    if wrong:
        step = "nothing is published; this is a defect of a decoder, a transform or the sink: report it"
        raise Blocked(wrong, next_step=step, sink=sink)
