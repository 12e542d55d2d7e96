"""Records what real attempts and sweeps ask of a real database and target: ``traces`` follows it in the model.

Attempts may stand still while others go on; each event is of the process that it belongs to.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from tests.faults.actors import Actor, Fault, LostAnswer, MortalDatabase
from tests.faults.model_world import ModelWorld
from tests.model.world import ENDED_WELL, Answer
from tidemark.database.client import Row
from tidemark.errors import TidemarkError
from tidemark.lifecycle.context import Context
from tidemark.manifest import Manifest, ManifestState
from tidemark.order import Order
from tidemark.paths import ObjectName, RecordName
from tidemark.receipt import Receipt, StoredReceipt
from tidemark.sinks.postgres.sink import PostgresSink

MANIFEST = 1
UNKNOWN = object()  # an answer that the recorder cannot put in words of the model
CHANGES = frozenset({"start", "store_receipt", "take_back", "publish", "finish", "fail", "release"})
COMMIT = "table COMMIT"
STORE = ("lake move", "lake put ", "lake delete", COMMIT)  # what a process does to its target


class Event(NamedTuple):
    """``actor`` is the attempt, 0 for a sweep; ``what`` is the name of a step, or begins, raises, dies, ends, cut (it
    has lost its session), gone (a statement found that out), unanswered (the same, at once: its statement changed
    nothing), was_committed (it looks for the marker of a merge that failed).

    ``lost``: it is done, and the process does not know that. The answer is what was lost; of objects to remove it is
    how many were removed.
    """

    actor: int
    what: str
    about: tuple[Any, ...] = ()
    answer: Any = Answer.OK
    lost: bool = False


class RecordedWorld(ModelWorld):
    """One manifest with two objects, or with two rows of a table, whose attempts and sweeps are recorded."""

    table: dict[str, Any] | None = None  # the entry of ``sinks``, in the place of that of files

    def entries(self) -> list[dict[str, Any]]:
        return [self.table] if self.table else super().entries()

    def planned(self) -> None:
        self.events: list[Event] = []
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

    def stage(self, order: Order) -> Receipt:
        receipt = super().stage(order)
        self.events.append(Event(order.attempt, "stage"))
        return receipt

    def _act(self, name: str, verb: Callable[[Context], object], *, plans: bool = False) -> Actor:
        recorder = Recorder(self, replay=name.startswith("replay"))

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

    def __init__(self, world: RecordedWorld, *, replay: bool) -> None:
        self.world = world
        self.replay = replay
        self.actor: int | None = None  # None before the attempt has its number
        self.taken = False  # whether it had the marker of a table
        self.moves: Counter[int] = Counter()
        self.looks = 2  # at objects, since a verdict was asked for; the model does not look at what is published
        self.calls = 0  # of the database that are under way: one may call another
        self.no_answer: LostAnswer | None = None  # to the call under way
        self.in_transaction: int | None = None  # the event of the transaction that is open

    def note(self, what: str, *about: Any, answer: object = Answer.OK, lost: bool = False) -> None:
        if self.actor is not None:
            self.in_transaction = len(self.world.events) if self.database.in_transaction else None
            self.world.events.append(Event(self.actor, what, about, answer, lost))

    def _was_lost(self, number: int = -1) -> None:
        """The answer to what is this event."""
        self.world.events[number] = self.world.events[number]._replace(lost=True)

    def _unanswered(self) -> None:
        """With whether the attempt has something staged by now."""
        self.note("unanswered", bool(self.actor) and not self.taken and self.actor in self.staged_attempts(MANIFEST))

    def listen(self, context: Context) -> None:
        database, [sink] = context.database, context.sinks
        assert isinstance(database, MortalDatabase)
        self.database, self.staged_attempts = database, sink.staged_attempts
        for name in (
            *("start", "manifest", "manifests", "receipts", "out_of_step", "newest_attempt", "attempts", "may_put"),
            *("store_receipt", "take_back", "publish", "finish", "fail", "release"),
        ):
            setattr(database, name, self._statement(name, getattr(database, name)))
        setattr(database, "_lose", self._losing(database._lose))  # noqa: B010
        for owner, names in (
            (sink, "recorded_attempt records shown _digest_of_record has_record has_objects"),
            (sink, "staged_manifests clear_staging"),
            *self._of_kind(sink),
        ):
            for name in names.split():
                self._after(owner, name, getattr(self, name.lstrip("_")))

    def _of_kind(self, sink: Any) -> Iterator[tuple[Any, str]]:
        """What only files, or only tables, are asked."""
        if isinstance(sink, PostgresSink):
            self._after(sink, "_take_marker", self.take_marker, self.lacks_marker)
            setattr(sink, "_put", self._merge(sink, sink._put))  # noqa: B010
            yield sink, "wait_for_lower alike _was_committed"
        else:
            self._delete: Callable[[Iterable[str]], None] = sink.store.delete
            sink.store.delete = self.delete
            yield sink, "write_record"
            yield sink.store, "move"

    def _after(
        self, owner: Any, name: str, note: Callable[..., None], failed: Callable[[], None] | None = None
    ) -> None:
        """Call ``note`` with the result and the positional arguments of each call of a method of a sink or a store;
        ``failed`` after errors."""
        method = getattr(owner, name)

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

        setattr(owner, name, call)

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
                raise
            finally:
                self.calls -= 1
            if self.calls or not self.no_answer:
                note(result, *arguments)
                return result
            no_answer, self.no_answer = self.no_answer, None
            if name in CHANGES:
                note(result, *arguments)
                self._was_lost()
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

    def _merge(self, sink: PostgresSink, put: Callable[..., None]) -> Callable[..., None]:
        """Merges into a table; the answer to its COMMIT may be lost, and with it the connection."""

        def merge(*arguments: Any) -> None:
            try:
                put(*arguments)
            except TidemarkError:
                self.rolled_back()
                raise
            lost = self.database._life.before(COMMIT, may_stop=False) is Fault.LOSE
            self.note("commit", lost=lost)
            if lost:
                self.rolled_back()
                sink._table.forget_session()
                raise LostAnswer("the answer to COMMIT was lost", next_step="this is a fault of the test")

        return merge

    # the database

    def start(self, attempt: int | None, *_: Any) -> None:
        assert attempt is not None
        self.actor, self.world.codes[attempt] = attempt, self.world.schema
        self.note("begins", self.world.schema, self.replay)

    def manifest(self, manifest: Manifest, _: int) -> None:
        done = manifest.state is ManifestState.DONE
        self.note("manifest", answer=(done, manifest.published_attempt or 0))

    def manifests(self, manifests: list[Manifest], *sought: Any) -> None:
        if sought:  # else ``manifest`` asks, by name
            dead = [(m.published_attempt, m.attempt) for m in manifests if m.id == MANIFEST and not m.alive]
            self.note("dead_manifest", answer=dead[0] if dead else None)

    def receipts(self, receipts: list[StoredReceipt], _: int) -> None:
        codes = self.world.codes
        rows = [(row.receipt.attempt, codes[row.receipt.attempt], bool(row.taken_back)) for row in receipts]
        self.note("receipts", answer=tuple(rows))

    def out_of_step(self, *_: Any) -> None:
        self.note("manifest", answer=UNKNOWN)

    def newest_attempt(self, newest: int, _: int) -> None:
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

    def attempts(self, rows: list[Row], _: int) -> None:
        well = {row["attempt"]: row["state"] in ENDED_WELL for row in rows}
        assert self.actor is not None
        superseded = any(ended for attempt, ended in well.items() if attempt > self.actor)
        self.note("attempts", answer=(well[self.actor], superseded))

    def release(self, *_: Any) -> None:
        self.note("release")

    # a table

    def wait_for_lower(self, *_: Any) -> None:
        self.note("wait_for_lower")

    def alike(self, alike: bool, before: Receipt, _: Receipt) -> None:
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

    def write_record(self, _: None, receipt: Receipt, *__: Any) -> None:
        self.note("put_record", receipt.attempt)

    def staged_manifests(self, ids: list[int]) -> None:
        self.note("staged_manifests", answer=MANIFEST in ids)

    def clear_staging(self, _: None, __: int, attempt: int) -> None:
        self.note("delete_staging", attempt, attempt in self.staged_attempts(MANIFEST))

    def move(self, _: None, __: str, key: str, ___: int) -> None:
        name = ObjectName.parse(key)
        assert name is not None
        self.note("move", name.attempt, self.moves[name.attempt])
        self.moves[name.attempt] += 1

    def delete(self, keys: Iterable[str]) -> None:
        names = list(keys)
        record, name = RecordName.parse(names[0]), ObjectName.parse(names[0])
        for number, key in enumerate(names, 1):
            try:
                self._delete([key])
            except LostAnswer:
                if record:
                    self.note("delete_record", record.attempt, lost=True)
                elif name:
                    self.note("delete_parts", name.attempt, answer=number, lost=True)
                raise
        if record:
            self.note("delete_record", record.attempt)
        elif name:
            self.note("delete_parts", name.attempt)
