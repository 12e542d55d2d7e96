"""The single pass of a Spark task: count, decode, transform, place by event time, write to the sinks, and report.

It is plain Arrow and needs only the standard library and pyarrow, so it runs in tests as on executors.
A task ends with one report, a mapping that can be written as JSON:

    {"task": "00003-17",
     "partitions": [{"topic", "partition", "read", "bytes", "first", "last", "distinct",    measured before the decoder
                     "last_timestamp_ms", "last_digest",                                     of the record at "last"
                     "decoded", "dead_lettered", "filtered", "deduplicated",                 measured after each step
                     "exploded",                                       rows of a record beyond its first, as written
                     "gaps": [[a, b], ..], "gap_count": n}],
     "parts": [<a StagedPart>, ..],
     "reasons": [<a ReasonCount>, ..],                                                   of the dead letters
     "unknown_fields": [<an UnknownField>, ..],                                          of the records "decoded"
     "expectations": [<an ExpectationCount>, ..],                                      of the rows that were written
     "hours": {"2013-01-01T10": [written, late], ..},
     "schemas": {"<registry>: writer 7": {<a RegisteredSchema>}, ..}}                        that were used

``bytes`` counts keys and values. ``first`` and ``last`` are offsets, inclusive. ``distinct`` counts offsets above
every earlier one of the partition in this task: a record that comes twice or out of order makes it smaller than
``read``, and the driver must block. ``gaps`` are half-open gaps between the offsets read here, at most ``GAP_LIMIT``;
``gap_count`` counts all. ``decoded`` counts the records that the decoder could read; those without a valid event time
are also ``dead_lettered``. ``filtered`` and ``deduplicated`` count the records whose last row a transform has removed;
``filtered`` also counts records that say nothing about a row, by their envelope. Hours are of the event time, in UTC;
``late`` rows came into their topic after the allowed lateness. A partition of which only records before its range were
read has an entry, too: all its counts are 0.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import repeat
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.decoders.base import BadRecord, Decoded, ErrorClass, UnknownFields, schemas_of
from tidemark.decoders.registry import open_decoder
from tidemark.errors import THEN_RETRY, UndecodableRecord
from tidemark.model.digest import record_digest
from tidemark.model.expectations import ExpectationCount, expectations_together
from tidemark.model.order import OnError, OnInvalid, Order
from tidemark.model.partitions import NO_TIMESTAMP, bounded_timestamp
from tidemark.model.reasons import (
    EXPECT,
    DeadLetterLimit,
    ReasonCount,
    reasons_together,
    template,
    too_many_dead_letters,
)
from tidemark.model.record_schema import HEADERS, PLACE, UNREADABLE
from tidemark.model.unknown_fields import UnknownField, fields_together
from tidemark.processing.rows import Rows
from tidemark.processing.spool import Spool
from tidemark.processing.storable import rows_not_storable, stamps
from tidemark.sinks.writer import RowTaker
from tidemark.sinks.writers import writer_of
from tidemark.times.event_time import INSTANT, EventTime, Placed
from tidemark.transforms.base import MADE, Memory, OnFrames
from tidemark.transforms.sequence import Transforms

if TYPE_CHECKING:
    from tidemark.transforms.expectations import Expectations

GAP_LIMIT = 10_000
MILLISECONDS = pa.timestamp("ms", "UTC")
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
DEAD_LETTERS = pa.schema(
    [
        *METADATA,
        pa.field("_value", pa.binary()),
        pa.field("_headers", HEADERS),
        pa.field("_error_class", pa.string(), nullable=False),
        pa.field("_reason", pa.string(), nullable=False),
        pa.field("_schemas", pa.string()),  # the schemas that it was read with, if the decoder knows them
    ]
)


@dataclass
class _Count:
    """The counts of this task for one partition; the names are those of the receipt."""

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
    exploded: int = 0
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
        """Store what distinguishes the last record from another one at its offset."""
        key, value, timestamp = (last.column(name) for name in ("key", "value", "timestamp"))
        stamp = pc.fill_null(timestamp.cast(MILLISECONDS, safe=False), NO_TIMESTAMP)[0].value
        self.last_timestamp_ms = bounded_timestamp(stamp)
        self.last_digest = record_digest(key[0].as_py(), value[0].as_py())


class BatchProcessor:
    """The processor for the Spark tasks of one order; small and picklable, because Spark sends it to every executor.

    Raises ``ConfigurationError`` if the order cannot be carried out.
    """

    def __init__(self, order: Order) -> None:
        self._order = order
        # Raise here for an order that cannot be carried out, before Spark starts a task.
        self._is_on_frames = _Pass(order, "").on_frames is not None

    @property
    def on_frames(self) -> OnFrames | None:
        """Return the transform that Spark calls before the pass, if the order has one. Each call returns a new object,
        which has imported no code yet."""
        return _Pass(self._order, "", []).on_frames if self._is_on_frames else None

    def rows_for_frames(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows for the function of ``on_frames``, with their places. Leaves out records without a row; the
        pass reads all records again, and counts them."""
        one_pass = _Pass(self._order, "", [])
        yield from map(one_pass.rows_for_frames, one_pass.own(batches))

    def process(
        self, task: str, batches: Iterable[pa.RecordBatch], writers: Sequence[RowTaker] | None = None
    ) -> dict[str, Any]:
        """Process the batches of one task and return its report. On any error, remove what the task staged.

        ``task`` must differ between tasks *and* between tries of one task: names of staged files begin with it.
        ``writers`` get the rows instead of the order's sinks. Raises ``UndecodableRecord`` if the order says ``fail``,
        and ``TooManyDeadLetters`` as soon as this task alone has more than the whole manifest may have.
        """
        one_pass = _Pass(self._order, task, writers)
        try:
            for batch in one_pass.own(batches):
                if batch.num_rows:
                    one_pass.take(batch)
            return one_pass.report()
        except BaseException:
            one_pass.abort()
            raise


