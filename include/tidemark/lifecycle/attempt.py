"""The verbs everyone calls: plan, process, retry, replay. Airflow and the command line add nothing."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime

from tidemark.connections import Lookup, from_environment
from tidemark.database.client import ManifestDatabase
from tidemark.errors import (
    Blocked,
    Fenced,
    IllegalTransition,
    NotFound,
    TidemarkError,
    TopicChanged,
    Unavailable,
)
from tidemark.failpoints import failpoint
from tidemark.kafka.cluster import KafkaCluster
from tidemark.kafka.connection import KafkaConnection
from tidemark.lifecycle import plan
from tidemark.lifecycle.counting import check_equations
from tidemark.lifecycle.lives import refuse_outlived
from tidemark.lifecycle.plan import PlannedRun, Tick
from tidemark.lifecycle.preflight import OF_ONE_SINK, check_for_attempt, refuse_moved
from tidemark.lifecycle.publish import Ending, Outcome, Publisher, is_put, published_counts
from tidemark.manifest import AttemptState, Counts, Manifest, ManifestState
from tidemark.order import Order, SinkOrder
from tidemark.pipeline.settings import Pipeline
from tidemark.planner import Limits
from tidemark.receipt import Receipt, receipt_of_tasks
from tidemark.sinks.base import Sink
from tidemark.sinks.registry import open_sink
from tidemark.sinks.settings import SinkKind

Stage = Callable[[Order], Receipt]


@dataclass
class _Work:
    """What one attempt has to do: ``failed`` has the error of each sink that cannot be worked for now."""

    manifest: Manifest
    attempt: int
    replay: bool
    failed: dict[str, TidemarkError] = field(default_factory=dict)

    def without_failed(self, sinks: Sequence[Sink]) -> list[Sink]:
        """Those of the sinks that can be worked for; raises the first one's error when none can."""
        able = [sink for sink in sinks if sink.name not in self.failed]
        if sinks and not able:
            raise self.failed[sinks[0].name]
        return able


