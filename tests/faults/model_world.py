"""The pipeline of a schedule: real PostgreSQL, real files, real verbs, a model broker, and processes that can be
stopped.

A schedule is a sequence of calls of ``ModelWorld``, written by hand or drawn by hypothesis. ``Oracle.check`` must pass
after each call, and ``Oracle.check_quiet`` after ``settle``, which ends all faults.
"""

import contextlib
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg

from sandbox.services.postgres import Postgres
from sandbox.services.processes import wait_until
from tests.faults.actors import (
    Actor,
    Fault,
    MortalDatabase,
    MortalStore,
    actors_stop_at_failpoints,
    make_mortal,
    notice,
)
from tests.faults.lakes import FolderLake, Lake
from tests.faults.model_broker import Fate, Log, ModelBroker, Transaction
from tests.faults.other_sinks import OtherSink, OtherSinks
from tests.sink_faces import share_store
from tidemark.config.base import LoadContext
from tidemark.connections.lookup import from_environment
from tidemark.database.client import ManifestDatabase
from tidemark.failpoints import failpoint
from tidemark.lifecycle import attempt, turns
from tidemark.lifecycle.attempt import process
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.deferral import AttemptDeferred, StagedElsewhere
from tidemark.lifecycle.plan import Tick, plan
from tidemark.lifecycle.publish import Outcome, Publisher
from tidemark.lifecycle.select import unfinished
from tidemark.model.manifest import RunKind
from tidemark.model.order import Order
from tidemark.model.receipt import Receipt, receipt_of_tasks
from tidemark.operations import adopt, decisions, repair
from tidemark.pipeline.settings import Pipeline
from tidemark.processing.processor import BatchProcessor
from tidemark.providers.postgres.marked import MarkedOutput
from tidemark.sinks.base import Sink
from tidemark.sinks.files.sink import FilesOutput
from tidemark.sinks.registry import open_sink

EPOCH = datetime(2024, 3, 1, tzinfo=UTC)
NAME = "demo"
SCHEMAS = (
    "n BIGINT NOT NULL, name STRING",
    "n BIGINT NOT NULL",
)  # with another schema, the same records give other rows
EXPECT = {"name": "no fourth", "check": "n % 4 <> 2", "at_most": 0}
WHY = "the schedule says so"


@dataclass(frozen=True)
class ScheduleSettings:
    """Settings that do not change during a schedule."""

    gaps: str = "transactions"
    on_data_loss: str = "fail"
    starting_offsets: str = "earliest"
    max_records: int = 5
    max_slices: int = 4
    partitions: int = 2
    expects: bool = False  # of rows what many do not meet; the other code expects nothing
    defers: bool = False  # whether attempts are deferred; their leases end at once, so that others may take over
    second: str = ""  # what is beside the lake: "files", or one of ``other_sinks.KINDS`` and ``PAIRS``


