"""The verbs everyone calls: plan, process, publish, retry, replay, close. Airflow and the command line add nothing.

How one attempt becomes visible (the numbers are those of docs/guarantees.md):

1. ``publish.receipt``        the receipt is stored, if this attempt is the newest; leftovers of lower ones are removed
2. ``publish.mid``            each object moves to its key, which belongs to this attempt alone
3. ``publish.before_record``  all is made durable, then the record of this attempt is written into the lake
4. ``publish.before_mark``    one transaction: the publication names this attempt, the manifest is done
5. ``publish.marked``, ``publish.cleaned``   what lower attempts left, and this attempt's staging, is removed
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum

from tidemark import planning
from tidemark.connections import KafkaConnection
from tidemark.counting import check_equations
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
from tidemark.kafka import KafkaCluster
from tidemark.manifest.database import ManifestDatabase
from tidemark.model import AttemptState, Counts, Manifest, ManifestState, Order, Receipt, SinkOrder
from tidemark.pipeline import Pipeline
from tidemark.planner import Limits
from tidemark.planning import PlannedRun, Tick
from tidemark.sinks.registry import open_sink

Stage = Callable[[Order], Receipt]


class Ending(StrEnum):
    """How processing a manifest ended well."""

    PUBLISHED = "published"
    UNCHANGED = "unchanged"  # the new attempt's rows equal the published ones; nothing moved
    RECOVERED = "recovered"  # an earlier attempt had published and died before saying so
    ALREADY_DONE = "already done"
    SUPERSEDED = "superseded"  # a newer attempt has published; nothing is left to do


@dataclass(frozen=True)
class Outcome:
    manifest_id: int
    attempt: int
    ending: Ending
    counts: Counts


class Lifecycle:
    """One pipeline with its database, its broker and its sinks."""

    def __init__(self, pipeline: Pipeline, database: ManifestDatabase, connection: KafkaConnection) -> None:
        self.pipeline = pipeline
        self.database = database
        self.connection = connection
        self.cluster = KafkaCluster(connection.bootstrap_servers, connection.client_config())
        self.sinks = [open_sink(pipeline.name, sink) for sink in pipeline.sinks]
        self._database_id = database.id()

    def plan(self, tick: Tick, *, dry_run: bool = False) -> PlannedRun:
        """Cut the chains up to the tick and record the manifests; see ``planning.plan``."""
        return planning.plan(self.pipeline, self.database, self.cluster, self.sinks, tick, dry_run=dry_run)

    def process(self, manifest_id: int, stage: Stage, *, replay: bool = False) -> Outcome:
        """Bring one manifest to done with a new attempt, or say why not.

        A done manifest is left alone unless ``replay``. Raises ``Blocked``, ``Fenced``, ``WorkFailed`` and what the
        outside systems raise; the manifest then says ``failed`` or ``blocked`` with the reason.
        """
        manifest = self._own(manifest_id)
        if manifest.state is ManifestState.DONE and not replay:
            return Outcome(manifest_id, manifest.attempt, Ending.ALREADY_DONE, published_counts(manifest))
        self._refuse_retired(manifest)
        planning.refuse_moved_roots(self.pipeline, self.database, self.sinks)
        for sink in self.sinks:
            sink.claim(self._database_id)
            recorded = sink.recorded_attempt(manifest_id)  # before asking the database: it may grow meanwhile
            sink.refuse_attempts_beyond(manifest_id, self.database.newest_attempt(manifest_id), recorded)
        attempt = self.start(manifest)
        manifest = self.database.manifest(manifest_id)  # as it is now that no lower attempt can change it
        try:
            return self._work(manifest, attempt, stage, replay=replay)
        except BaseException as error:
            return self._ended(manifest, attempt, error)
        finally:
            with suppress(TidemarkError):
                self._leave(manifest_id, attempt)

    def _leave(self, manifest: int, attempt: int) -> None:
        """Drop what a failed attempt staged and let its lock go; one that published keeps its staging until it is
        clean, since ``sweep`` finds by it what is still to be removed."""
        ended = next(row["state"] for row in self.database.attempts(manifest) if row["attempt"] == attempt)
        self.database.release(manifest, attempt)
        if ended not in (AttemptState.PUBLISHED, AttemptState.UNCHANGED):
            for sink in self.sinks:
                sink.clear_staging(manifest, attempt)

    def _work(self, manifest: Manifest, attempt: int, stage: Stage, *, replay: bool) -> Outcome:
        failpoint("attempt.started")
        recovered = None if replay else self._recover(manifest, attempt)
        if recovered:
            return recovered
        self.cluster.check(self.pipeline.name, manifest.id, manifest.ranges, before_reading=True)
        order = self.order(manifest, attempt)
        receipt = stage(order) if manifest.ranges else Receipt(manifest.id, attempt, (), ())
        failpoint("stage.done")
        check_equations(self.pipeline, self.cluster, manifest, receipt)
        self._refuse_shrunk(manifest, receipt)
        self.cluster.check(self.pipeline.name, manifest.id, manifest.ranges, before_reading=False)
        return self.publish(manifest, receipt)

    def _ended(self, manifest: Manifest, attempt: int, error: BaseException) -> Outcome:
        """An attempt that did not get through: fenced whatever it stumbled over, if a newer one has taken over."""
        with suppress(Unavailable):  # without the database it just ends: its lock is gone, retry finds it
            if self.database.newest_attempt(manifest.id) == attempt:
                self.fail(manifest.id, attempt, error)
                raise error
            fenced = error if isinstance(error, Fenced) else self._overtaken(manifest.id, attempt)
            if not fenced.superseded or not isinstance(error, Exception):
                raise fenced from error
            self._clean(manifest.id, attempt, keep=self.database.manifest(manifest.id).published_attempt or 0)
            return Outcome(manifest.id, attempt, Ending.SUPERSEDED, Counts())
        raise error

    def _own(self, manifest_id: int) -> Manifest:
        manifest = self.database.manifest(manifest_id)
        if manifest.pipeline != self.pipeline.name:
            raise NotFound(
                f"manifest {manifest_id} belongs to pipeline {manifest.pipeline}",
                next_step=f"name that pipeline: {manifest.pipeline}",
                pipeline=self.pipeline.name,
            )
        return manifest

    def _refuse_retired(self, manifest: Manifest) -> None:
        if manifest.retired:
            raise TopicChanged(
                "the manifest was planned on a topic that is another one now; Kafka has other records at its offsets",
                next_step="what is published of it stays; it cannot be done again",
                pipeline=self.pipeline.name,
                manifest=manifest.id,
            )

    def limits(self) -> Limits:
        """How much one slice may hold, by the record size measured so far."""
        return planning.limits(self.pipeline, self.database)

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

    def order(self, manifest: Manifest, attempt: int) -> Order:
        """What Spark is told; it holds no secret."""
        pipeline = self.pipeline
        return Order(
            pipeline=pipeline.name,
            manifest_id=manifest.id,
            attempt=attempt,
            ranges=manifest.ranges,
            bootstrap_servers=self.connection.bootstrap_servers,
            kafka_options={name: one for name, one in self.connection.config.items() if isinstance(one, str)},
            decode=pipeline.decode.order(),
            event_time=pipeline.event_time.order(),
            on_error=pipeline.on_error.value,
            sinks=tuple(
                SinkOrder(one.name, one.kind.value, {**one.order(), "root": sink.root})
                for one, sink in zip(pipeline.sinks, self.sinks, strict=True)
            ),
        )

    def _fence(self, manifest: int, attempt: int) -> None:
        if self.database.newest_attempt(manifest) != attempt:
            raise self._overtaken(manifest, attempt)

    def _overtaken(self, manifest: int, attempt: int) -> Fenced:
        newer = [row for row in self.database.attempts(manifest) if row["attempt"] > attempt]
        ended_well = (AttemptState.PUBLISHED, AttemptState.UNCHANGED)
        return Fenced(
            f"attempt {attempt} is fenced: attempt {self.database.newest_attempt(manifest)} is the newest",
            superseded=any(row["state"] in ended_well for row in newer),
            next_step="nothing to do here: the newer attempt does the work",
            pipeline=self.pipeline.name,
            manifest=manifest,
        )

    def _recover(self, manifest: Manifest, attempt: int) -> Outcome | None:
        """Find an earlier attempt that put all its output and died before the mark: then only the mark is missing."""
        for receipt, _, fingerprint in self.database.receipts_below(manifest.id, attempt):
            recorded = {sink.recorded_attempt(manifest.id) for sink in self.sinks}
            if recorded != {receipt.attempt} or fingerprint != self.pipeline.fingerprint():
                continue
            same = all(sink.recorded_ranges(receipt) == manifest.ranges for sink in self.sinks)
            if same and all(sink.holds(receipt) for sink in self.sinks):
                counts = self._mark(manifest, receipt, attempt, AttemptState.UNCHANGED)
                self._clean(manifest.id, attempt, keep=receipt.attempt)
                return Outcome(manifest.id, receipt.attempt, Ending.RECOVERED, counts)
        return None

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

    def publish(self, manifest: Manifest, receipt: Receipt) -> Outcome:
        """Make one attempt's output visible in the five steps above, then say ``done``; may be repeated."""
        attempt = receipt.attempt
        if not self.database.store_receipt(receipt, asdict(receipt)):
            raise self._overtaken(manifest.id, attempt)
        for lower, published, _ in self.database.receipts_below(manifest.id, attempt):
            if not published:
                for sink in self.sinks:
                    sink.discard(lower)
        failpoint("publish.receipt")
        same = self._published_alike(manifest, receipt)
        if same:
            counts = self._mark(manifest, same, attempt, AttemptState.UNCHANGED)
        else:
            for sink in self.sinks:
                sink.put(receipt, manifest.ranges, self._database_id, lambda: self._fence(manifest.id, attempt))
            failpoint("publish.before_mark")
            counts = self._mark(manifest, receipt, attempt, AttemptState.PUBLISHED)
        failpoint("publish.marked")
        self._clean(manifest.id, attempt, keep=same.attempt if same else attempt)
        failpoint("publish.cleaned")
        return Outcome(manifest.id, attempt, Ending.UNCHANGED if same else Ending.PUBLISHED, counts)

    def _published_alike(self, manifest: Manifest, receipt: Receipt) -> Receipt | None:
        """The published receipt if it has the same rows in every sink and they can still be read from its objects."""
        if manifest.published_attempt is None:
            return None
        before = self.database.receipt(manifest.id, manifest.published_attempt)
        if before is None:
            return None
        alike = all(
            before.digest(sink.name) == receipt.digest(sink.name) and sink.intact(before) for sink in self.sinks
        )
        return before if alike else None

    def _mark(self, manifest: Manifest, visible: Receipt, attempt: int, ending: AttemptState) -> Counts:
        """Step 4: guarded by the attempt that says so; ``visible`` is the receipt readers see from here on."""
        counts = Counts()
        with self.database.transaction():
            for sink in self.sinks:
                counts = visible.counts(sink.name, manifest.ranges)
                digest = visible.digest(sink.name)
                if not self.database.publish(manifest.id, attempt, sink.name, visible.attempt, digest, asdict(counts)):
                    raise self._overtaken(manifest.id, attempt)
            if not self.database.finish(manifest.id, attempt, [sink.name for sink in self.sinks]):
                raise self._overtaken(manifest.id, attempt)
            self.database.end_attempt(manifest.id, attempt, ending)
        return counts

    def _clean(self, manifest: int, attempt: int, keep: int) -> None:
        """Step 5: everything of attempts up to this one but the published one's objects and record."""
        own = self.database.receipt(manifest, attempt)
        lower = [receipt for receipt, _, _ in self.database.receipts_below(manifest, attempt)]
        for sink in self.sinks:
            for receipt in [*lower, own] if own else lower:
                if receipt.attempt != keep:
                    sink.discard(receipt)
            for number in range(1, attempt + 1):
                sink.clear_staging(manifest, number)

    def sweep(self) -> list[int]:
        """Finish the clean-up of done manifests whose attempt died during it; returns their ids.

        Staging is removed last, so a manifest without any has nothing left over. What lives is never touched.
        """
        staged = sorted({one for sink in self.sinks for one in sink.staged_manifests()})
        found = self.database.manifests(self.pipeline.name, [ManifestState.DONE], staged) if staged else []
        swept = [one for one in found if not one.alive]
        for one in swept:
            self._clean(one.id, one.attempt, keep=one.published_attempt or 0)
        return [one.id for one in swept]

    def fail(self, manifest: int, attempt: int, error: BaseException) -> None:
        """Record why an attempt ended; what is published stays."""
        reason = str(error) or type(error).__name__
        blocked = isinstance(error, Blocked)
        with self.database.transaction():
            ended = self.database.end_attempt(
                manifest, attempt, AttemptState.BLOCKED if blocked else AttemptState.FAILED, reason
            )
            if ended and blocked:
                self.database.block(manifest, attempt, reason)
            elif ended:
                self.database.fail(manifest, attempt, reason)

    def unfinished(self, manifest_id: int | None = None) -> list[Manifest]:
        """What ``retry`` takes: planned, failed or running, and no attempt alive; a blocked one only when named."""
        states = [ManifestState.PLANNED, ManifestState.FAILED, ManifestState.RUNNING]
        if manifest_id is None:
            return [one for one in self.database.manifests(self.pipeline.name, states) if not one.alive]
        manifest = self._own(manifest_id)
        if manifest.state is ManifestState.BLOCKED:
            self.database.unblock(manifest_id)
        elif manifest.alive:
            raise IllegalTransition(
                f"attempt {manifest.attempt} is alive and at work",
                next_step="wait for it, or stop that process",
                pipeline=self.pipeline.name,
                manifest=manifest_id,
            )
        return [] if manifest.state is ManifestState.DONE else [manifest]

    def at_work(self) -> list[Manifest]:
        """What ``retry`` leaves out: an attempt is alive, so somebody is finishing it."""
        return [one for one in self.database.manifests(self.pipeline.name, [ManifestState.RUNNING]) if one.alive]

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


def published_counts(manifest: Manifest) -> Counts:
    """What readers see of a manifest; with several sinks, in the first."""
    return manifest.publications[0].counts if manifest.publications else Counts()
