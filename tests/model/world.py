"""What the manifest database and one target know about one manifest, and what every step changes in them.

A step is one statement (or one transaction) of the database, or one operation on the store. Attempts are numbered from
1. Each makes two objects, with keys of its own; its ``code`` decides its rows, so two attempts of equal code make equal
rows.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

PARTS = (0, 1)  # the objects of an attempt
ALL = 0b11  # a bit for each
ENDED_WELL = ("published", "unchanged")


class Kind(Enum):
    FOLDER = "folder"  # a request may fail although it was done, as a file system in the network does it
    BUCKET = "bucket"  # the answer to a request may be lost; the request then takes effect now, later, or never
    TABLE = "table"  # rows and marker in one transaction of another database; the mark follows
    SHARED = "shared"  # a table in the manifest database: rows, marker and mark in one transaction

    @property
    def is_table(self) -> bool:
        return self in (Kind.TABLE, Kind.SHARED)


class Late(NamedTuple):
    """A request without an answer, which may still take effect."""

    what: str
    attempt: int
    part: int = 0


class Attempt(NamedTuple):
    code: int
    replay: bool
    state: str = "running"  # running, published, unchanged, failed, blocked, fenced
    receipt: bool = False
    taken_back: bool = False  # declared in the database: its output may be removed, and is never published
    session: bool = True  # its connection to the database, and with it its lock
    staged: bool = False
    parts: int = 0  # the objects under their keys
    record: bool = False


class World(NamedTuple):
    attempts: tuple[Attempt, ...] = ()
    state: str = "planned"  # planned, running, failed, blocked, done
    published: int = 0  # the attempt in the publication
    settled: int = 0  # the highest attempt that set the publication itself
    marker: int = 0  # tables: the attempt whose rows are there
    holder: int = 0  # tables: the attempt whose open transaction has the lock of the manifest
    late: tuple[Late, ...] = ()
    accepted: bool = False  # a person lets rows be published that do not meet an expectation

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
    NONE = ""
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
    fence_mark: bool = True
    order: tuple[str, ...] = ("parts", "record", "mark")
    declares: bool = True  # what is removed is declared as taken back first
    declares_tables: bool = False  # storing a receipt declares lower rows of a table too
    take_back_published: bool = False
    mark_taken_back: bool = False
    believes_declared: bool = False  # the verdict does not look at what was taken back
    believes_partial: bool = False  # the verdict does not look at the objects
    gives_up_unasked: bool = False  # also without the database an attempt removes what it had put
    compares_records: bool = True  # a sweep compares the highest record with the publication, also without staging
    waits: bool = True  # tables: an attempt waits for the merges of lower attempts before it looks
    fence_commit: bool = True  # tables: the merge asks the fence before COMMIT
    looks_at_sessions: bool = True  # a repair asks whether the newest attempt lives
    repair_declares: bool = True  # a repair declares what it removes
    expects: bool = False  # the rows of code 0 do not meet an expectation, which other code does not have
    blocks: bool = True  # what does not meet an expectation is not published


class Steps:
    """All outcomes of a step, with the fault that each takes."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.bucket = rules.kind is Kind.BUCKET
        self.table = rules.kind.is_table

    def outcomes(self, world: World, step: Step) -> Iterator[Outcome]:
        """Nothing when the step has to wait."""
        if step.name in DATABASE:
            yield from self._database(world, step)
        else:
            taken: Callable[[World, Step], Iterator[Outcome]] = getattr(self, step.name)
            yield from taken(world, step)

    def _database(self, world: World, step: Step) -> Iterator[Outcome]:
        n = step.actor
        if n and not world.of(n).session:
            yield Answer.GONE, world, Fault.NONE
            return
        yield Answer.GONE, without_session(world, n), Fault.SESSION
        if n and step.name in INTERRUPTED:
            yield Answer.ERROR, world, Fault.ERROR
        for answer, after in getattr(self, step.name)(world, step):
            yield answer, after, Fault.NONE
            if after != world:
                yield Answer.GONE, without_session(after, n), Fault.LOST

    # the database

    def manifest(self, world: World, step: Step) -> Iterator[tuple[object, World]]:
        yield (world.state == "done", world.published), world

    def dead_manifest(self, world: World, step: Step) -> Iterator[tuple[object, World]]:
        """The publication and the number of a manifest that is done and not alive; else None."""
        alive = world.newest and world.of(world.newest).session
        yield ((world.published, world.newest) if world.state == "done" and not alive else None), world

    def own_manifest(self, world: World, step: Step) -> Iterator[tuple[object, World]]:
        alive = bool(world.newest and world.of(world.newest).session)
        yield (world.state == "done", world.published, world.newest, alive), world

    def receipts(self, world: World, step: Step) -> Iterator[tuple[object, World]]:
        """(attempt, code, taken back) of all receipts, newest first."""
        made = [(k, world.of(k)) for k in range(world.newest, 0, -1)]
        yield tuple((k, attempt.code, attempt.taken_back) for k, attempt in made if attempt.receipt), world

    def newest(self, world: World, step: Step) -> Iterator[tuple[object, World]]:
        """Whether the attempt ``of`` is the newest."""
        yield world.newest == step.of, world

    def may_put(self, world: World, step: Step) -> Iterator[tuple[object, World]]:
        n = step.actor
        yield world.newest == n and not world.of(n).taken_back, world

    def store_receipt(self, world: World, step: Step) -> Iterator[tuple[object, World]]:
        n = step.actor
        if world.newest != n or world.of(n).state != "running":
            yield Answer.REFUSED, world
            return
        after = world.with_attempt(n, receipt=True)
        if self.rules.declares and (self.rules.declares_tables or not self.table):
            after = taken_back(after, n - 1)
        yield Answer.OK, after

    def take_back(self, world: World, step: Step) -> Iterator[tuple[object, World]]:
        if world.published == step.of and not self.rules.take_back_published:
            yield Answer.REFUSED, world
        else:
            yield Answer.OK, world.with_attempt(step.of, taken_back=self.rules.declares)

    def mark(self, world: World, step: Step) -> Iterator[tuple[object, World]]:
        """Publish ``of`` in the name of attempt ``part``; when an attempt publishes its own, the manifest is done."""
        if self._mark_refused(world, step.of, step.part):
            yield Answer.REFUSED, world
        else:
            yield Answer.OK, self._marked(world, step.of, step.actor)

    def mark_and_end(self, world: World, step: Step) -> Iterator[tuple[object, World]]:
        """Publish ``of``; with it the attempt ends well, and the manifest is done."""
        n = step.actor
        if self._mark_refused(world, step.of, n):
            yield Answer.REFUSED, world
        else:
            state = "published" if step.of == n else "unchanged"
            yield Answer.OK, self._marked(world, step.of, n)._replace(state="done").with_attempt(n, state=state)

    def _mark_refused(self, world: World, visible: int, n: int) -> bool:
        if self.rules.fence_mark and world.newest != n:
            return True
        return visible < world.published or (world.of(visible).taken_back and not self.rules.mark_taken_back)

    def _marked(self, world: World, visible: int, n: int) -> World:
        return world._replace(published=visible, settled=max(world.settled, n))

    def finish(self, world: World, step: Step) -> Iterator[tuple[object, World]]:
        n = step.actor
        if world.newest != n or world.state not in ("running", "done") or not world.published:
            yield Answer.REFUSED, world
        else:
            yield Answer.OK, world._replace(state="done").with_attempt(n, state="unchanged")

    def superseded(self, world: World, step: Step) -> Iterator[tuple[object, World]]:
        """Whether an attempt above has ended well."""
        yield any(made.state in ENDED_WELL for made in world.attempts[step.actor :]), world

    def fail(self, world: World, step: Step) -> Iterator[tuple[object, World]]:
        n = step.actor
        after = world
        if world.newest == n and world.state == "running":
            after = after._replace(state="failed")
        if after.of(n).state == "running":
            after = after.with_attempt(n, state="failed")
        yield Answer.OK, after

    def accepted(self, world: World, step: Step) -> Iterator[tuple[object, World]]:
        yield world.accepted, world

    def block(self, world: World, step: Step) -> Iterator[tuple[object, World]]:
        """A manifest that is done stays done."""
        n = step.actor
        after = world.with_attempt(n, state="blocked") if world.of(n).state == "running" else world
        if world.newest == n and world.state == "running":
            after = after._replace(state="blocked")
        yield Answer.OK, after

    def own_state(self, world: World, step: Step) -> Iterator[tuple[object, World]]:
        yield world.of(step.actor).state in ENDED_WELL, world

    def release(self, world: World, step: Step) -> Iterator[tuple[object, World]]:
        yield Answer.OK, without_session(world, step.actor)

    # the store

    def _asked(self, world: World, answer: object) -> Iterator[Outcome]:
        """A question to the store."""
        yield answer, world, Fault.NONE
        yield Answer.ERROR, world, Fault.ERROR

    def _put(self, world: World, after: World, late: Late) -> Iterator[Outcome]:
        """A PUT or COPY; ``OK`` also when the store has found it after a lost answer."""
        yield Answer.OK, after, Fault.NONE
        yield Answer.ERROR, world, Fault.ERROR
        yield from self._unanswered(world, after, late)

    def _delete(self, world: World, after: World, late: Late) -> Iterator[Outcome]:
        yield Answer.OK, after, Fault.NONE
        yield Answer.ERROR, world, Fault.ERROR
        yield from self._unanswered(world, after, late)

    def _unanswered(self, world: World, after: World, late: Late) -> Iterator[Outcome]:
        """Done, and its answer lost; a bucket does it now, later or never."""
        if self.bucket:
            yield Answer.ERROR, with_late(world, late), Fault.LOST
        elif after != world:
            yield Answer.ERROR, after, Fault.LOST

    def stage(self, world: World, step: Step) -> Iterator[Outcome]:
        yield Answer.OK, world.with_attempt(step.actor, staged=True), Fault.NONE
        yield Answer.ERROR, world, Fault.ERROR
        yield Answer.ERROR, world.with_attempt(step.actor, staged=True), Fault.ERROR

    def move(self, world: World, step: Step) -> Iterator[Outcome]:
        made = world.of(step.actor)
        bit = 1 << step.part
        if not made.staged and not made.parts & bit:
            yield Answer.ERROR, world, Fault.NONE
            return
        after = world.with_attempt(step.actor, parts=made.parts | bit)
        yield from self._put(world, after, Late("put", step.actor, step.part))

    def put_record(self, world: World, step: Step) -> Iterator[Outcome]:
        yield from self._put(world, world.with_attempt(step.actor, record=True), Late("record", step.actor))

    def evidence(self, world: World, step: Step) -> Iterator[Outcome]:
        """The highest attempt with a record, or that of the marker; 0 when there is none."""
        yield from self._asked(world, world.marker if self.table else world.highest_record)

    def has_record(self, world: World, step: Step) -> Iterator[Outcome]:
        yield from self._asked(world, world.marker == step.of if self.table else world.of(step.of).record)

    def has_parts(self, world: World, step: Step) -> Iterator[Outcome]:
        yield from self._asked(world, self.table or world.of(step.of).parts == ALL)

    def staged_manifests(self, world: World, step: Step) -> Iterator[Outcome]:
        yield from self._asked(world, any(made.staged for made in world.attempts))

    def listed(self, world: World, step: Step) -> Iterator[Outcome]:
        """The attempts that have objects or a record."""
        yield from self._asked(world, tuple(k for k, m in enumerate(world.attempts, 1) if m.parts or m.record))

    def delete_record(self, world: World, step: Step) -> Iterator[Outcome]:
        yield from self._delete(world, world.with_attempt(step.of, record=False), Late("no record", step.of))

    def delete_parts(self, world: World, step: Step) -> Iterator[Outcome]:
        """The first object, then the second."""
        yield from self._delete(world, world.with_attempt(step.of, parts=0), Late("no parts", step.of))
        if world.of(step.of).parts == ALL:
            yield Answer.ERROR, world.with_attempt(step.of, parts=ALL & ~1), Fault.LOST

    def delete_staging(self, world: World, step: Step) -> Iterator[Outcome]:
        """Of the attempts from ``of`` to ``part``, one after the other; that of an open merge may be in use, and stays
        then."""
        yield Answer.ERROR, world, Fault.ERROR
        after = world
        for k in range(step.of, step.part + 1):
            if world.of(k).staged:
                if after != world:
                    yield Answer.ERROR, after, Fault.ERROR
                after = after.with_attempt(k, staged=False)
                yield Answer.ERROR, after, Fault.LOST
        yield Answer.OK, after, Fault.NONE
        if step.of <= world.holder <= step.part and world.of(world.holder).staged:
            yield Answer.OK, after.with_attempt(world.holder, staged=True), Fault.NONE

    # a table

    def wait_for_lower(self, world: World, step: Step) -> Iterator[Outcome]:
        """Wait until no merge has the lock of the manifest."""
        if not world.holder or not self.rules.waits:
            yield from self._asked(world, Answer.OK)

    def take_marker(self, world: World, step: Step) -> Iterator[Outcome]:
        """Begin the merge: the lock of the manifest is held until COMMIT, or until the connection ends."""
        n = step.actor
        if world.holder:
            return
        if world.marker > n:
            yield Answer.REFUSED, world, Fault.NONE
        elif not world.of(n).staged:
            yield Answer.ERROR, world, Fault.NONE
        else:
            yield Answer.OK, world._replace(holder=n), Fault.NONE
            yield Answer.ERROR, world, Fault.ERROR

    def rollback(self, world: World, step: Step) -> Iterator[Outcome]:
        """A COMMIT without an answer keeps the lock until its end."""
        free = world.holder == step.actor and not world.late
        yield Answer.OK, world._replace(holder=0) if free else world, Fault.NONE

    def commit(self, world: World, step: Step) -> Iterator[Outcome]:
        n = step.actor
        if world.holder != n:
            yield Answer.ERROR, world, Fault.NONE  # the idle transaction was ended
            return
        yield Answer.OK, world._replace(holder=0, marker=n), Fault.NONE
        yield Answer.ERROR, world._replace(holder=0), Fault.ERROR
        # the answer is lost: the server has committed when the marker is looked for, or commits later, or never
        yield Answer.ERROR, with_late(world, Late("commit", n)), Fault.LOST

    def commit_and_mark(self, world: World, step: Step) -> Iterator[tuple[object, World]]:
        """The table is in the manifest database: one COMMIT."""
        n = step.actor
        if world.holder != n or self._mark_refused(world, n, n):
            yield Answer.REFUSED, world._replace(holder=0) if world.holder == n else world
        else:
            after = self._marked(world, n, n)._replace(state="done", holder=0, marker=n)
            yield Answer.OK, after.with_attempt(n, state="published")


