"""Records what real attempts, sweeps and repairs ask of a real database and target: ``traces`` follows it in the model.

Attempts may stand still while others go on; each event is of the process that it belongs to.
"""

import os
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import psycopg

from sandbox.services.processes import wait_until
from tests.faults.actors import Actor, Fault, LostAnswer, MortalDatabase
from tests.faults.model_world import WHY, ModelWorld
from tests.model.world import ENDED_WELL, Answer
from tidemark.database.statements import Row
from tidemark.errors import TidemarkError
from tidemark.lifecycle import in_target, reconcile
from tidemark.lifecycle.context import Context
from tidemark.lifecycle.select import unfinished
from tidemark.model.manifest import Manifest, ManifestState
from tidemark.model.order import Order
from tidemark.model.receipt import Receipt, StoredReceipt
from tidemark.operations import decisions
from tidemark.paths import STAGING, ObjectName, RecordName
from tidemark.providers.postgres.sink import PostgresOutput
from tidemark.sinks.base import Expected, Sink
from tidemark.sinks.capabilities import TakesBack
from tidemark.sinks.object_store.leftovers import Leftover
from tidemark.storage.base import ObjectStore

MANIFEST = 1
UNKNOWN = object()  # an answer that the recorder cannot put in words of the model
CHANGES = frozenset({"start", "store_receipt", "take_back", "publish", "finish", "fail", "block", "release"})
COMMIT = "table COMMIT"
STORE = ("lake move", "lake put ", "lake delete", COMMIT)  # what a process does to its target
REMOVES = ("take_back", "delete_record", "delete_parts", "gone", "unanswered", "cut", "dies", "ends")
LATE_S = 20.0  # for which a COMMIT waits; less than the server's own limit for a lock
GATE = 4_711  # the advisory lock that a late COMMIT waits for
COMMITS = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND query = 'COMMIT' AND state = 'active'"
WAITS = f"{COMMITS} AND wait_event = 'advisory'"
# A merge runs deferred triggers before its COMMIT. This one runs then too, and leaves another to the COMMIT.
HOLD = """
CREATE SCHEMA gate;
CREATE TABLE gate.passed ();
CREATE FUNCTION gate.wait() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_advisory_xact_lock_shared(4711); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON gate.passed
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION gate.wait();
CREATE FUNCTION gate.leave_to_commit() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN SET CONSTRAINTS gate.late DEFERRED; INSERT INTO gate.passed DEFAULT VALUES; RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER gate AFTER INSERT OR UPDATE ON public.latest
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION gate.leave_to_commit();
"""


class Event(NamedTuple):
    """``actor`` is the attempt, 0 for a sweep or repair; ``what`` is the name of a step, or begins, raises, dies, ends,
    cut (it has lost its session), gone (a statement found that out), unanswered (the same, at once: its statement
    changed nothing), was_committed (it looks for the marker of a merge that failed), lands (a late request takes
    effect; it is about the number of the event that sent it).

    Of a person: accepted (rows that do not meet an expectation), released (a blocked manifest).

    ``lost``: it is done, and the process does not know that. The answer is what was lost; of objects to remove it is
    how many were removed. ``late``: it has no answer, and takes effect when it lands.
    """

    actor: int
    what: str
    about: tuple[Any, ...] = ()
    answer: Any = Answer.OK
    lost: bool = False
    late: bool = False


