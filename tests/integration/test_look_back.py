"""How far ``dedupe`` with ``within`` looks back: as far as the log is one log, over all its generations.

Real PostgreSQL; the broker is the model of ``tests/faults``, whose records are stamped a minute apart.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import product
from random import Random

import pytest

from sandbox.services.postgres import Postgres
from tests.faults.model_world import ModelWorld, ScheduleSettings
from tidemark.errors import TopicChanged
from tidemark.lifecycle import attempt
from tidemark.lifecycle.look_back import looked_back
from tidemark.lifecycle.plan import Tick, plan
from tidemark.operations import decisions
from tidemark.transforms.dedupe.settings import Settings

WHY = "the test says so"


@pytest.fixture
def world(postgres: Postgres, template: str) -> Iterator[ModelWorld]:
    settings = ScheduleSettings(partitions=1, max_records=10, max_slices=100)
    with contextlib.closing(ModelWorld(postgres, template, settings, Counter())) as made:
        yield made


def produced(world: ModelWorld, count: int) -> None:
    """So many records a minute apart, in manifests of at most ten."""
    world.produce(count, minutes=1)
    world.runs += 1
    plan(world.onlooker(), Tick.by_hand(None, f"run {world.runs}"))


def cut(world: ModelWorld, end: int, *, begin: int | None = None) -> None:
    """The log loses all from an offset on, and a person accepts it."""
    world.truncate(world.log("a", 0).end - end)
    with pytest.raises(TopicChanged):
        plan(world.onlooker(), Tick.by_hand(None, "refused"))
    decisions.accept_truncation(world.onlooker(), "a", 0, WHY, start=begin, dry_run=False)


def publish(world: ModelWorld, *manifests: int) -> None:
    for manifest_id in manifests:
        attempt.process(world.onlooker(), manifest_id, world.stage)


def seen(world: ModelWorld, manifest_id: int, minutes: int) -> list[tuple[int, int]]:
    """The offsets that are read before a manifest, with ``within`` so long."""
    context = world.onlooker()
    dedupe = Settings.model_validate({"keys": ["n"], "within": f"{minutes}m"})
    pipeline = context.pipeline.model_copy(update={"transform": (dedupe,)})
    assert pipeline.look_back is not None
    manifest = context.database.manifests.get(manifest_id)
    before = looked_back(replace(context, pipeline=pipeline), manifest, pipeline.look_back)
    return [(part.start, part.end) for part in before]


def test_it_looks_back_over_a_cut_and_not_over_what_was_given_up(world: ModelWorld) -> None:
    produced(world, 20)
    publish(world, 1)
    cut(world, 15)  # five of manifest 2 are still to be read
    produced(world, 10)  # stamped 5 minutes after what is left
    assert seen(world, 3, 1000) == [(0, 15)]
    assert seen(world, 3, 7) == [(13, 15)]
    assert seen(world, 2, 1000) == [(0, 10)]
    world.delete_records(0.48)  # 12 of 25
    decisions.accept_loss(world.onlooker(), WHY, dry_run=False)
    assert seen(world, 3, 1000) == [(12, 15)]
    assert seen(world, 2, 1000) == []


def test_it_looks_back_over_cuts_ever_higher_and_ever_lower(world: ModelWorld) -> None:
    produced(world, 10)
    cut(world, 4)
    produced(world, 6)
    cut(world, 7)  # the second generation holds [4, 7)
    produced(world, 3)
    assert seen(world, 3, 1000) == [(0, 7)]
    cut(world, 2)  # below both
    produced(world, 5)
    assert seen(world, 4, 1000) == [(0, 2)]
    cut(world, 6, begin=3)  # what is left of the last generation is read again from 3 on
    produced(world, 1)
    assert seen(world, 5, 1000) == [(0, 3)]


def test_a_topic_that_was_recreated_is_another_log(world: ModelWorld) -> None:
    produced(world, 10)
    publish(world, 1)
    world.recreate(partitions=1)
    world.produce(5, minutes=1)
    with pytest.raises(TopicChanged):
        plan(world.onlooker(), Tick.by_hand(None, "refused"))
    decisions.accept_topic(world.onlooker(), "a", WHY, dry_run=False)
    produced(world, 12)
    assert (seen(world, 2, 1000), seen(world, 3, 1000)) == ([], [(0, 8)])


@pytest.mark.parametrize("seed", range(6))
def test_however_a_log_was_cut_it_is_a_function_of_the_log_alone(world: ModelWorld, seed: int) -> None:
    drawn = Random(seed)
    for _ in range(5):
        produced(world, drawn.randint(1, 15))
        undone = [each.id for each in world.database.manifests.undone("demo")]
        publish(world, *drawn.sample(undone, drawn.randint(0, len(undone))))
        cut(world, drawn.randrange(world.log("a", 0).end))
    produced(world, drawn.randint(1, 15))
    entries = world.log("a", 0).entries
    for manifest in world.database.manifests.undone("demo"):
        for own, minutes in product(manifest.ranges, (1, 5, 1000)):  # all of some was given up
            since = entries[own.start].stamp - timedelta(minutes=minutes)
            start = next(offset for offset, entry in enumerate(entries) if entry.stamp >= since)
            assert seen(world, manifest.id, minutes) == ([(start, own.start)] if start < own.start else [])
