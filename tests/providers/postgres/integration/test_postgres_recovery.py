"""A table and a manifest database that do not agree any more: found, named, and brought together again."""

from collections.abc import Callable

import psycopg
import pytest

from tests.worlds.table_world import TABLE_SCHEMA, TableWorld

MakeTableWorld = Callable[..., TableWorld]


@pytest.fixture(params=["same database", "another database", "beside a lake"])
def world(request: pytest.FixtureRequest, make_table_world: MakeTableWorld) -> TableWorld:
    """Two manifests published."""
    made = make_table_world(same=request.param == "same database", has_lake=request.param == "beside a lake")
    made.produce(60, bad_every=13)
    made.ok("run", "demo", "--run-key", "one")
    return made


def test_an_empty_database_adopts_what_markers_say(world: TableWorld) -> None:
    world.lose_manifest_database()
    refused = world.here("run", "demo", "--run-key", "two")
    assert refused.exit_code == 1
    assert "belongs to another manifest database" in refused.stderr
    before = world.json("db", "adopt", "demo", "--why", "a test", "--dry-run")
    assert before["manifests"] == [1, 2]
    assert world.json("db", "adopt", "demo", "--why", "a test")["manifests"] == [1, 2]
    world.assert_complete()
    assert world.ok("db", "adopt", "demo", "--why", "again") == ""
    world.produce(20)
    world.ok("run", "demo", "--run-key", "two")
    world.assert_complete()
    assert [manifest["id"] for manifest in world.manifests()] == [1, 2, 3]


def test_a_database_restored_from_an_older_copy_is_refused_until_it_adopts(world: TableWorld) -> None:
    world.produce(30)
    world.ok("run", "demo", "--run-key", "two")
    forget_the_last_manifest(world.dsn)
    refused = world.here("run", "demo", "--run-key", "three")
    assert refused.exit_code == 1
    assert "holds a record of manifest 3, this database ends at 2" in refused.stderr
    assert world.json("db", "adopt", "demo", "--why", "restored")["manifests"] == [3]
    world.ok("run", "demo", "--run-key", "three")
    world.assert_complete()


def forget_the_last_manifest(dsn: str) -> None:
    """The database as an older copy would have it, without what forbids deletions."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")  # no triggers, as a restore has none
        for table in ("publication", "attempt", "manifest_range"):
            connection.execute(f"DELETE FROM tidemark.{table} WHERE manifest_id = 3")
        connection.execute("DELETE FROM tidemark.manifest WHERE id = 3")
        connection.execute("DELETE FROM tidemark.run WHERE run_key = 'two'")
        connection.execute("SELECT tidemark.count_done()")


def test_an_attempt_that_the_database_never_gave_out_is_refused(world: TableWorld) -> None:
    world.query("UPDATE tidemark_target.marker SET attempt = 7 WHERE manifest = 1 RETURNING manifest")
    refused = world.here("replay", "demo", "--manifest", "1")
    assert refused.exit_code == 1
    assert "holds a record of attempt 7, and this database has no receipt of it" in refused.stderr


@pytest.mark.parametrize(
    ("damage", "message", "advice"),
    [
        ("UPDATE tidemark_target.marker SET record = record || '{\"digest\": \"0\"}' WHERE manifest = 2",
         "manifest 2: connection warehouse, table public.latest does not show all of attempt 1, which is published",
         "tidemark replay demo --manifest 2"),
        ("DELETE FROM tidemark_target.dead_letter WHERE _manifest_id = 2",
         "manifest 2: 0 dead letters are kept where 2 were", "tidemark replay demo --manifest 2"),
        ("UPDATE public.latest SET _offset = 999 WHERE k = 5",
         "which it does not cover", "tidemark replay demo --manifest 2"),
        (("INSERT INTO public.latest (k, n, at, _topic, _partition, _offset, _manifest_id, _is_deleted, "
         "_log_generation, _attempt) VALUES (77, 1, now(), 't', 0, 1, 99, false, 1, 1)"),
         "has rows of manifest 99, which this database does not know",
         "no attempt of Tidemark has left them there: delete those rows by hand"),
    ],
)  # fmt: skip
def test_damage_to_a_table_is_one_line_that_names_the_manifest(
    make_table_world: MakeTableWorld, damage: str, message: str, advice: str
) -> None:
    world = make_table_world()
    world.produce(60, bad_every=13)
    world.ok("run", "demo")
    world.execute(damage)
    audit = world.here("audit", "demo", "--deep")
    assert audit.exit_code == 1
    [line] = audit.stdout.splitlines()
    assert message in line
    assert line.endswith(f"next: {advice}")


def test_T2_a_lost_marker_is_never_written_without_its_rows(world: TableWorld) -> None:
    world.query("DELETE FROM tidemark_target.marker WHERE manifest = 1 RETURNING manifest")
    audited = world.here("audit", "demo")
    assert audited.exit_code == 1
    assert "does not show all of attempt 1" in audited.stdout
    assert "next: tidemark replay demo --manifest 1" in audited.stdout
    repaired = world.ok("repair", "demo", "--why", "a test")
    assert "not repaired:" in repaired
    assert "tidemark replay demo --manifest 1" in repaired
    world.ok("retry", "demo")
    assert world.here("audit", "demo").exit_code == 1
    assert "shows no record of the published manifests 1" in world.here("plan", "demo", "--run-key", "two").stderr
    world.ok("replay", "demo", "--manifest", "1")
    world.assert_complete()


def test_a_lake_that_vanished_under_published_manifests_is_not_begun_again(make_table_world: MakeTableWorld) -> None:
    world = make_table_world(has_lake=True)
    world.produce(40)
    world.ok("run", "demo")
    aside = world.lake.rename(world.folder / "not mounted")
    for words in (["run", "demo"], ["plan", "demo"], ["replay", "demo", "--manifest", "1"]):
        refused = world.here(*words)
        assert refused.exit_code == 1
        assert f"{world.lake} is empty, and manifests are published there" in refused.stderr
        assert not world.lake.exists(), "nothing was made in the place where the disk is to be mounted"
    aside.rename(world.lake)
    world.ok("run", "demo")
    world.assert_complete()


def test_a_database_that_forgot_a_replay_plans_nothing_and_adopts_it(world: TableWorld) -> None:
    world.settings["decode"] = {"format": "json", "schema": TABLE_SCHEMA.replace("name STRING, ", "")}  # other rows
    world.write_pipeline()
    world.ok("replay", "demo", "--manifest", "1")
    with psycopg.connect(world.dsn, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")  # no triggers, as a restore has none
        connection.execute("UPDATE tidemark.publication SET attempt = 1 WHERE manifest_id = 1")
        connection.execute("DELETE FROM tidemark.attempt WHERE (manifest_id, attempt) = (1, 2)")
        connection.execute("UPDATE tidemark.manifest SET attempt = 1 WHERE id = 1")
        connection.execute("SELECT tidemark.count_done()")
    refused = world.here("plan", "demo", "--run-key", "two")
    assert refused.exit_code == 1
    assert "holds a record of attempt 2, and this database has no receipt of it" in refused.stderr
    world.ok("db", "adopt", "demo", "--why", "restored")
    world.ok("run", "demo", "--run-key", "two")
    world.assert_complete()
