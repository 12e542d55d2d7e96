"""Records what real attempts and sweeps ask of a real database and store, and follows it in the model."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tests.faults.actors import Actor, Fault
from tests.faults.model_world import ModelWorld
from tests.model import world as model
from tests.model.programs import Machine
from tests.model.world import ENDED_WELL, Answer, Kind, Rules, Step, Steps, World, started, without_session
from tidemark.database.client import Row
from tidemark.lifecycle.context import Context
from tidemark.manifest import Manifest, ManifestState
from tidemark.order import Order
from tidemark.paths import ObjectName, RecordName
from tidemark.receipt import Receipt, StoredReceipt

MANIFEST, SINK = 1, "files"
UNKNOWN = object()  # an answer that the recorder cannot put in words of the model
READ_AGAIN = ("manifest", "receipts")  # read by the code for its messages and counts too


class Event(NamedTuple):
    """``actor`` is the attempt, 0 for a sweep; ``what`` is the name of a step, or begins, raises, dies, ends."""

    actor: int
    what: str
    about: tuple[Any, ...] = ()
    answer: object = Answer.OK


class RecordedWorld(ModelWorld):
    """One manifest with two objects, whose attempts and sweeps are recorded, one after the other."""

    def planned(self) -> None:
        self.events: list[Event] = []
        self.codes: dict[int, int] = {}
        self.actor: int | None = None  # None before the attempt has its number
        self.produce(2, minutes=35)  # two hours, so two objects
        self.finish(self.plan())

    def ended(self, actor: Actor) -> None:
        """Let it run to its end."""
        self.finish(actor)
        self.note("ends")

    def died(self, actor: Actor, point: str) -> None:
        self.run_to(actor, point)
        self.kill(actor)
        self.note("dies")

    def failed(self, actor: Actor, point: str) -> None:
        """Let it raise at a failpoint, and run to its end."""
        self.run_to(actor, point)
        actor.life.armed = (Fault.FAIL, 1)
        self.note("raises")
        self.ended(actor)

    def note(self, what: str, *about: Any, answer: object = Answer.OK) -> None:
        if self.actor is not None:
            self.events.append(Event(self.actor, what, about, answer))

    def stage(self, order: Order) -> Receipt:
        receipt = super().stage(order)
        if self.events[-1] == Event(order.attempt, "delete_staging", (order.attempt,)):
            self.events.pop()  # a part of the step
        self.note("stage")
        return receipt

    def _act(self, name: str, verb: Callable[[Context], object], *, plans: bool = False) -> Actor:
        def recorded(context: Context) -> object:
            if not plans:
                self.actor = None
                if name == "sweep":
                    self.actor = 0
                    self.note("begins")
                Recorder(self, context, replay=name.startswith("replay"))
            return verb(context)

        return super()._act(name, recorded, plans=plans)


class Recorder:
    """Makes an event of each call of one process that the model has a step for."""

    def __init__(self, world: RecordedWorld, context: Context, *, replay: bool) -> None:
        self.world = world
        self.note = world.note
        self.replay = replay
        self.moves: Counter[int] = Counter()
        self.looks = 2  # at objects, since a verdict was asked for; the model does not look at what is published
        database, [sink] = context.database, context.sinks
        store = sink.store  # type: ignore[attr-defined]
        for owner, names in (
            (database, "start manifest manifests receipts out_of_step newest_attempt may_put store_receipt take_back"),
            (database, "publish finish fail attempts release"),
            (sink, "recorded_attempt records shown _digest_of_record has_record has_objects write_record"),
            (sink, "staged_manifests clear_staging"),
            (store, "move"),
        ):
            for name in names.split():
                after(owner, name, getattr(self, name.lstrip("_")))
        self._delete: Callable[[Iterable[str]], None] = store.delete
        store.delete = self.delete

    # the database

    def start(self, attempt: int | None, *_: Any) -> None:
        assert attempt is not None
        self.world.actor, self.world.codes[attempt] = attempt, self.world.schema
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
        rows = [(row.receipt.attempt, codes[row.receipt.attempt], SINK in row.taken_back) for row in receipts]
        self.note("receipts", answer=tuple(rows))

    def out_of_step(self, *_: Any) -> None:
        self.note("manifest", answer=UNKNOWN)

    def newest_attempt(self, newest: int, _: int) -> None:
        if self.world.actor:
            self.note("newest", self.world.actor, answer=newest == self.world.actor)

    def may_put(self, allowed: bool, *_: Any) -> None:
        self.note("may_put", answer=allowed)

    def store_receipt(self, stored: bool, *_: Any) -> None:
        self.note("store_receipt", answer=Answer.OK if stored else Answer.REFUSED)

    def take_back(self, done: bool, _: int, attempt: int, __: str) -> None:
        self.note("take_back", attempt, answer=Answer.OK if done else Answer.REFUSED)

    def publish(self, done: bool, _: int, newest: int, __: str, visible: int, *___: Any) -> None:
        self.note("mark", visible, newest, answer=Answer.OK if done else Answer.REFUSED)

    def finish(self, *_: Any) -> None:
        last = self.world.events[-1]
        if last.actor == self.world.actor and last.what == "mark":  # in the same transaction
            self.world.events[-1] = last._replace(what="mark_and_end", about=last.about[:1])
        else:
            self.note("finish")

    def fail(self, *_: Any) -> None:
        self.note("fail")

    def attempts(self, rows: list[Row], _: int) -> None:
        state = next(row["state"] for row in rows if row["attempt"] == self.world.actor)
        self.note("own_state", answer=state in ENDED_WELL)

    def release(self, *_: Any) -> None:
        self.note("release")

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
        self.note("delete_staging", attempt)

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


def after(owner: Any, name: str, note: Callable[..., None]) -> None:
    """Call ``note`` with the result and the positional arguments of each call of a method that does not raise."""
    method = getattr(owner, name)

    def call(*arguments: Any, **named: Any) -> Any:
        result = method(*arguments, **named)
        note(result, *arguments)
        return result

    setattr(owner, name, call)


class Path:
    """Follows recorded events in the model; ``AssertionError`` where the model would do something else."""

    def __init__(self, kind: Kind) -> None:
        rules = Rules(kind)
        self.machine = Machine(rules)
        self.steps = Steps(rules)
        self.world = World()
        self.places: dict[int, int] = {}
        self.cleared = 0  # of a step that removes the staging of several attempts: those that are done

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
            case "dies":
                self.places.pop(n)
                self.world = without_session(self.world, n) if n else self.world
            case "ends":
                assert self.places.pop(n) == machine.END, "it has not ended"
            case _:
                self._step(event)

    def _step(self, event: Event) -> None:
        step = self.machine.steps[self.places[event.actor]]
        assert step is not None, "it has ended"
        if event.what != step.name and event.what in READ_AGAIN:
            return
        assert event.what == step.name
        if step.name == "delete_staging" and not self._cleared(step, event.about[0]):
            return
        if step.name != "delete_staging":
            assert event.about == (step.of, step.part)[: len(event.about)]
        outcomes = list(self.steps.outcomes(self.world, step))
        known = [outcome for outcome in outcomes if event.answer in (outcome[0], UNKNOWN)]
        assert known, f"it answers {[outcome[0] for outcome in outcomes]}"
        answer, self.world, _ = next(outcome for outcome in known if outcome[2] is model.Fault.NONE)
        self.places[event.actor] = self.machine.answered(self.places[event.actor], answer)

    def _cleared(self, step: Step, attempt: int) -> bool:
        """Whether with this attempt the step is done."""
        assert attempt == (self.cleared or step.of)
        self.cleared = 0 if attempt == step.part else attempt + 1
        return not self.cleared
