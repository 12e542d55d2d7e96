"""Which manifests a backfill means that is told to replay an interval."""

from collections.abc import Callable
from datetime import timedelta

from tests.worlds.records_of_hours import last_hour, produce_hours
from tests.worlds.world import World
from tidemark.lifecycle.covering import manifests_between

HOUR = timedelta(hours=1)


def test_an_interval_is_replayed_with_all_of_its_slices_and_nothing_else(make_world: Callable[..., World]) -> None:
    world, hour = make_world(settings={"kafka": {"slice": {"max_records": 10}}}), last_hour()
    produce_hours(world, hour, 3)
    for back in (2, 1, 0):
        world.ok("plan", "demo", "--until", (hour - back * HOUR).isoformat(), "--run-key", f"by hand {back}")
    context = world.context()
    first = [manifests_between(context, hour - (back + 1) * HOUR, hour - back * HOUR) for back in (2, 1, 0)]
    assert first == [[1, 2], [3, 4], [5, 6]]
    assert manifests_between(context, hour - 2 * HOUR, hour) == [3, 4, 5, 6]
    assert manifests_between(context, hour - 9 * HOUR, hour - 3 * HOUR) == []
    assert manifests_between(context, hour, hour + HOUR) == []
