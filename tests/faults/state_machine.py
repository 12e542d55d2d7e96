"""Draws random schedules: which process acts next, is stopped or killed, and what happens in Kafka."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import assert_never

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sandbox.services.postgres import Postgres
from tests.faults.actors import Actor, Fault
from tests.faults.end_of_schedule import settle
from tests.faults.model_world import ModelWorld, ScheduleSettings
from tests.faults.oracle import Oracle, Violated
from tests.faults.other_sinks import OtherSinks
from tests.faults.restored_database import restored
from tests.faults.target_goes_back import gone_back, may_go_back
from tidemark.errors import IllegalTransition, LakeConflict
from tidemark.model.manifest import ManifestState

LIVE = 4  # processes at the same time
PICK = st.integers(0, 7)
TOPIC = st.integers(0, 1)
PARTITION = st.integers(0, 1)
OPERATIONS = st.integers(0, 25)
UNTIL = st.none() | st.integers(0, 60)  # minutes before the newest record
FAULTS = st.sampled_from(Fault)
QUESTIONS = st.sampled_from(  # and how often the plan asks it: ids of topics once more after their offsets
    [
        ("kafka bounds", 1),
        ("kafka offsets_at", 1),
        ("kafka partitions", 2),
        ("kafka records_from", 1),
        ("kafka open_transactions", 1),
        ("kafka open_transactions", 1),
    ]
)


class Happening(StrEnum):
    """An event caused by producers and administrators while the pipeline works."""

    RECORDS = "records"
    BAD = "undecodable records"
    LATE = "late records"
    BEGIN = "a transaction goes on"
    COMMIT = "a transaction is committed"
    ABORT = "a transaction is aborted"
    RETENTION = "retention"
    TRUNCATION = "truncation"
    RECREATION = "recreation"
    PARTITION = "another partition"
    TOPIC = "another topic"
    CODE = "other code"


class Verb(StrEnum):
    """A call by a user or a scheduler."""

    PROCESS = "process"
    REPLAY = "replay"
    RIVAL = "rival"
    OVERTAKE = "overtake"
    PLAN = "plan"
    AGAIN = "plan again"
    SWEEP = "sweep"
    REPAIR = "repair"
    ACCEPT = "accept"


class Move(StrEnum):
    """The kind of the next step."""

    SOURCE = "source"
    CALL = "call"
    STEP = "step"
    FINISH = "finish"
    STRIKE = "strike"
    RUN = "run"
    LOSE_DATABASE = "lose the database"
    BETWEEN = "between two questions of a plan"
    CUT_UNREAD = "a truncation is accepted while offsets are unread"
    GO_BACK = "a target goes back"


def _often(words: type[StrEnum], **times: int) -> list[StrEnum]:
    """Every word once, some of them more often."""
    return [word for word in words for _ in range(times.get(word.name, 1))]


# One rule draws all kinds: of many rules, hypothesis would leave out half in each schedule.
MOVES = st.sampled_from(_often(Move, SOURCE=6, CALL=8, STEP=12, FINISH=3, STRIKE=4, RUN=2, BETWEEN=3, GO_BACK=2))
SOURCES = st.sampled_from(_often(Happening, RECORDS=8, BEGIN=3, COMMIT=2, CODE=2))
VERBS = st.sampled_from(_often(Verb, PROCESS=4, REPLAY=3, RIVAL=4, OVERTAKE=2, PLAN=2))
BETWEEN = st.lists(
    st.sampled_from(_often(Happening, COMMIT=10, ABORT=4, RECORDS=4, RECREATION=6)), min_size=1, max_size=2
)


class Schedules(RuleBasedStateMachine):
    """One schedule. The test sets ``postgres``, ``template`` and ``reached``, and may add other sinks beside the
    lake."""

    postgres: Postgres
    template: str
    reached: Counter[str]
    second: str = ""
    other_sinks: OtherSinks | None = None

    @initialize(
        gaps=st.sampled_from(["transactions", "transactions", "none"]),
        loss=st.sampled_from(["fail", "fail", "record"]),
        start=st.sampled_from(["earliest", "earliest", "latest"]),
        records=st.integers(2, 8),
        before=st.integers(0, 9),
        expects=st.sampled_from([False, False, False, True]),
        defers=st.sampled_from([False, False, True]),
        second=st.sampled_from(["", "", "files"]),
    )
    def begin(
        self, gaps: str, loss: str, start: str, records: int, before: int, expects: bool, defers: bool, second: str
    ) -> None:
        expects = expects and not self.second  # over other sinks test_kills.py has rows that are not as expected
        chosen = ScheduleSettings(
            gaps, loss, start, records, expects=expects, defers=defers, second=self.second or second
        )
        self.world = ModelWorld(self.postgres, self.template, chosen, self.reached, other_sinks=self.other_sinks)
        self.oracle = Oracle(self.world)
        self.keys: list[str] = []
        self.restores = 0
        self.over = False
        self.world.produce(before)
        self._plan()

    @rule(data=st.data(), move=MOVES, pick=PICK)
    def go_on(self, data: st.DataObject, move: Move, pick: int) -> None:
        """Make the move; when no actor can move, a new one begins."""
        with self._noted():
            self._go_on(data, move, pick)

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """What fails first is told: the end of a schedule that has failed is not played."""
        try:
            yield
        except BaseException:
            self.over = True
            raise

    def _go_on(self, data: st.DataObject, move: Move, pick: int) -> None:
        movable = self._movable()
        if move in (Move.STEP, Move.FINISH, Move.STRIKE) and not movable:
            move = Move.CALL
        if move is Move.CALL and not self._room():
            move = Move.FINISH
        match move:
            case _ if self.over:
                return
            case Move.SOURCE:
                self._source(data.draw(SOURCES), data.draw(TOPIC), data.draw(PARTITION), data.draw(st.integers(1, 9)))
            case Move.CALL:
                self._call(data.draw(VERBS), pick, data.draw(UNTIL))
            case Move.STEP:
                self._step(movable[pick % len(movable)], data.draw(st.integers(1, 6)), data.draw(OPERATIONS))
            case Move.STRIKE:
                actor = movable[pick % len(movable)]
                self._strike(actor, data.draw(FAULTS), data.draw(st.integers(0, 6)), data.draw(OPERATIONS))
            case Move.RUN if not any(other.holds_lock for other in self.world.actors):
                self._run()
            case Move.LOSE_DATABASE if not self.restores:
                self._lose_database(data.draw(st.none() | st.integers(1, 40)))
            case Move.BETWEEN | Move.CUT_UNREAD | Move.GO_BACK if self._may(move):
                self._several(data, move, pick)
            case _ if movable:
                self._finish(movable[pick % len(movable)])
            case _:
                pass

    # several steps that belong together

    def _may(self, move: Move) -> bool:
        if move is Move.GO_BACK:
            return not self.restores and any(other.goes_back for other in self.world.others)
        return not any(actor.holds_lock for actor in self.world.actors)  # a planner would wait for it

    def _several(self, data: st.DataObject, move: Move, pick: int) -> None:
        match move:
            case Move.BETWEEN:
                until, question, happenings = data.draw(UNTIL), data.draw(QUESTIONS), data.draw(BETWEEN)
                where = (data.draw(TOPIC), data.draw(PARTITION), data.draw(st.integers(1, 9)))
                self._between(until, question, happenings, where)
            case Move.CUT_UNREAD:
                self._cut_unread(data.draw(TOPIC), data.draw(PARTITION), data.draw(st.integers(1, 9)), pick)
            case _:
                self._go_back(data.draw(st.integers(0, 255)), pick)

    def _between(
        self, until: int | None, question: tuple[str, int], happenings: list[Happening], where: tuple[int, int, int]
    ) -> None:
        """A plan is made, and before it asks the source one of its questions, something happens there."""
        topic, at, size = where
        if topic != at:
            self._source(Happening.BEGIN, topic, at, 0)
        planner = self._plan(until)
        if self.world.run_to_question(planner, *question):
            self.reached[f"a plan stood at {question[0]}"] += 1
            for which in happenings:
                self._source(which, topic, at, size)
                self.reached[f"between two questions of a plan: {which}"] += 1
                self.what_must_be_true()
        if not planner.ended and self.world.may_move(planner):
            self._finish(planner)

    def _cut_unread(self, topic: int, at: int, size: int, pick: int) -> None:
        """Slices wait when the log is cut among them, which a person accepts; then one of the last is tried first."""
        where = {"topic": self.world.topics[topic % len(self.world.topics)], "partition": at}
        self.world.produce(size + 5, **where)
        self._finish(self._plan())
        self.world.truncate(size, **where)
        self._finish(self._plan())
        if self.oracle.refused() is None:
            return
        accepted = self.world.accept_truncation(**where)
        self._finish(accepted)
        self.reached["a truncation was accepted with unread offsets"] += accepted.error is None
        self.world.produce(1 + size // 2, **where)
        self._finish(self._plan())
        self.what_must_be_true()
        waiting = [
            manifest.id for manifest in self.oracle.manifests.values() if manifest.state is ManifestState.PLANNED
        ]
        if waiting:
            self._finish(self.world.process(waiting[-1 - pick % 2 % len(waiting)]))

    def _go_back(self, which: int, pick: int) -> None:
        """All is published and some of it replayed with other code after a copy of the target was taken; then that,
        or a part of it, comes back."""
        for actor in list(self._movable()):
            self._finish(actor)
        if self.world.actors or self.oracle.refusal_due() or not may_go_back(self.world):
            return
        for other in self.world.others:
            if other.goes_back:
                other.remember()
        if pick % 2:
            self.world.produce(4)
            self._run()
        self.world.change_code()
        done = [manifest.id for manifest in self.oracle.manifests.values() if manifest.state is ManifestState.DONE]
        for manifest in done[: pick // 2]:
            self._finish(self.world.process(manifest, replay=True))
        if pick > 3:
            self.world.change_code()
        self.what_must_be_true()
        if may_go_back(self.world):
            gone_back(self.world, self.oracle, which)

    # the source

    def _source(self, which: Happening, topic: int, at: int, size: int) -> None:
        name = self.world.topics[topic % len(self.world.topics)]
        where = {"topic": name, "partition": at}
        self.reached[f"source: {which}"] += 1
        match which:
            case Happening.RECORDS:
                self.world.produce(size, **where)
            case Happening.BAD:
                self.world.produce(1 + size // 4, bad=True, **where)
            case Happening.LATE:
                self.world.produce(1 + size // 4, minutes=-90, **where)
            case Happening.BEGIN:
                self.world.begin(**where)
                self.world.produce(2, **where)
            case Happening.COMMIT | Happening.ABORT:
                self.world.end(commit=which is Happening.COMMIT, **where)
            case Happening.RETENTION:
                self.world.delete_records(size / 9, **where)
            case Happening.TRUNCATION:
                self.world.truncate(size, **where)
                self.world.produce(size if at else 0, **where)  # also to its old length
            case Happening.RECREATION:
                self.world.recreate(topic=name, partitions=1 + size % 2)
                self.world.produce(size * 3 if at else 0, topic=name)
            case Happening.PARTITION:
                self.world.add_partition()
            case Happening.TOPIC:
                self.world.add_topic()
            case Happening.CODE:
                self.world.change_code()
            case other:
                assert_never(other)

    # processes begin

    def _room(self) -> bool:
        return len(self.world.actors) < LIVE and not self.over

    def _plan(self, until: int | None = None) -> Actor:
        actor = self.world.plan(until=until)
        self.keys.append(actor.name.split()[1])
        return actor

    def _call(self, which: Verb, pick: int, until: int | None) -> None:
        """A process begins. An attempt goes to its first failpoint, where it has its number."""
        todo = [manifest.id for manifest in self.oracle.manifests.values() if manifest.state is not ManifestState.DONE]
        done = [manifest.id for manifest in self.oracle.manifests.values() if manifest.state is ManifestState.DONE]
        busy = sorted({actor.at_work[0] for actor in self.world.actors if actor.at_work})
        match which:
            case Verb.PLAN | Verb.ACCEPT if self.oracle.refused():
                self._accept(pick)
            case Verb.RIVAL if busy:
                self._step(self.world.process(busy[pick % len(busy)], replay=pick % 2 == 0), 1, 0)
            case Verb.OVERTAKE if busy:
                self._finish(self.world.process(busy[pick % len(busy)], replay=pick % 2 == 0))
            case Verb.REPLAY if done:
                self._step(self.world.process(done[pick % len(done)], replay=True), 1, 0)
            case Verb.PROCESS | Verb.RIVAL | Verb.OVERTAKE if todo:
                manifest = todo[pick % len(todo)]
                again = manifest in self._blocked()
                self._step(self.world.retry(manifest) if again else self.world.process(manifest), 1, 0)
            case Verb.SWEEP:
                self.world.sweep()
            case Verb.REPAIR:
                self.world.repair()
            case Verb.ACCEPT:
                self._accept(pick)
            case Verb.AGAIN:
                self.world.plan(self.keys[pick % len(self.keys)])
            case _:
                self._plan(until)

    def _blocked(self) -> list[int]:
        manifests = self.oracle.manifests.values()
        return [manifest.id for manifest in manifests if manifest.state is ManifestState.BLOCKED]

    def _accept(self, pick: int) -> None:
        """The decision that the current refusal asks for, or a blocked manifest."""
        blocked = self._blocked()
        match self.oracle.refused():
            case None if blocked and self.world.pipeline().expect:
                self.world.accept_expectation(blocked[pick % len(blocked)])
            case None:
                self.world.accept_loss()
            case topic, _, None:
                self.world.accept_topic(topic)
            case topic, partition, _:
                self.world.accept_truncation(topic, partition)

    def _run(self) -> None:
        """A whole run, as a scheduler does it. Planning must be refused exactly when there is a reason."""
        due = self.oracle.refusal_due()
        planner = self._plan()
        self._finish(planner)
        if bool(due) != bool(planner.error):
            raise Violated(f"I22 never silent: due was {due}, the plan said {planner.error!r}")
        for manifest in getattr(planner.result, "manifests", ()):
            self._finish(self.world.process(manifest))

    # processes go on, or are hit

    def _movable(self) -> list[Actor]:
        return [actor for actor in self.world.actors if self.world.may_move(actor)]

    def _finish(self, actor: Actor) -> None:
        self.world.finish(actor)
        self._hear(actor)

    def _hear(self, actor: Actor) -> None:
        """Fail at errors that no process may raise here."""
        if isinstance(actor.error, LakeConflict):
            raise Violated(f"I22 no false alarm: {actor.name} said {actor.error}")
        if isinstance(actor.error, IllegalTransition) and "refused a change" in str(actor.error):
            raise Violated(f"{actor.name} ran into a constraint: {actor.error}")

    def _step(self, actor: Actor, failpoints: int, operations: int) -> None:
        """Let the actor go on for some failpoints, and then for some operations."""
        for _ in range(failpoints):
            if not actor.ended:
                self.world.step(actor)
        if operations and not actor.ended and self.world.may_move(actor):
            self.world.step(actor, operations=operations)
        self._hear(actor)

    def _strike(self, actor: Actor, fault: Fault, failpoints: int, operations: int) -> None:
        """Let the actor go on for some failpoints; then a fault hits it there, or at one of its next operations."""
        self._step(actor, failpoints, 0)
        if actor.ended:
            return
        if fault is Fault.CUT:
            self.world.cut(actor)
        elif fault is Fault.KILL and not operations:
            self.world.kill(actor)
        else:
            self.world.hit(actor, fault, max(1, operations))
        self._hear(actor)

    # the database is lost

    def _lose_database(self, killed_at: int | None) -> None:
        """The first time copy the database, the second time restore the copy; no actor is at work then."""
        if self.world.copy is None:
            for actor in list(self._movable()):
                self._finish(actor)
            self.world.snapshot()
        elif len(self.oracle.manifests) > 2:
            self.restores += 1
            self.over = not restored(self.world, self.oracle, killed_at)

    @invariant()
    def what_must_be_true(self) -> None:
        if hasattr(self, "oracle") and not self.over:
            with self._noted():
                self.oracle.check()

    def teardown(self) -> None:
        if not hasattr(self, "oracle"):
            return
        try:
            if not self.over:
                settle(self.world, self.oracle, wake=bool(self.world.runs % 2), restored=self.restores > 0)
        finally:
            self.world.close()
