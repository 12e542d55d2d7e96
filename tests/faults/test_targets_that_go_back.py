"""Databases and targets that go back, and crashes between two steps: T2 to T11 of the failure matrix."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg
import pytest
from confluent_kafka import TopicPartition

from sandbox.services.postgres import Postgres
from tests.faults.s3_proxy import Answer, Rule, S3Proxy
from tests.worlds.arrow_stage import arrow_stage
from tests.worlds.s3_world import S3World
from tests.worlds.table_world import TABLE_SCHEMA, TableWorld
from tests.worlds.world import World
from tidemark.database.migrate import migrate
from tidemark.errors import TidemarkError, Unavailable
from tidemark.lifecycle.attempt import process
from tidemark.lifecycle.in_target import record_of
from tidemark.lifecycle.publish import Publisher
from tidemark.model.receipt import Receipt
from tidemark.paths import RecordName
from tidemark.sinks.base import Sink
from tidemark.sinks.files.sink import FilesOutput

OTHER_ROWS = {"format": "json", "schema": "n BIGINT NOT NULL, at TIMESTAMP NOT NULL"}
ADOPT = "tidemark db adopt demo --why TEXT"


def change_rows(world: World) -> None:
    """From here on the same records make other rows, so a replay publishes them."""
    without_name = {"format": "json", "schema": TABLE_SCHEMA.replace("name STRING, ", "")}
    world.settings["decode"] = without_name if isinstance(world, TableWorld) else OTHER_ROWS
    world.write_pipeline()


def refused(world: World, *words: str) -> str:
    done = world.here(*words)
    assert done.exit_code == 1, (words, done.stdout, done.stderr)
    return done.stdout + done.stderr


def drop_records(world: World) -> None:
    ends = [TopicPartition(world.topic, partition, -1) for partition in range(world.partitions)]
    world.administer("delete_records", ends)


def test_T2_a_target_restored_from_an_older_copy_is_noticed_and_what_it_lacks_is_replayed(
    make_table_world: Callable[..., TableWorld], postgres: Postgres
) -> None:
    world = make_table_world()
    world.produce(30)
    world.ok("run", "demo", "--run-key", "one")
    with postgres.temporary_database("restored", world.targets["warehouse"].rpartition("/")[2]) as older:
        world.produce(30)
        world.ok("run", "demo", "--run-key", "two")
        world.targets["warehouse"] = older
        for words in (("plan", "demo"), ("replay", "demo", "--manifest", "1"), ("repair", "demo", "--why", "a test")):
            printed = refused(world, *words)
            assert "went back: it stands at position 1, and this database has published up to position 2" in printed
            assert ADOPT in printed
        assert "went back" in refused(world, "audit", "demo")
        adopted = world.ok("db", "adopt", "demo", "--why", "restored")
        assert "manifest 2 is published and not in" in adopted
        assert "next: tidemark replay demo --manifest 2" in adopted
        assert "tidemark replay demo --manifest 2" in refused(world, "audit", "demo")
        world.ok("replay", "demo", "--manifest", "2")
        world.assert_complete()


@pytest.mark.parametrize("kind", ["lake", "table"])
def test_T3_output_that_a_failed_over_database_has_no_receipt_of_is_refused_and_adopted(
    make_world: Callable[..., World], make_table_world: Callable[..., TableWorld], kind: str
) -> None:
    """The database has failed over to a replica that has ``start``, and neither receipt nor mark."""
    world = make_world() if kind == "lake" else make_table_world()
    world.produce(30)
    world.ok("run", "demo")
    with psycopg.connect(world.dsn, autocommit=True) as sql:
        sql.execute("SET session_replication_role = replica")  # no triggers, as a restore has none
        sql.execute("DELETE FROM tidemark.publication")
        sql.execute("UPDATE tidemark.attempt SET receipt = NULL, state = 'running', ended_at = NULL")
        sql.execute("UPDATE tidemark.manifest SET state = 'running', done_at = NULL")
        sql.execute("SELECT tidemark.count_done()")
    drop_records(world)
    for words in (
        ("plan", "demo"),
        ("retry", "demo"),
        ("accept", "loss", "demo", "--why", "t"),
        ("repair", "demo", "--why", "t"),
    ):
        printed = refused(world, *words)
        assert "holds a record of attempt 1, and this database has no receipt of it" in printed
        assert ADOPT in printed
    assert f"next: {ADOPT}" in refused(world, "audit", "demo")
    world.ok("db", "adopt", "demo", "--why", "failed over")
    world.assert_complete()


def test_T3_a_replay_that_a_failed_over_database_has_no_receipt_of_is_refused_by_retry_too(world: World) -> None:
    world.produce(30)
    world.ok("run", "demo")
    change_rows(world)
    world.tidemark("replay", "demo", "--manifest", "1", failpoint="publish.before_mark:kill9")
    with psycopg.connect(world.dsn, autocommit=True) as sql:
        sql.execute("SET session_replication_role = replica")
        sql.execute("UPDATE tidemark.attempt SET receipt = NULL WHERE attempt = 2")
    for words in (("plan", "demo"), ("retry", "demo"), ("accept", "loss", "demo", "--why", "t")):
        printed = refused(world, *words)
        assert "holds a record of attempt 2, and this database has no receipt of it" in printed
        assert ADOPT in printed
    world.ok("db", "adopt", "demo", "--why", "it failed over")
    world.ok("retry", "demo")
    world.assert_complete()


def test_T3_what_only_a_second_sink_shows_is_not_given_up_and_a_sink_that_is_silent_lets_nothing_be_given_up(
    make_table_world: Callable[..., TableWorld],
) -> None:
    world = make_table_world(has_lake=True)
    world.produce(30)
    world.ok("run", "demo")
    with psycopg.connect(world.dsn, autocommit=True) as sql:
        sql.execute("SET session_replication_role = replica")
        sql.execute("DELETE FROM tidemark.publication")
        sql.execute("UPDATE tidemark.attempt SET receipt = NULL, state = 'running', ended_at = NULL")
        sql.execute("UPDATE tidemark.manifest SET state = 'running', done_at = NULL")
        sql.execute("SELECT tidemark.count_done()")
    [record] = world.lake.glob("_manifests/demo/*.json")
    record.unlink()
    drop_records(world)
    give_up = ("accept", "loss", "demo", "--why", "t")
    warehouse = world.targets["warehouse"]
    world.targets["warehouse"] = "postgresql://nobody@127.0.0.1:1/none"
    assert "cannot be reached" in refused(world, *give_up)
    world.targets["warehouse"] = warehouse
    assert "and this database has no receipt of it" in refused(world, *give_up)
    assert world.manifests()[0]["state"] == "running"


def test_T4_a_record_that_lands_after_its_attempt_gave_up_is_not_believed(
    make_s3_world: Callable[..., S3World], s3_proxy: S3Proxy
) -> None:
    """The record's PUT is unanswered and not found, the attempt gives up, the PUT lands, and its DELETEs land last."""
    world = make_s3_world(endpoint_url=s3_proxy.endpoint_url, settings={"kafka": {"slice": {"max_records": 1000}}})
    world.produce(30)
    given_up: list[tuple[Sink, Receipt]] = []
    s3_proxy.arm(Rule(Answer.CUT_BEFORE, "PUT", "_manifests/demo/", copy=False, times=-1))
    with mock.patch.object(Sink, "discard", lambda sink, receipt: given_up.append((sink, receipt))):
        assert "S3 did not answer" in refused(world, "run", "demo", "--run-key", "one")
    s3_proxy.disarm()
    [(sink, receipt)] = given_up
    context = world.context()
    assert isinstance(sink.output, FilesOutput)
    record = record_of(sink, receipt, context.database.manifests.get(1).ranges, context.database.id())
    sink.output.write_record(RecordName("demo", 1, receipt.attempt), record)
    assert "which died and is not published" in refused(world, "audit", "demo")
    world.ok("retry", "demo")
    assert world.manifests()[0]["published_attempt"] == 2
    sink.discard(receipt)
    world.assert_complete()