class ModelWorld:
    """The pipeline of one schedule. The caller must ``close`` it, because it has threads, a database and a folder."""

    def __init__(
        self,
        postgres: Postgres,
        template: str,
        settings: ScheduleSettings,
        reached: Counter[str],
        lake: Lake | None = None,
        other_sinks: OtherSinks | None = None,
    ) -> None:
        self.postgres = postgres
        self.settings = settings
        self.reached = reached  # counts of what happened, by name: faults and rare combinations
        self.clock = EPOCH
        self.topics = ["a"]
        self.schema = 0
        self.actors: list[Actor] = []
        self.open: dict[tuple[str, int], Transaction] = {}  # by topic id and partition
        self.runs = 0
        self.copy: str | None = None  # the name of a copy of the database
        self.surgery = False  # whether a person gave up offsets since the oracle's last check
        self.stack = contextlib.ExitStack()
        self.folder = Path(tempfile.mkdtemp(prefix="tidemark-schedule-"))
        self.stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.lake = lake or FolderLake(self.folder / "lake")
        self.lakes: dict[str, Lake] = {"lake": self.lake}  # by the names of their sinks
        self.others: list[OtherSink] = []
        self.begun: dict[str, datetime] = {}  # when the first planner of a run key began
        self.staged: dict[tuple[int, int], dict[tuple[str, int, int], int]] = {}  # by manifest and attempt: serials
        self.files: dict[str, Pipeline] = {}  # pipeline files that were checked, by their content
        self.puts = 0  # how often a process, well or not, has come out of the ``put`` of another sink
        if settings.second == "files":
            self.lakes["lake2"] = FolderLake(self.folder / "lake2")
        elif settings.second:
            assert other_sinks is not None, "it makes the other sinks"
            self.others = self.stack.enter_context(other_sinks.targets(settings.second, self.folder))
            self.stack.enter_context(mock.patch.object(turns, "WAIT_S", 0.0))  # whoever has the turn may stand still
        self.broker = ModelBroker(NAME, self.pipeline().source, notice)
        self.dsn = self.stack.enter_context(postgres.temporary_database("schedule", template))
        self.stack.enter_context(actors_stop_at_failpoints())
        if settings.defers:
            self.stack.enter_context(mock.patch.object(attempt, "LEASE_S", 0.0))
        self._look()
        self.stack.callback(self._look_away)
        self.stack.callback(self._kill_all)
        self.broker.create("a", settings.partitions)
        self.reached["schedules"] += 1
        self.reached["schedules with two sinks"] += bool(settings.second)

    def close(self) -> None:
        self.stack.close()
        if self.copy:
            self.postgres.drop_database(self.copy)

    def _look(self) -> None:
        """Open the connections of an observer, which is no process of the schedule."""
        self.database = ManifestDatabase(self.dsn, "onlooker")
        self.sql = psycopg.connect(self.dsn, autocommit=True)

    def _look_away(self) -> None:
        self.database.close()
        self.sql.close()

    def pipeline(self) -> Pipeline:
        """The current pipeline file."""
        settings = self.settings
        kafka = {
            "bootstrap_servers": ModelBroker.address,
            "topics": self.topics,
            "gaps": settings.gaps,
            "on_data_loss": settings.on_data_loss,
            "starting_offsets": settings.starting_offsets,
            "slice": {"max_records": settings.max_records, "max_slices": settings.max_slices},
        }
        raw = {
            "pipeline": NAME,
            "source": {"kafka": kafka},
            "decode": {"format": "json", "schema": SCHEMAS[self.schema]},
            "on_error": "dead_letter",
            "max_dead_letters": None,  # a schedule draws manifests of bad records alone
            "sinks": self.entries(),
            "expect": [EXPECT] if settings.expects and not self.schema else [],
        }
        text = repr(raw)
        if text not in self.files:
            self.files[text] = Pipeline.model_validate(raw, context=LoadContext(self.folder, self.folder))
        return self.files[text]

    def entries(self) -> list[dict[str, Any]]:
        """``sinks`` of the pipeline file."""
        lakes = [
            {"files": {"name": name, **lake.sink(), "layout": "raw/{stream}/%Y/%m/%d/%H"}}
            for name, lake in self.lakes.items()
        ]
        return [*lakes, *({other.kind: other.entry()} for other in self.others)]

    def sink_names(self) -> set[str]:
        return {*self.lakes, *(other.name for other in self.others)}

    def onlooker(self) -> Context:
        """A context for verbs that run to their end at once, as when a person calls them."""
        return self._context(self.database)

    def _context(self, database: ManifestDatabase) -> Context:
        pipeline = self.pipeline()
        self.broker.settings = pipeline.source
        sinks = tuple(open_sink(NAME, settings, from_environment) for settings in pipeline.sinks)
        for sink in sinks[len(self.lakes) :]:
            self._count_puts(sink)
        return Context(pipeline, database, self.broker, sinks)

    def _count_puts(self, sink: Sink) -> None:
        put = sink.output.put

        def counted(*arguments: Any) -> None:
            try:
                put(*arguments)
            finally:
                self.puts += 1

        setattr(sink.output, "put", counted)  # noqa: B010 - a method of this sink alone

    # Kafka

    def log(self, topic: str, partition: int) -> Log:
        logs = self.broker.by_name[topic].logs
        return logs[partition % len(logs)]

    def produce(
        self, count: int = 1, *, topic: str = "a", partition: int = 0, minutes: int = 7, bad: bool = False
    ) -> None:
        """Records with ``minutes`` between them. A negative number makes them late, without changing the clock."""
        log = self.log(topic, partition)
        transaction = self.open.get(self._key(topic, partition))
        for _ in range(count):
            if minutes > 0:
                self.clock += timedelta(minutes=minutes)
            stamp = self.clock if minutes > 0 else self.clock + timedelta(minutes=minutes)
            self.broker.produce(log, stamp, transaction=transaction, bad=bad)
        self.reached["late records"] += minutes < 0

    def _key(self, topic: str, partition: int) -> tuple[str, int]:
        current = self.broker.by_name[topic]
        return current.topic_id, partition % len(current.logs)

    def begin(self, *, topic: str = "a", partition: int = 0) -> None:
        self.open.setdefault(self._key(topic, partition), Transaction())

    def end(self, *, topic: str = "a", partition: int = 0, commit: bool) -> None:
        transaction = self.open.pop(self._key(topic, partition), None)
        log = self.log(topic, partition)
        if transaction and any(entry.transaction is transaction for entry in log.entries):
            self.broker.finish(log, self.clock, transaction, Fate.COMMITTED if commit else Fate.ABORTED)
            self.reached["a transaction was " + ("committed" if commit else "aborted")] += 1

    def delete_records(self, share: float, *, topic: str = "a", partition: int = 0) -> None:
        """Retention removes the oldest share of the records below the last stable offset."""
        log = self.log(topic, partition)
        log.start += round((log.last_stable - log.start) * share)

    def truncate(self, lost: int, *, topic: str = "a", partition: int = 0) -> None:
        log = self.log(topic, partition)
        log.truncate(max(0, log.end - lost))

    def recreate(self, *, topic: str = "a", partitions: int = 2) -> None:
        self.broker.create(topic, partitions)

    def add_partition(self, *, topic: str = "a") -> None:
        self.broker.by_name[topic].logs.append(Log())

    def add_topic(self) -> None:
        """Create a second topic and add it to the pipeline file."""
        self.broker.create("b", 1)
        self.topics = ["a", "b"]

    def change_code(self) -> None:
        """Change the schema: later attempts write other rows, so a replay has objects to move."""
        if all(other.takes_other_rows for other in self.others):
            self.schema = 1 - self.schema

    # processes

    def plan(self, run_key: str | None = None, *, until: int | None = None) -> Actor:
        """A planner. ``until``: minutes before the newest record; None: up to now. The same key repeats a plan."""
        self.runs += 1
        cut = None if until is None else self.clock - timedelta(minutes=until)
        tick = Tick(run_key or f"run-{self.runs}", RunKind.MANUAL, cut)

        def verb(context: Context) -> object:
            self.begun.setdefault(tick.run_key, datetime.now(UTC))
            return plan(context, tick)

        return self._act(f"plan {tick.run_key}", verb, plans=True)

    def process(self, manifest: int, *, replay: bool = False) -> Actor:
        word = "replay" if replay else "process"
        return self._act(f"{word} {manifest}", lambda context: self._process(context, manifest, replay))

    def _process(self, context: Context, manifest: int, replay: bool) -> Outcome:
        """Process a manifest, by one process, or by two with a driver between them."""
        orders: list[Order] = []

        def leave(order: Order) -> Receipt:
            orders.append(order)
            raise StagedElsewhere("order.json", None, "no log", lambda: None)

        try:
            return process(context, manifest, leave if self.settings.defers else self.stage, replay=replay)
        except AttemptDeferred as deferred:
            going_on = deferred.deferral
        receipt = self.stage(orders[0])
        self.reached["an attempt was deferred"] += 1
        assert isinstance(context.database, MortalDatabase)
        with self._opened(context.database) as own:
            return process(own, manifest, lambda _: receipt, replay=replay, deferral=going_on)

    def retry(self, manifest: int) -> Actor:
        """A blocked one, by its number."""

        def verb(context: Context) -> object:
            unfinished(context, manifest)
            outcome = process(context, manifest, self.stage)
            self.reached["a blocked manifest was published as it is"] += bool(context.pipeline.expect)
            return outcome

        return self._act(f"retry {manifest}", verb)

    def sweep(self) -> Actor:
        return self._act("sweep", lambda context: Publisher(context).sweep())

    def repair(self) -> Actor:
        return self._act("repair", lambda context: repair.repair(context, WHY, dry_run=False))

    def adopt(self) -> Actor:
        """It also gives up unread offsets of a log that the records say was cut."""
        return self._decide("adopt", lambda context: adopt.adopt(context, WHY, dry_run=False))

    def accept_loss(self) -> Actor:
        return self._decide("accept loss", lambda context: decisions.accept_loss(context, WHY, dry_run=False))

    def accept_topic(self, topic: str = "a") -> Actor:
        return self._decide("accept topic", lambda context: decisions.accept_topic(context, topic, WHY, dry_run=False))

    def accept_truncation(self, topic: str = "a", partition: int = 0) -> Actor:
        def verb(context: Context) -> object:
            return decisions.accept_truncation(context, topic, partition, WHY, start=None, dry_run=False)

        return self._decide("accept truncation", verb)

    def accept_expectation(self, manifest: int) -> Actor:
        def verb(context: Context) -> object:
            return decisions.accept_expectation(context, manifest, WHY, dry_run=False)

        return self._act("allow unmet", verb, plans=True)

    def extend_back(self) -> Actor:
        return self._decide("extend back", lambda context: decisions.extend_back(context, None, WHY, dry_run=False))

    def _decide(self, name: str, verb: Callable[[Context], object]) -> Actor:
        self.surgery = True
        return self._act(name, verb, plans=True)

    @contextlib.contextmanager
    def _opened(self, database: MortalDatabase) -> Iterator[Context]:
        """The context of a process, with sinks of its own."""
        own = self._context(database)
        for sink in own.sinks:
            if isinstance(sink.output, FilesOutput):
                share_store(sink, MortalStore(sink.output.store, database.life))
            elif self.others:  # beside a lake: a recorded table stops inside its transaction too
                make_mortal(sink, database.life)
        try:
            yield own
        finally:
            for sink in own.sinks:
                if isinstance(sink.output, MarkedOutput):
                    sink.output._table.forget_session()  # as when its process ends

    def _act(self, name: str, verb: Callable[[Context], object], *, plans: bool = False) -> Actor:
        def live(actor: Actor) -> object:
            actor.database = MortalDatabase(self.dsn, name, actor.life)
            with self._opened(actor.database) as own:
                return verb(own)

        actor = Actor(name, live, plans=plans)
        self.actors.append(actor)
        return actor

    def stage(self, order: Order) -> Receipt:
        """What Spark does, with the code of its tasks. A process may die between two tasks."""
        failpoint("read.before")
        processor = BatchProcessor(order)
        reports = []
        for task, covered in enumerate(order.ranges):
            reports.append(processor.process(f"{task:05d}-0", [self.broker.batch(covered)]))
            serials = self.broker.serials_of(covered)
            self.staged.setdefault((order.manifest_id, order.attempt), {}).update(serials)
            failpoint("stage.mid")
        return receipt_of_tasks(order, reports)

    # what happens to processes

    def step(self, actor: Actor, *, operations: int | None = None) -> None:
        """Let the actor go to its next failpoint, or for some operations."""
        self._advance(actor, lambda: actor.go(to_failpoint=operations is None, operations=operations))

    def finish(self, actor: Actor) -> None:
        if not actor.ended:
            self._advance(actor, actor.go)

    def run_to_question(self, actor: Actor, name: str, passes: int = 1) -> bool:
        """Let the actor go to where it asks the source something, the ``passes``-th time; false when it ends before."""
        while passes and not actor.ended:
            self.step(actor, operations=1)
            passes -= actor.life.at == name
        return not actor.ended

    def run_to(self, actor: Actor, name: str, passes: int = 1) -> None:
        """Let the actor go to a failpoint, the ``passes``-th time that it reaches it."""
        for _ in range(passes):
            self.step(actor)
            while actor.life.at != f"failpoint {name}":
                assert not actor.ended, f"{actor.name} never came to {name}: {actor.error}"
                self.step(actor)

    def kill(self, actor: Actor) -> None:
        if not actor.ended:
            self._advance(actor, actor.kill)

    def hit(self, actor: Actor, fault: Fault, operations: int) -> None:
        """Let the actor go to its end, with a fault at one operation on the way."""
        actor.life.armed = (fault, operations)
        self._advance(actor, actor.go)

    def cut(self, actor: Actor) -> None:
        """The server ends the session of a stopped actor, which does not notice."""
        if actor.database is not None:
            actor.life.hits.append((Fault.CUT, actor.life.at))
            self.sql.execute("SELECT pg_terminate_backend(%s)", [actor.database.pid])
            self._wait_gone(actor)

    def _advance(self, actor: Actor, move: Callable[[], None]) -> None:
        self._note_overtaken(actor)
        move()
        if actor.ended:
            self._wait_gone(actor)
            self.actors.remove(actor)
            self._note_end(actor)
        else:
            self.reached[f"paused at {' '.join(actor.life.at.split()[:2])}"] += 1
        for fault, at in actor.life.hits:
            self.reached[f"fault {fault.name.lower()}"] += 1
            self.reached[f"fault {fault.name.lower()} {' '.join(at.split()[:2])}"] += 1
        actor.life.hits.clear()

    def _note_overtaken(self, actor: Actor) -> None:
        if actor.at_work is None:
            return
        manifest, attempt = actor.at_work
        published = self.database.manifests.get(manifest).published_attempt or 0
        rivals = [other.at_work for other in self.actors if other.at_work and other.at_work[0] == manifest]
        self.reached["an older attempt woke after a newer had published"] += published > attempt
        self.reached["an older attempt went on beside a newer one"] += any(rival > actor.at_work for rival in rivals)
        self.reached["a newer attempt went on beside an older one"] += any(rival < actor.at_work for rival in rivals)

    def _note_end(self, actor: Actor) -> None:
        verb = actor.name.split()[0]
        if actor.life.dead:
            self.reached[f"{verb} was killed"] += 1
        elif actor.error is not None:
            self.reached[f"{verb} said {type(actor.error).__name__}"] += 1
        else:
            ending = getattr(actor.result, "ending", "well")
            self.reached[f"{verb} ended {ending}"] += 1

    def _wait_gone(self, actor: Actor) -> None:
        """Wait until the server has ended the session: only then are its locks released."""
        if actor.database is None:
            return
        sessions, pid = "SELECT FROM pg_stat_activity WHERE pid = %s", actor.database.pid
        wait_until(
            lambda: not self.sql.execute(sessions, [pid]).fetchall(), "the session to end", timeout=30, interval=0.0005
        )

    def _kill_all(self) -> None:
        for actor in list(self.actors):
            self.kill(actor)

    def may_move(self, actor: Actor) -> bool:
        """False for a planner while another actor is inside a transaction: it would wait for that."""
        return not actor.plans or not any(other.holds_lock for other in self.actors if other is not actor)

    # the database, back to what it was

    def snapshot(self) -> None:
        """Copy the database, after all actors have run to their end."""
        for actor in list(self.actors):
            self.finish(actor)
        with self._away():
            if self.copy:
                self.postgres.drop_database(self.copy)
            self.copy = f"copy_{self._database_name()}"
            self.postgres.create_database(self.copy, self._database_name())

    def restore(self) -> None:
        """Replace the database by its copy, after all actors were killed."""
        assert self.copy
        self._kill_all()
        with self._away():
            self.postgres.drop_database(self._database_name())
            self.postgres.create_database(self._database_name(), self.copy)

    @contextlib.contextmanager
    def _away(self) -> Iterator[None]:
        self._look_away()
        yield
        self._look()

    def _database_name(self) -> str:
        return self.dsn.rpartition("/")[2]
