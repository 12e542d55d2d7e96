"""Visits every state that attempts, sweeps and repairs of one manifest can reach, with faults, within bounds."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

from tests.model.programs import Machine
from tests.model.world import (
    ALL,
    DATABASE,
    Answer,
    Fault,
    Rules,
    Step,
    Steps,
    World,
    landed,
    rolled_back,
    started,
    without_sessions,
)

# A fenced attempt gets the same answer to these, whatever others do, and nobody sees that it asked: so nothing is lost
# when no other process moves before it has the answer.
SETTLED = frozenset({"newest", "may_put", "store_receipt", "mark_and_end", "finish", "fail", "own_state", "release"})
LONGEST = 500  # steps of a process that nobody disturbs


@dataclass(frozen=True)
class Bounds:
    """How many attempts, sweeps and repairs there are, and how many faults of each kind; a session may end anywhere."""

    attempts: int = 3
    codes: int = 2
    errors: int = 1
    lost: int = 1
    sweeps: int = 1
    repairs: int = 0
    cleaners: int = 1  # at the same time


class Violated(Exception):
    """A property does not hold; the message has the shortest way there."""


class Figures(NamedTuple):
    states: int
    moves: int
    worlds: int
    ends: int  # worlds in which all processes have died, from which a retry was tried


class Move(NamedTuple):
    """One step of a process, or what happens to it."""

    change: int  # of the number of the state
    cost: int  # the budget that it needs one of: its place in the number of the state; -1 when none
    label: str


# A state is one number: four counts of 2 bits (errors, lost answers, sweeps, repairs), then 14 bits for the place of
# each cleaner and each attempt, then the number of the world. A move adds to it, so a look-up and an addition are all.
COUNT = 2
PLACE = 14
ERRORS, LOST, SWEEPS, REPAIRS = range(0, 4 * COUNT, COUNT)
CLEANERS = 2
FIRST = 4 * COUNT
MASK = (1 << PLACE) - 1


class Explorer:
    def __init__(self, rules: Rules, bounds: Bounds) -> None:
        self.rules = rules
        self.bounds = bounds
        self.steps = Steps(rules)
        self.machine = Machine(rules)
        self.places = [FIRST + PLACE * slot for slot in range(CLEANERS + bounds.attempts)]
        self.world_at = FIRST + PLACE * len(self.places)
        self.worlds: list[World] = []
        self._numbers: dict[World, int] = {}
        self._outcomes: dict[tuple[int, Step], list[tuple[object, int, Fault]]] = {}
        self._moves: dict[tuple[int, int, int], list[Move]] = {}
        self._first: dict[tuple[int, int, int], bool] = {}
        self._around: dict[int, list[Move]] = {}
        self._ends: set[World] = set()
        self.asking: set[int] = set()  # the places of cleaners where they ask whether the newest attempt lives

    def run(self) -> Figures:
        """Visit all states; raises ``Violated``."""
        bounds = self.bounds
        start = bounds.errors << ERRORS | bounds.lost << LOST | bounds.sweeps << SWEEPS | bounds.repairs << REPAIRS
        start |= self._number(World()) << self.world_at
        before: dict[int, int] = {start: start}
        frontier, moves = [start], 0
        checked: set[int] = set()
        state = start
        try:
            while frontier:
                following: list[int] = []
                for state in frontier:
                    for change, cost, _ in self._possible(state):
                        if cost >= 0 and not state >> cost & 3:
                            continue
                        moves += 1
                        after = self._sorted(state + change)
                        if after not in before:
                            before[after] = state
                            following.append(after)
                frontier = following
                for state in frontier:
                    number = state >> self.world_at
                    if number not in checked:
                        checked.add(number)
                        self._check(self.worlds[number])
                        self._check_ends(self.worlds[number])
        except Violated as violated:
            raise Violated("\n".join([str(violated), *self._way(before, state)])) from None
        return Figures(len(before), moves, len(checked), len(self._ends))

    def _number(self, world: World) -> int:
        number = self._numbers.get(world)
        if number is None:
            number = self._numbers[world] = len(self.worlds)
            self.worlds.append(world)
        return number

    def _sorted(self, state: int) -> int:
        """Two cleaners are alike, so their order does not matter."""
        first, second = state >> FIRST & MASK, state >> FIRST + PLACE & MASK
        if first < second:
            return state + (second - first << FIRST) + (first - second << FIRST + PLACE)
        return state

    def _way(self, before: dict[int, int], state: int) -> list[str]:
        lines = [str(self.worlds[state >> self.world_at])]
        while before[state] != state:
            earlier = before[state]
            lines.append(next(m.label for m in self._possible(earlier) if self._sorted(earlier + m.change) == state))
            state = earlier
        return lines[::-1]

    def _possible(self, state: int) -> list[Move]:
        number = state >> self.world_at
        moves: list[Move] = []
        asked = False
        for slot, at in enumerate(self.places):
            place = state >> at & MASK
            if not place:
                continue
            key = number, slot, place
            known = self._moves.get(key)
            if known is None:
                known = self._moves[key] = list(self._moves_of(number, slot, place))
                self._first[key] = self._goes_first(number, slot, place)
            if self._first[key]:
                return known
            moves += known
            asked = asked or (slot < CLEANERS and place in self.asking)
        if number not in self._around:
            self._around[number] = list(self._happenings(number))
        moves += self._around[number]
        if asked:  # nobody else sees whether an attempt has its session
            moves += self._session(number)
        if not state >> FIRST & MASK or (self.bounds.cleaners > 1 and not state >> FIRST + PLACE & MASK):
            moves += self._cleaners(number, state)
        return moves

    def _goes_first(self, number: int, slot: int, place: int) -> bool:
        step = self.machine.steps[place]
        assert step is not None
        if slot < CLEANERS or step.name not in DATABASE:
            return False
        world = self.worlds[number]
        fenced = step.actor < world.newest and step.name in SETTLED
        return fenced or step.name == "own_state" or not world.of(step.actor).session

    def _moves_of(self, number: int, slot: int, place: int) -> Iterator[Move]:
        """The moves of the process in a slot that has come to a place."""
        step = self.machine.steps[place]
        assert step is not None
        if slot < CLEANERS and step.name in ("dead_manifest", "own_manifest"):
            self.asking.add(place)
        for answer, after, fault in self._of(number, step):
            to = self.machine.answered(place, answer)
            assert to <= MASK, "more places than the number of a state has room for"
            if answer is Answer.GONE and fault is not Fault.NONE and self._does_nothing(to):
                continue  # as if it was paused for ever, here or after the step; ``_session`` ends its session
            change = (to - place << self.places[slot]) + (after - number << self.world_at)
            cost = {Fault.ERROR: ERRORS, Fault.LOST: LOST}.get(fault, -1)
            text = answer.value if isinstance(answer, Answer) else answer
            label = f"{'cleaner' if slot < CLEANERS else step.actor}: {step.name} {step[2:]} -> {text} {fault.value}"
            yield Move(change - (1 << cost if cost >= 0 else 0), cost, label)

    def _does_nothing(self, place: int) -> bool:
        """Whether a process that has lost its session does nothing more; a server ends its open merge anyway."""
        step = self.machine.steps[place]
        return step is None or step.name == "rollback"

    def _of(self, number: int, step: Step) -> list[tuple[object, int, Fault]]:
        key = number, step
        outcomes = self._outcomes.get(key)
        if outcomes is None:
            before = self.worlds[number]
            outcomes = self._outcomes[key] = []
            for answer, after, fault in self.steps.outcomes(before, step):
                self._check_step(before, step, after)
                outcomes.append((answer, self._number(after), fault))
        return outcomes

    def _cleaners(self, number: int, state: int) -> Iterator[Move]:
        if self.worlds[number].state != "done":
            return
        programs = self.machine.programs
        slot = 1 if state >> FIRST & MASK else 0
        for count, phase, what in ((SWEEPS, programs.sweep, "sweep"), (REPAIRS, programs.repair, "repair")):
            begun = self.machine.begin(phase)
            yield Move((begun << self.places[slot]) - (1 << count), count, f"a {what} begins")

    def _session(self, number: int) -> Iterator[Move]:
        world = self.worlds[number]
        n = world.newest
        if n and world.of(n).session and world.state == "done":
            after = self._number(without_sessions(world, n, self.rules.kind))
            yield Move(after - number << self.world_at, -1, f"attempt {n} loses its session")

    def _happenings(self, number: int) -> Iterator[Move]:
        """What no process does: an attempt starts, a request without an answer takes effect, a server gives up."""
        world = self.worlds[number]
        for late in world.late:
            yield Move(self._number(landed(world, late)) - number << self.world_at, -1, f"late: {late}")
        if world.holder:
            after = self._number(rolled_back(world, self.rules.kind))
            yield Move(after - number << self.world_at, -1, "the server ends the open merge")
        if world.state == "blocked" and not world.accepted:
            after = self._number(world._replace(accepted=True))
            yield Move(after - number << self.world_at, -1, "a person accepts the expectation")
        n = world.newest + 1
        if n > self.bounds.attempts:
            return
        replay = world.state == "done"
        for code in range(self.bounds.codes if n > 1 else 1):
            begun = self.machine.begin(self.machine.programs.attempt, n, code, replay)
            after = self._number(started(world, code, replay=replay))
            change = (begun << self.places[CLEANERS + n - 1]) + (after - number << self.world_at)
            yield Move(change, -1, f"attempt {n} starts, code {code}, {'a replay' if replay else 'no replay'}")

    # properties

    def _check(self, world: World) -> None:
        p = world.published
        if world.state == "done" and not p:
            raise Violated("done without a publication")
        if not p:
            return
        if self.rules.expects and not world.of(p).code and not world.accepted:
            raise Violated("rows are published that do not meet an expectation, and nobody has accepted that")
        if self.rules.kind.is_table:
            if world.marker != p and world.marker <= world.settled:
                raise Violated("the table has the rows of another attempt than the one that is published")
        elif world.of(p).parts != ALL:
            raise Violated("an object of the published attempt is missing")
        elif not world.of(p).record:
            raise Violated("the record of the published attempt is missing")
        elif world.of(p).taken_back:
            raise Violated("a published attempt is declared as taken back")

    def _check_step(self, before: World, step: Step, after: World) -> None:
        n = step.actor
        if after.published < before.published:
            raise Violated(f"a lower attempt is published over a higher one: {step}")
        if n and n < before.newest and (after.published, after.settled) != (before.published, before.settled):
            raise Violated(f"a fenced attempt changed the publication: {step}")
        if after.marker != before.marker and n and n < before.settled:
            raise Violated(f"rows of a lower attempt are merged after the publication of a higher one: {step}")

    def _check_ends(self, world: World) -> None:
        """All processes die, and each late request lands or does not: then a retry brings the manifest in step."""
        for lands in product((False, True), repeat=len(world.late)):
            after = world
            for late, does in zip(world.late, lands, strict=True):
                after = landed(after, late) if does else after
            attempts = tuple(made._replace(session=False) for made in after.attempts)
            after = after._replace(attempts=attempts, late=(), holder=0)
            if after.attempts and after not in self._ends:
                self._ends.add(after)
                for code in range(self.bounds.codes):
                    self._check_retried(after, code)

    def _check_retried(self, world: World, code: int) -> None:
        programs = self.machine.programs
        after = self._alone(world, programs.retry)
        if after.state != "done":
            after = started(after, code, replay=False)
            after = self._alone(after, programs.attempt, after.newest, code, False)
        if after.state == "blocked":
            after = started(after._replace(accepted=True), code, replay=False)
            after = self._alone(after, programs.attempt, after.newest, code, False)
        if after.state != "done":
            raise Violated(f"not done after a retry of {world}")
        p = after.published
        shown = after.marker if self.rules.kind.is_table else after.highest_record
        if shown != p:
            raise Violated(f"after a retry the target shows attempt {shown}, published is {p}: {world}")
        self._check(after)
        repaired = after if self.rules.kind.is_table else self._alone(after, programs.repair)
        for n, made in enumerate(repaired.attempts, 1):
            if made.staged or (n != p and (made.parts or made.record)):
                raise Violated(f"after retry and repair something of attempt {n} is left: {world}")

    def _alone(self, world: World, phase: Any, *arguments: Any) -> World:
        """The world when a process runs to its end without faults and nobody beside it."""
        machine = self.machine
        place = machine.begin(phase, *arguments)
        for _ in range(LONGEST):
            if place == machine.END:
                return world
            step = machine.steps[place]
            assert step is not None
            outcomes = self.steps.outcomes(world, step)
            answer, world, _ = next(outcome for outcome in outcomes if outcome[2] is Fault.NONE)
            place = machine.answered(place, answer)
        raise Violated(f"a process never ends in {world}")
