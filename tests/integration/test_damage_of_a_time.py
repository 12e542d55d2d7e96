"""``accept damage`` of a time: output of many manifests that is gone, as a lifecycle rule of a bucket takes it."""

import json
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import TopicPartition

from tests.worlds.delta_world import DeltaWorld
from tests.worlds.iceberg_world import IcebergWorld
from tests.worlds.table_world import TableWorld
from tests.worlds.world import World

ACCEPT = ("accept", "damage", "demo", "--why", "the bucket expires what is older than a month")
HOURS = [f"2026-03-01T{hour:02d}:00" for hour in (6, 7, 8, 9)]
LOST = 3  # manifests whose records the topic has dropped, the first ones


@pytest.fixture(params=["make_world", "make_table_world", "make_iceberg_world", "make_delta_world"])
def world(request: pytest.FixtureRequest) -> World:
    """Four manifests, each of a run of its own hour; the topic has lost the records of the first three."""
    made: World = request.getfixturevalue(request.param)(
        partitions=1, settings={"kafka": {"slice": {"max_records": 1000}}}
    )
    for number, hour in enumerate(HOURS, 1):
        made.produce(18)
        made.ok("run", "demo")
        with psycopg.connect(made.dsn, options="-c search_path=tidemark -c tidemark.actor=test") as sql:
            sql.execute("UPDATE run SET planned_up_to = %s WHERE id = %s", [f"{hour}Z", number])
    made.administer("delete_records", [TopicPartition(made.topic, 0, LOST * 18)])
    return made


def expire(world: World, manifests: list[int]) -> None:
    """All output of these manifests goes, by its age."""
    if isinstance(world, TableWorld):
        for manifest_id in manifests:
            world.execute(f"DELETE FROM tidemark_target.marker WHERE manifest = {manifest_id}")
        return
    if isinstance(world, IcebergWorld):
        folders = [world.location / f"data/{manifest_id:010d}" for manifest_id in manifests]
    elif isinstance(world, DeltaWorld):
        folders = [Path(world.location, f"_manifest_id={manifest_id}") for manifest_id in manifests]
    else:
        names = {f"{manifest_id:010d}" for manifest_id in manifests}
        for path in [*world.lake.rglob("*.parquet"), *world.lake.rglob("_manifests/demo/*.json")]:
            if path.name[:10] in names:
                path.unlink()
        return
    for path in (path for folder in folders for path in folder.rglob("*.parquet")):
        path.unlink()


def test_all_manifests_of_a_time_are_given_up_at_once_and_not_missed_again(world: World) -> None:
    expire(world, [1, 2])
    told = world.json(*ACCEPT, "--until", HOURS[2], "--dry-run")
    assert told["manifests"] == [1, 2]
    assert [line.split(":")[0] for line in told["lines"]] == ["manifest 1", "manifest 2"]
    assert world.here("audit", "demo").exit_code == 1, "a dry run changes nothing"
    assert world.json(*ACCEPT, "--until", HOURS[2])["lines"] == told["lines"]
    assert not {1, 2} & {problem["manifest_id"] for problem in json.loads(world.here("audit", "demo", "--json").stdout)}
    [decision] = world.json("history", "demo")
    assert (decision["decision"], decision["manifests"]) == ("accept-damage", [1, 2])
    again = world.here(*ACCEPT, "--until", HOURS[2])
    assert again.exit_code == 2
    assert "none of their published output is missing" in again.stderr


def test_a_time_leaves_out_what_is_outside_of_it_and_what_can_be_read_again(world: World) -> None:
    expire(world, [1, 2, 3, 4])
    assert world.json(*ACCEPT, "--since", HOURS[0], "--until", HOURS[1])["manifests"] == [2]
    assert world.json(*ACCEPT, "--since", HOURS[1])["manifests"] == [3], "manifest 4 can be replayed"
    assert world.json(*ACCEPT, "--manifest", "1")["manifests"] == [1]
    world.ok("replay", "demo", "--manifest", "4")
    assert world.ok("audit", "demo") == ""


def test_either_a_manifest_or_a_time_is_named(make_world: Callable[..., World]) -> None:
    world = make_world()
    for words in ((), ("--manifest", "1", "--until", HOURS[0])):
        refused = world.here(*ACCEPT, *words)
        assert refused.exit_code == 2
        assert "name either a manifest, or a time with --since or --until" in refused.stderr
