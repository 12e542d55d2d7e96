"""A manifest of too many objects is refused before anything of it is published, and says what makes fewer."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.world import World

TEN_FILES = 60  # records: five event hours on two partitions


def sinks(world: World, most: int) -> None:
    files: dict[str, Any] = {"root": str(world.lake), "layout": "raw/{stream}/%Y/%m/%d/%H", "max_objects": most}
    world.settings["sinks"] = [{"files": files}]
    world.write_pipeline()


@pytest.mark.parametrize(
    ("most", "said"), [(9, "the manifest has 10 objects, and at most 9 are allowed"), (4, "one task has made 4 files")]
)
def test_more_objects_than_allowed_are_refused_and_none_is_published(
    make_world: Callable[..., World], most: int, said: str
) -> None:
    world = make_world(settings={"kafka": {"slice": {"max_records": 1000}}})
    world.produce(TEN_FILES)
    sinks(world, most)
    done = world.here("run", "demo", "--run-key", "one")
    assert done.exit_code == 1
    assert said in done.stderr
    assert "write a coarser layout (by day instead of by hour), or larger slices" in done.stderr
    assert world.listing() == world.exact() == {}
    assert world.staging() == []
    sinks(world, 10)
    world.ok("retry", "demo")
    world.assert_complete()
