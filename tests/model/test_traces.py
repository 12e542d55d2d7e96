"""What the code does is what the model does: recorded runs of real attempts and sweeps are paths of the model."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import pytest

from sandbox.services.postgres import Postgres
from tests.faults.model_world import ScheduleSettings
from tests.model.traces import MANIFEST, Path, RecordedWorld
from tests.model.world import Kind
from tidemark.manifest import ManifestState

POINTS = ["publish.receipt", "publish.mid", "publish.before_record", "publish.before_mark", "publish.marked"]


@pytest.fixture
def world(postgres: Postgres, template: str) -> Iterator[RecordedWorld]:
    """Followed in the model when the test ends."""
    with closing(RecordedWorld(postgres, template, ScheduleSettings(), Counter())) as world:
        world.planned()
        yield world
        path = Path(Kind.FOLDER)
        path.follow(world.events)
        manifest = world.database.manifest(MANIFEST)
        assert path.world.newest == manifest.attempt
        assert path.world.published == (manifest.published_attempt or 0)
        assert path.world.state == manifest.state.value
        assert not path.places, "a process of the model has not ended"


def test_published_once_then_replayed_with_equal_and_with_other_rows(world: RecordedWorld) -> None:
    world.ended(world.process(MANIFEST))
    world.ended(world.process(MANIFEST, replay=True))
    world.change_code()
    world.ended(world.process(MANIFEST, replay=True))
    world.ended(world.sweep())
    assert [event.about for event in world.events if event.what == "mark_and_end"] == [(1,), (1,), (3,)]
    with pytest.raises(AssertionError, match="the model is at"):  # as if the code had not asked
        Path(Kind.FOLDER).follow(event for event in world.events if event.what != "may_put")


@pytest.mark.parametrize("point", [*POINTS, "publish.cleaned"])
def test_killed_and_tried_again(world: RecordedWorld, point: str) -> None:
    world.died(world.process(MANIFEST), point)
    retried(world)


@pytest.mark.parametrize("point", POINTS[1:])
def test_failed_and_tried_again(world: RecordedWorld, point: str) -> None:
    world.failed(world.process(MANIFEST), point)
    retried(world)


def retried(world: RecordedWorld) -> None:
    world.ended(world.sweep())
    if world.database.manifest(MANIFEST).state is not ManifestState.DONE:
        world.ended(world.process(MANIFEST))


@pytest.mark.parametrize("point", POINTS)
def test_a_replay_that_dies_is_swept(world: RecordedWorld, point: str) -> None:
    world.ended(world.process(MANIFEST))
    world.change_code()
    world.died(world.process(MANIFEST, replay=True), point)
    world.ended(world.sweep())
    published = world.database.manifest(MANIFEST).published_attempt
    assert published == (1 if point in POINTS[:3] else 2)
