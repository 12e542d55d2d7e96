"""What attempts, sweeps and repairs do, step by step: the model's copy of ``lifecycle`` and ``sinks``.

Each phase is a generator of steps, to which the answers are sent; it ends with the next phase. So what a process
remembers from one phase to the next is in the phase's arguments, and inside a phase in the answers. The verdict is that
of ``tidemark.model.verdict`` itself.
"""

from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, NamedTuple

from tests.model.world import PARTS, Answer, Kind, Rules, Step
from tidemark.model.verdict import Known, Shown, Verdict, judge


class Gone(Exception):
    """The session has ended: no statement of this process is executed any more."""


class StoreFailed(Exception):
    pass


class Fenced(Exception):
    pass


class Unmet(Exception):
    """Too many rows do not meet an expectation."""


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
        self.table = rules.kind.is_table

    # an attempt: lifecycle/attempt.py, lifecycle/publish.py

    def attempt(self, n: int, code: int, replay: bool) -> Phase:
        """From its number on; the publication is read right after it, when no other attempt can change it."""
        try:
            _, published = yield Step("manifest", n)
            if self.table:
                yield Step("wait_for_lower", n)
        except STOPPED as error:
            return then(self.ended, n, type(error))
        if not replay and not published:
            return then(self.settle, n, n, published, then(self.settled, n, code))
        return then(self.staging, n, code, published) if replay else then(self.finish, n)

    def settled(self, n: int, code: int) -> Phase:
        try:
            _, published = yield Step("manifest", n)
        except STOPPED as error:
            return then(self.ended, n, type(error))
        return then(self.finish, n) if published else then(self.staging, n, code, published)

    def settle(self, actor: int, n: int, published: int, following: Then, failed: Then | None = None) -> Phase:
        """What the verdict asks for, as long as that needs no source; ``n`` is the newest attempt as the actor knows
        it. A sweep goes on with ``failed`` when the store fails."""
        try:
            verdict, evidence = yield from self._judged(actor, published)
            match verdict:
                case Verdict.MARK_MISSING:
                    if (yield Step("mark", actor, evidence, n)) is Answer.REFUSED and not (
                        yield Step("newest", actor, n)
                    ):
                        return following
                case Verdict.SUPERSEDED:
                    if (yield Step("take_back", actor, evidence)) is Answer.REFUSED:
                        return following
                    yield from self._discard(actor, evidence)
                case _:
                    return following
            _, published = yield Step("manifest", actor)
        except STOPPED as error:
            if actor:
                return then(self.ended, n, type(error))
            return None if isinstance(error, Gone) else failed
        return then(self.settle, actor, n, published, following, failed)

    def _judged(self, actor: int, published: int) -> Part:
        """The verdict; what is published is whole in the model, since the explorer stops at a world where it is not."""
        rules = self.rules
        receipts = yield Step("receipts", actor)
        evidence = yield Step("evidence", actor)
        codes = {k: str(code) for k, code, _ in receipts}
        declared = frozenset(k for k, _, taken_back in receipts if taken_back and not rules.believes_declared)
        shown = Shown(published_whole=True)
        if evidence:
            digest = codes.get(evidence) if (yield Step("has_record", actor, evidence)) else None
            whole = (yield Step("has_parts", actor, evidence)) or rules.believes_partial
            shown = Shown(evidence, digest, whole=whole, published_whole=True)
        known = Known(codes, declared, published or None, done=bool(published))
        return judge(known, shown, takes_back=not self.table), evidence

    def staging(self, n: int, code: int, published: int) -> Phase:
        """Stage, ask what was accepted where rows do not meet an expectation, and step 1."""
        try:
            yield Step("stage", n)
            if self.rules.expects and not code and not (yield Step("accepted", n)) and self.rules.blocks:
                return then(self.ended, n, Unmet)
            if (yield Step("store_receipt", n)) is Answer.REFUSED:
                raise Fenced
            receipts = yield Step("receipts", n)
        except STOPPED as error:
            return then(self.ended, n, type(error))
        lower = tuple(receipt for receipt in receipts if receipt[0] < n)
        return then(self.discard_lower, n, code, published, lower)

    def discard_lower(self, n: int, code: int, published: int, lower: tuple[tuple[int, int, bool], ...]) -> Phase:
        """Remove what was declared taken back; then compare with what is published."""
        try:
            for k, _, declared in lower:
                if self.table or declared:
                    yield from self._discard(n, k)
            made_by = next((code_of for k, code_of, _ in lower if k == published), None)
            alike = made_by == code and (yield Step("has_record", n, published))
            if alike and (yield Step("has_parts", n, published)):
                if (yield Step("mark_and_end", n, published)) is Answer.REFUSED:
                    raise Fenced
                return then(self.clean, n)
        except STOPPED as error:
            return then(self.ended, n, type(error))
        return then(self.put_into_table if self.table else self.put, n)

    def _fence(self, n: int) -> Part:
        if not (yield Step("may_put", n)):
            raise Fenced

    def put(self, n: int) -> Phase:
        """Steps 2 to 4 into files."""
        try:
            for what in self.rules.order:
                match what:
                    case "parts":
                        for part in PARTS:
                            yield from self._fence(n)
                            yield Step("move", n, n, part)
                    case "record":
                        yield from self._fence(n)
                        yield Step("put_record", n, n)
                    case "mark":
                        if (yield Step("mark_and_end", n, n)) is Answer.REFUSED:
                            raise Fenced
        except STOPPED as error:
            return then(self.give_up, n, type(error))
        return then(self.clean, n)

    def give_up(self, n: int, error: type[Exception]) -> Phase:
        """An error before the mark: what was put is removed, once that is declared; with its record it stays."""
        with suppress(*STOPPED):
            if error is Gone and self.rules.gives_up_unasked:
                yield from self._discard(n, n)
                return then(self.ended, n, error)
            try:
                may_put = yield Step("may_put", n)
            except Gone:
                if (yield Step("has_record", n, n)) and not (yield Step("has_parts", n, n)):
                    yield Step("delete_record", n, n)
                return then(self.ended, n, Gone)
            if not may_put or not (yield Step("has_record", n, n)):
                yield from self._take_back(n, n)
        return then(self.ended, n, error)

    def _take_back(self, actor: int, k: int) -> Part:
        if (yield Step("take_back", actor, k)) is Answer.OK:
            yield from self._discard(actor, k)

    def _discard(self, actor: int, k: int) -> Part:
        if not self.table:
            yield Step("delete_record", actor, k)
            yield Step("delete_parts", actor, k)
        yield Step("delete_staging", actor, k, k)

    def put_into_table(self, n: int) -> Phase:
        """Steps 2 to 4 into a table."""
        taken = False
        try:
            yield from self._fence(n)
            if (yield Step("take_marker", n)) is Answer.REFUSED:
                raise Fenced
            taken = True
            if self.rules.fence_commit:
                yield from self._fence(n)
            if self.rules.kind is Kind.SHARED:
                if (yield Step("commit_and_mark", n)) is Answer.REFUSED:
                    raise Fenced
            else:
                taken = False
                yield from self._commit(n)
                if (yield Step("mark_and_end", n, n)) is Answer.REFUSED:
                    raise Fenced
        except STOPPED as error:
            if taken:
                yield Step("rollback", n)
            return then(self.ended, n, type(error))
        return then(self.clean, n)

    def _commit(self, n: int) -> Part:
        """Commit the merge; the marker is looked for when there is no answer."""
        try:
            yield Step("commit", n)
        except StoreFailed:
            yield Step("rollback", n)
            if not (yield Step("has_record", n, n)):
                raise

    def finish(self, n: int) -> Phase:
        """The sink has a publication, only the state was not done."""
        try:
            if (yield Step("finish", n)) is Answer.REFUSED:
                raise Fenced
        except STOPPED as error:
            return then(self.ended, n, type(error))
        return then(self.clean, n)

    def clean(self, n: int) -> Phase:
        """Step 5. The attempt has ended well. What a target does not let it remove is told, and left to the next one;
        any other error here is an error of the attempt."""
        try:
            published, receipts = yield from self._known(n)
        except STOPPED as error:
            return then(self.ended, n, type(error))
        try:
            yield from self._remove(n, n, published, receipts)
        except StoreFailed:
            return then(self.leave, n)
        except STOPPED as error:
            return then(self.ended, n, type(error))
        return then(self.leave, n)

    def _clean(self, actor: int, up_to: int) -> Part:
        """Remove what attempts up to this one left, except what is published."""
        published, receipts = yield from self._known(actor)
        yield from self._remove(actor, up_to, published, receipts)

    def _known(self, actor: int) -> Generator[Step, Any, tuple[int, Any]]:
        """(the attempt that is published, the receipts)"""
        _, published = yield Step("manifest", actor)
        return published, (yield Step("receipts", actor))

    def _remove(self, actor: int, up_to: int, published: int, receipts: Any) -> Part:
        for k, _, _ in receipts:
            if k <= up_to and k > published and not self.table:
                yield from self._take_back(actor, k)
            elif k <= up_to and k != published:
                yield from self._discard(actor, k)
        yield Step("delete_staging", actor, 1, up_to)

    def ended(self, n: int, error: type[Exception]) -> Phase:
        """The end of an attempt with an error."""
        if error is Gone:
            return None
        with suppress(*STOPPED):
            if (yield Step("newest", n, n)):
                yield Step("block" if error is Unmet else "fail", n)
            elif (yield Step("superseded", n)):
                yield from self._clean(n, n)
        return then(self.leave, n)

    def leave(self, n: int) -> Phase:
        with suppress(*STOPPED):
            well = yield Step("own_state", n)
            yield Step("release", n)
            if not well and (yield Step("evidence", n)) != n:
                yield Step("delete_staging", n, n, n)
        return None

    # the verbs that clean up: Publisher.sweep, operations/repair.py

    def sweep(self, following: Then | None = None) -> Phase:
        """One that has cause to look at the manifest."""
        try:
            dead = yield Step("dead_manifest", 0)
        except Gone:
            return None
        if dead is None:
            return following
        published, newest = dead
        return then(self.settle, 0, newest, published, then(self.sweeping, newest, following), following)

    def sweeping(self, newest: int, following: Then | None) -> Phase:
        try:
            yield from self._clean(0, newest)
        except Gone:
            return None
        except StoreFailed:
            pass
        return following

    def retry(self, following: Then | None = None) -> Phase:
        """A sweep, where there is cause: staged output, or evidence that is not that of the published attempt."""
        try:
            staged = yield Step("staged_manifests", 0)
            evidence = yield Step("evidence", 0)
            done, published = yield Step("manifest", 0)
        except Gone:
            return None
        except StoreFailed:
            return following
        if staged or (done and evidence != published and self.rules.compares_records):
            return then(self.sweep, following)
        return following

    def repair(self) -> Phase:
        yield from ()
        return then(self.retry, then(self.strays))

    def strays(self) -> Phase:
        """Remove the objects and records that are not published, of attempts that are dead; a table has none."""
        with suppress(*STOPPED):
            evidence = yield Step("evidence", 0)
            done, published = yield Step("manifest", 0)
            if self.table or (done and evidence not in (0, published)):
                return None
            done, recorded, newest, alive = yield Step("own_manifest", 0)
            listed = yield Step("listed", 0)
            _, published = yield Step("manifest", 0)
            declared = []
            for k in listed if done else ():
                if k > newest or (k == newest and alive and self.rules.looks_at_sessions):
                    continue  # it has started since, or is at work
                if k in (recorded, published):
                    continue
                if not self.rules.repair_declares or (yield Step("take_back", 0, k)) is Answer.OK:
                    declared.append(k)
            for k in declared:
                yield Step("delete_record", 0, k)
            for k in declared:
                yield Step("delete_parts", 0, k)
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
