"""One attempt at a manifest, from its number to its end: start, order, stage, check, publish.

Airflow and the command line both call this.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from tidemark.connections.kept import close_kept_clients, keep_clients
from tidemark.database.client import ManifestDatabase
from tidemark.errors import (
    AccessDenied,
    Blocked,
    DataLost,
    Fenced,
    IllegalTransition,
    TidemarkError,
    TopicChanged,
    Unavailable,
    WorkFailed,
    about,
)
from tidemark.failpoints import failpoint
from tidemark.lifecycle.context import Context, refuse_out_of_use
from tidemark.lifecycle.counting import check_dead_letters, check_equations
from tidemark.lifecycle.deferral import LEASE_S, AttemptDeferred, Deferral, StagedElsewhere
from tidemark.lifecycle.expected import work_of
from tidemark.lifecycle.failed_tasks import Task, reason_of, silent_source_of
from tidemark.lifecycle.known_sinks import know_sinks
from tidemark.lifecycle.look_back import looked_back
from tidemark.lifecycle.ownership import belongs_to
from tidemark.lifecycle.preflight import (
    OF_ONE_SINK,
    check_for_attempt,
    not_known,
    refuse_beyond_generation,
    refuse_other_name,
)
from tidemark.lifecycle.progress import report_progress
from tidemark.lifecycle.publish import Ending, Outcome, Publisher
from tidemark.lifecycle.select import own_manifest
from tidemark.lifecycle.turns import refuse_before_turn
from tidemark.model.expectations import check_expectations
from tidemark.model.manifest import AttemptState, Counts, Manifest, ManifestState
from tidemark.model.order import Order, SinkOrder, SourceOrder
from tidemark.model.receipt import Receipt, receipt_of_tasks
from tidemark.model.storable import Storable
from tidemark.model.verdict import Verdict
from tidemark.pipeline.decoded_topics import refuse_undecoded
from tidemark.pipeline.pinned import pinned
from tidemark.sinks.base import Sink, Work, WriteMode
from tidemark.sinks.registry import open_sink

Stage = Callable[[Order], Receipt]


@dataclass(frozen=True)
class Allowed:
    """The permissions that you grant to one replay; the decision is in the history.

    ``shrink``: it may publish fewer records than before. ``append_again``: for each manifest the sinks that append, and
    for each sink the published attempt after which it may append other rows.
    """

    shrink: bool = False
    append_again: Mapping[int, Mapping[str, int]] = field(default_factory=dict)


NOTHING = Allowed()


@keep_clients()
def process(
    context: Context,
    manifest_id: int,
    stage: Stage,
    *,
    replay: bool = False,
    allowed: Allowed = NOTHING,
    deferral: Deferral | None = None,
) -> Outcome:
    """Start a new attempt at one manifest and bring it to its end; with a ``deferral`` take up that attempt.

    A done manifest is left alone unless ``replay``. Raises ``Blocked``, ``Fenced``, ``WorkFailed`` and what the
    outside systems raise; the manifest is then ``failed`` or ``blocked``, with the reason. A sink that does not
    answer or refuses the rows fails the attempt after the other sinks have published. Raises ``AttemptDeferred`` if
    ``stage`` does not wait for Spark.
    """
    manifest = own_manifest(context, manifest_id)
    is_done = manifest.state is ManifestState.DONE and not replay and not context.sinks_to_finish(manifest)
    if is_done and deferral is None:
        done = Outcome(manifest_id, manifest.attempt, Ending.ALREADY_DONE, manifest.published_counts)
        return _ended_well(context, done)
    if manifest.retired:
        _refuse_done_before(manifest)
        replay = False
    refuse_undecoded(context.pipeline, sorted({part.at.topic for part in manifest.ranges}), manifest_id=manifest_id)
    context = replace(
        context, pipeline=pinned(context.pipeline, context.lookup, _schemas(context, manifest_id), register=True)
    )
    attempt = _Attempt(context, manifest, stage, replay=replay, allowed=allowed, deferral=deferral)
    try:
        return _ended_well(context, attempt.run())
    except TidemarkError as error:
        attempt.name_repetition(error)
        raise


def _ended_well(context: Context, outcome: Outcome) -> Outcome:
    noted = outcome.noting(report_progress(context))
    with suppress(Unavailable):  # a session that ended meanwhile changes nothing of what is published
        context.database.tasks.forget_failed(context.pipeline_name, Task.PROCESS)
    return noted


def _schemas(context: Context, manifest_id: int) -> dict[str, Any]:
    """Return the registry schemas that attempts at a manifest used; if they differ, those of the newest attempt."""
    schemas: dict[str, Any] = {}
    if context.pipeline.uses_registry():
        for stored in reversed(context.database.attempts.receipts(manifest_id)):
            schemas |= stored.receipt.schemas
    return schemas


def start(context: Context, manifest: Manifest) -> int:
    """Take the next attempt number: from here on every lower attempt is fenced.

    Raises ``IllegalTransition`` when the manifest is blocked.
    """
    attempt = context.database.attempts.start(manifest.id, context.pipeline.fingerprint())
    if attempt is None:
        raise IllegalTransition(
            f"the manifest is blocked: {manifest.reason}",
            next_step=f"when you know the cause: tidemark retry {manifest.pipeline_name} --manifest {manifest.id}",
            manifest=manifest.id,
        )
    return attempt


def order_of(context: Context, manifest: Manifest, attempt: int, sinks: Sequence[Sink] | None = None) -> Order:
    """Return the order for Spark, for some sinks or all; it contains no secret."""
    pipeline, within = context.pipeline, context.pipeline.look_back
    chosen = {sink.name: sink for sink in (context.sinks if sinks is None else sinks)}
    return Order(
        pipeline_name=pipeline.name,
        manifest_id=manifest.id,
        attempt=attempt,
        ranges=manifest.ranges,
        source=SourceOrder(pipeline.source.kind, context.source.order()),
        decode=pipeline.decode.record_order(),
        event_time=pipeline.event_time.order(),
        on_error=pipeline.on_error.value,
        max_dead_letters=pipeline.max_dead_letters,
        sinks=tuple(
            SinkOrder(
                settings.name,
                settings.kind,
                {**settings.order(), **chosen[settings.name].staging.order(manifest.id, attempt)},
            )
            for settings in pipeline.sinks
            if settings.name in chosen
        ),
        transforms=pipeline.transforms(),
        record_bytes=context.database.publications.record_bytes(context.pipeline_name),
        storable=_storable(context),
        expectations=pipeline.expectations(),
        task_records=pipeline.spark.records_per_task,
        before=() if within is None else looked_back(context, manifest, within),
    )


def _storable(context: Context) -> tuple[Storable, ...]:
    """Return the limits of all sinks of the pipeline, also of those that this attempt does not write to.

    If a target does not answer, the limits that its settings declare are used, so that the others can be published.
    """
    opened = {sink.name: sink for sink in context.sinks}
    name = context.pipeline.name
    limits = []
    for settings in context.pipeline.sinks:
        sink, declared = opened.get(settings.name) or open_sink(name, settings, context.lookup), settings.storable()
        try:
            limits.append(sink.output.storable(declared))
        except OF_ONE_SINK:
            limits.append(declared)
    return tuple(limits)


def fail(database: ManifestDatabase, manifest_id: int, attempt: int, error: BaseException) -> None:
    """Record why an attempt failed; what is published stays."""
    reason = reason_of(error)
    blocked = isinstance(error, Blocked)
    with database.transaction():
        if blocked:  # first the manifest's row, then the attempt's: a new attempt locks them in the same order
            database.attempts.block(manifest_id, attempt, reason)
        else:
            database.attempts.fail(manifest_id, attempt, reason, silent_source_of(error))
        state = AttemptState.BLOCKED if blocked else AttemptState.FAILED
        database.attempts.end(manifest_id, attempt, state, reason)


def end_deferred(database: ManifestDatabase, manifest_id: int, attempt: int, error: BaseException) -> bool:
    """End a deferred attempt that nobody takes up; false if it has ended already, or if a newer one has taken over."""
    if not database.attempts.lease(manifest_id, attempt, 0):
        return False
    manifest = database.manifests.get(manifest_id)
    if isinstance(error, TidemarkError) and manifest.state is ManifestState.DONE:
        error.is_repeated_by(f"replay {manifest.pipeline_name} --manifest {manifest_id}")
    fail(database, manifest_id, attempt, error)
    return True


def _refuse_done_before(manifest: Manifest) -> None:
    """Raise ``TopicChanged`` when the chain of a done manifest has ended: its records cannot be read again."""
    if manifest.state is ManifestState.DONE:
        raise TopicChanged(
            "the manifest was planned on a chain that has ended: its topic was recreated, or its log was truncated",
            next_step="what is published of it stays, and it cannot be replayed; when a sink lacks it, accept that: "
            f"tidemark accept damage {manifest.pipeline_name} --manifest {manifest.id} --why TEXT",
            manifest=manifest.id,
        )


@contextmanager
def reading_again(manifest: Manifest) -> Iterator[None]:
    """Change the next step of ``DataLost`` and ``TopicChanged`` if output of the manifest is published: that stays.

    ``DataLost`` would offer to accept the loss of the records. ``TopicChanged`` is changed only if a decision has ended
    the log generation of the manifest, because then nothing remains to be accepted.
    """
    try:
        yield
    except (DataLost, TopicChanged) as error:
        shown = manifest.publications or manifest.state is ManifestState.DONE  # done: even if all its sinks are retired
        if shown and (manifest.retired or isinstance(error, DataLost)):
            error.next_step = (
                f"{'restore the topic; ' if isinstance(error, DataLost) else ''}published data stays. To give up what "
                f"is damaged or missing in a sink: tidemark accept damage {manifest.pipeline_name} "
                f"--manifest {manifest.id} --why TEXT"
            )
            if manifest.state is not ManifestState.DONE:
                error.next_step += f", then finish it with tidemark retry {manifest.pipeline_name}"
        raise


def refuse_shrunk(manifest: Manifest, receipt: Receipt) -> None:
    """Raise ``Blocked`` when a replay read fewer records than are published."""
    before = manifest.published_counts.read
    now = sum(count.read for count in receipt.partitions)
    if manifest.publications and now < before:
        raise Blocked(
            f"the replay read {now:,} records where {before:,} are published: compaction or retention took some",
            next_step="what is published stays as it is; restore the topic to replay this manifest, or let it shrink: "
            f"tidemark replay {manifest.pipeline_name} --manifest {manifest.id} --accept-shrunken --why TEXT",
        )


@dataclass
class _Attempt:
    """One attempt at one manifest; ``failed`` has the errors of the sinks that cannot be written to now."""

    context: Context
    manifest: Manifest
    stage: Stage
    replay: bool
    allowed: Allowed
    deferral: Deferral | None = None
    number: int = 0
    failed: dict[str, TidemarkError] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.publisher = Publisher(self.context)
        self._stays_done = self.manifest.state is ManifestState.DONE and not self.context.sinks_to_finish(self.manifest)

    def name_repetition(self, error: BaseException) -> None:
        """Make the replay the next step of its error: the manifest is done, so a retry would do nothing."""
        if self._stays_done and isinstance(error, TidemarkError):
            error.is_repeated_by(f"replay {self.context.pipeline_name} --manifest {self.manifest.id}")

    def run(self) -> Outcome:
        database = self.context.database
        if self.deferral is None:
            self._start()
        else:
            self.number = self.deferral.attempt
            if not database.attempts.take_up(self.manifest.id, self.number):
                overtaken = self.publisher.overtaken(self.manifest.id, self.number)
                return self._superseded(self.publisher, overtaken)
        try:
            with about(pipeline=self.context.pipeline_name, manifest=self.manifest.id):
                self.manifest = database.manifests.get(
                    self.manifest.id
                )  # read again: no lower attempt can change it now
                return self._work()
        except BaseException as error:
            return self._ended(error)
        finally:
            with suppress(TidemarkError):
                self._release()

    def _start(self) -> None:
        for sink in self.context.sinks:
            with self._keep_error_of(sink):
                check_for_attempt(self.context.database, sink, self.manifest.id)
                refuse_before_turn(self.context, sink, self.manifest)
        self._without_error(self.context.sinks)
        self.number = start(self.context, self.manifest)

    @contextmanager
    def _keep_error_of(self, sink: Sink) -> Iterator[None]:
        """Keep an error of one sink in ``failed``, so that the other sinks go on."""
        try:
            yield
        except OF_ONE_SINK as error:
            self.failed[sink.name] = error

    def _without_error(self, sinks: Sequence[Sink]) -> list[Sink]:
        """Return the sinks without an error; raises the error of the first sink if all have one."""
        usable = [sink for sink in sinks if sink.name not in self.failed]
        if sinks and not usable:
            raise self.failed[sinks[0].name]
        return usable

    def _work(self) -> Outcome:
        context = self.context
        # Check again, because a rename may be newer than the run. After the start no further rename is possible.
        refuse_out_of_use(context.pipeline_name, context.database)
        know_sinks(context.pipeline, context.database)
        failpoint("attempt.started")
        # Wait for lower attempts, and publish complete output that one of them has put. End here if nothing is missing.
        for sink in self._without_error(context.sinks):
            with self._keep_error_of(sink):
                sink.output.wait_for_lower(self.manifest.id)
        self._without_error(context.sinks)
        wanted = self._sinks_to_do()
        manifest = self.manifest  # as ``_sinks_to_do`` has read it again
        if not wanted:
            return self.publisher.recovered(manifest, self.number)
        refuse_beyond_generation(context.pipeline_name, context.database, manifest.id)
        # Prepare the targets, and let Spark stage the output for those that answer.
        decode, transforms = context.pipeline.decode.record_order(), context.pipeline.transforms()
        work = work_of(context.database, manifest.id, self.number, decode, transforms)
        if self.deferral is None:
            self._prepare(wanted, work)
        else:
            self._know(wanted, work, self.deferral)
        sinks = self._without_error(wanted)
        failed = {sink.name: self.failed[sink.name] for sink in wanted if sink.name in self.failed}
        try:
            receipt = self._staged(order_of(context, manifest, self.number, sinks))
        except StagedElsewhere as staged:
            raise self._deferred(staged, failed) from None
        failpoint("stage.done")
        # Check the counts, and that the source still holds the records that were read. Only then publish.
        check_equations(context.pipeline, context.source, manifest, receipt, [sink.name for sink in sinks])
        if expectations := context.pipeline.expectations():
            accepted = context.database.decisions.accepted_expectations(manifest.id)
            check_expectations(expectations, receipt.expectations, accepted)
        check_dead_letters(context.pipeline, receipt)
        if not self.allowed.shrink:
            refuse_shrunk(manifest, receipt)
        with reading_again(manifest):
            context.source.check(manifest.id, manifest.ranges, before_reading=False)
        receipt = replace(receipt, follows=dict(self.allowed.append_again.get(manifest.id, {})))
        outcome = self.publisher.publish(manifest, receipt, sinks, failed, may_shrink=self.allowed.shrink)
        self._clean_others(sinks)
        return outcome

    def _prepare(self, sinks: Sequence[Sink], work: Work) -> None:
        """Check that the source holds the records, and prepare the sinks without an error."""
        context, manifest = self.context, self.manifest
        with reading_again(manifest):
            context.source.check(manifest.id, manifest.ranges, before_reading=True)
        for sink in self._without_error(sinks):
            with self._keep_error_of(sink):
                # A restored database may reuse an attempt number. Do not count what the older attempt has staged.
                sink.staging.clear(manifest.id, self.number)
                sink.output.prepare(work)
                refuse_other_name(context.database, sink)  # again: the first attempt may have created the target

    def _deferred(self, staged: StagedElsewhere, failed: Mapping[str, TidemarkError]) -> AttemptDeferred:
        """Leave a lease in place of the lock. Without one, nobody would wait for the driver."""
        try:
            if not self.context.database.attempts.lease(self.manifest.id, self.number, LEASE_S):
                raise self.publisher.overtaken(self.manifest.id, self.number)
        except TidemarkError:
            with suppress(TidemarkError):
                staged.withdraw()
            raise
        failpoint("attempt.deferred")
        fingerprint = self.context.pipeline.fingerprint()
        return AttemptDeferred(Deferral(self.number, fingerprint, staged.order, staged.connection, staged.log, failed))

    def _know(self, sinks: Sequence[Sink], work: Work, deferral: Deferral) -> None:
        """Do what is left of the preparation in the second process."""
        self._refuse_other_pipeline(deferral)
        self.failed |= deferral.failed
        for sink in self._without_error(sinks):
            with self._keep_error_of(sink):
                sink.output.know(work)

    def _refuse_other_pipeline(self, deferral: Deferral) -> None:
        if deferral.fingerprint != self.context.pipeline.fingerprint():
            raise WorkFailed(
                "the pipeline file, or a schema in the registry, was changed while the driver worked",
                next_step="nothing of this attempt is published; the next one uses what is there now: tidemark retry "
                f"{self.context.pipeline_name}",
            )

    def _staged(self, order: Order) -> Receipt:
        """Return Spark's receipt. If reading failed because retention removed offsets, or because the topic was
        recreated, raise that error: the reader knows only that an offset is missing."""
        if not self.manifest.ranges:
            return receipt_of_tasks(order, [])
        close_kept_clients()
        try:
            return self.stage(order)
        except Fenced:
            raise
        except TidemarkError as failed:
            try:
                with reading_again(self.manifest):
                    self.context.source.check(self.manifest.id, self.manifest.ranges, before_reading=True)
            except (DataLost, TopicChanged) as cause:
                raise cause from failed
            except TidemarkError:
                pass
            raise

    def _sinks_to_do(self) -> Sequence[Sink]:
        """Return the sinks to write to: all, in a replay of a done manifest.

        Else first publish what an earlier attempt has put and not published before it died. Then return the sinks that
        still lack the output. If other code made the published output, return also the sinks that can replace it.
        """
        context = self.context
        for sink in context.sinks if self.replay else context.sinks_to_finish(self.manifest):
            if sink.name in self.failed or (self.replay and sink.write_mode is not WriteMode.APPEND):
                continue
            with self._keep_error_of(sink):
                if self.publisher.settle(self.manifest, sink, self.number) is Verdict.UNKNOWN:
                    raise not_known(sink, self.manifest.id, sink.ledger.recorded_attempt(self.manifest.id))
        self.manifest = context.database.manifests.get(self.manifest.id)
        if self.replay and self.manifest.state is ManifestState.DONE:
            return context.sinks
        missing = context.sinks_to_finish(self.manifest)
        if not missing:
            return []
        published = {publication.attempt for publication in self.manifest.publications if not publication.behind}
        stored = [
            row for row in context.database.attempts.receipts(self.manifest.id) if row.receipt.attempt in published
        ]
        fingerprint = context.pipeline.fingerprint()
        if not self.replay and all(row.fingerprint == fingerprint for row in stored):
            return missing
        return [sink for sink in context.sinks if sink.write_mode is not WriteMode.APPEND or sink in missing]

    def _clean_others(self, sinks: Sequence[Sink]) -> None:
        """Remove leftovers of lower attempts in those sinks for which this attempt had nothing to write."""
        for sink in self.context.sinks:
            if sink not in sinks and sink.name not in self.failed:
                with suppress(*OF_ONE_SINK):
                    self.publisher.clean(self.manifest.id, self.number, [sink])

    def _ended(self, error: BaseException) -> Outcome:
        """End an attempt that failed. If a newer attempt has taken over, any error counts as fenced."""
        if isinstance(error, AttemptDeferred):
            raise error
        database, manifest_id = self.context.database, self.manifest.id
        try:
            if database.attempts.newest(manifest_id) != self.number:
                superseded = self._superseded(self.publisher, error)
                self.publisher.clean(manifest_id, self.number, list(self._own_sinks()))
                return superseded
            self.name_repetition(error)  # before it is stored
            fail(database, manifest_id, self.number, error)
        except Unavailable:  # the connection is lost, and with it the lock: another attempt may have taken over
            with suppress(Unavailable, AccessDenied), database.reopened() as reopened:
                if reopened.attempts.newest(manifest_id) != self.number:
                    return self._superseded(Publisher(replace(self.context, database=reopened)), error)
        raise error  # also if the database does not answer: the lock is released, and ``retry`` takes the manifest

    def _superseded(self, publisher: Publisher, error: BaseException) -> Outcome:
        """Return the outcome if a newer attempt has published; raises ``Fenced`` if none has yet."""
        fenced = error if isinstance(error, Fenced) else publisher.overtaken(self.manifest.id, self.number)
        if not fenced.superseded or not isinstance(error, Exception):
            raise fenced from error
        return Outcome(self.manifest.id, self.number, Ending.SUPERSEDED, Counts())

    def _release(self) -> None:
        """Release the lock, and remove what a failed attempt staged.

        The staging of an attempt that wrote a record or published stays: ``sweep`` finds leftovers by it. That of a
        deferred attempt is still being written.
        """
        database, manifest_id = self.context.database, self.manifest.id
        states = {row["attempt"]: row["state"] for row in database.attempts.of_manifest(manifest_id)}
        database.attempts.release(manifest_id, self.number)
        if states[self.number] not in (AttemptState.PUBLISHED, AttemptState.UNCHANGED, AttemptState.RUNNING):
            for sink in self._own_sinks():
                with suppress(*OF_ONE_SINK):
                    if sink.ledger.recorded_attempt(manifest_id) != self.number:
                        sink.staging.clear(manifest_id, self.number)

    def _own_sinks(self) -> Iterator[Sink]:
        """Yield the sinks where this attempt may have left something. Skips those that do not answer, and those that
        belong to another database or sink."""
        for sink in self.context.sinks:
            with suppress(*OF_ONE_SINK):
                if belongs_to(sink, self.context.database.id()):
                    yield sink
