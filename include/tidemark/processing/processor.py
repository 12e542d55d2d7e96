"""The one pass of a Spark task: count, decode, transform, place, hand to the sinks, and tell what was done.

It is plain Arrow and needs only the standard library and pyarrow, so it runs in tests as on executors.
A task ends with one report, a mapping that JSON can hold:

    {"task": "00003-17",
     "partitions": [{"topic", "partition", "read", "bytes", "first", "last", "distinct",    measured before the decoder
                     "last_timestamp_ms", "last_digest",                                     of the record at "last"
                     "decoded", "dead_lettered", "filtered", "deduplicated",                 measured after each step
                     "gaps": [[a, b], ..], "gap_count": n}],
     "parts": [<a StagedPart>, ..],
     "reasons": [<a ReasonCount>, ..],                                                   of the dead letters
     "hours": {"2013-01-01T10": [written, late], ..},
     "schemas": {"<registry>: writer 7": {<a RegisteredSchema>}, ..}}                        that were used

``bytes`` counts keys and values. ``first`` and ``last`` are offsets, inclusive. ``distinct`` counts offsets above
every earlier one of the partition in this task: a record that comes twice or out of order makes it smaller than
``read``, and the driver must block. ``gaps`` are half-open, between the offsets read here, and at most ``GAP_LIMIT``
of them; ``gap_count`` counts all. ``decoded`` counts what the decoder could read; a record that it read but that has no
valid event time is also ``dead_lettered``. ``filtered`` and ``deduplicated`` count the rows that transforms say they
took away. Hours are of the event time, in UTC; ``late`` ones came into Kafka after the allowed lateness.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.dead_letters import DeadLetterLimit, ReasonCount, reasons_together, template, too_many_dead_letters
from tidemark.decoders.base import HEADERS, BadRecord, Decoded, ErrorClass, schemas_of
from tidemark.decoders.registry import open_decoder
from tidemark.digest import record_digest
from tidemark.errors import UndecodableRecord
from tidemark.event_time import INSTANT, EventTime, Placed
from tidemark.order import OnError, OnInvalid, Order
from tidemark.processing.nul import with_nul
from tidemark.sinks.writer import SinkWriter
from tidemark.sinks.writers import open_writer
from tidemark.transforms.chain import Chain

GAP_LIMIT = 10_000
MILLISECONDS = pa.timestamp("ms", "UTC")
INPUT = pa.schema(  # what a source gives; other columns are ignored
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", INSTANT),
        ("headers", HEADERS),
    ]
)
METADATA = pa.schema(
    [
        pa.field("_topic", pa.string(), nullable=False),
        pa.field("_partition", pa.int32(), nullable=False),
        pa.field("_offset", pa.int64(), nullable=False),
        pa.field("_timestamp", INSTANT),
        pa.field("_key", pa.binary()),
        pa.field("_manifest_id", pa.int64(), nullable=False),
    ]
)
DELETED = pa.field("_deleted", pa.bool_(), nullable=False)  # after the metadata, where the decoder knows tombstones
DEAD_LETTERS = pa.schema(
    [
        *METADATA,
        pa.field("_value", pa.binary()),
        pa.field("_headers", HEADERS),
        pa.field("_error_class", pa.string(), nullable=False),
        pa.field("_reason", pa.string(), nullable=False),
        pa.field("_schemas", pa.string()),  # those it was read with, where the decoder knows them
    ]
)


@dataclass
class _Count:
    """What this task did on one partition; the names are those of the receipt."""

    topic: str
    partition: int
    read: int = 0
    bytes: int = 0
    first: int | None = None
    last: int | None = None
    last_timestamp_ms: int | None = None
    last_digest: str | None = None
    distinct: int = 0
    decoded: int = 0
    dead_lettered: int = 0
    filtered: int = 0
    deduplicated: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list)
    gap_count: int = 0

    def saw(self, rows: pa.RecordBatch) -> None:
        """Count records in the order in which they were read."""
        lengths = [pc.sum(pc.binary_length(rows.column(name))).as_py() or 0 for name in ("key", "value")]
        self.bytes += sum(lengths)
        offsets = rows.column("offset")
        before = offsets[0].as_py() - 1 if self.last is None else self.last
        highest = pc.max_element_wise(pc.cumulative_max(offsets), before)
        previous = pa.concat_arrays([pa.array([before], pa.int64()), highest[:-1]])
        self.distinct += pc.sum(pc.cast(pc.greater(offsets, previous), pa.int64())).as_py()
        gaps = pc.indices_nonzero(pc.greater(pc.subtract(highest, previous), 1))
        self.gap_count += len(gaps)
        taken = gaps[: GAP_LIMIT - len(self.gaps)]
        starts = pc.add(previous.take(taken), 1).to_pylist()
        self.gaps += zip(starts, highest.take(taken).to_pylist(), strict=True)
        self.read += len(offsets)
        lowest = pc.min(offsets).as_py()
        self.first = lowest if self.first is None else min(self.first, lowest)
        self.last = highest[-1].as_py()
        if self.last != before:
            self._remember(rows.slice(pc.index(offsets, self.last).as_py(), 1))

    def _remember(self, last: pa.RecordBatch) -> None:
        """Keep what tells the last record from another one at its offset."""
        key, value, timestamp = (last.column(name) for name in ("key", "value", "timestamp"))
        self.last_timestamp_ms = pc.fill_null(timestamp.cast(MILLISECONDS, safe=False), -1)[0].value
        self.last_digest = record_digest(key[0].as_py(), value[0].as_py())


class BatchProcessor:
    """The work of one order's Spark tasks; small and picklable, because Spark sends it to every executor.

    Raises ``ConfigurationError`` when the order cannot be carried out.
    """

    def __init__(self, order: Order) -> None:
        self._order = order
        _Pass(order, "")  # an order that cannot be carried out is refused here, before Spark starts a task

    def process(
        self, task: str, batches: Iterable[pa.RecordBatch], writers: Sequence[SinkWriter] | None = None
    ) -> dict[str, Any]:
        """Process the batches of one task and return its report; on any error what the task staged is removed.

        ``task`` must differ between tasks *and* between tries of one task: names of staged files begin with it.
        ``writers`` take the rows instead of the order's sinks. Raises ``UndecodableRecord`` when the order says
        ``fail``, and ``TooManyDeadLetters`` as soon as this task alone has more than the whole manifest may have.
        """
        one_pass = _Pass(self._order, task, writers)
        try:
            for batch in batches:
                if batch.num_rows:
                    one_pass.take(batch)
            return one_pass.report()
        except BaseException:
            one_pass.abort()
            raise


class _Pass:
    """The state of one task."""

    def __init__(self, order: Order, task: str, writers: Sequence[SinkWriter] | None = None) -> None:
        self._manifest_id = order.manifest_id
        self._task = task
        self._on_error = OnError(order.on_error)
        self._decoder = open_decoder(order.decode)
        self._transforms = Chain(order.transforms, self._decoder.schema)
        self._event_time = EventTime.of(order.event_time)
        self._event_time.check(self._transforms.schema)
        self._nul_allowed = order.nul_allowed
        self._counts: dict[tuple[str, int], _Count] = {}
        self._hours: dict[str, list[int]] = {}
        self._reasons: tuple[ReasonCount, ...] = ()
        self._max_dead_letters = order.max_dead_letters
        # A share is of the records read, which nobody knows yet: never more than the ranges span.
        self._dead_letters_left = DeadLetterLimit(order.max_dead_letters).allowed(sum(r.span for r in order.ranges))
        self._sinks = [open_writer(order, sink, task) for sink in order.sinks] if writers is None else writers

    def report(self) -> dict[str, Any]:
        parts = [part.as_dict() for sink in self._sinks for part in sink.close()]
        partitions = [asdict(count) for _, count in sorted(self._counts.items())]
        hours = dict(sorted(self._hours.items()))
        reasons = [asdict(reason) for reason in self._reasons]
        return {
            "task": self._task, "partitions": partitions, "parts": parts, "reasons": reasons, "hours": hours,
            "schemas": schemas_of(self._decoder),
        }  # fmt: skip

    def abort(self) -> None:
        for sink in self._sinks:
            sink.abort()

    def take(self, batch: pa.RecordBatch) -> None:
        for (topic, partition), rows in _partitions(batch):
            self._counts.setdefault((topic, partition), _Count(topic, partition)).saw(rows)
        decoded = self._decoder.decode(batch)
        if not self._nul_allowed:
            decoded = with_nul(decoded)
        self._refuse(batch, decoded.errors, fail=self._on_error is OnError.FAIL)
        readable = self._metadata(batch).take(decoded.good)
        metadata, decoded = self._transformed(batch, readable, decoded)
        placed = self._place(decoded, metadata.column("_timestamp"), batch)
        misplaced = tuple(
            BadRecord(decoded.good[at].as_py(), reason, ErrorClass.EVENT_TIME) for at, reason in placed.invalid
        )
        self._refuse(batch, misplaced, fail=self._event_time.on_invalid is OnInvalid.FAIL)
        self._write(metadata, decoded, placed)
        self._bury(batch, sorted((*decoded.errors, *misplaced)))
        self._count("decoded", readable)

    def _transformed(
        self, batch: pa.RecordBatch, metadata: pa.RecordBatch, decoded: Decoded
    ) -> tuple[pa.RecordBatch, Decoded]:
        """What the transforms leave of the decoded rows, with its metadata; what each takes away is counted.

        Rows that a transform cannot work on are errors from then on.
        """
        for step in self._transforms.steps:
            made = step.apply(_rows(metadata, decoded))
            self._count("filtered", metadata.take(made.filtered))
            self._count("deduplicated", metadata.take(made.deduplicated))
            bad = [
                replace(error.at(decoded.good[error.index].as_py()), reason=step.reason(error)) for error in made.errors
            ]
            self._refuse(batch, tuple(bad), fail=self._on_error is OnError.FAIL)
            deleted = None if decoded.deleted is None else decoded.deleted.take(made.kept)
            metadata = metadata.take(made.kept)
            decoded = Decoded(made.rows, decoded.good.take(made.kept), (*decoded.errors, *bad), deleted)
        return metadata, decoded

    def _place(self, decoded: Decoded, timestamps: pa.Array, batch: pa.RecordBatch) -> Placed:
        """The event time of each row; for a tombstone, which has no fields, its header or the record's timestamp."""
        in_header = self._event_time.header is not None
        headers = batch.column("headers").take(decoded.good).cast(HEADERS) if in_header else None
        placed = self._event_time.place(decoded.rows, timestamps, headers)
        if decoded.deleted is None or in_header:
            return placed
        when = pc.if_else(decoded.deleted, timestamps, placed.when)
        invalid = tuple((row, reason) for row, reason in placed.invalid if not decoded.deleted[row].as_py())
        return Placed(when, invalid)

    def _metadata(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [batch.column(name) for name in ("topic", "partition", "offset", "timestamp", "key")]
        columns.append(pa.repeat(pa.scalar(self._manifest_id, pa.int64()), batch.num_rows))
        cast = [column.cast(field.type, safe=False) for column, field in zip(columns, METADATA, strict=True)]
        return pa.RecordBatch.from_arrays(cast, schema=METADATA)

    def _write(self, metadata: pa.RecordBatch, decoded: Decoded, placed: Placed) -> None:
        rows = _rows(metadata, decoded)
        when = placed.when
        if placed.invalid:
            valid = pc.is_valid(when)
            rows, when = rows.filter(valid), when.filter(valid)
        if not rows.num_rows:
            return
        for sink in self._sinks:
            sink.write(rows, when)
        self._count_hours(rows, when)

    def _bury(self, batch: pa.RecordBatch, errors: list[BadRecord]) -> None:
        if not errors:
            return
        at = pa.array([bad.index for bad in errors], pa.int64())
        metadata = self._metadata(batch).take(at)
        value = batch.column("value").take(at).cast(pa.binary())
        headers = batch.column("headers").take(at).cast(HEADERS)
        classes = pa.array([bad.error.value for bad in errors], pa.string())
        reasons = pa.array([bad.reason for bad in errors], pa.string())
        schemas = pa.array([bad.schemas or None for bad in errors], pa.string())
        columns = [*metadata.columns, value, headers, classes, reasons, schemas]
        letters = pa.RecordBatch.from_arrays(columns, schema=DEAD_LETTERS)
        self._count_reasons(letters)
        for sink in self._sinks:
            sink.write_dead_letters(letters)
        self._count("dead_lettered", metadata)

    def _count_reasons(self, letters: pa.RecordBatch) -> None:
        """Raises ``TooManyDeadLetters`` before the letters that are too many are kept."""
        names = ("_topic", "_partition", "_error_class", "_reason", "_offset")
        topics, partitions, classes, reasons, offsets = (letters.column(name).to_pylist() for name in names)
        templates = map(template, reasons)
        ones = map(ReasonCount, topics, partitions, classes, templates, repeat(1), offsets, offsets)
        self._reasons = reasons_together([*self._reasons, *ones])
        if self._dead_letters_left is None:
            return
        self._dead_letters_left -= letters.num_rows
        if self._dead_letters_left < 0:
            raise too_many_dead_letters(
                f"one task has {sum(reason.count for reason in self._reasons):,} records that cannot be used",
                self._max_dead_letters, self._reasons, manifest=self._manifest_id,
            )  # fmt: skip

    def _count(self, what: str, metadata: pa.RecordBatch) -> None:
        pairs = pa.Table.from_batches([metadata]).group_by(["_topic", "_partition"], use_threads=False)
        for pair in pairs.aggregate([([], "count_all")]).to_pylist():
            count = self._counts[pair["_topic"], pair["_partition"]]
            setattr(count, what, getattr(count, what) + pair["count_all"])

    def _count_hours(self, rows: pa.RecordBatch, when: pa.Array) -> None:
        lateness = pa.scalar(int(self._event_time.allowed_lateness_s * 1_000_000), pa.duration("us"))
        late = pc.greater(pc.subtract(rows.column("_timestamp"), when), lateness)
        hours = pa.table({"hour": pc.floor_temporal(when, unit="hour"), "late": pc.cast(late, pa.int64())})
        sums = hours.group_by("hour", use_threads=False).aggregate([("late", "sum"), ([], "count_all")])
        for row in sums.to_pylist():
            total = self._hours.setdefault(_hour(row["hour"]), [0, 0])
            total[0] += row["count_all"]
            total[1] += row["late_sum"] or 0

    def _refuse(self, batch: pa.RecordBatch, errors: tuple[BadRecord, ...], *, fail: bool) -> None:
        if not (errors and fail):
            return
        index, reason = errors[0].index, errors[0].reason
        more = f"; {len(errors) - 1} more in the same batch" if len(errors) > 1 else ""
        raise UndecodableRecord(
            f"a record cannot be used: {reason}{more}",
            next_step="correct the schema or the producer, or write dead_letter in the pipeline file; then retry the "
            "manifest",
            manifest=self._manifest_id,
            topic=batch.column("topic")[index].as_py(),
            partition=batch.column("partition")[index].as_py(),
            offset=batch.column("offset")[index].as_py(),
        )


def _rows(metadata: pa.RecordBatch, decoded: Decoded) -> pa.RecordBatch:
    """Rows as sinks get them: metadata, the mark of tombstones where the decoder knows them, data columns."""
    marks = [] if decoded.deleted is None else [(DELETED, decoded.deleted)]
    columns = [*metadata.columns, *(column for _, column in marks), *decoded.rows.columns]
    schema = pa.schema([*METADATA, *(mark for mark, _ in marks), *decoded.rows.schema])
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _partitions(batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, int], pa.RecordBatch]]:
    keys = pa.Table.from_batches([batch.select(["topic", "partition"])])
    pairs = keys.group_by(["topic", "partition"], use_threads=False).aggregate([]).to_pylist()
    for pair in pairs:
        topic, partition = pair["topic"], pair["partition"]
        here = pc.and_(pc.equal(batch.column("topic"), topic), pc.equal(batch.column("partition"), partition))
        yield (topic, partition), batch if len(pairs) == 1 else batch.filter(here)


def _hour(moment: datetime) -> str:
    return moment.isoformat()[: len("2013-01-01T10")]
