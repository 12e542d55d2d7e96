"""A world for each schedule, and the counts of what happened in those that must be well."""

from collections import Counter
from collections.abc import Iterator

import pytest

from sandbox.postgres import Postgres
from tests.faults.figures import REACHED
from tests.faults.model_world import ModelWorld, Settings
from tests.faults.schedules import Play


@pytest.fixture(scope="session")
def reached() -> Counter[str]:
    """Counts what happened in schedules that must be well, by name."""
    return REACHED


@pytest.fixture
def play(postgres: Postgres, template: str, reached: Counter[str]) -> Iterator[Play]:
    """A world for one schedule that must be well."""
    world = ModelWorld(postgres, template, Settings(), reached)
    yield Play(world)
    world.close()


@pytest.fixture
def broken_play(postgres: Postgres, template: str) -> Iterator[Play]:
    """A world for one schedule that breaks a promise on purpose, so its figures do not count."""
    world = ModelWorld(postgres, template, Settings(), Counter())
    yield Play(world)
    world.close()
