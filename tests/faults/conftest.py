"""Fixtures: a world for each schedule, and counts of events in schedules that must succeed."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import cast
from uuid import uuid4

import pytest

from sandbox.bootstrap.checkout import STATE
from sandbox.services.broker import Broker
from sandbox.services.dynamodb import DynamoDB
from sandbox.services.postgres import Postgres, remove_home
from sandbox.services.s3 import Bucket
from tests.faults.checked_world import CheckedWorld
from tests.faults.counts import REACHED
from tests.faults.kinds_of_worlds import world_of
from tests.faults.lakes import BucketLake
from tests.faults.model_world import ModelWorld, ScheduleSettings
from tests.faults.other_sinks import OtherSinks
from tests.faults.postgres_proxy import Proxy
from tests.faults.s3_proxy import S3Proxy
from tests.fixtures import plugin
from tests.worlds.s3_world import CONNECTION
from tests.worlds.world import World
from tidemark.connections.lookup import variable_of
from tidemark.storage.s3.store import S3Store

MakeModelWorld = Callable[[], ModelWorld]


def pytest_configure(config: pytest.Config) -> None:
    plugin.load(config)


@pytest.fixture(scope="session")
def reached() -> Counter[str]:
    """Counts of what happened in schedules that must succeed, by name."""
    return REACHED


@pytest.fixture
def world(request: pytest.FixtureRequest) -> World:
    """A world of the kind that the test is for, of a lake where it names none; only what it needs starts."""
    return world_of(getattr(request, "param", "lake"), request)


@pytest.fixture
def make_model_world(postgres: Postgres, template: str, reached: Counter[str]) -> MakeModelWorld:
    """Creates worlds for schedules that must succeed."""
    return lambda: ModelWorld(postgres, template, ScheduleSettings(), reached)


@pytest.fixture
def other_sinks(postgres: Postgres, broker: Broker, dynamodb: DynamoDB, request: pytest.FixtureRequest) -> OtherSinks:
    """Makes the other sinks of schedules."""
    return OtherSinks(postgres, broker, dynamodb, lambda: cast("Broker", request.getfixturevalue("second_broker")))


@pytest.fixture(scope="module")
def second_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A cluster beside the one of all tests."""
    with Broker(tmp_path_factory.mktemp("second"), STATE / "jars" / "kafka") as started:
        yield started


@pytest.fixture
def make_other_world(
    postgres: Postgres, template: str, reached: Counter[str], request: pytest.FixtureRequest
) -> Callable[[str], ModelWorld]:
    """Creates worlds with a lake and other sinks, for schedules that must succeed."""

    def make(kind: str, counts: Counter[str] = reached) -> ModelWorld:
        settings, others = ScheduleSettings(second=kind), request.getfixturevalue("other_sinks")
        return ModelWorld(postgres, template, settings, counts, other_sinks=others)

    return make


@pytest.fixture
def checked(make_model_world: MakeModelWorld) -> Iterator[CheckedWorld]:
    """A world for a schedule that must succeed."""
    with closing(make_model_world()) as world:
        yield CheckedWorld(world)


@pytest.fixture
def make_bucket_world(
    postgres: Postgres, template: str, reached: Counter[str], s3: Bucket, monkeypatch: pytest.MonkeyPatch
) -> MakeModelWorld:
    """Creates worlds with lakes in the bucket, where half of the files are uploads."""
    monkeypatch.setattr(S3Store, "uploads_from", 2300)
    monkeypatch.setenv(variable_of(CONNECTION), s3.connection())
    return lambda: ModelWorld(
        postgres, template, ScheduleSettings(), reached, BucketLake(s3.below(f"schedule-{uuid4().hex}"))
    )


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A PostgreSQL of one module alone, which writes to the disk as in production: tests kill it."""
    state = tmp_path_factory.mktemp("mortal")
    with Postgres(state, durable=True) as started:
        yield started
    remove_home(state)


@pytest.fixture
def postgres_proxy(postgres: Postgres) -> Iterator[Proxy]:
    with Proxy(postgres.port) as opened:
        yield opened


@pytest.fixture
def s3_proxy(s3: Bucket) -> Iterator[S3Proxy]:
    with S3Proxy(s3) as opened:
        yield opened


@pytest.fixture
def unsafe(postgres: Postgres, template: str) -> Iterator[CheckedWorld]:
    """A world for a schedule that breaks a promise on purpose; it is not counted in ``reached``."""
    with closing(ModelWorld(postgres, template, ScheduleSettings(), Counter())) as world:
        yield CheckedWorld(world)
