"""The tables of docs/guarantees.md, cell by cell: what each reader sees right after a kill, and after `retry`."""

import signal
from collections import Counter

import pytest

from tests.faults.documented_kills import table
from tests.faults.kinds_of_worlds import world_of
from tests.worlds.s3_world import S3World
from tests.worlds.world import World
from tidemark.failpoints import FAILPOINTS

# Failpoint to what the exact, the record and the listing reader see, and what is next.
FIRST = table("## Killed while a manifest is done for the first time")
REPLAY = table("## Killed while a done manifest is replayed")


@pytest.fixture(params=["lake", pytest.param("bucket", marks=[pytest.mark.exhaustive, pytest.mark.bucket])])
def world(request: pytest.FixtureRequest) -> World:
    """One manifest for all records, so that a part of it can be told from the whole."""
    return world_of(request.param, request, settings={"kafka": {"slice": {"max_records": 1000}}})


@pytest.mark.parametrize("point", FAILPOINTS)
def test_killed_for_the_first_time_each_reader_sees_what_the_table_says(world: World, point: str) -> None:
    world.expects = True
    world.write_pipeline()
    world.produce(100, bad_every=9)
    killed = world.tidemark("run", "demo", "--run-key", "one", failpoint=f"{point}:kill9")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    seen = [_share(rows, world.everything()) for rows in (world.exact(), world.recorded(), world.listing())]
    assert tuple(seen[:2]) == FIRST[point][:2]
    assert seen[2] in _listed_as(FIRST[point][2], world)
    world.finish()
    [manifest] = world.json("manifests", "demo")
    again = FIRST[point][3].startswith(("attempt 2 does", "attempt 2 removes"))
    assert manifest["published_attempt"] == (2 if again else 1)


@pytest.mark.parametrize("point", [point for point in FAILPOINTS if not point.startswith("plan.")])
def test_killed_in_a_replay_each_reader_sees_what_the_table_says(world: World, point: str) -> None:
    world.produce(60)
    world.ok("run", "demo")
    manifest = str(world.manifests()[0]["id"])
    world.settings["decode"] = {"format": "json", "schema": "n BIGINT NOT NULL, at TIMESTAMP NOT NULL"}  # other rows
    world.write_pipeline()
    killed = world.tidemark("replay", "demo", "--manifest", manifest, failpoint=f"{point}:kill9")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    published = world.json("show", manifest)["published_attempt"]
    recorded = max(int(key.split(".")[1]) for key in world.object_keys() if key.startswith("_manifests/demo/"))
    assert _attempt(published) == REPLAY[point][0]
    assert _attempt(recorded) == REPLAY[point][1]
    assert _listed(world) in _listed_as(REPLAY[point][2], world)
    assert world.exact() == world.recorded() == world.everything()
    world.ok("retry", "demo")
    world.assert_complete()
    is_whole = _attempt(recorded) == "new"  # then only the mark was missing
    assert world.json("show", manifest)["published_attempt"] == (recorded if is_whole else published)
    world.ok("replay", "demo", "--manifest", manifest)
    world.assert_complete()


def _listed_as(expected: str, world: World) -> set[str]:
    """In a bucket, copies are under way sixteen at once when the first is done: any part may be there, or all of it."""
    all_of_it = {"part": "whole", "old and part of new": "old and new"}
    return {expected, all_of_it.get(expected, expected)} if isinstance(world, S3World) else {expected}


def _share(seen: Counter[tuple[str, int, int]], everything: Counter[tuple[str, int, int]]) -> str:
    assert seen <= everything
    return "whole" if seen == everything else "part" if seen else "nothing"


def _attempt(number: int) -> str:
    return {1: "old", 2: "new"}[number]


def _listed(world: World) -> str:
    """Which attempts have objects where listing readers look, and whether all of the new one's rows are there."""
    seen, everything = world.listing(), world.everything()
    attempts = {int(key.split("-a")[1][:4]) for key in world.object_keys() if key.startswith("raw/")}
    if len(attempts) == 1:
        assert seen == everything
        return _attempt(attempts.pop())
    assert everything < seen <= everything + everything
    return "old and new" if seen == everything + everything else "old and part of new"
