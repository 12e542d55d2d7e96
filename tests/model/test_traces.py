"""What the code does is what the model does: recorded runs of real attempts and sweeps are paths of the model."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from uuid import uuid4

import pytest

from sandbox.services.postgres import Postgres
from sandbox.services.s3 import S3
from tests.faults.lakes import BucketLake
from tests.faults.model_world import ScheduleSettings
from tests.model.traces import MANIFEST, Path, RecordedWorld
from tests.model.world import Kind
from tests.worlds.s3_world import CONNECTION
from tidemark.connections import variable_of
from tidemark.manifest import ManifestState
from tidemark.sinks.postgres import marked

POINTS = ["publish.receipt", "publish.mid", "publish.before_record", "publish.before_mark", "publish.marked"]


LONG = (pytest.param(kind, marks=pytest.mark.exhaustive) for kind in (Kind.BUCKET, Kind.TABLE))


@pytest.fixture(params=[Kind.FOLDER, *LONG], ids=str)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param


@pytest.fixture
def world(
    postgres: Postgres, template: str, kind: Kind, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RecordedWorld]:
    """Followed in the model when the test ends."""
    monkeypatch.setenv(variable_of(CONNECTION), s3.connection())
    lake = BucketLake(s3, f"trace-{uuid4().hex}") if kind is Kind.BUCKET else None
    with (
        postgres.temporary_database("warehouse") as warehouse,
        closing(RecordedWorld(postgres, template, ScheduleSettings(), Counter(), lake)) as world,
    ):
        monkeypatch.setenv(variable_of("warehouse"), warehouse)
        if kind is Kind.TABLE:
            monkeypatch.setattr(marked, "IDLE_TIMEOUT_S", 1)
            table = {"connection": "warehouse", "table": "latest", "key": ["n"], "auto_create": True}
            world.table = {"postgres": table}
        world.planned()
        yield world
        path = Path(kind)
        path.follow(world.events)
        manifest = world.database.manifest(MANIFEST)
        assert path.world.newest == manifest.attempt
        assert path.world.published == (manifest.published_attempt or 0)
        assert path.world.state == manifest.state.value
        assert not path.places, "a process of the model has not ended"


def test_published_once_then_replayed_with_equal_and_with_other_rows(world: RecordedWorld, kind: Kind) -> None:
    world.ended(world.process(MANIFEST))
    world.ended(world.process(MANIFEST, replay=True))
    world.change_code()
    world.ended(world.process(MANIFEST, replay=True))
    world.ended(world.sweep())
    assert [event.about for event in world.events if event.what == "mark_and_end"] == [(1,), (1,), (3,)]
    with pytest.raises(AssertionError, match="the model is at"):  # as if the code had not asked
        Path(kind).follow(event for event in world.events if event.what != "may_put")


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


@pytest.mark.parametrize("other_rows", [False, True], ids=["equal rows", "other rows"])
@pytest.mark.parametrize("point", [*POINTS, "publish.cleaned"])
def test_stopped_while_another_attempt_goes_through_and_woken(
    world: RecordedWorld, point: str, other_rows: bool
) -> None:
    first = world.process(MANIFEST)
    world.run_to(first, point)
    if other_rows:
        world.change_code()
    world.ended(world.process(MANIFEST, replay=True))
    world.ended(first)
    world.ended(world.sweep())
    assert world.database.manifest(MANIFEST).state is ManifestState.DONE


@pytest.mark.parametrize("point", POINTS[:-1])
def test_a_replay_stopped_while_another_stands_one_point_before_it(world: RecordedWorld, point: str) -> None:
    world.ended(world.process(MANIFEST))
    world.change_code()
    first = world.process(MANIFEST, replay=True)
    world.run_to(first, point)
    second = world.process(MANIFEST, replay=True)
    world.run_to(second, POINTS[max(0, POINTS.index(point) - 1)])
    world.ended(first)
    world.ended(second)
    world.ended(world.sweep())


@pytest.mark.parametrize("point", POINTS)
def test_one_that_has_lost_its_session_is_swept_and_woken(world: RecordedWorld, point: str) -> None:
    world.ended(world.process(MANIFEST))
    world.change_code()
    replay = world.process(MANIFEST, replay=True)
    world.run_to(replay, point)
    world.cut_off(replay)
    world.ended(world.sweep())
    world.ended(replay)
    world.ended(world.sweep())
