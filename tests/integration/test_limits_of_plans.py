"""Schedule 15: plans at their limits. A cut that has not come, a topic that has left, more slices than a run may have.

Real PostgreSQL and real files; the broker is the model of ``tests/faults``.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from unittest import mock

import pytest

from sandbox.services.postgres import Postgres
from tests.faults.model_world import WHY, ModelWorld, ScheduleSettings
from tidemark.errors import DataLost, NotFound, TopicChanged
from tidemark.lifecycle import attempt
from tidemark.lifecycle import plan as planning
from tidemark.lifecycle.plan import Tick, plan
from tidemark.model.manifest import ManifestState, RunKind
from tidemark.operations import decisions
from tidemark.operations.complete import completeness


@pytest.fixture
def world(postgres: Postgres, template: str) -> Iterator[ModelWorld]:
    settings = ScheduleSettings(partitions=2, max_records=10, max_slices=3, starting_offsets="latest")
    with contextlib.closing(ModelWorld(postgres, template, settings, Counter())) as made:
        yield made


def now_by_hand(key: str) -> Tick:
    return Tick(key, RunKind.MANUAL, None)


def test_a_cut_that_has_not_come_is_waited_for_and_what_comes_until_then_is_read(
    world: ModelWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = world.onlooker()
    plan(context, now_by_hand("anchors"))
    cut = datetime.now(UTC) + timedelta(seconds=3)
    waits: list[float] = []

    def wait(seconds: float) -> None:
        if not waits:
            world.broker.produce(world.log("a", 0), datetime.now(UTC))
        waits.append(seconds)
        time.sleep(seconds)

    monkeypatch.setattr(planning, "time", mock.Mock(sleep=wait))
    run = plan(context, Tick.by_hand(cut, None))
    assert datetime.now(UTC) >= cut
    assert (run.reached, [covered.end for part in run.slices for covered in part]) == (True, [1])
    assert completeness(context, cut).run_key == run.run_key


@pytest.mark.parametrize("created_again", [False, True])
def test_a_planned_topic_that_left_the_file_and_the_source_is_given_up_by_a_person(
    world: ModelWorld, created_again: bool
) -> None:
    plan(world.onlooker(), now_by_hand("anchors"))
    world.add_topic()
    world.produce(4, topic="b")
    [planned] = plan(world.onlooker(), now_by_hand("one")).manifests
    world.topics = ["a"]
    del world.broker.by_name["b"]
    if created_again:
        world.broker.create("b", 1)
    context = world.onlooker()
    assert plan(context, now_by_hand("two")).manifests == (), "no plan looks at the topic any more"
    with pytest.raises(TopicChanged, match="was recreated" if created_again else "topic b no longer exists") as refused:
        attempt.process(context, planned, world.stage)
    assert "tidemark accept topic demo --topic b --why TEXT, then tidemark retry demo" in refused.value.next_step
    decided = decisions.accept_topic(context, "b", WHY, dry_run=False)
    assert decided.lines[0] == "b-0: planned and unread offsets [0, 4) are lost"
    attempt.process(context, planned, world.stage)
    assert context.database.manifests.get(planned).state is ManifestState.DONE
    with pytest.raises(NotFound, match="no plan of topic b was refused"):
        decisions.accept_topic(context, "b", WHY, dry_run=False)
    with pytest.raises(NotFound):
        decisions.accept_topic(context, "a", WHY, dry_run=False)


def test_what_retention_took_of_a_planned_topic_that_left_the_file_is_given_up_by_a_person(world: ModelWorld) -> None:
    plan(world.onlooker(), now_by_hand("anchors"))
    world.add_topic()
    world.produce(4, topic="b")
    [planned] = plan(world.onlooker(), now_by_hand("one")).manifests
    world.topics = ["a"]
    world.produce(5, topic="b")
    world.log("b", 0).start = 6
    context = world.onlooker()
    with pytest.raises(DataLost, match=r"took offsets \[0, 4\) of b-0") as refused:
        attempt.process(context, planned, world.stage)
    assert "tidemark accept loss demo --why TEXT" in refused.value.next_step
    decided = decisions.accept_loss(context, WHY, dry_run=False)
    assert decided.lines == ("b-0: offsets [0, 4) are given up",), "what was never planned of it stays as it is"
    attempt.process(context, planned, world.stage)
    assert context.database.manifests.get(planned).state is ManifestState.DONE


def test_extend_back_plans_max_slices_at_a_time_the_newest_first(world: ModelWorld) -> None:
    world.produce(70, minutes=1)
    world.produce(7, partition=1, minutes=1)
    context = world.onlooker()
    assert plan(context, now_by_hand("anchors")).manifests == ()
    shown = decisions.extend_back(context, None, WHY, dry_run=True)
    begins: list[int] = []
    counts: list[int] = []
    for _ in range(3):
        decision = decisions.extend_back(context, None, WHY, dry_run=False)
        begins.append(
            next(chain.anchor for chain in context.database.chains.of_pipeline("demo") if chain.at.partition == 0)
        )
        counts.append(len(decision.manifests))
        if not counts[:-1]:
            assert decision.lines == shown.lines
            assert "5 slices of older records are left, because max_slices is 3" in decision.lines[-1]
    assert counts == [3, 3, 2]
    assert begins == sorted(begins, reverse=True)
    assert begins[-1] == 0
    for manifest in context.database.manifests.find("demo"):
        attempt.process(context, manifest.id, world.stage)
    assert sum(manifest.publications[0].counts.read for manifest in context.database.manifests.find("demo")) == 77