@pytest.mark.parametrize("dies", [False, True], ids=["goes on", "dies right after its record"])
def test_T6_a_replay_swept_between_its_last_question_and_its_record_leaves_no_record_of_what_is_gone(
    world: World, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    world.produce(30)
    world.ok("run", "demo")
    change_rows(world)
    replaying = world.context()
    write = FilesOutput.write_record

    def write_when_swept(output: FilesOutput, *arguments: Any) -> None:
        """The session ends while the process is stopped; somebody sweeps; the process wakes and goes on."""
        monkeypatch.undo()
        with psycopg.connect(world.dsn, autocommit=True) as sql:
            sql.execute(
                "SELECT pg_terminate_backend(l.pid, 30000) FROM pg_locks l JOIN pg_database d ON d.oid = l.database "
                "WHERE l.locktype = 'advisory' AND d.datname = current_database() AND l.objsubid = 1"
            )
        world.ok("retry", "demo")
        write(output, *arguments)
        if dies:
            monkeypatch.setattr(Publisher, "_give_up", lambda *_: None)  # as of a process that is gone
            raise Unavailable("it was killed here", next_step="this is a fault of the test")

    monkeypatch.setattr(FilesOutput, "write_record", write_when_swept)
    with pytest.raises(TidemarkError):
        process(replaying, 1, arrow_stage, replay=True)
    monkeypatch.undo()
    late = list(world.lake.glob("_manifests/demo/*.0002.json"))
    assert len(late) == dies, "it would name what was swept"
    if not dies:
        world.assert_whole()
    world.ok("retry", "demo")
    assert not list(world.lake.glob("_manifests/demo/*.0002.json"))
    world.assert_complete()
    assert world.manifests()[0]["published_attempt"] == 1


def test_T7_adopt_falls_back_to_the_newest_whole_record_and_retry_removes_the_other(world: World) -> None:
    world.produce(30)
    world.ok("run", "demo")
    change_rows(world)
    world.tidemark("replay", "demo", "--manifest", "1", failpoint="publish.before_mark:kill9")
    record = json.loads((world.lake / "_manifests/demo/0000000001.0002.json").read_text())
    (world.lake / record["objects"][0]["path"]).unlink()
    world.lose_manifest_database()
    world.ok("db", "adopt", "demo", "--why", "lost the database")
    assert world.exact() == world.everything()
    assert world.manifests()[0]["published_attempt"] == 1
    assert "next: tidemark retry demo" in refused(world, "audit", "demo")
    world.ok("retry", "demo")
    world.assert_complete()
    world.produce(20)
    world.ok("run", "demo")
    world.assert_complete()


def test_T7_a_record_that_cannot_be_read_is_named_by_adopt_and_its_way_out_ends_well(world: World) -> None:
    world.produce(30)
    world.ok("run", "demo")
    [record] = world.lake.glob("_manifests/demo/*.json")
    record.write_text(record.read_text()[:40])
    world.lose_manifest_database()
    assert ADOPT in refused(world, "plan", "demo")
    printed = refused(world, "db", "adopt", "demo", "--why", "lost the database")
    assert "_manifests/demo/0000000001.0001.json cannot be read as a record" in printed
    assert "move it and its output out of the target, and its offsets are planned again" in printed
    assert "without a copy" in printed
    assert ADOPT in refused(world, "plan", "demo"), "nothing was adopted, and the lake is not this database's"
    record.unlink()
    for path in world.lake.glob("raw/**/*.parquet"):
        path.unlink()
    world.ok("db", "adopt", "demo", "--why", "lost the database and the record")
    world.ok("run", "demo")
    world.assert_complete()


def test_T7_a_manifest_without_a_whole_record_is_adopted_as_damaged_and_replayed(world: World) -> None:
    world.produce(30)
    world.ok("run", "demo")
    world.damage(world.manifests()[0])
    world.lose_manifest_database()
    adopted = world.ok("db", "adopt", "demo", "--why", "lost the database")
    assert "some of them are missing in files; next: tidemark replay demo --manifest 1" in adopted
    assert "next: tidemark replay demo --manifest 1" in refused(world, "audit", "demo")
    world.ok("plan", "demo")
    world.ok("replay", "demo", "--manifest", "1")
    world.assert_complete()


def test_T8_damage_that_the_source_cannot_mend_is_accepted_once_and_not_missed_again(world: World) -> None:
    world.produce(30)
    world.ok("run", "demo")
    manifest = world.manifests()[0]
    gone = Path(manifest["objects"][0]["path"])
    world.damage(manifest)
    accept = ("accept", "damage", "demo", "--manifest", "1", "--why", "the disk died")
    assert "still holds its offsets" in refused(world, *accept)
    drop_records(world)
    assert "next: tidemark replay demo --manifest 1" in refused(world, "audit", "demo")
    printed = refused(world, "replay", "demo", "--manifest", "1")
    assert "tidemark accept damage demo --manifest 1 --why TEXT" in printed
    assert "accept loss" not in printed
    told = world.json(*accept, "--dry-run")
    assert f"{gone.relative_to(world.lake)} is lost" in told["lines"][0]
    assert world.json(*accept)["lines"] == told["lines"]
    assert world.ok("audit", "demo", "--deep") == ""
    assert gone not in world.data_paths()
    assert world.exact() == world.recorded() == world.listing()
    assert world.here(*accept).exit_code == 2, "nothing more is gone"
    assert [row["decision"] for row in world.json("history", "demo")] == ["accept-damage"]
    world.produce(20)
    world.ok("run", "demo")
    assert world.ok("audit", "demo", "--deep") == ""


def test_T8_rows_of_a_table_whose_marker_is_gone_are_accepted_as_lost(
    make_table_world: Callable[..., TableWorld],
) -> None:
    world = make_table_world()
    world.produce(30)
    world.ok("run", "demo")
    world.query("DELETE FROM tidemark_target.marker RETURNING manifest")
    world.execute("DELETE FROM public.latest WHERE k > 4")
    drop_records(world)
    assert "next: tidemark replay demo --manifest 1" in refused(world, "audit", "demo")
    lines = world.json("accept", "damage", "demo", "--manifest", "1", "--why", "restored")["lines"]
    assert "rows are lost" in lines[0]
    assert world.ok("audit", "demo", "--deep") == "", "nor does one miss them that counts the rows"


def test_T9_a_lake_adopted_by_a_second_database_refuses_the_first_at_its_next_verb(
    world: World, postgres: Postgres
) -> None:
    world.produce(30)
    world.ok("run", "demo")
    first = world.dsn
    with postgres.temporary_database("second") as second:
        world.dsn = second
        migrate(second)
        world.ok("db", "adopt", "demo", "--why", "moved")
        world.produce(30)
        world.ok("run", "demo", "--run-key", "two")
        world.assert_complete()
        before = world.files()
        world.dsn = first
        for words in (("plan", "demo"), ("run", "demo"), ("replay", "demo", "--manifest", "1"),
                      ("accept", "loss", "demo", "--why", "t"), ("repair", "demo", "--why", "t"),
                      ("db", "adopt", "demo", "--why", "t")):  # fmt: skip
            assert "was adopted by the manifest database" in refused(world, *words)
        assert "was adopted by the manifest database" in refused(world, "audit", "demo")
        world.here("retry", "demo")
        assert world.files() == before
        world.dsn = second
        world.ok("run", "demo", "--run-key", "three")
        world.assert_complete()


def test_T11_a_replay_that_reached_one_of_two_sinks_is_told_and_ended_by_retry(
    make_table_world: Callable[..., TableWorld],
) -> None:
    world = make_table_world(has_lake=True)
    world.produce(30)
    world.ok("run", "demo")
    change_rows(world)
    world.tidemark("replay", "demo", "--manifest", "1", failpoint="publish.marked:kill9")
    [manifest] = world.manifests()
    assert [(row["sink"], row["attempt"], row["behind"]) for row in manifest["publications"]] == [
        ("files", 2, False),
        ("postgres", 1, True),
    ]
    assert "1 (behind)" in world.ok("show", "1")
    told = world.ok("manifests", "demo")
    assert "manifest 1: a replay has not reached postgres; next: tidemark retry demo" in " ".join(told.split())
    printed = refused(world, "audit", "demo")
    assert "manifest 1: sink postgres shows attempt 1, and a replay has reached only other sinks" in printed
    assert "next: tidemark retry demo" in printed
    world.ok("retry", "demo")
    assert not any(row["behind"] for row in world.manifests()[0]["publications"])
    assert world.manifests()[0]["published_attempt"] == 3 or world.ok("audit", "demo") == ""
    world.assert_complete()