class RecordedWorld(ModelWorld):
    """One manifest with two objects, or with two rows of a table, whose attempts and sweeps are recorded."""

    table: dict[str, Any] | None = None  # the entry of ``sinks``, in the place of that of files
    warehouse = ""  # where the table is

    def entries(self) -> list[dict[str, Any]]:
        return [self.table] if self.table else super().entries()

    def planned(self) -> None:
        self.events: list[Event] = []
        self.unanswered: list[tuple[int, Callable[[], object]]] = []  # events of late requests, and what they will do
        self.codes: dict[int, int] = {}
        self.recorders: dict[Actor, Recorder] = {}
        self.without_session: set[Actor] = set()
        self.produce(2, minutes=35)  # two hours, so two objects
        self.finish(self.plan())

    def ended(self, actor: Actor) -> None:
        """Let it run to its end."""
        self.finish(actor)
        self.recorders[actor].note("ends")

    def died(self, actor: Actor, point: str) -> None:
        self.run_to(actor, point)
        self.kill(actor)
        self.recorders[actor].note("dies")

    def cut_off(self, actor: Actor) -> None:
        """Let the server end its session; it goes on without."""
        self.cut(actor)
        self.without_session.add(actor)
        self.recorders[actor].note("cut")

    def failed(self, actor: Actor, point: str) -> None:
        """Let it raise at a failpoint, and run to its end."""
        self.run_to(actor, point)
        actor.life.armed = (Fault.FAIL, 1)
        self.recorders[actor].note("raises")
        self.ended(actor)

    def lost(self, actor: Actor, names: str | tuple[str, ...], number: int = 1) -> None:
        """Let it run to its end; the answer is lost to one of the operations with these beginnings of names."""
        fault = actor.life._fault
        setattr(actor.life, "_fault", lambda what: fault(what) if what.startswith(names) else None)  # noqa: B010
        self.hit(actor, Fault.LOSE, number)
        self.recorders[actor].note("ends")

    def delayed(self, actor: Actor, names: str | tuple[str, ...], number: int = 1) -> None:
        """As ``lost``, of a change of the target; and it is done only when it ``lands``."""
        self.recorders[actor].delays = True
        self.lost(actor, names, number)
        assert self.unanswered, f"{actor.name} came to no {names}"

    def delayed_commit(self, actor: Actor) -> None:
        """Let it run to its end; its COMMIT waits in the server, while its connection breaks."""
        gate = psycopg.connect(self.warehouse, autocommit=True)
        gate.execute(HOLD)
        gate.execute("SELECT pg_advisory_lock(%s)", [GATE])
        recorder = self.recorders[actor]

        def take_effect() -> None:
            with gate:
                gate.execute("SELECT pg_advisory_unlock(%s)", [GATE])
                wait_until(lambda: not gate.execute(COMMITS).fetchall(), "the COMMIT to end", timeout=LATE_S)
                gate.execute("DROP SCHEMA gate CASCADE")

        def disconnect() -> None:
            with psycopg.connect(self.warehouse, autocommit=True) as onlooker:
                wait_until(lambda: bool(onlooker.execute(WAITS).fetchall()), "a COMMIT", timeout=LATE_S)
            broken = socket.socket(fileno=os.dup(recorder.connection_of_table().fileno()))
            broken.shutdown(socket.SHUT_RDWR)
            broken.close()

        recorder.no_commit = take_effect
        breaker = threading.Thread(target=disconnect)
        breaker.start()
        self.finish(actor)
        breaker.join()
        recorder.note("ends")
        assert self.unanswered, f"{actor.name} came to no COMMIT"

    def accepted(self) -> None:
        """A person lets the manifest be published as it is."""
        decisions.accept_expectation(self.onlooker(), MANIFEST, WHY, dry_run=False)
        self.events.append(Event(0, "accepted"))

    def released(self) -> None:
        """A person calls `retry` with the number of the manifest: a blocked one may be tried again."""
        unfinished(self.onlooker(), MANIFEST)
        self.events.append(Event(0, "released"))

    def lands(self) -> None:
        """The oldest request without an answer takes effect."""
        number, take_effect = self.unanswered.pop(0)
        take_effect()
        self.events.append(Event(self.events[number].actor, "lands", (number,)))

    def stage(self, order: Order) -> Receipt:
        receipt = super().stage(order)
        self.events.append(Event(order.attempt, "stage"))
        return receipt

    def _act(self, name: str, verb: Callable[[Context], object], *, plans: bool = False) -> Actor:
        recorder = Recorder(self, replay=name.startswith("replay"), repairs=name == "repair")

        def recorded(context: Context) -> object:
            if not plans:
                recorder.listen(context)
            if name == "sweep":
                recorder.actor = 0
                recorder.note("begins")
            return verb(context)

        actor = super()._act(name, recorded, plans=plans)
        self.recorders[actor] = recorder
        return actor


