"""What attempts, sweeps and repairs do, step by step: the model's copy of ``lifecycle`` and ``sinks``.

Each phase is a generator of steps, to which the answers are sent; it ends with the next phase. So what a process
remembers from one phase to the next is in the phase's arguments, and inside a phase in the answers.
"""

from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, NamedTuple

from tests.model.world import PARTS, Answer, Kind, Rules, Step, World


class Gone(Exception):
    """The session has ended: no statement of this process is executed any more."""


class StoreFailed(Exception):
    pass


class Fenced(Exception):
    pass


class Then(NamedTuple):
    """The next phase, and what the process remembers."""

    phase: Callable[..., "Phase"]
    arguments: tuple[Any, ...]


Phase = Generator[Step, Any, Then | None]
Part = Generator[Step, Any, Any]
STOPPED = (Gone, StoreFailed, Fenced)


def then(phase: Callable[..., Phase], *arguments: Any) -> Then:
    return Then(phase, arguments)


class Programs:
    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.table = rules.kind in (Kind.TABLE, Kind.SHARED)
        self.sweeping = self.sweep_table if self.table else self.sweep

    # an attempt: lifecycle/attempt.py, lifecycle/publish.py

    def attempt(self, n: int, code: int, replay: bool) -> Phase:
        try:
            _, published = yield Step("manifest", n)
            if published and not replay:
                return then(self.finish, n)
            if self.table and self.rules.claim:
                yield from self._claim(n)
            if not replay:
                recovered = yield from self._recover(n, code)
                if recovered:
                    return then(self.finish, n)
            yield Step("stage", n)
            if (yield Step("store_receipt", n)) is Answer.REFUSED:
                raise Fenced
            lower = yield Step("receipts", n, n - 1)
        except STOPPED as error:
            return then(self.ended, n, type(error))
        return then(self.discard_lower, n, code, published, lower)

    def _recover(self, n: int, code: int) -> Part:
        """Whether an earlier attempt's output is whole with its record, and is published now."""
        lower = yield Step("receipts", n, n - 1)
        if not lower:
            return False
        highest = yield Step("highest_record", n)
        candidates = [entry for entry in lower if self.table or self.rules.ignore_declared or not entry[2]]
        if self.table or self.rules.recover_older:
            candidates = [entry for entry in candidates if entry[0] == highest]
        if not candidates:
            return False
        newest, made_by, _ = candidates[0]
        if made_by != code or newest != highest:
            return False
        if not (yield Step("has_record", n, newest)) or not (yield Step("has_parts", n, newest)):
            return False
        if (yield Step("mark", n, newest)) is Answer.OK:
            return True
        yield from self.fence(n)
        return False  # it was taken back meanwhile

    def discard_lower(self, n: int, code: int, published: int, lower: tuple[tuple[int, int, bool], ...]) -> Phase:
        """Remove what lower attempts put that were never published; then compare with what is published."""
        try:
            for k, _, _ in lower:
                if k != published:
                    yield from self.discard(n, k)
            if self.rules.skip_equal and published:
                made_by = next((code_of for k, code_of, _ in lower if k == published), None)
                if made_by == code and (yield from self._alike(n, published)):
                    if (yield Step("mark", n, published, 1)) is Answer.REFUSED:
                        raise Fenced
                    return then(self.clean, n)
        except STOPPED as error:
            return then(self.ended, n, type(error))
        return then(self.put_into_table if self.table else self.put, n)

    def _alike(self, n: int, published: int) -> Part:
        return (yield Step("has_record", n, published)) and (yield Step("has_parts", n, published))

    def fence(self, n: int) -> Part:
        if not (yield Step("newest", n)):
            raise Fenced

    def put(self, n: int) -> Phase:
        """Steps 2 to 4 into files."""
        rules = self.rules
        try:
            for what in rules.order:
                match what:
                    case "parts":
                        for part in PARTS:
                            if rules.fence_moves == "each" or (rules.fence_moves == "first" and part == 0):
                                yield from self.fence(n)
                            yield Step("move", n, n, part)
                    case "record":
                        if rules.fence_record:
                            yield from self.fence(n)
                        yield Step("put_record", n, n)
                    case "mark":
                        if (yield Step("mark", n, n, 1)) is Answer.REFUSED:
                            return then(self.ended, n, Fenced)
        except STOPPED as error:
            return then(self.give_up, n, type(error), what)
        return then(self.clean, n)

    def give_up(self, n: int, error: type[Exception], at: str) -> Phase:
        """An error before the record: what was put is removed, once that is declared."""
        if at != "mark":
            with suppress(*STOPPED):
                if not (yield Step("has_record", n, n)):
                    declared = (yield Step("take_back_own", n)) is Answer.OK
                    if declared or self.rules.own_take_back == "nobody":
                        yield from self.discard(n, n)
        return then(self.ended, n, error)

    def discard(self, actor: int, k: int) -> Part:
        for what in self.rules.remove if not self.table else ("staging",):
            match what:
                case "record":
                    yield Step("delete_record", actor, k)
                case "parts":
                    for part in PARTS:
                        yield Step("delete_part", actor, k, part)
                case "staging":
                    yield Step("delete_staging", actor, k)

    def put_into_table(self, n: int) -> Phase:
        """Steps 2 to 4 into a table."""
        taken = False
        try:
            yield from self.fence(n)
            if (yield Step("take_marker", n)) is Answer.REFUSED:
                raise Fenced
            taken = True
            yield from self.fence(n)
            if self.rules.kind is Kind.SHARED:
                if (yield Step("commit_and_mark", n)) is Answer.REFUSED:
                    raise Fenced
            else:
                yield Step("commit", n)
                taken = False
                if (yield Step("mark", n, n, 1)) is Answer.REFUSED:
                    raise Fenced
        except STOPPED as error:
            if taken:
                yield Step("rollback", n)
            return then(self.ended, n, type(error))
        return then(self.clean, n)

    def _claim(self, n: int) -> Part:
        if (yield Step("claim", n)) is Answer.REFUSED:
            raise Fenced

    def finish(self, n: int) -> Phase:
        """Every sink has a publication, only the state was not done."""
        try:
            if (yield Step("finish", n)) is Answer.REFUSED:
                raise Fenced
        except STOPPED as error:
            return then(self.ended, n, type(error))
        return then(self.clean, n)

    def clean(self, n: int) -> Phase:
        """Step 5: what attempts up to this one left, except what is published."""
        with suppress(*STOPPED):
            yield from self._clean(n, n)
        return then(self.leave, n)

    def _clean(self, actor: int, up_to: int) -> Part:
        _, published = yield Step("manifest", actor)
        receipts = yield Step("receipts", actor, up_to)
        for k, _, _ in receipts:
            if k != published:
                yield from self.discard(actor, k)
        for k in range(1, up_to + 1):
            yield Step("delete_staging", actor, k)

    def ended(self, n: int, error: type[Exception]) -> Phase:
        """The end of an attempt with an error."""
        if error is Gone:
            return None
        with suppress(*STOPPED):
            if (yield Step("newest", n)):
                yield Step("fail", n)
            elif (yield Step("superseded", n)):
                yield from self._clean(n, n)
        return then(self.leave, n)

    def leave(self, n: int) -> Phase:
        with suppress(*STOPPED):
            well = yield Step("own_state", n)
            yield Step("release", n)
            if not well and (yield Step("highest_record", n)) != n:
                yield Step("delete_staging", n, n)
        return None

    # the verbs that clean up: Publisher.sweep, operations/repair.py

    def sweep(self) -> Phase:
        with suppress(*STOPPED):
            staged = yield Step("staged_attempts", 0)
            highest = yield Step("highest_record", 0)
            dead = yield Step("dead_manifest", 0)
            if dead is None:
                return None
            published, newest = dead
            if staged or (self.rules.sweep_records and highest > published):
                if self.rules.sweep_takes_back:
                    yield Step("take_back", 0, newest)
                return then(self.clean_dead, newest)
        return None

    def clean_dead(self, newest: int) -> Phase:
        with suppress(*STOPPED):
            yield from self._clean(0, newest)
        return None

    def sweep_table(self) -> Phase:
        """Remove staging, and publish what a replay merged before it died."""
        with suppress(*STOPPED):
            staged = yield Step("staged_attempts", 0)
            dead = yield Step("dead_manifest", 0)
            if dead is not None and staged:
                yield from self._clean(0, dead[1])
            marker = yield Step("highest_record", 0)
            dead = yield Step("dead_manifest", 0)
            if dead is not None and marker > dead[0]:
                yield Step("catch_up", 0, marker, dead[1])
        return None

    def repair(self) -> Phase:
        """Remove all objects and records that are not published; only of dead attempts."""
        with suppress(*STOPPED):
            dead = yield Step("dead_manifest", 0)
            if dead is None:
                return None
            _, newest = dead
            listed = yield Step("listed", 0)
            _, published = yield Step("manifest", 0)
            if self.rules.sweep_takes_back:
                yield Step("take_back", 0, newest)
            for k in listed:
                if k != published and k <= newest:
                    yield from self.discard(0, k)
        return None