class _Pass:
    """The state of one task."""

    def __init__(self, order: Order, task: str, writers: Sequence[RowTaker] | None = None) -> None:
        self._manifest_id = order.manifest_id
        self._task = task
        self._on_error = OnError(order.on_error)
        self._decoder = open_decoder(order.decode)
        self._transforms = Transforms(order.transforms, self._decoder.schema)
        self._event_time = EventTime.of(order.event_time)
        self._event_time.check(self._transforms.schema)
        self._expectations = _expectations_of(order, self._transforms.schema)
        self._expected: tuple[ExpectationCount, ...] = ()
        self._storable = order.storable
        self._starts = {(covered.at.topic, covered.at.partition): covered.start for covered in order.ranges}
        self._looks_back = bool(order.before)
        self._counts: dict[tuple[str, int], _Count] = {}
        self._hours: dict[str, list[int]] = {}
        self._reasons: tuple[ReasonCount, ...] = ()
        self._unknown_fields: tuple[UnknownField, ...] = ()
        self._max_dead_letters = order.max_dead_letters
        # A share refers to the records read. Their number is not known yet, but it is at most what the ranges span.
        self._dead_letters_left = DeadLetterLimit(order.max_dead_letters).allowed(sum(r.span for r in order.ranges))
        self._sinks = [writer_of(sink.kind)(order, sink, task) for sink in order.sinks] if writers is None else writers

    def report(self) -> dict[str, Any]:
        parts = [part.as_dict() for sink in self._sinks for part in sink.close()]
        partitions = [asdict(count) for _, count in sorted(self._counts.items())]
        hours = dict(sorted(self._hours.items()))
        reasons = [asdict(reason) for reason in self._reasons]
        unknown_fields = [asdict(unknown) for unknown in self._unknown_fields]
        return {
            "task": self._task, "partitions": partitions, "parts": parts, "reasons": reasons,
            "unknown_fields": unknown_fields, "expectations": [asdict(count) for count in self._expected],
            "hours": hours, "schemas": schemas_of(self._decoder),
        }  # fmt: skip

    def abort(self) -> None:
        for sink in self._sinks:
            sink.abort()

    @property
    def on_frames(self) -> OnFrames | None:
        return self._transforms.on_frames

    def rows_for_frames(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = Rows.of(self._decoded(batch), self._metadata(batch))
        for step in self._transforms.before_frames:
            rows = rows.through(step).rows
        given = rows.batch()
        return given.select([name for name in given.schema.names if name != "_manifest_id"])

    def own(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the records of the ranges, after the transforms have seen the records that they must remember."""
        own = map(self._without_earlier, batches) if self._looks_back else batches
        if self._transforms.memory is not Memory.OF_ALL:
            yield from own
            return
        with Spool() as spool:
            for batch in own:
                self._remember(batch)
                spool.put(batch)
            yield from spool.batches()

    def _without_earlier(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        parts = []
        for place, rows in _partitions(batch):
            self._counts.setdefault(place, _Count(*place))
            is_earlier = pc.less(rows.column("offset"), self._starts[place])
            self._remember(rows.filter(is_earlier))
            parts.append(rows.filter(pc.invert(is_earlier)))
        return pa.concat_batches(parts) if parts else batch

    def _remember(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        *before, remembering = self._transforms.remembering
        rows = Rows.of(self._decoded(batch), self._metadata(batch))
        for step in before:
            rows = rows.through(step).rows
        remembering.remember(rows.batch())

    def take(self, batch: pa.RecordBatch) -> None:
        # Count, decode and transform. Each step counts the records that end there; with ``fail`` an error raises.
        for place, records in _partitions(batch):
            self._counts.setdefault(place, _Count(*place)).saw(records)
        decoded = self._decoded(batch)
        on_error = self._on_error is OnError.FAIL
        self._refuse(batch, decoded.errors, fail=on_error)
        metadata = self._metadata(batch)
        self._count("filtered", metadata.take(decoded.filtered))
        readable = Rows.of(decoded, metadata)
        rows, errors = self._transformed(batch, readable)
        # Place by event time, and take out the records whose rows have none, cannot be stored, or fail an expectation.
        placed = self._place(rows, batch)
        misplaced = rows.errors(BadRecord(at, reason, ErrorClass.EVENT_TIME) for at, reason in placed.invalid)
        self._refuse(batch, misplaced, fail=self._event_time.on_invalid is OnInvalid.FAIL)
        when = placed.when.filter(rows.stays(misplaced)) if misplaced else placed.when
        rows = rows.without(misplaced)
        unfit = rows.errors(rows_not_storable(rows.batch(), self._storable))
        self._refuse(batch, unfit, fail=on_error)
        when = when.filter(rows.stays(unfit)) if unfit else when
        rows = rows.without(unfit)
        unmet = self._unmet(rows)
        when = when.filter(rows.stays(unmet)) if unmet else when
        # Write the remaining rows, and all records that were taken out as dead letters.
        self._write(rows.without(unmet), when)
        if taken_out := sorted((*decoded.errors, *errors, *misplaced, *unfit, *unmet)):
            self._write_dead_letters(batch, taken_out)
        self._count("decoded", readable.metadata)
        if decoded.unknown is not None:
            self._count_unknown(batch, decoded.unknown)

    def _decoded(self, batch: pa.RecordBatch) -> Decoded:
        """Return the decoder's rows and errors. A record that the source could not read is an error, and is not
        decoded."""
        reasons = batch.column(UNREADABLE.name) if UNREADABLE.name in batch.schema.names else None
        if reasons is None or reasons.null_count == batch.num_rows:
            return self._decoder.decode(batch)
        readable = pc.indices_nonzero(pc.is_null(reasons)).cast(pa.int64())
        decoded = self._decoder.decode(batch.take(readable)).at(readable)
        unread = [BadRecord(at, reasons[at].as_py()) for at in pc.indices_nonzero(pc.is_valid(reasons)).to_pylist()]
        return replace(decoded, errors=tuple(sorted([*decoded.errors, *unread])))

    def _transformed(self, batch: pa.RecordBatch, rows: Rows) -> tuple[Rows, tuple[BadRecord, ...]]:
        """Return the rows after all transforms, and the records that a transform could not work on. Counts the records
        that each transform removes."""
        errors: tuple[BadRecord, ...] = ()
        beside = batch.column(MADE) if MADE in batch.schema.names else None
        for step in self._transforms.steps:
            if beside is not None and step.transform is self.on_frames:
                self._refuse_invented(batch, beside, rows)
            stepped = rows.through(step, beside)
            self._count("filtered", stepped.filtered)
            self._count("deduplicated", stepped.deduplicated)
            self._refuse(batch, stepped.errors, fail=self._on_error is OnError.FAIL)
            rows, errors = stepped.rows, (*errors, *stepped.errors)
        return rows, errors

    def _refuse_invented(self, batch: pa.RecordBatch, beside: pa.Array, rows: Rows) -> None:
        """Raise ``WorkFailed`` for a row that was made at the place of a record of which Spark got no row."""
        assert self.on_frames is not None
        made = pc.indices_nonzero(pc.is_valid(beside)).cast(pa.int64())
        invented = made.filter(pc.invert(pc.is_in(made, value_set=rows.records)))
        if len(invented):
            place = {name: batch.column(name)[invented[0].as_py()].as_py() for name in PLACE}
            raise self.on_frames.wrong("gave a row back at a place of which it got none", **place)

    def _unmet(self, rows: Rows) -> tuple[BadRecord, ...]:
        """Return the records that become dead letters because a row fails an expectation. Counts all such rows."""
        if self._expectations is None:
            return ()
        judged = self._expectations.judge(rows.batch())
        self._expected = expectations_together([*self._expected, *judged.counts])
        return rows.errors(BadRecord(at, EXPECT + name, ErrorClass.EXPECTATION) for at, name in judged.dead)

    def _place(self, rows: Rows, batch: pa.RecordBatch) -> Placed:
        """Return the event time of each row. A tombstone has no fields, so it gets that of its header, or the record's
        timestamp."""
        timestamps, in_header = rows.metadata.column("_timestamp"), self._event_time.header is not None
        headers = batch.column("headers").take(rows.records).cast(HEADERS) if in_header else None
        placed = self._event_time.place(rows.data, timestamps, headers)
        if rows.deleted is None or in_header:
            return placed
        when = pc.if_else(rows.deleted, timestamps, placed.when)
        invalid = tuple((row, reason) for row, reason in placed.invalid if not rows.deleted[row].as_py())
        return Placed(when, invalid)

    def _metadata(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [batch.column(name) for name in ("topic", "partition", "offset", "timestamp", "key")]
        columns.append(pa.repeat(pa.scalar(self._manifest_id, pa.int64()), batch.num_rows))
        columns[3] = stamps(columns[3].cast(INSTANT, safe=False))
        cast = [column.cast(field.type, safe=False) for column, field in zip(columns, METADATA, strict=True)]
        return pa.RecordBatch.from_arrays(cast, schema=METADATA)

    def _write(self, rows: Rows, when: pa.Array) -> None:
        written = rows.batch()
        if not written.num_rows:
            return
        for sink in self._sinks:
            sink.write(written, when)
        self._count_hours(written, when)
        self._count("exploded", rows.further())

    def _write_dead_letters(self, batch: pa.RecordBatch, errors: list[BadRecord]) -> None:
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
        """Count the reasons. Raises ``TooManyDeadLetters`` before too many dead letters are written."""
        names = ("_topic", "_partition", "_error_class", "_reason", "_offset")
        topics, partitions, classes, reasons, offsets = (letters.column(name).to_pylist() for name in names)
        templates = map(template, reasons)
        counts = map(ReasonCount, topics, partitions, classes, templates, repeat(1), offsets, offsets)
        self._reasons = reasons_together([*self._reasons, *counts])
        if self._dead_letters_left is None:
            return
        self._dead_letters_left -= letters.num_rows
        if self._dead_letters_left < 0:
            raise too_many_dead_letters(
                f"one task has {sum(reason.count for reason in self._reasons):,} records that cannot be used",
                self._max_dead_letters, self._reasons, manifest=self._manifest_id,
            )  # fmt: skip

    def _count_unknown(self, batch: pa.RecordBatch, unknown: UnknownFields) -> None:
        places = batch.select([*PLACE]).take(unknown.records)
        table = pa.Table.from_batches([places]).append_column("path", unknown.paths)
        groups = table.group_by(["path", "topic", "partition"], use_threads=False)
        counts = [
            UnknownField(group["path"], group["count_all"], group["topic"], group["partition"], group["offset_min"])
            for group in groups.aggregate([([], "count_all"), ("offset", "min")]).to_pylist()
        ]
        self._unknown_fields = fields_together([*self._unknown_fields, *counts])

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
            total = self._hours.setdefault(row["hour"].isoformat()[: len("2013-01-01T10")], [0, 0])
            total[0] += row["count_all"]
            total[1] += row["late_sum"] or 0

    def _refuse(self, batch: pa.RecordBatch, errors: tuple[BadRecord, ...], *, fail: bool) -> None:
        failing = [error for error in errors if (fail if error.fails is None else error.fails)]
        if not failing:
            return
        index, reason = failing[0].index, failing[0].reason
        more = f"; {len(failing) - 1} more in the same batch" if len(failing) > 1 else ""
        raise UndecodableRecord(
            f"a record cannot be used: {template(reason)}{more}",
            next_step="correct the schema or the producer, or set on_error: dead_letter in the pipeline file"
            + THEN_RETRY,
            manifest=self._manifest_id,
            topic=batch.column("topic")[index].as_py(),
            partition=batch.column("partition")[index].as_py(),
            offset=batch.column("offset")[index].as_py(),
        )


def _expectations_of(order: Order, given: pa.Schema) -> "Expectations | None":
    if not order.expectations:
        return None
    from tidemark.transforms.expectations import Expectations  # imported late: only expectations need DuckDB

    return Expectations(order.expectations, given)


def _partitions(batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, int], pa.RecordBatch]]:
    keys = pa.Table.from_batches([batch.select(["topic", "partition"])])
    pairs = keys.group_by(["topic", "partition"], use_threads=False).aggregate([]).to_pylist()
    for pair in pairs:
        topic, partition = pair["topic"], pair["partition"]
        here = pc.and_(pc.equal(batch.column("topic"), topic), pc.equal(batch.column("partition"), partition))
        yield (topic, partition), batch if len(pairs) == 1 else batch.filter(here)
