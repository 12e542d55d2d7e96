"""A world for each schedule, and the counts of what happened in those that must be well."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from uuid import uuid4

import pytest

from sandbox.services.postgres import Postgres
from sandbox.services.s3 import S3
from tests.faults.checked_world import CheckedWorld
from tests.faults.counts import REACHED
from tests.faults.lakes import BucketLake
from tests.faults.model_world import ModelWorld, Settings
from tests.fixtures import plugin
from tests.worlds.s3_world import CONNECTION
from tidemark.connections import variable_of

MakeModelWorld = Callable[[], ModelWorld]


def pytest_configure(config: pytest.Config) -> None:
    plugin.load(config)


@pytest.fixture(scope="session")
def reached() -> Counter[str]:
    """Counts what happened in schedules that must be well, by name."""
    return REACHED


@pytest.fixture
def make_model_world(postgres: Postgres, template: str, reached: Counter[str]) -> MakeModelWorld:
    """Makes worlds for schedules that must be well."""
    return lambda: ModelWorld(postgres, template, Settings(), reached)


@pytest.fixture
def checked(make_model_world: MakeModelWorld) -> Iterator[CheckedWorld]:
    """A world for one schedule that must be well."""
    with closing(make_model_world()) as world:
        yield CheckedWorld(world)


@pytest.fixture
def make_bucket_world(
    postgres: Postgres, template: str, reached: Counter[str], s3: S3, monkeypatch: pytest.MonkeyPatch
) -> MakeModelWorld:
    """Makes worlds whose lakes lie in the bucket."""
    monkeypatch.setenv(variable_of(CONNECTION), s3.connection())
    return lambda: ModelWorld(postgres, template, Settings(), reached, BucketLake(s3, f"schedule-{uuid4().hex}"))


@pytest.fixture
def unsafe(postgres: Postgres, template: str) -> Iterator[CheckedWorld]:
    """A world for one schedule that breaks a promise on purpose, so its figures do not count."""
    with closing(ModelWorld(postgres, template, Settings(), Counter())) as world:
        yield CheckedWorld(world)