class Machine:
    """Programs as numbered places: which step comes next, and where an answer leads."""

    END = 0

    def __init__(self, rules: Rules) -> None:
        self.programs = Programs(rules)
        self.steps: list[Step | None] = [None]
        self._at: list[tuple[Then, tuple[Any, ...]] | None] = [None]
        self._numbers: dict[tuple[Then, tuple[Any, ...]], int] = {}
        self._moves: dict[tuple[int, object], int] = {}

    def begin(self, phase: Callable[..., Phase], *arguments: Any) -> int:
        return self._place(then(phase, *arguments), ())

    def answered(self, place: int, answer: object) -> int:
        key = (place, answer)
        if key not in self._moves:
            at = self._at[place]
            assert at is not None
            self._moves[key] = self._place(at[0], (*at[1], answer))
        return self._moves[key]

    def _place(self, here: Then, answers: tuple[Any, ...]) -> int:
        key = (here, answers)
        if key in self._numbers:
            return self._numbers[key]
        step, following = played(here, answers)
        if step is None:
            place = self.END if following is None else self._place(following, ())
        else:
            place = len(self.steps)
            self.steps.append(step)
            self._at.append(key)
        self._numbers[key] = place
        return place


def played(here: Then, answers: tuple[Any, ...]) -> tuple[Step | None, Then | None]:
    """The step that follows on the answers; without one the phase has ended, and the next phase follows."""
    phase = here.phase(*here.arguments)
    try:
        step = next(phase)
        for answer in answers:
            if answer is Answer.GONE:
                step = phase.throw(Gone())
            elif answer is Answer.ERROR:
                step = phase.throw(StoreFailed())
            else:
                step = phase.send(answer)
    except StopIteration as end:
        return None, end.value
    return step, None
