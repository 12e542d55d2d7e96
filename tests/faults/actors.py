"""Actors: threads that stand for processes. A test moves each from one operation to the next, and can kill it.

An actor runs a real verb, with its own database session and sinks. Only one actor runs at a time. It can stop before
every statement, every change of the lake and every request to Kafka; inside a transaction only at a failpoint.

A kill has the effects of SIGKILL: the session is closed, so PostgreSQL releases its locks and rolls back its
transaction, and the lake refuses all changes that clean-up code tries while the exception propagates.
"""

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from typing import Any
from unittest import mock

from tidemark import failpoints
from tidemark.database.attempts import Attempts
from tidemark.database.client import ManifestDatabase
from tidemark.database.statements import Row
from tidemark.errors import TidemarkError, Unavailable, WorkFailed
from tidemark.model.receipt import Receipt
from tidemark.sinks.base import Fence, Mark, Record, Sink
from tidemark.storage.base import Move, ObjectStore

STUCK_S = 90.0  # longer than the 60 s for which a statement waits for a lock


class Killed(BaseException):
    """The process was killed. Only the actor catches it."""


class LostAnswer(Unavailable):
    """The operation succeeded, but its process does not learn it."""


class Fault(StrEnum):
    """The fault that hits an actor at one operation."""

    KILL = "kill -9 before it"
    CUT = "its database session is ended, the process goes on"  # from outside, while it is stopped
    FAIL = "the outside system fails before it"
    LOSE = "done, and the answer is lost"


class Life:
    """The life of a process, which its database and stores share: how far it may go, its next fault, and if it is
    dead."""

    def __init__(self) -> None:
        self.dead = False
        self.in_a_sink = False  # which may hold locks that others wait for
        self.at = "its begin"
        self.operations = 0
        self.to_failpoint = False
        self.budget: int | None = (
            None  # operations until the next stop; None: it stops only at failpoints and at its end
        )
        self.armed: tuple[Fault, int] | None = None
        self.hits: list[tuple[Fault, str]] = []
        self.turn = threading.Semaphore(0)
        self.stopped = threading.Semaphore(0)

    def before(self, what: str, *, may_stop: bool = True, failpoint: bool = False) -> Fault | None:
        """The actor calls it before each operation: it waits, raises ``Killed``, or returns the operation's fault."""
        self.check()
        self.operations += 1
        stop = failpoint and self.to_failpoint
        if self.budget is not None:
            self.budget -= 1
            stop = stop or (may_stop and self.budget <= 0)
        if stop and not self.in_a_sink:
            self.at = what
            self.park()
        fault = self._fault(what)
        if fault is Fault.KILL:
            self.dead = True
            raise Killed
        return fault

    def park(self) -> None:
        """Wait until the test lets the actor go on."""
        self.stopped.release()
        self.turn.acquire()
        self.check()

    def check(self) -> None:
        if self.dead:
            raise Killed

    def _fault(self, what: str) -> Fault | None:
        if self.armed is None:
            return None
        fault, left = self.armed
        self.armed = None if left <= 1 else (fault, left - 1)
        if left > 1:
            return None
        self.hits.append((fault, what))
        return fault


class MortalAttempts(Attempts):
    started: tuple[int, int] | None = None  # the manifest and the attempt of its work

    def start(self, manifest_id: int, fingerprint: str) -> int | None:
        attempt = super().start(manifest_id, fingerprint)
        self.started = None if attempt is None else (manifest_id, attempt)
        return attempt


