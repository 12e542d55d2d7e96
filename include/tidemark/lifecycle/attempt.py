"""One attempt at a manifest, from its number to its end: start, order, stage, check, publish.

Airflow and the command line add nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from tidemark.errors import Blocked, DataLost, Fenced, IllegalTransition, TidemarkError, TopicChanged, Unavailable
from tidemark.failpoints import failpoint
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.counting import check_equations
from tidemark.lifecycle.preflight import OF_ONE_SINK, check_for_attempt, refuse_moved, refuse_outlived
from tidemark.lifecycle.publish import Ending, Outcome, Publisher, published_counts
from tidemark.lifecycle.recover import recoverable
from tidemark.lifecycle.select import own_manifest
from tidemark.manifest import AttemptState, Counts, Manifest, ManifestState
from tidemark.order import Order, SinkOrder, SourceOrder
from tidemark.receipt import Receipt, receipt_of_tasks
from tidemark.sinks.base import Sink

Stage = Callable[[Order], Receipt]


def process(context: Context, manifest_id: int, stage: Stage, *, replay: bool = False) -> Outcome:
    """Bring one manifest to done with a new attempt, or say why not.

    A done manifest is left alone unless ``replay``. Raises ``Blocked``, ``Fenced``, ``WorkFailed`` and what the
    outside systems raise; the manifest then says ``failed`` or ``blocked`` with the reason. A sink that does not
    answer or take the rows fails the attempt after the others have published.
    """
    manifest = own_manifest(context, manifest_id)
    if manifest.state is ManifestState.DONE and not replay:
        return Outcome(manifest_id, manifest.attempt, Ending.ALREADY_DONE, published_counts(manifest))
    if manifest.retired:
        _refuse_done_before(manifest)
        replay = False
    refuse_moved(context.pipeline_name, context.database, context.sinks)
    return _Attempt(context, manifest, stage, replay=replay).run()


def start(context: Context, manifest: Manifest) -> int:
    """Take the next attempt number: from here on every lower attempt is fenced."""
    attempt = context.database.start(manifest.id, context.pipeline.fingerprint())
    if attempt is None:
        raise IllegalTransition(
            f"the manifest is blocked: {manifest.reason}",
            next_step=f"when the cause is understood: tidemark retry {manifest.pipeline_name} --manifest {manifest.id}",
            pipeline=manifest.pipeline_name,
            manifest=manifest.id,
        )
    return attempt


def order_of(context: Context, manifest: Manifest, attempt: int, sinks: Sequence[Sink] | None = None) -> Order:
    """What Spark is told, for some sinks or all; it holds no secret."""
    pipeline = context.pipeline
    chosen = {sink.name: sink for sink in (context.sinks if sinks is None else sinks)}
    return Order(
        pipeline=pipeline.name,
        manifest_id=manifest.id,
        attempt=attempt,
        ranges=manifest.ranges,
        source=SourceOrder(pipeline.source.kind, context.source.order()),
        decode=pipeline.decode.order(),
        event_time=pipeline.event_time.order(),
        on_error=pipeline.on_error.value,
        sinks=tuple(
            SinkOrder(
                settings.name,
                settings.kind,
                {**settings.order(), **chosen[settings.name].order(manifest.id, attempt)},
            )
            for settings in pipeline.sinks
            if settings.name in chosen
        ),
        record_bytes=context.database.record_bytes(context.pipeline_name),
        nul_allowed=all(settings.stores_nul for settings in pipeline.sinks),
    )


def fail(context: Context, manifest_id: int, attempt: int, error: BaseException) -> None:
    """Record why an attempt ended; what is published stays."""
    reason = str(error) or type(error).__name__
    blocked = isinstance(error, Blocked)
    with context.database.transaction():
        if blocked:  # the manifest's row before the attempt's, as whoever takes over locks them
            context.database.block(manifest_id, attempt, reason)
        else:
            context.database.fail(manifest_id, attempt, reason)
        state = AttemptState.BLOCKED if blocked else AttemptState.FAILED
        context.database.end_attempt(manifest_id, attempt, state, reason)


def _refuse_done_before(manifest: Manifest) -> None:
    """Of what was planned on a chain that has ended, only what is not done may be worked at."""
    if manifest.state is ManifestState.DONE:
        raise TopicChanged(
            "the manifest was planned on a chain that has ended, since its topic was recreated or its log was cut",
            next_step="what is published of it stays; it cannot be done again",
            pipeline=manifest.pipeline_name,
            manifest=manifest.id,
        )


def refuse_shrunk(manifest: Manifest, receipt: Receipt) -> None:
    """Raise ``Blocked`` when a replay read fewer records than are published."""
    before = published_counts(manifest).read
    now = sum(count.read for count in receipt.partitions)
    if manifest.publications and now < before:
        raise Blocked(
            f"the replay read {now:,} records where {before:,} are published: compaction or retention took some",
            next_step="what is published stays as it is; restore the topic to replay this manifest",
            pipeline=manifest.pipeline_name,
            manifest=manifest.id,
        )


@dataclass
class _Attempt:
    """One try at one manifest; ``failed`` has the error of each sink that cannot be worked for now."""

    context: Context
    manifest: Manifest
    stage: Stage
    replay: bool
    number: int = 0
    failed: dict[str, TidemarkError] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.publisher = Publisher(self.context)

    def run(self) -> Outcome:
        database = self.context.database
        for sink in self.context.sinks:
            with self._on_its_own(sink):
                check_for_attempt(self.context.pipeline_name, database, sink, self.manifest.id)
        self._able(self.context.sinks)
        self.number = start(self.context, self.manifest)
        try:
            self.manifest = database.manifest(self.manifest.id)  # as it is now that no lower attempt can change it
            return self._work()
        except BaseException as error:
            return self._ended(error)
        finally:
            with suppress(TidemarkError):
                self._leave()

    @contextmanager
    def _on_its_own(self, sink: Sink) -> Iterator[None]:
        """What keeps one sink from working does not keep the others from it."""
        try:
            yield
        except OF_ONE_SINK as error:
            self.failed[sink.name] = error

    def _able(self, sinks: Sequence[Sink]) -> list[Sink]:
        """Those of the sinks that can be worked for; raises the first one's error when none can."""
        able = [sink for sink in sinks if sink.name not in self.failed]
        if sinks and not able:
            raise self.failed[sinks[0].name]
        return able

    def _work(self) -> Outcome:
        context, manifest = self.context, self.manifest
        failpoint("attempt.started")
        wanted = self._sinks_to_do()
        if not wanted:
            return self.publisher.recovered(manifest, self.number)
        refuse_outlived(context.pipeline_name, context.database, manifest.id)
        context.source.check(manifest.id, manifest.ranges, before_reading=True)
        decode = context.pipeline.decode.order()
        for sink in self._able(wanted):
            with self._on_its_own(sink):
                sink.prepare(manifest.id, self.number, decode, context.database)
        sinks = self._able(wanted)
        failed = {sink.name: self.failed[sink.name] for sink in wanted if sink.name in self.failed}
        receipt = self._staged(order_of(context, manifest, self.number, sinks))
        failpoint("stage.done")
        check_equations(context.pipeline, context.source, manifest, receipt, context.sink_names(sinks))
        refuse_shrunk(manifest, receipt)
        context.source.check(manifest.id, manifest.ranges, before_reading=False)
        return self.publisher.publish(manifest, receipt, sinks, failed)

    def _staged(self, order: Order) -> Receipt:
        """Spark's receipt. When reading failed and retention took offsets meanwhile, that is what a person is told."""
        if not self.manifest.ranges:
            return receipt_of_tasks(order, [])
        try:
            return self.stage(order)
        except Fenced:
            raise
        except TidemarkError as failed:
            try:
                self.context.source.refuse_lost(self.manifest.id, self.manifest.ranges)
            except DataLost as lost:
                raise lost from failed
            except TidemarkError:
                pass
            raise

    def _sinks_to_do(self) -> Sequence[Sink]:
        """The sinks to work for: all in a replay, or when what is published was made by other code; else those
        without a publication, unless an earlier attempt put its output there and died before the mark."""
        context = self.context
        if self.replay:
            return context.sinks
        missing = context.unpublished_sinks(self.manifest)
        if not missing:
            return []  # the sink that was still to come is not in the pipeline file any more
        lower = context.database.receipts_below(self.manifest.id, self.number)
        published = {publication.attempt for publication in self.manifest.publications}
        fingerprint = context.pipeline.fingerprint()
        if any(made_by != fingerprint for receipt, made_by in lower if receipt.attempt in published):
            return context.sinks
        return [sink for sink in missing if not self._recovers(sink, lower)]

    def _recovers(self, sink: Sink, lower: Sequence[tuple[Receipt, str]]) -> bool:
        if sink.name in self.failed:
            return False
        receipt = recoverable(self.context, sink, lower)
        return receipt is not None and self.publisher.recover(self.manifest, self.number, sink, receipt)

    def _ended(self, error: BaseException) -> Outcome:
        """An attempt that did not get through: fenced whatever error it met, if a newer one has taken over."""
        database, manifest_id = self.context.database, self.manifest.id
        try:
            if database.newest_attempt(manifest_id) != self.number:
                superseded = self._superseded(self.publisher, error)
                self.publisher.clean(manifest_id, self.number, self.context.sinks)
                return superseded
            fail(self.context, manifest_id, self.number, error)
        except Unavailable:  # its session has ended, and its lock with it: others may have taken that for its end
            with suppress(Unavailable), database.anew() as other:
                if other.newest_attempt(manifest_id) != self.number:
                    return self._superseded(Publisher(replace(self.context, database=other)), error)
        raise error  # also without the database: its lock is gone, retry finds it

    def _superseded(self, publisher: Publisher, error: BaseException) -> Outcome:
        """A newer attempt has done the work; raises ``Fenced`` when it has not, or not yet."""
        fenced = error if isinstance(error, Fenced) else publisher.overtaken(self.manifest.id, self.number)
        if not fenced.superseded or not isinstance(error, Exception):
            raise fenced from error
        return Outcome(self.manifest.id, self.number, Ending.SUPERSEDED, Counts())

    def _leave(self) -> None:
        """Drop what a failed attempt staged and let its lock go; one that left a record or published keeps its staging
        until it is clean, since ``sweep`` finds by it what is still to be removed."""
        database, manifest_id = self.context.database, self.manifest.id
        ended = next(row["state"] for row in database.attempts(manifest_id) if row["attempt"] == self.number)
        database.release(manifest_id, self.number)
        if ended not in (AttemptState.PUBLISHED, AttemptState.UNCHANGED):
            for sink in self.context.sinks:
                with suppress(*OF_ONE_SINK):
                    if sink.recorded_attempt(manifest_id) != self.number:
                        sink.clear_staging(manifest_id, self.number)
