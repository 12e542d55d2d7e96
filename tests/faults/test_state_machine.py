"""Thousands of schedules: hypothesis draws who does what next, who is paused, who is killed and what Kafka does.

Real verbs on a real PostgreSQL and real files, a model of the broker. ``Oracle.check`` holds after every step and
``Oracle.check_quiet`` in the end. The fast part always draws the same schedules; the exhaustive one draws new ones.
"""

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from sandbox.postgres import Postgres
from tests.faults.actors import Actor, Fault
from tests.faults.model_world import NAME, ModelWorld, Settings
from tests.faults.oracle import Oracle, Violated
from tests.faults.restoring import restored
from tests.faults.settling import settle
from tidemark.errors import IllegalTransition, LakeConflict, TidemarkError

LIVE = 4  # processes at the same time
PICK = st.integers(0, 7)
ARMED = st.sampled_from([Fault.KILL, Fault.KILL, Fault.FAIL, Fault.LOSE])
TOPIC = st.integers(0, 1)
OTHERS = st.integers(0, 1)


class Schedules(RuleBasedStateMachine):
    """One schedule; ``postgres`` and ``template`` are set by the test that runs it."""

    postgres: Postgres
    template: str
    reached: Counter[str] = Counter()

    world: ModelWorld
    oracle: Oracle

    @initialize(
        gaps=st.sampled_from(["transactions", "transactions", "none"]),
        loss=st.sampled_from(["fail", "fail", "record"]),
        start=st.sampled_from(["earliest", "earliest", "latest"]),
        records=st.integers(2, 8),
        before=st.integers(0, 6),
    )
    def begin(self, gaps: str, loss: str, start: str, records: int, before: int) -> None:
        chosen = Settings(gaps=gaps, on_data_loss=loss, starting_offsets=start, max_records=records)
        self.world = ModelWorld(self.postgres, self.template, chosen, self.reached)
        self.oracle = Oracle(self.world)
        self.keys: list[tuple[str, int | None]] = []
        self.restored = self.over = False
        self.reached["schedules"] += 1
        self.world.produce(before)

    # Kafka

    def _topic(self, topic: int) -> str:
        return self.world.topics[topic % len(self.world.topics)]

    @rule(
        topic=TOPIC, at=OTHERS, count=st.integers(1, 6), minutes=st.sampled_from([7, 7, 40, -90]), bad=st.booleans()
    )  # fmt: skip
    def produce(self, topic: int, at: int, count: int, minutes: int, bad: bool) -> None:
        self.world.produce(count, topic=self._topic(topic), partition=at, minutes=minutes, bad=bad)

    @rule(topic=TOPIC, at=OTHERS)
    def open_transaction(self, topic: int, at: int) -> None:
        self.world.begin(topic=self._topic(topic), partition=at)
        self.world.produce(2, topic=self._topic(topic), partition=at)

    @precondition(lambda self: self.world.open)
    @rule(topic=TOPIC, at=OTHERS, commit=st.booleans())
    def end_transaction(self, topic: int, at: int, commit: bool) -> None:
        self.world.end(topic=self._topic(topic), partition=at, commit=commit)

    @rule(topic=TOPIC, at=OTHERS, share=st.sampled_from([0.3, 0.7, 1.0]))
    def delete_records(self, topic: int, at: int, share: float) -> None:
        self.world.delete_records(share, topic=self._topic(topic), partition=at)

    @rule(topic=TOPIC, at=OTHERS, lost=st.integers(1, 8), again=st.integers(0, 3))
    def truncate(self, topic: int, at: int, lost: int, again: int) -> None:
        self.world.truncate(lost, topic=self._topic(topic), partition=at)
        self.world.produce(again, topic=self._topic(topic), partition=at)

    @rule(topic=TOPIC, partitions=st.integers(1, 2), records=st.sampled_from([0, 3, 30]))
    def recreate(self, topic: int, partitions: int, records: int) -> None:
        self.world.recreate(topic=self._topic(topic), partitions=partitions)
        self.world.produce(records, topic=self._topic(topic))

    @precondition(lambda self: len(self.world.broker.by_name["a"].logs) < 4)
    @rule()
    def add_partition(self) -> None:
        self.world.add_partition()

    @precondition(lambda self: len(self.world.topics) == 1)
    @rule()
    def add_topic(self) -> None:
        self.world.add_topic()

    @rule()
    def change_code(self) -> None:
        self.world.change_code()

    # processes begin

    def _room(self) -> bool:
        return len(self.world.actors) < LIVE and not self.over

    @precondition(_room)
    @rule(until=st.none() | st.integers(0, 60), again=st.booleans(), pick=PICK)
    def plan(self, until: int | None, again: bool, pick: int) -> None:
        if again and self.keys:
            key, _ = self.keys[pick % len(self.keys)]
            self.world.plan(key)
        else:
            actor = self.world.plan(until=until)
            self.keys.append((actor.name.split()[1], until))

    @precondition(lambda self: self._room() and self.oracle.manifests)
    @rule(pick=PICK, replay=st.booleans(), rival=st.booleans())
    def process(self, pick: int, replay: bool, rival: bool) -> None:
        busy = sorted({one.at_work[0] for one in self.world.actors if one.at_work})
        among = busy if rival and busy else sorted(self.oracle.manifests)
        self.world.process(among[-1 - pick % len(among)], replay=replay)

    @precondition(_room)
    @rule(which=st.sampled_from(["sweep", "repair"]))
    def clean(self, which: str) -> None:
        getattr(self.world, which)()

    @precondition(_room)
    @rule(which=st.sampled_from(["loss", "topic", "truncation"]), topic=TOPIC, at=OTHERS)
    def decide(self, which: str, topic: int, at: int) -> None:
        match which:
            case "loss":
                self.world.accept_loss()
            case "topic":
                self.world.accept_topic(self._topic(topic))
            case _:
                self.world.accept_truncation(self._topic(topic), at)

    @precondition(lambda self: self._room() and not any(one.holds_lock for one in self.world.actors))
    @rule()
    def run(self) -> None:
        """A whole run as a scheduler does it; planning must be refused exactly when there is a reason."""
        due = self.oracle.refusal_due()
        planner = self.world.plan()
        self.keys.append((planner.name.split()[1], None))
        self._end(planner)
        if bool(due) != bool(planner.error):
            raise Violated(f"I22 never silent: due was {due}, the plan said {planner.error!r}")
        if planner.error is None:
            for manifest in planner.result.manifests:  # type: ignore[attr-defined]
                self._end(self.world.process(manifest))

    # processes go on, or are hit

    def _movable(self) -> list[Actor]:
        return [one for one in self.world.actors if self.world.may_move(one)]

    def _picked(self, pick: int) -> Actor:
        movable = self._movable()
        return movable[pick % len(movable)]

    def _look(self, actor: Actor) -> None:
        error = actor.error
        if isinstance(error, LakeConflict):
            raise Violated(f"I22 no false alarm: {actor.name} said {error}")
        if isinstance(error, IllegalTransition) and "refused a change" in str(error):
            raise Violated(f"{actor.name} ran into a constraint: {error}")

    def _end(self, actor: Actor) -> TidemarkError | None:
        self.world.finish(actor)
        self._look(actor)
        return actor.error

    @precondition(lambda self: self._movable())
    @rule(pick=PICK, times=st.integers(1, 4))
    def step(self, pick: int, times: int) -> None:
        actor = self._picked(pick)
        for _ in range(times):
            if not actor.ended:
                self.world.step(actor)
        self._look(actor)

    @precondition(lambda self: self._movable())
    @rule(pick=PICK, operations=st.integers(1, 25))
    def operations(self, pick: int, operations: int) -> None:
        actor = self._picked(pick)
        self.world.step(actor, operations=operations)
        self._look(actor)

    @precondition(lambda self: self._movable())
    @rule(pick=PICK)
    def finish(self, pick: int) -> None:
        self._end(self._picked(pick))

    @precondition(lambda self: self.world.actors)
    @rule(pick=PICK)
    def kill(self, pick: int) -> None:
        self.world.kill(self.world.actors[pick % len(self.world.actors)])

    @precondition(lambda self: self._movable())
    @rule(pick=PICK, fault=ARMED, operations=st.integers(1, 60))
    def hit(self, pick: int, fault: Fault, operations: int) -> None:
        actor = self._picked(pick)
        self.world.hit(actor, fault, operations)
        self._look(actor)

    @precondition(lambda self: self.world.actors)
    @rule(pick=PICK)
    def cut(self, pick: int) -> None:
        self.world.cut(self.world.actors[pick % len(self.world.actors)])

    # the database is lost

    @precondition(lambda self: not self.world.actors and not self.over)
    @rule()
    def snapshot(self) -> None:
        self.world.snapshot()

    @precondition(lambda self: self.world.copy and not self.over)
    @rule(killed_at=st.none() | st.integers(1, 40))
    def restore(self, killed_at: int | None) -> None:
        self.restored = True
        self.over = not restored(self.world, self.oracle, killed_at)

    @invariant()
    def what_must_be_true(self) -> None:
        if hasattr(self, "oracle") and not self.over:
            self.oracle.check()

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            if not self.over:
                settle(self.world, self.oracle, wake=bool(self.world.runs % 2), restored=self.restored)
        finally:
            self.world.close()


class Always:
    """What a run of schedules came to."""


def run(examples: int, *, derandomize: bool, steps: int = 40) -> None:
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        derandomize=derandomize,
        database=None,
        deadline=None,
        print_blob=False,
        phases=[Phase.generate] if "NOSHRINK" in os.environ else list(Phase),
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(Schedules, settings=chosen)


@pytest.fixture
def schedules(postgres: Postgres, template: str) -> Iterator[Counter[str]]:
    Schedules.postgres, Schedules.template = postgres, template
    Schedules.reached = Counter()
    yield Schedules.reached


def test_fast(schedules: Counter[str]) -> None:
    began = time.monotonic()
    try:
        run(int(os.environ.get("EX", "20")), derandomize="RND" not in os.environ)
    finally:
        print(time.monotonic() - began, json.dumps(dict(sorted(schedules.items())), indent=0))