class Recorder:
    """Makes an event of each call of one process that the model has a step for."""

    def __init__(self, world: RecordedWorld, *, replay: bool, repairs: bool) -> None:
        self.world = world
        self.replay = replay
        self.repairs = repairs
        self.delays = False  # whether the next change of the target whose answer is lost is done later
        self.actor: int | None = None  # None before the attempt has its number
        self.taken = False  # whether it had the marker of a table
        self.moves: Counter[int] = Counter()
        self.looks = 2  # at objects, since a verdict was asked for; the model does not look at what is published
        self.calls = 0  # of the database that are under way: one may call another
        self.no_answer: LostAnswer | None = None  # to the call under way
        self.in_transaction: int | None = None  # the event of the transaction that is open
        self.sweeps = 0  # of a repair: the first only looks, and the second removes
        self.ahead = False  # whether the target shows a higher attempt than is published: a repair leaves it alone
        self.strays = False  # whether a repair looks for what is left over
        self.removes = False  # whether it removes that
        self.late: Callable[[], object] | None = None  # what the change does that is done later
        self.no_commit: Callable[[], object] | None = None  # the same, of the COMMIT of a merge
        self.merges = False  # whether the target is a table
        self.comparisons = 0  # of a repair that changes something
        self.looked = False  # whether a repair has looked for it: what it reads after that is for its messages
        self.hushed = False  # a repair that has nothing more to change: what it asks then is for its messages

    def note(self, what: str, *about: Any, answer: object = Answer.OK, lost: bool = False) -> None:
        if self.actor is None or (self.hushed and what not in ("dies", "ends")):
            return
        if self.looked and what not in REMOVES:
            return
        self.in_transaction = len(self.world.events) if self.database.in_transaction else None
        self.world.events.append(Event(self.actor, what, about, answer, lost))

    def _was_lost(self, number: int = -1) -> None:
        """The answer to what is this event."""
        self.world.events[number] = self.world.events[number]._replace(lost=True)
        if self.late is not None:
            self._is_late(self.late)

    def _is_late(self, take_effect: Callable[[], object]) -> None:
        """The last event was not done yet."""
        self.late = None
        self.world.unanswered.append((len(self.world.events) - 1, take_effect))
        self.world.events[-1] = self.world.events[-1]._replace(lost=False, late=True)

    def _unanswered(self) -> None:
        """With whether the attempt has something staged by now."""
        self.note("unanswered", bool(self.actor) and not self.taken and self.actor in self.staged_attempts(MANIFEST))
        self._without_session()

    def _without_session(self) -> None:
        """A repair goes on, but changes nothing any more."""
        self.hushed = self.hushed or self.repairs

    def listen(self, context: Context) -> None:
        database, [sink] = context.database, context.sinks
        assert isinstance(database, MortalDatabase)
        self.database, self.staged_attempts = database, sink.staging.attempts
        LISTENERS[sink] = self
        for part, names in (
            (database.attempts, "start newest of_manifest receipts store_receipt may_put take_back"),
            (database.attempts, "finish fail block release"),
            (database.decisions, "accepted_expectations"),
            (database.manifests, "get find highest_id"),
            (database.publications, "publish out_of_step objects"),
        ):
            for name in names.split():
                setattr(part, name, self._statement(name, getattr(part, name)))
        setattr(database, "_lose", self._losing(database._lose))  # noqa: B010
        for owner, name, note in (
            (sink.ledger, "recorded_attempt", self.recorded_attempt),
            (sink.ledger, "records", self.records),
            (sink.ledger, "has", self.has_record),
            (sink.output, "has", self.has_objects),
            (sink.staging, "manifests", self.staged_manifests),
            (sink.staging, "clear", self.clear_staging),
            *self._of_kind(sink),
        ):
            self._after(owner, name, note)
        for name in ("leftovers", "remove") if isinstance(sink.output, TakesBack) else ():
            setattr(sink.output, name, getattr(self, f"_{name}")(getattr(sink.output, name)))

    def _of_kind(self, sink: Sink) -> Iterator[tuple[Any, str, Callable[..., None]]]:
        """What only files, or only tables, are asked."""
        output: Any = sink.output
        if isinstance(output, PostgresOutput):
            self.connection_of_table = output._table.connected
            self._after(output, "_take_marker", self.take_marker, self.lacks_marker)
            setattr(output, "_put", self._merge(output, output._put))  # noqa: B010
            yield output, "wait_for_lower", self.wait_for_lower
            yield output, "same", self.same_output
            yield output, "_was_committed", self.was_committed
            self.merges = True
        else:
            store = output.store  # all faces have the same
            self.store = store._store
            store._store = Delaying(self.store, self)
            self._delete: Callable[[Iterable[str]], None] = store.delete
            store.delete = self.delete
            store.list = self._listing(store.list)
            yield output, "write_record", self.write_record
            yield store, "move", self.move

    def _after(
        self, owner: Any, name: str, note: Callable[..., None], failed: Callable[[], None] | None = None
    ) -> None:
        """Call ``note`` with the result and the positional arguments of each call of a method of a face or a store;
        ``failed`` after errors."""
        setattr(owner, name, self.noting(getattr(owner, name), note, failed))

    def noting(
        self, method: Callable[..., Any], note: Callable[..., None], failed: Callable[[], None] | None = None
    ) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            try:
                result = method(*arguments, **named)
            except TidemarkError as error:
                if failed is not None:
                    failed()
                elif isinstance(error, LostAnswer):
                    note(None, *arguments)
                    self._was_lost()
                raise
            note(result, *arguments)
            return result

        return call

    def _statement(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """The same for the database. A lost answer is raised at the end of the call: then it is known what it did."""
        note: Callable[..., None] = getattr(self, name)

        def call(*arguments: Any, **named: Any) -> Any:
            self.calls += 1
            try:
                result = method(*arguments, **named)
            except TidemarkError:
                if self.calls == 1 and self.no_answer:
                    self.no_answer = None
                    self._unanswered()
                elif self.calls == 1:
                    self.note("gone")
                    self._without_session()
                raise
            finally:
                self.calls -= 1
            if self.calls or not self.no_answer:
                note(result, *arguments)
                return result
            no_answer, self.no_answer = self.no_answer, None
            if name in CHANGES:
                note(result, *arguments)
                if not self.hushed:
                    self._was_lost()
                self._without_session()
            else:
                self._unanswered()
            raise no_answer

        return call

    def _losing(self, lose: Callable[[str], None]) -> Callable[[str], None]:
        """Loses the answer to a statement, or to the COMMIT of a transaction of several calls."""

        def losing(what: str) -> None:
            try:
                lose(what)
            except LostAnswer as error:
                if self.calls:
                    self.no_answer = error
                    return
                if what == "COMMIT" and self.in_transaction is not None:
                    self._was_lost(self.in_transaction)
                else:
                    self._unanswered()
                raise

        return losing

    def _merge(self, output: PostgresOutput, put: Callable[..., None]) -> Callable[..., None]:
        """Merges into a table; the answer to its COMMIT may be lost, and with it the connection. In the manifest
        database the COMMIT is that of the mark."""

        def merge(*arguments: Any) -> None:
            try:
                put(*arguments)
            except TidemarkError:
                if self.taken and self.no_commit:
                    self.note("commit", lost=True)
                    self._is_late(self.no_commit)
                    self.no_commit = None
                self.rolled_back()
                raise
            if output._shared is not None:
                return
            lost = self.database.life.before(COMMIT, may_stop=False) is Fault.LOSE
            self.note("commit", lost=lost)
            if lost:
                self.rolled_back()
                output._table.forget_session()
                raise LostAnswer("the answer to COMMIT was lost", next_step="this is a fault of the test")

        return merge

    def _leftovers(self, leftovers: Callable[..., list[Leftover]]) -> Callable[..., list[Leftover]]:
        def left(expected: Expected) -> list[Leftover]:
            self.hushed = self.hushed or self.ahead
            self.strays = True
            try:
                return leftovers(expected)
            finally:
                self.strays, self.looked = False, True

        return left

    def _remove(self, remove: Callable[..., None]) -> Callable[..., None]:
        def removing(keys: Sequence[str]) -> None:
            self.removes = True
            try:
                remove(keys)
            finally:
                self.removes = False

        return removing

    def _listing(self, listing: Callable[..., Iterator[tuple[str, int]]]) -> Callable[..., Iterator[tuple[str, int]]]:
        def listed(prefix: str = "") -> Iterator[tuple[str, int]]:
            entries = list(listing(prefix))
            if self.strays:
                self.note(
                    "listed", answer=tuple(sorted({attempt for attempt, _ in attempts_of(key for key, _ in entries)}))
                )
            return iter(entries)

        return listed

    # the database

    def start(self, attempt: int | None, *_: Any) -> None:
        assert attempt is not None
        self.actor, self.world.codes[attempt] = attempt, self.world.schema
        self.note("begins", self.world.schema, self.replay)

    def get(self, manifest: Manifest, _: int) -> None:
        done = manifest.state is ManifestState.DONE
        self.note("manifest", answer=(done, manifest.published_attempt or 0))

    def find(self, manifests: list[Manifest], *sought: Any) -> None:
        if self.strays:
            for own in manifests if sought else ():
                done = own.state is ManifestState.DONE
                self.note("own_manifest", answer=(done, own.published_attempt or 0, own.attempt, own.alive))
        elif sought:  # else ``get`` asks, by name
            dead = [(m.published_attempt, m.attempt) for m in manifests if m.id == MANIFEST and not m.alive]
            self.note("dead_manifest", answer=dead[0] if dead else None)

    def receipts(self, receipts: list[StoredReceipt], _: int) -> None:
        codes = self.world.codes
        rows = [(row.receipt.attempt, codes[row.receipt.attempt], bool(row.taken_back)) for row in receipts]
        self.note("receipts", answer=tuple(rows))

    def out_of_step(self, missing: dict[int, bool], *_: Any) -> None:
        self.ahead = missing.get(MANIFEST) is False
        self.note("manifest", answer=UNKNOWN)
        # A repair compares within its sweep and then again; a table has no objects that it could look for.
        self.comparisons += self.repairs and self.actor is not None
        self.hushed = self.hushed or (self.merges and self.comparisons == 2)

    def objects(self, *_: Any) -> None:
        if self.strays:
            self.note("manifest", answer=UNKNOWN)

    def highest_id(self, *_: Any) -> None:
        self.hushed = self.repairs and self.actor is not None  # it compares everything once more, for its messages

    def newest(self, newest: int, _: int) -> None:
        if self.actor:
            self.note("newest", self.actor, answer=newest == self.actor)

    def may_put(self, allowed: bool, *_: Any) -> None:
        self.note("may_put", answer=allowed)

    def store_receipt(self, stored: bool, *_: Any) -> None:
        self.note("store_receipt", answer=Answer.OK if stored else Answer.REFUSED)

    def take_back(self, done: bool, _: int, attempt: int, __: str) -> None:
        self.note("take_back", attempt, answer=Answer.OK if done else Answer.REFUSED)

    def publish(self, done: bool, _: int, newest: int, __: str, visible: int, *___: Any) -> None:
        self.note("mark", visible, newest, answer=Answer.OK if done else Answer.REFUSED)

    def finish(self, done: bool, *_: Any) -> None:
        last = self.world.events[-1]
        if last.actor == self.actor and last.what == "mark":  # in the same transaction
            self.world.events[-1] = last._replace(what="mark_and_end", about=last.about[:1])
        else:
            self.note("finish", answer=Answer.OK if done else Answer.REFUSED)

    def fail(self, *_: Any) -> None:
        self.note("fail")

    def accepted_expectations(self, questions: frozenset[str], _: int) -> None:
        self.note("accepted", answer=bool(questions))

    def block(self, *_: Any) -> None:
        self.note("block")

    def of_manifest(self, rows: list[Row], _: int) -> None:
        well = {row["attempt"]: row["state"] in ENDED_WELL for row in rows}
        assert self.actor is not None
        superseded = any(ended for attempt, ended in well.items() if attempt > self.actor)
        self.note("attempts", answer=(well[self.actor], superseded))

    def release(self, *_: Any) -> None:
        self.note("release")

    # a table

    def wait_for_lower(self, *_: Any) -> None:
        self.note("wait_for_lower")

    def same_output(self, alike: bool, before: Receipt, _: Receipt) -> None:
        last = [event for event in self.world.events if event.actor == self.actor][-1]
        if last == Event(last.actor, "has_record", (before.attempt,), answer=True):
            self.note("has_parts", before.attempt, answer=alike)

    def was_committed(self, there: bool, receipt: Receipt) -> None:
        """It has just asked whether there is a record; the model asks only after a COMMIT."""
        assert self.world.events.pop() == Event(receipt.attempt, "has_record", (receipt.attempt,), there)
        self.note("was_committed", receipt.attempt, answer=there)

    def take_marker(self, *_: Any) -> None:
        self.note("take_marker")
        self.taken = True

    def lacks_marker(self) -> None:
        self.note("take_marker", answer=Answer.REFUSED)

    def rolled_back(self) -> None:
        if self.taken:
            self.note("rollback")

    # the store

    def recorded_attempt(self, attempt: int | None, _: int) -> None:
        self.note("evidence", answer=attempt or 0)

    def records(self, records: list[RecordName]) -> None:
        highest = max((record.attempt for record in records if record.manifest_id == MANIFEST), default=0)
        self.note("evidence", answer=highest)

    def digest_of_record(self, digest: str | None, _: Manifest, attempt: int) -> None:
        self.looks = 0
        self.note("has_record", attempt, answer=digest is not None)

    def shown(self, *_: Any) -> None:
        self.looks = 2

    def has_objects(self, there: bool, receipt: Receipt) -> None:
        self.looks += 1
        if self.looks != 2:
            self.note("has_parts", receipt.attempt, answer=there)

    def has_record(self, there: bool, receipt: Receipt) -> None:
        self.note("has_record", receipt.attempt, answer=there)

    def write_record(self, _: None, name: RecordName, __: Any) -> None:
        self.note("put_record", name.attempt)

    def staged_manifests(self, ids: list[int]) -> None:
        self.sweeps += 1
        if self.repairs and self.sweeps == 2:
            self.actor = 0
            self.note("begins", "repair")
        self.note("staged_manifests", answer=MANIFEST in ids)

    def clear_staging(self, _: None, __: int, attempt: int) -> None:
        self.note("delete_staging", attempt, attempt in self.staged_attempts(MANIFEST))

    def move(self, _: None, __: str, key: str, ___: int) -> None:
        name = ObjectName.parse(key)
        assert name is not None
        self.note("move", name.attempt, self.moves[name.attempt])
        self.moves[name.attempt] += 1

    def delete(self, keys: Iterable[str]) -> None:
        """In the model the records go first, then the objects of each attempt; so they come from the code, but a repair
        may remove those of several attempts together."""
        names = list(keys)
        attempts = list(dict.fromkeys(attempts_of(names)))
        gone: Counter[tuple[int, bool]] = Counter()
        for key in names:
            try:
                self._delete([key])
            except LostAnswer:
                for attempt, is_record in attempts_of([key]):
                    self._lost_delete(attempt, names, gone[attempt, False], is_record=is_record)
                raise
            gone.update(attempts_of([key]))
        if self.removes:
            attempts = [
                (attempt, is_record) for is_record in (True, False) for attempt in sorted({k for k, _ in attempts})
            ]
        for attempt, is_record in attempts:
            self.note("delete_record" if is_record else "delete_parts", attempt)

    def _lost_delete(self, attempt: int, names: list[str], gone: int, *, is_record: bool) -> None:
        """The answer to one removal is lost, after so many objects are gone."""
        if is_record:
            self.note("delete_record", attempt)
        else:
            if self.removes:
                self.note("delete_record", attempt)
            self.note("delete_parts", attempt, answer=gone + 1)
        if self.late is not None:  # one request for all of them
            self.late = partial(self.store.delete, [key for key in names if (attempt, is_record) in attempts_of([key])])
        self._was_lost()


class Delaying:
    """The store of one process: a change whose answer is lost may be done later."""

    def __init__(self, store: ObjectStore, recorder: Recorder) -> None:
        self._store = store
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put(self, key: str, content: bytes) -> None:
        self._now_or_later(partial(self._store.put, key, content))

    def put_if_absent(self, key: str, content: bytes) -> bool:
        return bool(self._now_or_later(partial(self._store.put_if_absent, key, content)))

    def move(self, staged: str, key: str, size: int) -> None:
        content = self._store.get(staged)
        copied = partial(self._store.put, key, content or b"")  # a copy that has read what it copies
        self._now_or_later(partial(self._store.move, staged, key, size), copied)

    def delete(self, keys: Iterable[str]) -> None:
        self._now_or_later(partial(self._store.delete, list(keys)))

    def _now_or_later(self, change: Callable[[], object], later: Callable[[], object] | None = None) -> object:
        recorder = self._recorder
        if not recorder.delays or not recorder.database.life.hits:  # its fault was not hit yet
            return change()
        recorder.delays, recorder.late = False, later or change
        return None


def attempts_of(keys: Iterable[str]) -> Iterator[tuple[int, bool]]:
    """The attempt of each object, and of each record (true)."""
    for key in keys:
        record, name = RecordName.parse(key), ObjectName.parse(key)
        if not key.startswith(f"{STAGING}/") and (made := record or name) and made.manifest_id == MANIFEST:
            yield made.attempt, record is not None


LISTENERS: WeakKeyDictionary[Sink, Recorder] = WeakKeyDictionary()  # who records what is asked of a sink


def heard(function: Callable[..., Any], note: Callable[[Recorder], Callable[..., None]]) -> Callable[..., Any]:
    """A function about a sink that tells the recorder of that sink, if it has one."""

    def call(sink: Sink, *arguments: Any, **named: Any) -> Any:
        recorder = LISTENERS.get(sink)
        asked = partial(function, sink)
        return (recorder.noting(asked, note(recorder)) if recorder else asked)(*arguments, **named)

    return call


reconcile.shown = heard(reconcile.shown, lambda recorder: recorder.shown)
in_target._digest_of_record = heard(in_target._digest_of_record, lambda recorder: recorder.digest_of_record)
