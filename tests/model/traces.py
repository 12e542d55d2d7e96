"""Records what real attempts and sweeps ask of a real database and store, and follows it in the model.

Attempts may stand still while others go on; each event is of the process that it belongs to.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from tests.faults.actors import Actor, Fault
from tests.faults.model_world import ModelWorld
from tests.model import world as model
from tests.model.programs import Machine
from tests.model.world import ENDED_WELL, Answer, Kind, Rules, Step, Steps, World, rolled_back, started, without_session
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
READ_AGAIN = ("manifest", "receipts", "newest")  # read by the code for its messages and counts too


class Event(NamedTuple):
    """``actor`` is the attempt, 0 for a sweep; ``what`` is the name of a step, or begins, raises, dies, ends, cut (it
    has lost its session), gone (a statement found that out)."""

    actor: int
    what: str
    about: tuple[Any, ...] = ()
    answer: Any = Answer.OK


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

    def stage(self, order: Order) -> Receipt:
        receipt = super().stage(order)
        self.events.append(Event(order.attempt, "stage"))
        return receipt

    def _act(self, name: str, verb: Callable[[Context], object], *, plans: bool = False) -> Actor:
        recorder = Recorder(self, replay=name.startswith("replay"))

        def recorded(context: Context) -> object:
            if name == "sweep":
                recorder.actor = 0
                recorder.note("begins")
            if not plans:
                recorder.listen(context)
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

    def note(self, what: str, *about: Any, answer: object = Answer.OK) -> None:
        if self.actor is not None:
            self.world.events.append(Event(self.actor, what, about, answer))

    def gone(self) -> None:
        self.note("gone")

    def listen(self, context: Context) -> None:
        database, [sink] = context.database, context.sinks
        self.staged_attempts = sink.staged_attempts
        for owner, names in (
            (database, "start manifest manifests receipts out_of_step newest_attempt may_put store_receipt take_back"),
            (database, "publish finish fail attempts release"),
            (sink, "recorded_attempt records shown _digest_of_record has_record has_objects"),
            (sink, "staged_manifests clear_staging"),
            *self._of_kind(sink),
        ):
            for name in names.split():
                after(owner, name, getattr(self, name.lstrip("_")), self.gone if owner is database else None)

    def _of_kind(self, sink: Any) -> Iterator[tuple[Any, str]]:
        """What only files, or only tables, are asked."""
        if isinstance(sink, PostgresSink):
            after(sink, "_take_marker", self.take_marker, self.lacks_marker)
            after(sink, "_put", self.committed, self.rolled_back)
            yield sink, "wait_for_lower alike _was_committed"
        else:
            self._delete: Callable[[Iterable[str]], None] = sink.store.delete
            sink.store.delete = self.delete
            yield sink, "write_record"
            yield sink.store, "move"

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

    def was_committed(self, there: bool, _: Receipt) -> None:
        """After a merge that broke off: then nothing was committed in these runs."""
        assert not there
        self.world.events.pop()

    def take_marker(self, *_: Any) -> None:
        self.note("take_marker")

        self.taken = True

    def lacks_marker(self) -> None:
        self.note("take_marker", answer=Answer.REFUSED)

    def committed(self, *_: Any) -> None:
        self.note("commit")

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
        self._delete(names)
        record, name = RecordName.parse(names[0]), ObjectName.parse(names[0])
        if record:
            self.note("delete_record", record.attempt)
        elif name:
            self.note("delete_parts", name.attempt)


def after(owner: Any, name: str, note: Callable[..., None], failed: Callable[[], None] | None) -> None:
    """Call ``note`` with the result and the positional arguments of each call of a method; ``failed`` after errors."""
    method = getattr(owner, name)

    def call(*arguments: Any, **named: Any) -> Any:
        try:
            result = method(*arguments, **named)
        except TidemarkError:
            if failed is not None:
                failed()
            raise
        note(result, *arguments)
        return result

    setattr(owner, name, call)


def in_words_of_the_model(event: Event, step: Step) -> Event:
    """A mark that is refused does not get to the end of the attempt, which is in the same transaction; and the code
    reads the states of all attempts at once."""
    if event.what == "mark" and step.name == "mark_and_end" and event.answer is Answer.REFUSED:
        return event._replace(what=step.name, about=event.about[:1])
    if event.what == "attempts":
        return event._replace(what="own_state", answer=event.answer[0])
    return event


class Path:
    """Follows recorded events in the model; ``AssertionError`` where the model would do something else."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        rules = Rules(kind)
        self.machine = Machine(rules)
        self.steps = Steps(rules)
        self.world = World()
        self.places: dict[int, int] = {}
        self.superseded: dict[int, bool] = {}  # by attempt: whether a newer one had ended well when it was fenced
        self.gone: set[int] = set()  # attempts that have found out that their session is gone
        self.stays: set[int] = set()  # of such a step: attempts whose staging was in use
        self.cleared: Counter[int] = Counter()  # by process, of a step about several attempts: those done

    def follow(self, events: Iterable[Event]) -> None:
        for number, event in enumerate(events, 1):
            try:
                self._follow(event)
            except AssertionError as error:
                step = self.machine.steps[self.places.get(event.actor, 0)]
                raise AssertionError(f"event {number}, {event}: the model is at {step}; {error}") from None

    def _follow(self, event: Event) -> None:
        machine, n = self.machine, event.actor
        match event.what:
            case "begins" if n:
                code, replay = event.about
                self.world = started(self.world, code, replay=replay)
                assert self.world.newest == n
                self.places[n] = machine.begin(machine.programs.attempt, n, code, replay)
            case "begins":
                self.places[n] = machine.begin(machine.programs.retry)
            case "raises":
                self.places[n] = machine.answered(self.places[n], Answer.ERROR)
            case "cut":
                self.world = without_session(self.world, n)
            case "gone":
                step = machine.steps[self.places[n]]
                assert step is None or step.name in ("stage", *model.DATABASE) or n in self.gone
                if step is not None and step.name == "stage":  # the code asks for what an order needs
                    self.places[n] = machine.answered(self.places[n], Answer.ERROR)
                if step is not None and step.name in model.DATABASE:
                    self.places[n] = machine.answered(self.places[n], Answer.GONE)
                self.gone.add(n)
            case "dies":
                self.places.pop(n)
                self.world = without_session(self.world, n) if n else self.world
                if n == self.world.holder:
                    self.world = rolled_back(self.world, self.kind)
            case "ends":
                ended = self.places.pop(n) == machine.END
                assert ended or n in self.gone, "it has not ended"  # without its session it may end anywhere
            case _:
                self._step(event)

    def _step(self, event: Event) -> None:
        step = self._at(event.actor)
        if event.actor in self.gone and step.name in model.DATABASE:  # as it found out before
            self.places[event.actor] = self.machine.answered(self.places[event.actor], Answer.GONE)
            step = self._at(event.actor)
        known = event.actor in self.superseded
        if event.what == "attempts" and step.name != "own_state" and not (known and step.name == "superseded"):
            self.superseded[event.actor] = event.answer[1]
            return
        if step.name == "superseded":  # the code has read it
            self._answer(step, self.superseded[event.actor])
            step = self._at(event.actor)
        event = in_words_of_the_model(event, step)
        if event.what == "rollback" != step.name:  # a statement of the merge failed, before the fence or the commit
            self.places[event.actor] = self.machine.answered(self.places[event.actor], Answer.ERROR)
            step = self._at(event.actor)
        if step.name == "wait_for_lower":  # PostgreSQL ends the transaction of a process that stands still
            self.world = rolled_back(self.world, self.kind)
        if event.what != step.name and event.what in READ_AGAIN:
            return
        if step.name == "stage" and event.what == "delete_staging" and event.about == (event.actor, False):
            return  # before it stages
        assert event.what == step.name
        if step.name == "delete_staging":
            attempt, stays = event.about
            self.stays |= {attempt} if stays else set()
            if not self._cleared(step, attempt):
                return
        else:
            assert event.about == (step.of, step.part)[: len(event.about)]
        self._answer(step, event.answer)

    def _at(self, actor: int) -> Step:
        step = self.machine.steps[self.places[actor]]
        assert step is not None, "it has ended"
        return step

    def _answer(self, step: Step, given: object) -> None:
        outcomes = list(self.steps.outcomes(self.world, step))
        known = [outcome for outcome in outcomes if given in (outcome[0], UNKNOWN) and self._stays(step, outcome[1])]
        assert known, f"it answers {[outcome[0] for outcome in outcomes]}"
        answer, self.world, _ = next(outcome for outcome in known if outcome[2] is model.Fault.NONE)
        self.stays = set()
        self.places[step.actor] = self.machine.answered(self.places[step.actor], answer)

    def _stays(self, step: Step, world: World) -> bool:
        """Whether the staging stays that was seen to stay; true of a step that removes none."""
        if step.name != "delete_staging":
            return True
        return self.stays == {k for k in range(step.of, step.part + 1) if world.of(k).staged}

    def _cleared(self, step: Step, attempt: int) -> bool:
        """Whether with this attempt the step is done."""
        assert attempt == (self.cleared[step.actor] or step.of)
        self.cleared[step.actor] = 0 if attempt == step.part else attempt + 1
        return not self.cleared[step.actor]