DATABASE = frozenset(
    {
        "manifest", "dead_manifest", "own_manifest", "receipts", "newest", "may_put", "store_receipt", "take_back",
        "mark", "mark_and_end", "finish", "superseded", "fail", "own_state", "release", "commit_and_mark", "accepted",
        "block",
    }
)  # fmt: skip

# Here an attempt may fail by itself, or be asked to stop: at its receipt, between objects, before and after its mark.
INTERRUPTED = frozenset({"store_receipt", "may_put", "mark_and_end", "manifest"})


def taken_back(world: World, up_to: int) -> World:
    attempts = tuple(
        made._replace(taken_back=True) if n <= up_to and made.receipt and n != world.published else made
        for n, made in enumerate(world.attempts, 1)
    )
    return world._replace(attempts=attempts)


def without_session(world: World, n: int) -> World:
    """Nobody asks for the session of a sweep or repair."""
    return world.with_attempt(n, session=False) if n else world


def with_late(world: World, late: Late) -> World:
    return world._replace(late=tuple(sorted({*world.late, late})))


def landed(world: World, late: Late) -> World:
    """The world when a request without an answer takes effect after all."""
    made = world.of(late.attempt)
    world = world._replace(late=tuple(other for other in world.late if other != late))
    match late.what:
        case "put":
            return world.with_attempt(late.attempt, parts=made.parts | 1 << late.part)
        case "no parts":
            return world.with_attempt(late.attempt, parts=0)
        case "record" | "no record":
            return world.with_attempt(late.attempt, record=late.what == "record")
        case _:
            assert late.what == "commit"
            return world._replace(marker=late.attempt, holder=0)


def rolled_back(world: World, kind: Kind) -> World:
    """The world when the server ends the open merge, with its COMMIT if that has no answer yet."""
    after = world._replace(holder=0, late=tuple(late for late in world.late if late.what != "commit"))
    return without_session(after, world.holder) if kind is Kind.SHARED else after


def without_sessions(world: World, n: int, kind: Kind) -> World:
    """The world when attempt ``n`` has lost its session."""
    shared = kind is Kind.SHARED and world.holder == n
    return without_session(world._replace(holder=0) if shared else world, n)


def started(world: World, code: int, *, replay: bool) -> World:
    fenced = tuple(made._replace(state="fenced") if made.state == "running" else made for made in world.attempts)
    state = "done" if world.state == "done" else "running"
    return world._replace(attempts=(*fenced, Attempt(code, replay)), state=state)
