"""A lake and a table: what one of them has and the other lacks, when a person decides or an older database adopts."""

import os
import signal
from collections.abc import Callable
from unittest import mock

import psycopg
import pytest
from confluent_kafka import TopicPartition

import tidemark
from sandbox.services.postgres import Postgres
from tests.worlds.table_world import TableWorld
from tests.worlds.world import World, places, wait_stopped, wake
from tidemark.errors import ConfigurationError, NotFound

MakeTableWorld = Callable[..., TableWorld]
ONE_MANIFEST = {"kafka": {"slice": {"max_records": 1000}}}
OF_THE_TABLE = "publish.before_mark:kill9@2"  # the lake is published first


@pytest.fixture
def world(make_table_world: MakeTableWorld) -> TableWorld:
    """60 records, not planned, for one manifest and two sinks."""
    world = make_table_world(has_lake=True, settings=ONE_MANIFEST)
    world.produce(60)
    return world


def killed(world: TableWorld, *words: str, failpoint: str) -> None:
    done = world.tidemark(*words, failpoint=failpoint)
    assert done.returncode == -signal.SIGKILL, done.stderr


def drop_records(world: TableWorld) -> None:
    """Retention takes all there is."""
    world.administer("delete_records", [TopicPartition(world.topic, at, 30) for at in range(2)])


def test_what_only_lacks_the_mark_of_the_second_sink_is_not_lost(world: TableWorld) -> None:
    killed(world, "run", "demo", failpoint=OF_THE_TABLE)
    drop_records(world)
    refused = world.here("accept", "loss", "demo", "--why", "retention")
    assert refused.exit_code == 1
    assert "only its publication is missing" in refused.stderr
    world.ok("retry", "demo")
    world.assert_complete()


def test_what_only_lacks_the_mark_of_the_second_sink_outlives_its_topic(world: TableWorld) -> None:
    killed(world, "run", "demo", failpoint=OF_THE_TABLE)
    world.broker.delete_topic(world.topic)
    world.create_topic()
    assert "was recreated" in world.here("plan", "demo").stderr
    refused = world.here("accept", "topic", "demo", "--topic", world.topic, "--why", "created again")
    assert "only its publication is missing" in refused.stderr
    world.ok("retry", "demo")
    world.assert_complete()
    world.ok("accept", "topic", "demo", "--topic", world.topic, "--why", "created again")


def test_output_of_one_sink_is_found_after_an_attempt_that_worked_for_the_other_only(world: TableWorld) -> None:
    killed(world, "run", "demo", failpoint="publish.before_mark:kill9")
    aside = world.lake.rename(world.folder / "aside")
    world.lake.write_text("not a folder")
    assert world.here("retry", "demo").exit_code == 1
    assert world.rows() == world.latest(world.everything())
    world.lake.unlink()
    aside.rename(world.lake)
    drop_records(world)
    world.ok("retry", "demo")
    world.assert_complete()


def test_a_sink_that_never_had_it_and_is_down_does_not_keep_a_person_from_deciding(world: TableWorld) -> None:
    world.targets = {"warehouse": "postgresql://nobody@127.0.0.1:1/nothing"}
    assert world.here("run", "demo").exit_code == 1
    assert world.exact() == world.everything()
    drop_records(world)
    refused = world.here("accept", "loss", "demo", "--why", "retention")
    assert "the manifest is published in files, and the source has lost what postgres lacks" in refused.stderr


def test_rows_that_are_merged_are_found_after_an_attempt_of_other_code(make_table_world: MakeTableWorld) -> None:
    world = make_table_world(settings=ONE_MANIFEST)
    world.produce(60)
    killed(world, "run", "demo", failpoint="publish.before_mark:kill9")
    world.settings["on_error"] = "fail"
    world.write_pipeline()
    killed(world, "retry", "demo", failpoint="attempt.started:kill9")
    drop_records(world)
    assert "only its publication is missing" in world.here("accept", "loss", "demo", "--why", "retention").stderr
    world.ok("retry", "demo")
    world.assert_complete()


def test_an_empty_database_adopts_a_lake_of_one_manifest_and_goes_on(make_world: Callable[..., World]) -> None:
    world = make_world(settings=ONE_MANIFEST)
    world.produce(20)
    world.ok("run", "demo")
    world.lose_manifest_database()
    world.ok("db", "adopt", "demo", "--why", "the database is gone")
    world.produce(20)
    world.ok("run", "demo")
    world.assert_complete()


