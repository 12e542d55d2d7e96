"""Visits every state that attempts, sweeps and repairs of one manifest can reach, with faults, within bounds."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from tests.model.programs import Machine
from tests.model.world import ALL, DATABASE, Answer, Fault, Kind, Rules, Step, Steps, World, landed, started, without_session


STABLE = {"newest", "store_receipt", "mark", "finish", "fail", "own_state", "release"}


@dataclass(frozen=True)
class Bounds:
    attempts: int = 3
    codes: int = 2
    errors: int = 1
    lost: int = 1
    sweeps: int = 1
    repairs: int = 0


class State(NamedTuple):
    world: int
    places: tuple[int, ...]  # of each attempt, in their order
    cleaner: int  # the sweep or repair at work
    errors: int
    lost: int
    sweeps: int
    repairs: int


class Violated(Exception):
    """A property does not hold; the message has the shortest way there."""


@dataclass
class Figures:
    states: int = 0
    moves: int = 0
    worlds: int = 0
    settled: int = 0


class Explorer:
    def __init__(self, rules: Rules, bounds: Bounds) -> None:
        self.rules = rules
        self.bounds = bounds
        self.steps = Steps(rules)
        self.machine = Machine(rules)
        self.table = rules.kind in (Kind.TABLE, Kind.SHARED)
        self.worlds: list[World] = []
        self._numbers: dict[World, int] = {}
        self._outcomes: dict[tuple[int, Step], list[tuple[object, int, Fault]]] = {}
        self._around: dict[int, list[tuple[str, int, int]]] = {}
        self._settled: set[World] = set()
        self.figures = Figures()

    def number(self, world: World) -> int:
        known = self._numbers.get(world)
        if known is None:
            known = self._numbers[world] = len(self.worlds)
            self.worlds.append(world)
        return known

    def run(self) -> Figures:
        bounds = self.bounds
        start = State(self.number(World()), (), Machine.END, bounds.errors, bounds.lost, bounds.sweeps, bounds.repairs)
        before: dict[State, tuple[State, str] | None] = {start: None}
        frontier = [start]
        checked: set[int] = set()
        try:
            while frontier:
                following: list[State] = []
                for state in frontier:
                    if state.world not in checked:
                        checked.add(state.world)
                        here: object = state
                        self._check(self.worlds[state.world])
                        self._check_settled(self.worlds[state.world])
                    for label, after in self._moves(state):
                        self.figures.moves += 1
                        if after not in before:
                            before[after] = (state, label)
                            following.append(after)
                frontier = following
        except Violated as violated:
            raise Violated(f"{violated}\n" + self._way(before, state)) from None
        self.figures.states = len(before)
        self.figures.worlds = len(checked)
        self.figures.settled = len(self._settled)
        return self.figures

    def _way(self, before, state) -> str:
        lines = []
        at = state
        while before[at] is not None:
            at, label = before[at]
            if isinstance(label, tuple):
                who, step, answer, fault = label
                text = f"{who}: {step.name} {step.of or ''} {step.part or ''} -> {answer.value if isinstance(answer, Answer) else answer}"
                label = text + ("" if fault is Fault.NONE else f" ({fault.value})")
            lines.append(label)
        return "\n".join(reversed(lines)) + f"\n{self.worlds[state.world]}"

    def _moves(self, state: State) -> Iterator[tuple[str, State]]:
        machine = self.machine
        world = self.worlds[state.world]
        for n, place in enumerate(state.places, 1):
            if place == machine.END:
                continue
            step = machine.steps[place]
            if step.name in DATABASE and (not world.of(n).session or (n < world.newest and step.name in STABLE)):
                yield from self._steps_of(state, n, place, step)
                return  # the answer stays the same whatever others do, so nothing is lost when it is asked now
        for n, place in enumerate(state.places, 1):
            if place == machine.END:
                continue
            step = machine.steps[place]
            yield from self._steps_of(state, n, place, step)
        yield from self._others(state, world)

    def _steps_of(self, state, n, place, step):
            machine = self.machine
            for answer, number, fault in self._of(state.world, step):
                budget = self._spent(state, fault)
                if budget is None:
                    continue
                errors, lost = budget
                to = machine.answered(place, answer)
                places = (*state.places[: n - 1], to, *state.places[n:])
                yield (
                    (n, step, answer, fault),
                    State(number, places, state.cleaner, errors, lost, state.sweeps, state.repairs),
                )
    def _others(self, state, world):
        machine = self.machine
        if state.cleaner != machine.END:
            step = machine.steps[state.cleaner]
            for answer, number, fault in self._of(state.world, step):
                budget = self._spent(state, fault)
                if budget is not None:
                    errors, lost = budget
                    to = machine.answered(state.cleaner, answer)
                    yield (
                        ("cleaner", step, answer, fault),
                        State(number, state.places, to, errors, lost, state.sweeps, state.repairs),
                    )
        else:
            if state.sweeps and world.state == "done":
                yield "sweep begins", state._replace(
                    cleaner=machine.begin(machine.programs.sweeping), sweeps=state.sweeps - 1
                )
            if state.repairs and world.state == "done":
                yield "repair begins", state._replace(
                    cleaner=machine.begin(machine.programs.repair), repairs=state.repairs - 1
                )
        if world.newest < self.bounds.attempts:
            for code, replay in product(range(self.bounds.codes if world.newest else 1), (False, True)):
                if replay != (world.state == "done"):
                    continue
                after = self.number(started(world, code, replay=replay))
                begun = machine.begin(machine.programs.attempt, world.newest + 1, code, replay)
                yield (
                    f"attempt {world.newest + 1} starts, code {code}",
                    state._replace(world=after, places=(*state.places, begun)),
                )
        around = self._around.get(state.world)
        if around is None:
            around = self._around[state.world] = list(self._happenings(world))
        for label, n, number in around:
            if n and (machine.steps[state.cleaner] is None or machine.steps[state.cleaner].name != "dead_manifest"):
                continue  # nobody else sees whether it has a session
            yield label, state._replace(world=number)

    def _of(self, world: int, step: Step) -> list[tuple[object, int, Fault]]:
        key = (world, step)
        known = self._outcomes.get(key)
        if known is None:
            before = self.worlds[world]
            known = self._outcomes[key] = []
            for answer, after, fault in self.steps.outcomes(before, step):
                self._check_step(before, step, after)
                known.append((answer, self.number(after), fault))
        return known

    def _spent(self, state: State, fault: Fault) -> tuple[int, int] | None:
        if fault is Fault.NONE or fault is Fault.SESSION:
            return state.errors, state.lost
        if fault is Fault.ERROR:
            return (state.errors - 1, state.lost) if state.errors else None
        return (state.errors, state.lost - 1) if state.lost else None

    def _happenings(self, world: World) -> Iterator[tuple[str, int, int]]:
        n = world.newest
        if n and world.of(n).session and world.state == "done":
            yield f"attempt {n} loses its session", n, self.number(self._lost_session(world, n))
        for late in world.late:
            yield f"late: {late}", 0, self.number(landed(world, late))
        if world.holder:
            after = rolled_back(world)
            if self.rules.kind is Kind.SHARED:
                after = without_session(after, world.holder)
            yield "an idle transaction is ended", 0, self.number(after)

    def _lost_session(self, world: World, n: int) -> World:
        if self.rules.kind is Kind.SHARED and world.holder == n:
            world = world._replace(holder=0)
        return without_session(world, n)

    # properties

    def _check(self, world: World) -> None:
        p = world.published
        if self.table:
            if world.state == "done" and not (world.marker == p or world.marker > world.marked_by):
                raise Violated("done, and the table has the rows of another attempt")
            return
        if p and world.of(p).parts != ALL:
            raise Violated("an object of the published attempt is missing")
        if p and world.of(p).taken_back:
            raise Violated("a published attempt is declared as taken back")
        if world.state == "done" and not p:
            raise Violated("done without a publication")
        if p and not world.of(p).record:
            raise Violated("published without a record")

    def _check_step(self, before: World, step: Step, after: World) -> None:
        n = step.actor
        if after.published < before.published:
            raise Violated("a lower attempt is published over a higher one")
        if n and n < before.newest and (after.published, after.marked_by) != (before.published, before.marked_by):
            raise Violated("a fenced attempt changed the publication")
        if after.marker != before.marker and n and n < before.marked_by:
            raise Violated("rows of a lower attempt after the publication of a higher one")

    def _check_settled(self, world: World) -> None:
        for land in product((False, True), repeat=len(world.late)):
            after = world._replace(holder=0)
            for one, does in zip(world.late, land, strict=True):
                if does:
                    after = landed(after, one)
            attempts = tuple(made._replace(session=False) for made in after.attempts)
            after = after._replace(attempts=attempts, late=(), holder=0)
            if after in self._settled or not after.attempts:
                continue
            self._settled.add(after)
            for code in range(self.bounds.codes):
                self._check_retried(after, code)

    def _check_retried(self, world: World, code: int) -> None:
        programs = self.machine.programs
        after = self._alone(world, programs.sweeping)
        if after.state != "done":
            after = started(after, code, replay=False)
            after = self._alone(after, programs.attempt, after.newest, code, False)
        if after.state != "done":
            raise Violated(f"not done after retry: {after}")
        p = after.published
        if self.table:
            if after.marker != p:
                raise Violated(f"after retry the table has rows of {after.marker}, published is {p}: {world}")
        elif after.highest_record != p or after.of(p).parts != ALL:
            raise Violated(f"after retry record readers see {after.highest_record}, published is {p}: {world}")
        self._check(after)
        repaired = after if self.table else self._alone(after, programs.repair)
        for n, made in enumerate(repaired.attempts, 1):
            if made.staged or (n != p and (made.parts or made.record)):
                raise Violated(f"after retry and repair something of attempt {n} is left: {repaired}; before: {world}")

    def _alone(self, world: World, phase, *arguments) -> World:
        machine = self.machine
        place = machine.begin(phase, *arguments)
        while place != machine.END:
            answer, number, fault = next(o for o in self._of(self.number(world), machine.steps[place]) if o[2] is Fault.NONE)
            world = self.worlds[number]
            place = machine.answered(place, answer)
        return world


def rolled_back(world: World) -> World:
    late = tuple(one for one in world.late if one[0] != "commit")
    return world._replace(holder=0, late=late)