class MortalDatabase(ManifestDatabase):
    """The database session of a process. Every statement is an operation."""

    def __init__(self, dsn: str, actor: str, life: Life) -> None:
        super().__init__(dsn, actor)
        self.life = life
        self._depth = 0
        self._lost_commit = False
        self.attempts: MortalAttempts = MortalAttempts(self)
        self.pid = self.session.info.backend_pid

    @property
    def in_transaction(self) -> bool:
        return self._depth > 0

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._depth += 1
        try:
            with super().transaction():
                yield
        finally:
            self._depth -= 1
            lost, self._lost_commit = self._lost_commit, self.in_transaction and self._lost_commit
        if lost and not self.in_transaction:
            self._lose("COMMIT")

    def rows(self, name: str, **values: object) -> list[Row]:
        try:
            fault = self.life.before(f"sql {name}", may_stop=not self.in_transaction)
        except Killed:
            self.close()
            raise
        if fault is Fault.FAIL:
            self.close()
        rows = super().rows(name, **values)
        if fault is Fault.LOSE and self.in_transaction:
            self._lost_commit = True
        elif fault is Fault.LOSE:
            self._lose(name)
        return rows

    def _lose(self, what: str) -> None:
        self.close()
        raise LostAnswer(f"the answer to {what} was lost", next_step="this is a fault of the test")


