"""Each schedule of ``schedules.py`` ends well, and so does an attempt that anything hits at any operation."""

from collections import Counter
from collections.abc import Iterator

import pytest

from sandbox.postgres import Postgres
from tests.faults.model_world import ModelWorld, Settings
from tests.faults.schedules import SCHEDULES, Play


@pytest.fixture
def play(postgres: Postgres, template: str) -> Iterator[Play]:
    world = ModelWorld(postgres, template, Settings(), Counter())
    yield Play(world)
    world.close()


@pytest.mark.parametrize("name", SCHEDULES)
def test_nothing_is_missing_and_nothing_twice(play: Play, name: str) -> None:
    SCHEDULES[name](play)
