"""What the manifest database and one target know about one manifest, and what every step changes in them.

A step is one statement (or one transaction) of the database, or one operation on the store. Attempts are numbered from
1. Each makes two objects, with keys of its own; its ``code`` decides its rows, so two attempts of equal code make equal
rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

PARTS = (0, 1)  # the objects of an attempt
ALL = 0b11  # a bit for each


class Kind(Enum):
    FOLDER = "folder"
    BUCKET = "bucket"  # the answer to a request may be lost; the request then takes effect now, later, or never
    TABLE = "table"  # rows and marker in one transaction of another database; the mark follows
    SHARED = "shared"  # a table in the manifest database: rows, marker and mark in one transaction


class Attempt(NamedTuple):
    code: int
    replay: bool
    state: str = "running"  # running, published, unchanged, failed, fenced
    receipt: bool = False
    taken_back: bool = False  # declared in the database: its output is removed, and never published
    session: bool = True  # its connection to the database, and with it its lock
    staged: bool = False
    parts: int = 0  # the objects under their keys
    record: bool = False


class World(NamedTuple):
    attempts: tuple[Attempt, ...] = ()
    state: str = "planned"  # planned, running, failed, done
    published: int = 0  # the attempt in the publication
    marked_by: int = 0  # the highest attempt that set the publication
    marker: int = 0  # tables: the attempt whose rows are there
    claimed: int = 0  # tables: the highest attempt that claimed the marker
    holder: int = 0  # tables: the attempt whose open transaction holds the marker's row
    late: tuple[tuple[str, int, int], ...] = ()  # requests without an answer that may still take effect

    @property
    def newest(self) -> int:
        return len(self.attempts)

    def of(self, n: int) -> Attempt:
        return self.attempts[n - 1]

    def with_attempt(self, n: int, **changes: object) -> "World":
        changed = self.attempts[n - 1]._replace(**changes)
        return self._replace(attempts=(*self.attempts[: n - 1], changed, *self.attempts[n:]))

    @property
    def highest_record(self) -> int:
        return max((n for n, attempt in enumerate(self.attempts, 1) if attempt.record), default=0)


class Step(NamedTuple):
    """``actor`` is the attempt that takes it, 0 for a sweep or repair; ``of`` the attempt that it is about."""

    name: str
    actor: int
    of: int = 0
    part: int = 0


class Fault(Enum):
    NONE = "no fault"
    ERROR = "a request that never arrives"
    LOST = "a lost answer"
    SESSION = "the session ends"


class Answer(Enum):
    OK = "ok"
    REFUSED = "refused"
    GONE = "the session has ended"  # raised
    ERROR = "the store failed"  # raised


Outcome = tuple[object, World, Fault]


@dataclass(frozen=True)
class Rules:
    """The protocol, and the ways to break it."""

    kind: Kind = Kind.FOLDER
    fence_receipt: bool = True
    fence_moves: str = "each"  # each, first, never
    fence_record: bool = True
    fence_mark: bool = True
    never_lower: bool = True  # the publication never goes to a lower attempt
    receipt_takes_back: bool = True  # storing a receipt declares the lower ones
    own_take_back: str = "unpublished"  # who may declare its own: "newest", "unpublished", "nobody"
    sweep_takes_back: bool = True
    mark_refuses_taken_back: bool = True
    ignore_declared: bool = False  # recover also what is declared
    recover_older: bool = False
    sweep_records: bool = True  # compare the highest record with the publication, also without staging
    remove: tuple[str, ...] = ("record", "parts", "staging")
    order: tuple[str, ...] = ("parts", "record", "mark")
    skip_equal: bool = True  # equal rows are not put again
    claim: bool = True  # tables: an attempt claims the marker before it looks
    marker_fenced: bool = True


class Steps:
    """All outcomes of a step, with the fault that each takes."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.bucket = rules.kind is Kind.BUCKET
        self.table = rules.kind in (Kind.TABLE, Kind.SHARED)

    def outcomes(self, world: World, step: Step) -> Iterator[Outcome]:
        name = step.name
        if name in DATABASE:
            yield from self._database(world, step)
        else:
            yield from getattr(self, name)(world, step)

    def _database(self, world: World, step: Step) -> Iterator[Outcome]:
        n = step.actor
        if n and not world.of(n).session:
            yield Answer.GONE, world, Fault.NONE
            return
        if n:
            yield Answer.GONE, without_session(world, n), Fault.SESSION
        for answer, after, fault in getattr(self, step.name)(world, step):
            yield answer, after, fault
            if n and after is not world and after != world:
                yield Answer.GONE, without_session(after, n), Fault.LOST

    # the database

    def manifest(self, world: World, step: Step) -> Iterator[Outcome]:
        yield (world.state, world.published), world, Fault.NONE

    def dead_manifest(self, world: World, step: Step) -> Iterator[Outcome]:
        """State, publication and number of a manifest that is done and not alive; else nothing."""
        alive = world.newest and world.of(world.newest).session
        dead = world.state == "done" and not alive
        yield ((world.published, world.newest) if dead else None), world, Fault.NONE

    def receipts(self, world: World, step: Step) -> Iterator[Outcome]:
        """(attempt, code, taken back) of receipts up to ``of``, newest first."""
        numbers = range(step.of, 0, -1)
        found = ((k, world.of(k)) for k in numbers)
        yield tuple((k, made.code, made.taken_back) for k, made in found if made.receipt), world, Fault.NONE

    def newest(self, world: World, step: Step) -> Iterator[Outcome]:
        yield world.newest == step.actor, world, Fault.NONE

    def store_receipt(self, world: World, step: Step) -> Iterator[Outcome]:
        n = step.actor
        if self.rules.fence_receipt and (world.newest != n or world.of(n).state != "running"):
            yield Answer.REFUSED, world, Fault.NONE
            return
        after = world.with_attempt(n, receipt=True)
        if self.rules.receipt_takes_back and not self.table:
            after = taken_back(after, n - 1)
        yield Answer.OK, after, Fault.NONE

    def take_back_own(self, world: World, step: Step) -> Iterator[Outcome]:
        n = step.actor
        may = {"newest": world.newest == n, "unpublished": True, "nobody": False}[self.rules.own_take_back]
        if world.of(n).taken_back:
            yield Answer.OK, world, Fault.NONE
        elif may and world.published != n:
            yield Answer.OK, world.with_attempt(n, taken_back=True), Fault.NONE
        else:
            yield Answer.REFUSED, world, Fault.NONE

    def take_back(self, world: World, step: Step) -> Iterator[Outcome]:
        """Declare all receipts up to ``of`` that are not published."""
        yield Answer.OK, taken_back(world, step.of), Fault.NONE

    def mark(self, world: World, step: Step) -> Iterator[Outcome]:
        """Publish ``of``; with ``part`` the manifest is done too."""
        n, visible = step.actor, step.of
        if self.rules.fence_mark and world.newest != n:
            yield Answer.REFUSED, world, Fault.NONE
        elif self.rules.never_lower and visible < world.published:
            yield Answer.REFUSED, world, Fault.NONE
        elif self.rules.mark_refuses_taken_back and world.of(visible).taken_back:
            yield Answer.REFUSED, world, Fault.NONE
        else:
            after = self._marked(world, n, visible)
            if step.part:
                state = "published" if visible == n else "unchanged"
                after = after._replace(state="done").with_attempt(n, state=state)
            yield Answer.OK, after, Fault.NONE

    def _marked(self, world: World, n: int, visible: int) -> World:
        after = world._replace(published=visible, marked_by=max(world.marked_by, n))
        if visible != n and world.of(n).receipt and not self.table and self.rules.receipt_takes_back:
            after = after.with_attempt(n, taken_back=True)
        return after

    def catch_up(self, world: World, step: Step) -> Iterator[Outcome]:
        """Publish the rows of a dead attempt ``of``, as long as ``part`` is the newest attempt."""
        if world.newest != step.part or step.of < world.published:
            yield Answer.REFUSED, world, Fault.NONE
        else:
            yield Answer.OK, self._marked(world, step.part, step.of), Fault.NONE

    def finish(self, world: World, step: Step) -> Iterator[Outcome]:
        n = step.actor
        if world.newest != n or world.state not in ("running", "done"):
            yield Answer.REFUSED, world, Fault.NONE
        else:
            yield Answer.OK, world._replace(state="done").with_attempt(n, state="unchanged"), Fault.NONE

    def superseded(self, world: World, step: Step) -> Iterator[Outcome]:
        """Whether an attempt above ended well."""
        newer = world.attempts[step.actor :]
        yield any(made.state in ("published", "unchanged") for made in newer), world, Fault.NONE

    def fail(self, world: World, step: Step) -> Iterator[Outcome]:
        n = step.actor
        after = world
        if world.newest == n and world.state == "running":
            after = after._replace(state="failed")
        if after.of(n).state == "running":
            after = after.with_attempt(n, state="failed")
        yield Answer.OK, after, Fault.NONE

    def own_state(self, world: World, step: Step) -> Iterator[Outcome]:
        yield world.of(step.actor).state in ("published", "unchanged"), world, Fault.NONE

    def release(self, world: World, step: Step) -> Iterator[Outcome]:
        yield Answer.OK, without_session(world, step.actor), Fault.NONE

    # the store

    def _asked(self, world: World, answer: object) -> Iterator[Outcome]:
        """A question to the store."""
        yield answer, world, Fault.NONE
        yield Answer.ERROR, world, Fault.ERROR

    def _put(self, world: World, after: World, late: tuple[str, int, int]) -> Iterator[Outcome]:
        """A PUT or COPY, looked up when its answer is lost."""
        yield Answer.OK, after, Fault.NONE
        yield Answer.ERROR, world, Fault.ERROR
        if self.bucket:
            yield Answer.ERROR, with_late(world, late), Fault.LOST

    def _delete(self, world: World, after: World, late: tuple[str, int, int]) -> Iterator[Outcome]:
        yield Answer.OK, after, Fault.NONE
        if world != after:
            yield Answer.ERROR, world, Fault.ERROR
            if self.bucket:
                yield Answer.ERROR, after, Fault.LOST
        if self.bucket:
            yield Answer.ERROR, with_late(world, late), Fault.LOST

    def stage(self, world: World, step: Step) -> Iterator[Outcome]:
        yield Answer.OK, world.with_attempt(step.actor, staged=True), Fault.NONE
        yield Answer.ERROR, world, Fault.ERROR

    def move(self, world: World, step: Step) -> Iterator[Outcome]:
        made = world.of(step.actor)
        bit = 1 << step.part
        if not made.staged and not made.parts & bit:
            yield Answer.ERROR, world, Fault.NONE
            return
        after = world.with_attempt(step.actor, parts=made.parts | bit)
        yield from self._put(world, after, ("put", step.actor, step.part))

    def put_record(self, world: World, step: Step) -> Iterator[Outcome]:
        yield from self._put(world, world.with_attempt(step.actor, record=True), ("record", step.actor, 0))

    def highest_record(self, world: World, step: Step) -> Iterator[Outcome]:
        highest = world.marker if self.table else world.highest_record
        yield from self._asked(world, highest)

    def has_record(self, world: World, step: Step) -> Iterator[Outcome]:
        there = world.marker == step.of if self.table else world.of(step.of).record
        yield from self._asked(world, there)

    def has_parts(self, world: World, step: Step) -> Iterator[Outcome]:
        yield from self._asked(world, self.table or world.of(step.of).parts == ALL)

    def staged_attempts(self, world: World, step: Step) -> Iterator[Outcome]:
        yield any(made.staged for made in world.attempts), world, Fault.NONE

    def listed(self, world: World, step: Step) -> Iterator[Outcome]:
        """The attempts that have objects or a record."""
        yield tuple(k for k, m in enumerate(world.attempts, 1) if m.parts or m.record), world, Fault.NONE

    def delete_record(self, world: World, step: Step) -> Iterator[Outcome]:
        yield from self._delete(world, world.with_attempt(step.of, record=False), ("no record", step.of, 0))

    def delete_part(self, world: World, step: Step) -> Iterator[Outcome]:
        parts = world.of(step.of).parts & ~(1 << step.part)
        yield from self._delete(world, world.with_attempt(step.of, parts=parts), ("delete", step.of, step.part))

    def delete_staging(self, world: World, step: Step) -> Iterator[Outcome]:
        yield Answer.OK, world.with_attempt(step.of, staged=False), Fault.NONE
        if world.of(step.of).staged:
            yield Answer.ERROR, world, Fault.ERROR

    # a table

    def claim(self, world: World, step: Step) -> Iterator[Outcome]:
        """Wait for the marker's row, then take it in an own short transaction."""
        if world.holder and world.holder != step.actor:
            return
        if step.actor < world.claimed:
            yield Answer.REFUSED, world, Fault.NONE
        else:
            yield Answer.OK, world._replace(claimed=step.actor), Fault.NONE
        yield Answer.ERROR, world, Fault.ERROR

    def take_marker(self, world: World, step: Step) -> Iterator[Outcome]:
        """Begin the merge: the row of the marker is locked until COMMIT, or until the connection ends."""
        n = step.actor
        if world.holder:
            return  # waits
        fenced = world.marker >= n or (self.rules.claim and world.claimed > n)
        if self.rules.marker_fenced and fenced:
            yield Answer.REFUSED, world, Fault.NONE
        elif not world.of(n).staged:
            yield Answer.ERROR, world, Fault.NONE
        else:
            yield Answer.OK, world._replace(holder=n), Fault.NONE
        yield Answer.ERROR, world, Fault.ERROR

    def rollback(self, world: World, step: Step) -> Iterator[Outcome]:
        free = world.holder == step.actor and not world.late  # a COMMIT without an answer keeps the row until its end
        yield Answer.OK, world._replace(holder=0) if free else world, Fault.NONE

    def commit(self, world: World, step: Step) -> Iterator[Outcome]:
        n = step.actor
        if world.holder != n:
            yield Answer.ERROR, world, Fault.NONE  # the idle transaction was ended
            return
        after = world._replace(holder=0, marker=n)
        yield Answer.OK, after, Fault.NONE
        yield Answer.ERROR, world._replace(holder=0), Fault.ERROR
        # the answer is lost, and the marker is not there yet: the server commits later, or never
        yield Answer.ERROR, with_late(world, ("commit", n, 0)), Fault.LOST

    def commit_and_mark(self, world: World, step: Step) -> Iterator[Outcome]:
        """The table is in the manifest database: one COMMIT."""
        n = step.actor
        if world.holder != n:
            yield Answer.GONE, world, Fault.NONE
        elif self.rules.fence_mark and world.newest != n:
            yield Answer.REFUSED, world._replace(holder=0), Fault.NONE
        else:
            after = self._marked(world, n, n)._replace(state="done", holder=0, marker=n)
            yield Answer.OK, after.with_attempt(n, state="published"), Fault.NONE