class MortalStore:
    """The store of one process. The methods below are operations, and a dead process changes nothing."""

    def __init__(self, store: ObjectStore, life: Life) -> None:
        self._store = store
        self._life = life

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put_if_absent(self, key: str, content: bytes) -> bool:
        return bool(self._change("put_if_absent", key, content))

    def put(self, key: str, content: bytes) -> None:
        self._change("put", key, content)

    def move(self, staged: str, key: str, size: int) -> None:
        self._change("move", staged, key, size)

    def move_each(self, moves: Iterable[Move], before: Callable[[], None], after: Callable[[], None]) -> None:
        for move in moves:  # one at a time, also in a bucket: only one thread of a process may run
            before()
            self.move(move.staged, move.key, move.size)
            after()

    def sync(self, keys: Iterable[str]) -> None:
        self._change("sync", keys)

    def stop_uploads(self, folder: str) -> None:
        self._change("stop_uploads", folder)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:  # one at a time: a process may die between two
            self._change("delete", [key])

    def delete_folder(self, key: str) -> None:
        self._change("delete_folder", key)

    def get(self, key: str) -> bytes | None:
        self._life.before(f"lake get {key}")
        return self._store.get(key)

    def names(self, folder: str, *, beginning: str = "", after: str = "") -> Iterator[str]:
        self._life.before(f"lake names {folder}")
        yield from self._store.names(folder, beginning=beginning, after=after)

    def list(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        self._life.before(f"lake list {prefix}")
        yield from self._store.list(prefix)

    def _change(self, name: str, *arguments: Any) -> object:
        fault = self._life.before(f"lake {name} {arguments[0]}")
        if fault is Fault.FAIL:
            raise Unavailable("the disk does not answer", next_step="this is a fault of the test")
        done: object = getattr(self._store, name)(*arguments)
        if fault is Fault.LOSE:
            raise LostAnswer(f"the answer to {name} was lost", next_step="this is a fault of the test")
        return done


OPERATIONS = {
    "ledger": ("claim", "owner", "position", "hand_over", "records", "recorded_attempt", "record"),
    "staging": ("manifests", "clear"),
    "output": ("prepare", "wait_for_lower", "has", "same", "discard"),
}


def make_mortal(sink: Sink, life: Life) -> None:
    """Make the calls of a sink that is no lake operations: what a process does inside of one ends before it stops.

    So no stopped process is inside a transaction of the target. A kill, a failure and a lost answer may be anywhere.
    """
    for face_name, names in OPERATIONS.items():
        face = getattr(sink, face_name)
        for name in names:
            setattr(face, name, _operation(f"{sink.name} {face_name} {name}", getattr(face, name), life))
    put = _operation(f"{sink.name} put", sink.output.put, life)

    def mortal_put(receipt: Receipt, record: Record, fence: Fence, mark: Mark) -> None:
        def mark_outside() -> None:
            life.in_a_sink = False
            mark()
            life.in_a_sink = True

        put(receipt, record, fence, mark_outside)

    setattr(sink.output, "put", mortal_put)  # noqa: B010 - a method of this sink alone


def _operation(what: str, call: Callable[..., Any], life: Life) -> Callable[..., Any]:
    def operation(*arguments: Any, **named: Any) -> Any:
        fault = life.before(what)
        if fault is Fault.FAIL:
            raise Unavailable(f"{what} was not answered", next_step="this is a fault of the test")
        before, life.in_a_sink = life.in_a_sink, True
        try:
            answer = call(*arguments, **named)
        finally:
            life.in_a_sink = before
        if fault is Fault.LOSE:
            raise LostAnswer(f"the answer to {what} was lost", next_step="this is a fault of the test")
        return answer

    return operation


class Actor(threading.Thread):
    """One process. It calls ``verb`` with itself, and starts at the first ``go``."""

    def __init__(self, name: str, verb: Callable[["Actor"], object], *, plans: bool = False) -> None:
        super().__init__(name=name, daemon=True)
        self.verb = verb
        self.plans = plans  # whether it takes the planning lock of the pipeline
        self.life = Life()
        self.database: MortalDatabase | None = None
        self.ended = False
        self.result: object = None
        self.error: TidemarkError | None = None
        self.defect: BaseException | None = None
        self.start()

    def run(self) -> None:
        self.life.turn.acquire()
        try:
            self.life.check()
            self.result = self.verb(self)
        except Killed:
            self.life.dead = True
        except TidemarkError as error:
            self.error = error
        except BaseException as defect:  # any other exception of a verb is a bug, and fails the test
            self.defect = defect
        finally:
            if self.database is not None:
                self.database.close()
            self.ended = True
            self.life.stopped.release()

    @property
    def at_work(self) -> tuple[int, int] | None:
        """The manifest and the attempt of its work, from the start of the attempt until it ends."""
        return None if self.ended or self.database is None else self.database.attempts.started

    @property
    def holds_lock(self) -> bool:
        """Whether it is inside a transaction, whose locks others would wait for."""
        return not self.ended and self.database is not None and self.database.in_transaction

    def go(self, *, to_failpoint: bool = False, operations: int | None = None) -> None:
        """Let it go to the next failpoint, for some operations, or to its end. Returns when it has stopped."""
        self.life.to_failpoint = to_failpoint
        self.life.budget = operations
        self._let_go()

    def kill(self) -> None:
        """Kill it where it has stopped."""
        self.life.dead = True
        self.life.hits.append((Fault.KILL, self.life.at))
        if self.database is not None:
            self.database.close()
        self._let_go()

    def _let_go(self) -> None:
        assert not self.ended, f"{self.name} has ended"
        self.life.turn.release()
        assert self.life.stopped.acquire(timeout=STUCK_S), f"{self.name} hangs after {self.life.at}"
        if self.defect is not None:
            raise self.defect


def notice(what: str) -> None:
    """Counts a question to an outside system as an operation, when an actor asks it."""
    actor = threading.current_thread()
    if isinstance(actor, Actor) and actor.life.before(what) in (Fault.FAIL, Fault.LOSE):
        raise Unavailable(f"no answer to {what}", next_step="this is a fault of the test")


def _failpoint(name: str) -> None:
    actor = threading.current_thread()
    if not isinstance(actor, Actor):
        return
    if actor.life.before(f"failpoint {name}", failpoint=True, may_stop=not actor.holds_lock):
        raise WorkFailed(f"failpoint {name} raised", next_step="this is a fault of the test")


@contextmanager
def actors_stop_at_failpoints() -> Iterator[None]:
    """While the block runs, failpoints of all our modules act on the actor that reaches them.

    This needs a patch: a real failpoint acts on the whole process, and all actors share this process.
    """
    real = failpoints.failpoint
    ours = [module for name, module in sys.modules.items() if name.startswith(("tidemark.", "tests."))]
    with ExitStack() as stack:
        for module in ours:
            if getattr(module, "failpoint", None) is real:
                stack.enter_context(mock.patch.object(module, "failpoint", _failpoint))
        yield
