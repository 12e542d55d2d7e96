"""Follows what was recorded of real attempts, sweeps and repairs in the model."""

from collections import Counter
from collections.abc import Iterable

from tests.model import world as model
from tests.model.programs import Machine
from tests.model.recorder import UNKNOWN, Event
from tests.model.world import (
    Answer,
    Kind,
    Late,
    Rules,
    Step,
    Steps,
    World,
    landed,
    rolled_back,
    started,
    without_session,
    without_sessions,
)

READ_AGAIN = ("manifest", "receipts", "newest")  # read by the code for its messages and counts too


def in_words_of_the_model(event: Event, step: Step) -> Event:
    """A mark that is refused does not get to the end of the attempt, which is in the same transaction; of a table in
    the manifest database the mark is the COMMIT of the merge; and the code reads the states of all attempts at once."""
    if event.what == "mark" and step.name == "mark_and_end" and event.answer is Answer.REFUSED:
        return event._replace(what=step.name, about=event.about[:1])
    if event.what in ("mark", "mark_and_end") and step.name == "commit_and_mark":
        return event._replace(what=step.name, about=())
    if event.what == "attempts":
        return event._replace(what="own_state", answer=event.answer[0])
    return event


class Path:
    """Follows recorded events in the model; ``AssertionError`` where the model would do something else."""

    def __init__(self, kind: Kind, *, expects: bool = False) -> None:
        self.kind = kind
        rules = Rules(kind, expects=expects)
        self.machine = Machine(rules)
        self.steps = Steps(rules)
        self.world = World()
        self.places: dict[int, int] = {}
        self.superseded: dict[int, bool] = {}  # by attempt: whether a newer one had ended well when it was fenced
        self.gone: set[int] = set()  # attempts that have found out that their session is gone
        self.raised: set[int] = set()  # attempts that failed by themselves just before their COMMIT
        self.stays: set[int] = set()  # of such a step: attempts whose staging was in use
        self.cleared: Counter[int] = Counter()  # by process, of a step about several attempts: those done

        self.late: dict[int, Late] = {}  # the requests without an answer, by the numbers of their events

    def follow(self, events: Iterable[Event]) -> None:
        for number, event in enumerate(events):
            try:
                self._follow(event, number)
            except AssertionError as error:
                step = self.machine.steps[self.places.get(event.actor, 0)]
                raise AssertionError(f"event {number}, {event}: the model is at {step}; {error}") from None

    def _follow(self, event: Event, number: int) -> None:
        machine, n = self.machine, event.actor
        match event.what:
            case "begins" if n:
                self._begins(event)
            case "begins":
                self.gone.discard(n)
                self.places[n] = machine.begin(machine.programs.repair if event.about else machine.programs.retry)
            case "accepted" | "released" if not n:
                self._decided(event.what)
            case "lands":
                self.world = landed(self.world, self.late.pop(event.about[0]))
            case "raises":
                if self._name(n) == "commit":
                    self.raised.add(n)
                self.places[n] = machine.answered(self.places[n], Answer.ERROR)
            case "cut" | "gone" | "unanswered":
                self._without_session(event)
            case "was_committed" if self._name(n) != "has_record":
                assert not event.answer  # the code looks also where the merge cannot have come to its COMMIT
            case "was_committed":
                self._step(event._replace(what="has_record"))
            case "dies":
                self._dies(n)
            case "ends":
                ended = self.places.pop(n) == machine.END
                assert ended or n in self.gone, "it has not ended"  # without its session it may end anywhere
            case _:
                before = set(self.world.late)
                self._step(event)
                self.late.update((number, late) for late in set(self.world.late) - before)

    def _decided(self, what: str) -> None:
        assert self.world.state == "blocked"
        if what == "accepted":
            self.world = self.world._replace(accepted=True)
        else:
            self.world = self.world._replace(state="planned")

    def _begins(self, event: Event) -> None:
        n = event.actor
        code, replay = event.about
        self.world = started(self.world, code, replay=replay)
        assert self.world.newest == n
        self.places[n] = self.machine.begin(self.machine.programs.attempt, n, code, replay)
        if event.lost:  # it does not know its number
            self.world = without_session(self.world, n)
            self._finds_out(n)

    def _dies(self, n: int) -> None:
        self.places.pop(n)
        self.world = without_session(self.world, n)
        if n and n == self.world.holder:
            self.world = rolled_back(self.world, self.kind)

    def _without_session(self, event: Event) -> None:
        n = event.actor
        name = self._name(n)
        if event.what != "gone" or n == self.world.holder:  # a server may end the open merge of one that stands still
            self.world = without_sessions(self.world, n, self.kind)
        if event.what == "unanswered":
            if name == "stage":  # the tables for it may be there
                [staged] = event.about
                self.world = self.world.with_attempt(n, staged=staged)
            self._finds_out(n)
        if event.what == "gone":
            # The code reads what an order needs before it stages, and a receipt before it compares with its record.
            assert name in ("", "stage", "has_record", *model.DATABASE) or n in self.gone
            if name in ("stage", "has_record", *model.DATABASE):
                self._finds_out(n)
            self.gone.add(n)

    def _name(self, n: int) -> str:
        """The name of the step of a process; empty when it has ended."""
        step = self.machine.steps[self.places[n]]
        return "" if step is None else step.name

    def _finds_out(self, n: int) -> None:
        """A process fails at its step, since it has lost its session."""
        self.gone.add(n)
        if self.places[n] != self.machine.END:
            answer = Answer.GONE if self._name(n) in model.DATABASE else Answer.ERROR
            self.places[n] = self.machine.answered(self.places[n], answer)

    def _step(self, event: Event) -> None:
        self._seen_dead(event)
        step = self._at(event.actor)
        if event.actor in self.gone and step.name in model.DATABASE:  # as it found out before
            self.places[event.actor] = self.machine.answered(self.places[event.actor], Answer.GONE)
            step = self._at(event.actor)
        known = event.actor in self.superseded
        if event.what == "attempts" and step.name != "own_state" and not (known and step.name == "superseded"):
            self.superseded[event.actor] = event.answer[1]
            return
        step = self._without_asking(step, event)
        event = in_words_of_the_model(event, step)
        if event.what == "rollback" != step.name:  # a statement of the merge failed, before the fence or the commit
            self.places[event.actor] = self.machine.answered(self.places[event.actor], Answer.ERROR)
            step = self._at(event.actor)
        if step.name == "wait_for_lower":  # PostgreSQL ends the transaction of a process that stands still
            self.world = rolled_back(self.world, self.kind)
        if event.what != step.name and event.what in READ_AGAIN:
            return
        if step.name == "stage" and event.what == "delete_staging" and event.about == (event.actor, False):
            if event.lost:  # before it stages
                self.places[event.actor] = self.machine.answered(self.places[event.actor], Answer.ERROR)
            return
        assert event.what == step.name
        if step.name == "delete_staging":
            attempt, stays = event.about
            self.stays |= {attempt} if stays else set()
            ended = self._cleared(step, attempt) or event.lost
        else:
            assert event.about == (step.of, step.part)[: len(event.about)]
            ended = True
        if event.late:
            self._is_late(step)
        elif event.lost:
            self._lost(step, event)
        elif ended:
            self._answer(step, event.answer)

    def _seen_dead(self, event: Event) -> None:
        """A server has ended the open merge of an attempt that stands still, and with it its session."""
        if event.what == "dead_manifest" and event.answer and self.world.holder == self.world.newest:
            self.world = without_sessions(self.world, self.world.holder, self.kind)

    def _without_asking(self, step: Step, event: Event) -> Step:
        """The next step, where the process knows the answer to this one."""
        if step.name == "superseded":  # it has read all attempts before
            self._answer(step, self.superseded[step.actor])
        elif step.name == "has_record" != event.what and step.actor in self.raised:  # it has sent no COMMIT
            self._answer(step, False)
        return self._at(step.actor)

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

    def _lost(self, step: Step, event: Event) -> None:
        """The step is done, and its process does not know that: no other outcome of the model is taken."""
        outcomes = list(self.steps.outcomes(self.world, step))
        done = self._done(step, event, outcomes)
        # What changes nothing may as well have failed.
        faults = {model.Fault.LOST} if done != self.world else {model.Fault.SESSION, model.Fault.ERROR}
        after = without_session(done, step.actor) if step.name in model.DATABASE else done
        known = [answer for answer, world, fault in outcomes if fault in faults and self._arrived(world) == after]
        assert known, f"its answer is not lost in {outcomes}"
        self.world = after
        self.stays = set()
        self.cleared[step.actor] = 0
        self.places[step.actor] = self.machine.answered(self.places[step.actor], known[0])
        if known[0] is Answer.GONE:
            self.gone.add(step.actor)

    def _is_late(self, step: Step) -> None:
        """The step may be done later."""
        outcomes = self.steps.outcomes(self.world, step)
        late = [(answer, world) for answer, world, _ in outcomes if set(world.late) - set(self.world.late)]
        assert late, "it is done at once, or not"
        answer, self.world = late[0]
        self.places[step.actor] = self.machine.answered(self.places[step.actor], answer)

    def _done(self, step: Step, event: Event, outcomes: Iterable[model.Outcome]) -> World:
        """The world after the step, or after the part of it that was seen to be done."""
        if step.name == "delete_parts":
            left = self.world.of(step.of).parts & -1 << event.answer
            return self.world.with_attempt(step.of, parts=left)
        if step.name == "delete_staging":
            last, _ = event.about
            cleared = self.world
            for k in {*range(step.of, last + 1)} - self.stays:
                cleared = cleared.with_attempt(k, staged=False)
            return cleared
        done = [world for answer, world, fault in outcomes if (answer, fault) == (event.answer, model.Fault.NONE)]
        assert done, "it does not answer that"
        return done[0]

    def _arrived(self, world: World) -> World:
        """The world when the request that has no answer takes effect at once."""
        for late in set(world.late) - set(self.world.late):
            world = landed(world, late)
        return world

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