DATABASE = {
    "manifest", "dead_manifest", "receipts", "newest", "store_receipt", "take_back_own", "take_back", "mark", "finish",
    "superseded", "fail", "own_state", "release", "commit_and_mark", "catch_up",
}  # fmt: skip


def taken_back(world: World, up_to: int) -> World:
    attempts = tuple(
        made._replace(taken_back=True) if n <= up_to and made.receipt and n != world.published else made
        for n, made in enumerate(world.attempts, 1)
    )
    return world._replace(attempts=attempts)


def without_session(world: World, n: int) -> World:
    return world.with_attempt(n, session=False)


def with_late(world: World, late: tuple[str, int, int]) -> World:
    return world._replace(late=tuple(sorted({*world.late, late})))


def landed(world: World, late: tuple[str, int, int]) -> World:
    """The world when a request without an answer takes effect after all."""
    what, n, part = late
    made = world.of(n)
    world = world._replace(late=tuple(other for other in world.late if other != late))
    match what:
        case "put":
            return world.with_attempt(n, parts=made.parts | 1 << part)
        case "delete":
            return world.with_attempt(n, parts=made.parts & ~(1 << part))
        case "record" | "no record":
            return world.with_attempt(n, record=what == "record")
        case _:
            assert what == "commit"
            return world._replace(marker=n, holder=0)


def started(world: World, code: int, *, replay: bool) -> World:
    fenced = tuple(
        made._replace(state="fenced") if made.state == "running" else made for made in world.attempts
    )
    state = "done" if world.state == "done" else "running"
    return world._replace(attempts=(*fenced, Attempt(code, replay)), state=state)