def test_adopting_what_one_sink_published_forgets_nothing_of_the_other(world: TableWorld) -> None:
    world.ok("run", "demo")
    world.damage(world.manifests()[0])
    killed(world, "replay", "demo", "--manifest", "1", failpoint="publish.before_mark:kill9")
    with psycopg.connect(world.dsn, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")  # no triggers, as a failover has none
        connection.execute("UPDATE tidemark.attempt SET receipt = NULL WHERE attempt = 2")
    world.ok("db", "adopt", "demo", "--why", "the lake knows more")
    published = {publication["sink"]: publication["attempt"] for publication in world.json("show", "1")["publications"]}
    assert published == {"files": 2, "postgres": 1}
    world.ok("retry", "demo")
    [line] = world.here("audit", "demo", "--deep").stdout.splitlines()
    assert line.endswith("60 rows of it had been published there; next: tidemark replay demo --manifest 1"), (
        "the damage is in the table too"
    )
    world.ok("replay", "demo", "--manifest", "1")
    world.assert_complete()


@pytest.mark.parametrize("same", [True, False], ids=["same database", "another database"])
def test_a_merge_whose_process_lost_its_session_does_not_commit_after_a_decision(
    make_table_world: MakeTableWorld, same: bool
) -> None:
    """Nobody sees that it lives, so a person may give up what it is about to merge."""
    world = make_table_world(same=same, settings=ONE_MANIFEST)
    world.produce(60)
    paused = world.start("run", "demo", failpoint="publish.mid:stop")
    wait_stopped(paused)
    with psycopg.connect(world.dsn, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(l.pid, 30000) FROM pg_locks l JOIN pg_database d ON d.oid = l.database "
            "WHERE l.locktype = 'advisory' AND d.datname = current_database() AND l.objsubid = 1"
        )
    drop_records(world)
    world.ok("accept", "loss", "demo", "--why", "retention")
    assert wake(paused).returncode == 1
    assert world.rows() == {}
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_pipeline_that_adopted_nothing_still_begins_where_its_file_says(make_table_world: MakeTableWorld) -> None:
    world = make_table_world(settings={"kafka": {"starting_offsets": "latest"}})
    world.produce(40)
    assert world.ok("db", "adopt", "demo", "--why", "by mistake") == ""
    world.ok("run", "demo")
    assert world.rows() == {}


def test_a_restored_database_names_the_pipeline_whose_records_it_lacks(
    make_world: Callable[..., World], postgres: Postgres
) -> None:
    world = make_world()
    other = make_world(settings={"pipeline": "other", "sinks": [{"files": {"root": str(world.lake)}}]})
    for owner in (world, other):
        owner.produce(20)
    world.ok("run", "demo")
    with postgres.temporary_database("older", world.dsn.rpartition("/")[2]) as older:
        other.ok("run", "other")
        world.dsn = older
        assert "tidemark db adopt other --why TEXT" in world.here("plan", "demo").stderr


def test_schedule_13_of_two_sinks_of_files_the_exact_reader_names_one(make_world: Callable[..., World]) -> None:
    world = make_world()
    names = ["raw", "daily"]
    world.settings["sinks"] = [{"files": {"name": name, "root": str(world.lake / name)}} for name in names]
    world.write_pipeline()
    world.produce(60, bad_every=10)
    assert world.data_paths() == [], "before the first plan"
    world.ok("run", "demo")
    refused = world.here("objects", "demo")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "sinks daily and raw each hold every record as files: choose one" in refused.stderr
    for name in names:
        assert f"tidemark objects demo --sink {name}" in refused.stderr
        seen = places(world.data_paths("--sink", name)) + places(world.data_paths("--sink", name, "--dead-letters"))
        assert seen == world.everything()
        assert {view["sink"] for view in world.json("objects", "demo", "--sink", name)} == {name}
    with mock.patch.dict(os.environ, world.environment()):
        assert sum(view.rows for view in tidemark.objects("demo", sink="raw")) == 54
        with pytest.raises(ConfigurationError, match="each hold every record as files: choose one"):
            tidemark.objects("demo")
        with pytest.raises(NotFound, match='did you mean "raw"'):
            tidemark.objects("demo", sink="row")
    [manifest, *_] = world.manifests()
    assert {view["sink"] for view in manifest["objects"]} == {*names}


def test_the_sink_to_read_is_known_after_the_plan_that_its_refusal_names(make_world: Callable[..., World]) -> None:
    world = make_world()
    refused = world.here("objects", "demo", "--sink", "files")
    assert (refused.exit_code, "next:  first: tidemark plan demo\n" in refused.stderr) == (2, True), refused.stderr
    world.ok("plan", "demo")
    assert world.ok("objects", "demo", "--sink", "files") == ""
