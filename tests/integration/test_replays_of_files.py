"""What a replay touches, and whose lake may be written."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import psycopg
import pyarrow.parquet as pq
import pytest

from sandbox.services.postgres import Postgres
from tests.worlds.world import EPOCH, World
from tidemark.errors import Blocked
from tidemark.lifecycle.attempt import refuse_shrunk

MakeWorld = Callable[..., World]


def test_a_replay_of_what_did_not_change_touches_no_file(world: World) -> None:
    world.produce(100, bad_every=9)
    world.ok("run", "demo")
    before = world.files()
    for manifest in world.manifests():
        world.ok("replay", "demo", "--manifest", str(manifest["id"]))
    assert world.files() == before, "I14 repeatable"
    attempts = [
        (manifest["attempt"], manifest["published_attempt"], manifest["state"]) for manifest in world.manifests()
    ]
    assert attempts == [(2, 1, "done")] * 3
    world.assert_complete()


def test_a_replay_with_another_schema_touches_only_its_own_objects(world: World) -> None:
    world.produce(100, bad_every=9)
    world.ok("run", "demo")
    before = world.files()
    manifest = world.manifests()[1]
    world.settings["decode"] = {"format": "json", "schema": "n BIGINT NOT NULL, at TIMESTAMP NOT NULL"}
    world.write_pipeline()
    world.ok("replay", "demo", "--manifest", str(manifest["id"]))
    own = f"{manifest['id']:010d}"
    after = world.files()
    assert {key: file for key, file in after.items() if own not in key} == {
        key: file for key, file in before.items() if own not in key
    }
    assert not {key for key in after if own in key} & {key for key in before if own in key}
    assert world.json("show", str(manifest["id"]))["published_attempt"] == 2
    world.assert_complete()


@pytest.mark.parametrize("layout", ["raw/{stream}/%Y/%m/%d/%H", "raw/{stream}"])
def test_schedule_7_a_replay_after_mended_event_time_moves_rows_also_among_the_same_folders(
    make_world: MakeWorld, layout: str
) -> None:
    decode = {"format": "json", "schema": "n BIGINT NOT NULL, at TIMESTAMP NOT NULL, other TIMESTAMP NOT NULL"}
    world = make_world(partitions=1, settings={"decode": decode})
    world.settings["sinks"] = [{"files": {"root": str(world.lake), "layout": layout}}]
    world.write_pipeline()
    hours = [10, 11, 11]
    times = {hour: f"2024-03-01T{hour}:00:00Z" for hour in hours}
    records = [json.dumps({"n": n, "at": times[at], "other": times[21 - at]}) for n, at in enumerate(hours)]
    world.send(*records, at=EPOCH)
    world.ok("run", "demo")
    world.settings["event_time"] = {"field": "other"}
    world.write_pipeline()
    world.ok("replay", "demo", "--manifest", "1")
    [manifest] = world.manifests()
    assert manifest["published_attempt"] == 2
    [record] = world.lake.glob("_manifests/demo/*.json")
    assert json.loads(record.read_text())["hours"] == {"2024-03-01T10": [2, 0], "2024-03-01T11": [1, 0]}
    if "%H" in layout:
        tables = {path.parent.name: pq.read_table(path, partitioning=None) for path in world.data_paths()}
        assert {hour: table["n"].to_pylist() for hour, table in tables.items()} == {"11": [0], "10": [1, 2]}
    before = world.files()
    world.ok("replay", "demo", "--manifest", "1")
    assert world.files() == before
    assert world.ok("audit", "demo", "--deep") == ""


MENDED = {
    "zone": ({"field": "at"}, {"field": "at", "timezone": "Asia/Tokyo"}, "2024-03-01T10:00:00", "2024-03-01T01"),
    "unit": ({"field": "seconds"}, {"field": "seconds", "unit": "s"}, "2024-03-01T10:00:00", "2024-03-01T10"),
}


@pytest.mark.parametrize("what", MENDED)
def test_schedule_7_a_replay_with_another_zone_or_unit_moves_rows(make_world: MakeWorld, what: str) -> None:
    before, after, at, hour = MENDED[what]
    decode = {"format": "json", "schema": "n BIGINT NOT NULL, at STRING NOT NULL, seconds BIGINT NOT NULL"}
    world = make_world(partitions=1, settings={"decode": decode, "event_time": before})
    seconds = int(datetime(2024, 3, 1, 10, tzinfo=UTC).timestamp())
    world.send(json.dumps({"n": 1, "at": at, "seconds": seconds}), at=EPOCH)
    world.ok("run", "demo")
    [wrong] = world.data_paths()
    world.settings["event_time"] = after
    world.write_pipeline()
    world.ok("replay", "demo", "--manifest", "1")
    [path] = world.data_paths()
    assert path.parent != wrong.parent
    assert path.parent.as_posix().endswith(hour.replace("-", "/").replace("T", "/"))
    [record] = world.lake.glob("_manifests/demo/*.json")
    assert json.loads(record.read_text())["hours"] == {hour: [1, 0]}
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_replay_of_a_run_replays_its_manifests_and_no_others(world: World) -> None:
    world.produce(80)
    world.ok("run", "demo", "--run-key", "one")
    world.produce(40)
    world.ok("run", "demo", "--run-key", "two")
    world.ok("replay", "demo", "--run-key", "one")
    assert [manifest["attempt"] for manifest in world.manifests()] == [2, 2, 1]
    world.assert_complete()


def test_a_replay_that_finds_fewer_records_is_refused_and_what_is_published_stays(make_world: MakeWorld) -> None:
    world = make_world(partitions=1, settings={"kafka": {"gaps": "compacted", "slice": {"max_records": 1000}}})
    world.produce(20)
    world.ok("run", "demo")
    before = world.files()
    context = world.context()
    manifest = context.database.manifests.find("demo")[0]
    receipt = context.database.attempts.receipt(manifest.id, 1)
    assert receipt is not None
    [count] = receipt.partitions
    fewer = replace(receipt, attempt=2, partitions=(replace(count, read=19, distinct=19, decoded=19),))
    with pytest.raises(Blocked, match="the replay read 19 records where 20 are published"):
        refuse_shrunk(manifest, fewer)
    assert world.files() == before


def test_the_lake_of_another_database_is_refused_and_left_alone(
    make_world: MakeWorld, postgres: Postgres, template: str
) -> None:
    owner = make_world()
    owner.produce(20)
    owner.ok("run", "demo")
    before = owner.files()
    with postgres.temporary_database("other", template) as dsn:
        migrated_again(dsn)
        guest = make_world(settings={"sinks": [{"files": {"root": str(owner.lake)}}]})
        guest.dsn = dsn
        guest.produce(20)
        done = guest.here("run", "demo")
        assert done.exit_code == 1
        assert "belongs to another manifest database" in done.stderr
        assert guest.chain() == []
    assert owner.files() == before
    owner.assert_complete()


def migrated_again(dsn: str) -> None:
    """A database of its own: copies of the template share an id, which no two real ones do."""
    with psycopg.connect(dsn) as connection:
        connection.execute("UPDATE tidemark.database SET id = gen_random_uuid()")


def test_a_database_restored_from_an_older_copy_is_refused(world: World, postgres: Postgres) -> None:
    world.produce(40)
    world.ok("run", "demo")
    older = world.dsn.rpartition("/")[2]
    with postgres.temporary_database("restored", older) as dsn:
        world.produce(40)
        world.ok("run", "demo")
        before, world.dsn = world.files(), dsn
        world.produce(10)
        for words in (("plan", "demo"), ("run", "demo"), ("plan", "demo", "--dry-run")):
            done = world.here(*words)
            assert done.exit_code == 1
            assert "holds a record of manifest 2, this database ends at 1" in done.stderr
            assert "restored from an older copy" in done.stderr
        assert world.files() == before


def test_a_restored_database_does_not_give_out_an_attempt_a_second_time(world: World, postgres: Postgres) -> None:
    world.produce(40)
    world.ok("plan", "demo")
    newer, older = world.dsn, world.dsn.rpartition("/")[2]
    with postgres.temporary_database("restored", older) as dsn:
        world.ok("retry", "demo")
        before, world.dsn = world.files(), dsn
        done = world.here("retry", "demo")
        assert done.exit_code == 1
        assert "holds a record of attempt 1, and this database has no receipt of it" in done.stderr
        assert world.files() == before
        assert world.manifests()[0]["attempt"] == 0
        world.dsn = newer
        world.assert_complete()


def test_a_changed_root_is_refused_with_both_places(world: World) -> None:
    world.produce(20)
    world.ok("run", "demo")
    elsewhere = world.folder / "elsewhere"
    world.settings["sinks"] = [{"files": {"root": str(elsewhere)}}]
    world.write_pipeline()
    done = world.here("run", "demo")
    assert done.exit_code == 2
    assert f"was planned into {world.lake}" in done.stderr
    assert str(elsewhere) in done.stderr
    assert not elsewhere.exists()