class Lifecycle:
    """One pipeline with its database, its broker and its sinks."""

    def __init__(
        self,
        pipeline: Pipeline,
        database: ManifestDatabase,
        connection: KafkaConnection,
        lookup: Lookup = from_environment,
    ) -> None:
        self.pipeline = pipeline
        self.database = database
        self.connection = connection
        self.cluster = KafkaCluster(connection.bootstrap_servers, connection.config)
        self.sinks = [open_sink(pipeline.name, sink, lookup) for sink in pipeline.sinks]
        self.publisher = Publisher(pipeline.name, database, self.sinks)

    def plan(self, tick: Tick, *, dry_run: bool = False) -> PlannedRun:
        """Cut the chains up to the tick and record the manifests; see ``plan.plan``."""
        return plan.plan(self.pipeline, self.database, self.cluster, self.sinks, tick, dry_run=dry_run)

    def process(self, manifest_id: int, stage: Stage, *, replay: bool = False) -> Outcome:
        """Bring one manifest to done with a new attempt, or say why not.

        A done manifest is left alone unless ``replay``. Raises ``Blocked``, ``Fenced``, ``WorkFailed`` and what the
        outside systems raise; the manifest then says ``failed`` or ``blocked`` with the reason. A sink that does not
        answer or take the rows fails the attempt after the others have published.
        """
        manifest = self._own(manifest_id)
        if manifest.state is ManifestState.DONE and not replay:
            return Outcome(manifest_id, manifest.attempt, Ending.ALREADY_DONE, published_counts(manifest))
        if manifest.retired:
            self._refuse_done_before(manifest)
            replay = False
        refuse_moved(self.pipeline.name, self.database, self.sinks)
        work = _Work(manifest, 0, replay)
        for sink in self.sinks:
            with self._on_its_own(work, sink):
                check_for_attempt(self.pipeline.name, self.database, sink, manifest_id)
        work.without_failed(self.sinks)
        work.attempt = self.start(manifest)
        try:
            work.manifest = self.database.manifest(manifest_id)  # as it is now that no lower attempt can change it
            return self._work(work, stage)
        except BaseException as error:
            return self._ended(work.manifest, work.attempt, error)
        finally:
            with suppress(TidemarkError):
                self._leave(manifest_id, work.attempt)

    @contextmanager
    def _on_its_own(self, work: _Work, sink: Sink) -> Iterator[None]:
        """What keeps one sink from working does not keep the others from it."""
        try:
            yield
        except OF_ONE_SINK as error:
            work.failed[sink.name] = error

    def _leave(self, manifest: int, attempt: int) -> None:
        """Drop what a failed attempt staged and let its lock go; one that left a record or published keeps its staging
        until it is clean, since ``sweep`` finds by it what is still to be removed."""
        ended = next(row["state"] for row in self.database.attempts(manifest) if row["attempt"] == attempt)
        self.database.release(manifest, attempt)
        if ended not in (AttemptState.PUBLISHED, AttemptState.UNCHANGED):
            for sink in self.sinks:
                with suppress(*OF_ONE_SINK):
                    if sink.recorded_attempt(manifest) != attempt:
                        sink.clear_staging(manifest, attempt)

    def _work(self, work: _Work, stage: Stage) -> Outcome:
        manifest, attempt = work.manifest, work.attempt
        failpoint("attempt.started")
        sinks = self._to_do(work)
        if not sinks:
            return self.publisher.recovered(manifest, attempt)
        refuse_outlived(self.pipeline.name, self.database, manifest.id)
        self.cluster.check(self.pipeline.name, manifest.id, manifest.ranges, before_reading=True)
        wanted, decode = sinks, self.pipeline.decode.order()
        for sink in work.without_failed(wanted):
            with self._on_its_own(work, sink):
                sink.prepare(manifest.id, attempt, decode, self.database)
        sinks = work.without_failed(wanted)
        failed = {sink.name: work.failed[sink.name] for sink in wanted if sink.name in work.failed}
        order = self.order(manifest, attempt, sinks)
        receipt = stage(order) if manifest.ranges else receipt_of_tasks(order, [])
        failpoint("stage.done")
        check_equations(self.pipeline, self.cluster, manifest, receipt, [sink.name for sink in sinks])
        self._refuse_shrunk(manifest, receipt)
        self.cluster.check(self.pipeline.name, manifest.id, manifest.ranges, before_reading=False)
        return self.publisher.publish(manifest, receipt, sinks, failed)

    def _to_do(self, work: _Work) -> list[Sink]:
        """The sinks to work for: all in a replay, or when what is published was made by other code; else those
        without a publication, unless an earlier attempt put its output there and died before the mark."""
        if work.replay:
            return self.sinks
        missing = self._missing(work.manifest)
        if not missing:
            return []  # the sink that was still to come is not in the pipeline file any more
        lower = self.database.receipts_below(work.manifest.id, work.attempt)
        published = {one.attempt for one in work.manifest.publications}
        fingerprint = self.pipeline.fingerprint()
        if any(made_by != fingerprint for receipt, made_by in lower if receipt.attempt in published):
            return self.sinks
        return [sink for sink in missing if not self._recovers(work, sink, lower)]

    def _recoverable(self, lower: Sequence[tuple[Receipt, str]], sink: Sink) -> Receipt | None:
        """The newest receipt of work for a sink, if the code is the same: its attempt may be removing what every lower
        one has put there. From a table nothing is removed: there it is the one whose rows are merged."""
        own = [(receipt, made_by) for receipt, made_by in lower if sink.name in receipt.sinks]
        if sink.merges and own:
            merged = sink.recorded_attempt(own[0][0].manifest_id)
            own = [(receipt, made_by) for receipt, made_by in own if receipt.attempt == merged]
        return next((receipt for receipt, made_by in own[:1] if made_by == self.pipeline.fingerprint()), None)

    def is_put(self, manifest: Manifest) -> bool:
        """Whether a dead attempt's output is in a sink, where only the mark is missing.

        What is merged into a table cannot be taken back, so there it counts whatever code has made it.
        """
        lower = self.database.receipts_below(manifest.id, manifest.attempt + 1)
        tried = [sink for sink in self._missing(manifest) if any(sink.name in receipt.sinks for receipt, _ in lower)]
        return any(
            sink.recorded_attempt(manifest.id) is not None
            if sink.merges
            else (newest := self._recoverable(lower, sink)) and is_put(manifest, sink, newest)
            for sink in tried
        )

    def _recovers(self, work: _Work, sink: Sink, lower: Sequence[tuple[Receipt, str]]) -> bool:
        if sink.name in work.failed:
            return False
        receipt = self._recoverable(lower, sink)
        return receipt is not None and self.publisher.recover(work.manifest, work.attempt, sink, receipt)

    def _ended(self, manifest: Manifest, attempt: int, error: BaseException) -> Outcome:
        """An attempt that did not get through: fenced whatever it stumbled over, if a newer one has taken over."""
        try:
            if self.database.newest_attempt(manifest.id) != attempt:
                superseded = self._superseded(self.database, manifest, attempt, error)
                self.publisher.clean(manifest.id, attempt, self.sinks)
                return superseded
            self.fail(manifest.id, attempt, error)
        except Unavailable:  # its session has ended, and its lock with it: others may have taken that for its end
            with suppress(Unavailable), self.database.anew() as database:
                if database.newest_attempt(manifest.id) != attempt:
                    return self._superseded(database, manifest, attempt, error)  # what it left is found by sweep
        raise error  # also without the database: its lock is gone, retry finds it

    def _superseded(
        self, database: ManifestDatabase, manifest: Manifest, attempt: int, error: BaseException
    ) -> Outcome:
        """A newer attempt has done the work; raises ``Fenced`` when it has not, or not yet."""
        fenced = error if isinstance(error, Fenced) else self.publisher.overtaken(manifest.id, attempt, database)
        if not fenced.superseded or not isinstance(error, Exception):
            raise fenced from error
        return Outcome(manifest.id, attempt, Ending.SUPERSEDED, Counts())

    def _own(self, manifest_id: int) -> Manifest:
        manifest = self.database.manifest(manifest_id)
        if manifest.pipeline != self.pipeline.name:
            raise NotFound(
                f"manifest {manifest_id} belongs to pipeline {manifest.pipeline}",
                next_step=f"name that pipeline: {manifest.pipeline}",
                pipeline=self.pipeline.name,
            )
        return manifest

    def _missing(self, manifest: Manifest) -> list[Sink]:
        return [sink for sink in self.sinks if manifest.published(sink.name) is None]

    def _refuse_done_before(self, manifest: Manifest) -> None:
        """Of what was planned on a chain that has ended, only what is not done may be worked at."""
        if manifest.state is ManifestState.DONE:
            raise TopicChanged(
                "the manifest was planned on a chain that has ended, since its topic was made anew or its log was cut",
                next_step="what is published of it stays; it cannot be done again",
                pipeline=self.pipeline.name,
                manifest=manifest.id,
            )

    def limits(self) -> Limits:
        """How much one slice may hold, by the record size measured so far."""
        return plan.limits(self.pipeline, self.database)

    def start(self, manifest: Manifest) -> int:
        """Take the next attempt number: from here on every lower attempt is fenced."""
        attempt = self.database.start(manifest.id, self.pipeline.fingerprint())
        if attempt is None:
            raise IllegalTransition(
                f"the manifest is blocked: {manifest.reason}",
                next_step=f"when the cause is understood: tidemark retry {manifest.pipeline} --manifest {manifest.id}",
                pipeline=manifest.pipeline,
                manifest=manifest.id,
            )
        return attempt

    def order(self, manifest: Manifest, attempt: int, sinks: Sequence[Sink] | None = None) -> Order:
        """What Spark is told, for some sinks or all; it holds no secret."""
        pipeline = self.pipeline
        chosen = {sink.name: sink for sink in (self.sinks if sinks is None else sinks)}
        return Order(
            pipeline=pipeline.name,
            manifest_id=manifest.id,
            attempt=attempt,
            ranges=manifest.ranges,
            bootstrap_servers=self.connection.bootstrap_servers,
            kafka_options=self.connection.tuning(),
            kafka_connection=self.connection.secured_by(),
            decode=pipeline.decode.order(),
            event_time=pipeline.event_time.order(),
            on_error=pipeline.on_error.value,
            sinks=tuple(
                SinkOrder(one.name, one.kind.value, {**one.order(), **chosen[one.name].order(manifest.id, attempt)})
                for one in pipeline.sinks
                if one.name in chosen
            ),
            nul_allowed=all(one.kind is not SinkKind.POSTGRES for one in pipeline.sinks),
        )

    def _refuse_shrunk(self, manifest: Manifest, receipt: Receipt) -> None:
        before = published_counts(manifest).read
        now = sum(one.read for one in receipt.partitions)
        if manifest.publications and now < before:
            raise Blocked(
                f"the replay read {now:,} records where {before:,} are published: compaction or retention took some",
                next_step="what is published stays as it is; restore the topic to replay this manifest",
                pipeline=self.pipeline.name,
                manifest=manifest.id,
            )

    def fail(self, manifest: int, attempt: int, error: BaseException) -> None:
        """Record why an attempt ended; what is published stays."""
        reason = str(error) or type(error).__name__
        blocked = isinstance(error, Blocked)
        with self.database.transaction():
            if blocked:  # the manifest's row before the attempt's, as whoever takes over locks them
                self.database.block(manifest, attempt, reason)
            else:
                self.database.fail(manifest, attempt, reason)
            self.database.end_attempt(
                manifest, attempt, AttemptState.BLOCKED if blocked else AttemptState.FAILED, reason
            )

    def unfinished(self, manifest_id: int | None = None) -> list[Manifest]:
        """What ``retry`` takes: planned, failed or running, and no attempt alive; a blocked one only when named."""
        states = [ManifestState.PLANNED, ManifestState.FAILED, ManifestState.RUNNING]
        if manifest_id is None:
            return [one for one in self.database.manifests(self.pipeline.name, states) if not one.alive]
        manifest = self._own(manifest_id)
        if manifest.state is ManifestState.BLOCKED:
            self.database.unblock(manifest_id)
        self.refuse_at_work([manifest])
        return [] if manifest.state is ManifestState.DONE else [manifest]

    def refuse_at_work(self, manifests: Sequence[Manifest]) -> None:
        """Raise ``IllegalTransition`` when an attempt is alive at one of them: taking over is a decision."""
        for one in manifests:
            if one.alive:
                raise IllegalTransition(
                    f"attempt {one.attempt} is alive and at work",
                    next_step="wait for it; or fence it: "
                    f"tidemark replay {one.pipeline} --manifest {one.id} --take-over",
                    pipeline=one.pipeline,
                    manifest=one.id,
                )

    def at_work(self) -> list[Manifest]:
        """What ``retry`` leaves out: an attempt is alive, so somebody is finishing it."""
        return [one for one in self.database.manifests(self.pipeline.name, [ManifestState.RUNNING]) if one.alive]

    def between(self, start: datetime, end: datetime) -> list[int]:
        """The manifests that hold records stamped in [start, end)."""
        return plan.between(self.pipeline, self.database, self.cluster, start, end)

    def replayable(self, *, manifest: int | None = None, run_key: str | None = None) -> list[Manifest]:
        """The manifests a replay means: the one named, or all of a run, or what covers it."""
        if manifest is not None:
            found = [self._own(manifest)]
        else:
            run = self.database.find_run(self.pipeline.name, run_key or "")
            if run is None:
                raise NotFound(
                    f"there is no run {run_key}",
                    next_step="list runs with: tidemark manifests",
                    pipeline=self.pipeline.name,
                )
            found = self.database.manifests(ids=run["manifests"] or run["covered_by"])
        return found
