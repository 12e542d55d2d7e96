"""What a person decides: each verb says what it would do, does it, and leaves who and why in the history."""

import getpass
import json
import signal
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import TopicPartition

from sandbox.services.broker import Broker
from sandbox.services.postgres import Postgres
from tests.worlds.arrow_stage import arrow_stage
from tests.worlds.world import World, wait_stopped, wake
from tidemark.database.client import ManifestDatabase, on_this_machine
from tidemark.errors import PlanRefused
from tidemark.lifecycle.attempt import process
from tidemark.lifecycle.plan import Tick, plan
from tidemark.model.manifest import RunKind
from tidemark.model.order import Order
from tidemark.model.receipt import Receipt

Make = Callable[..., World]


def drop_before(world: World, partition: int, offset: int) -> None:
    world.administer("delete_records", [TopicPartition(world.topic, partition, offset)])


def assert_decided(world: World, *decided: tuple[str, str]) -> None:
    """The history has just these decisions and reasons, oldest first, all of the user at this command line."""
    told = [(decision["decision"], decision["why"], decision["actor"]) for decision in world.json("history", "demo")]
    assert told == [(*decision, on_this_machine(f"cli {getpass.getuser()}")) for decision in decided]


def lost(world: World) -> list[tuple[int, int, int]]:
    with psycopg.connect(world.dsn) as connection:
        return connection.execute(
            "SELECT c.partition, r.start_offset, r.end_offset FROM tidemark.manifest_range r "
            "JOIN tidemark.chain c ON c.id = r.chain_id WHERE r.kind = 'lost' ORDER BY c.partition, r.start_offset"
        ).fetchall()


def test_offsets_that_retention_took_are_given_up_by_a_person_and_stay_visible_as_lost(world: World) -> None:
    world.produce(40)
    world.ok("run", "demo")
    world.produce(40)
    drop_before(world, 0, 30)
    refused = world.here("run", "demo")
    assert refused.exit_code == 1
    assert "[20, 30)" in refused.stderr
    assert "tidemark accept loss demo" in refused.stderr
    red = world.here("status", "--max-lag", "1000")
    assert red.exit_code == 1
    assert f"lost: retention took offsets [20, 30) of {world.topic}-0 before they were planned" in red.stdout
    assert "next: tidemark accept loss demo --why TEXT" in red.stdout
    would = world.ok("accept", "loss", "demo", "--why", "too late", "--dry-run")
    assert would == f"{world.topic}-0: offsets [20, 30) are given up\n"
    assert lost(world) == []
    world.ok("accept", "loss", "demo", "--why", "too late")
    assert lost(world) == [(0, 20, 30)]
    world.ok("run", "demo")
    gone = Counter((world.topic, 0, offset) for offset in range(20, 30))
    assert world.exact() == world.everything() - gone
    assert world.ok("audit", "demo", "--deep") == ""
    assert "; accepted loss 10 offsets" in world.ok("status", "--max-lag", "0")
    [healthy] = world.json("status", "--max-lag", "0")
    assert (healthy["healthy"], healthy["lost"], healthy["problems"]) == (True, 10, [])
    assert world.here("accept", "loss", "demo", "--why", "again").exit_code == 2
    assert_decided(world, ("accept-loss", "too late"))


def test_what_is_lost_under_a_living_attempt_is_not_called_safe(world: World) -> None:
    world.produce(40)
    at_work = world.start("run", "demo", failpoint="read.before:stop")
    wait_stopped(at_work)
    drop_before(world, 0, 5)
    refused = world.here("accept", "loss", "demo", "--why", "too late")
    assert refused.exit_code == 1
    assert "attempt 1 is at work on offsets of this decision" in refused.stderr
    assert wake(at_work).returncode == 1
    world.ok("accept", "loss", "demo", "--why", "too late")
    world.ok("retry", "demo")
    assert lost(world) == [(0, 0, 5)]


def test_a_planned_range_whose_records_are_gone_is_split_into_lost_and_data(world: World) -> None:
    world.produce(40)
    world.ok("plan", "demo")
    drop_before(world, 0, 5)
    assert world.here("retry", "demo").exit_code == 1
    world.ok("accept", "loss", "demo", "--why", "too late")
    assert lost(world) == [(0, 0, 5)]
    world.ok("retry", "demo")
    assert world.exact() == world.everything() - Counter((world.topic, 0, offset) for offset in range(5))
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_manifest_that_lost_everything_ends_done_and_empty(make_world: Callable[..., World]) -> None:
    world = make_world(partitions=1)
    world.produce(10)
    world.ok("plan", "demo")
    drop_before(world, 0, 10)
    world.ok("accept", "loss", "demo", "--why", "all gone")
    world.ok("retry", "demo")
    [manifest] = world.json("manifests", "demo")
    assert (manifest["state"], manifest["ranges"], manifest["counts"]["read"]) == ("done", [], 0)
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_recreated_topic_is_refused_until_accepted_and_then_read_from_its_beginning(
    world: World, broker: Broker
) -> None:
    world.produce(40)
    world.ok("run", "demo")
    old = world.exact()
    broker.delete_topic(world.topic)
    broker.create_topic(world.topic, 2, {"retention.ms": "-1"})
    world.produce(90)
    for _ in range(2):  # the refusal stands
        refused = world.here("run", "demo")
        assert refused.exit_code == 1
        assert f"tidemark accept topic demo --topic {world.topic}" in refused.stderr
    accept = ("accept", "topic", "demo", "--topic", world.topic, "--why", "migrated")
    assert "log generation 1 ends at 20" in world.ok(*accept, "--dry-run")
    world.ok(*accept)
    world.ok("run", "demo")
    new = Counter((world.topic, at, offset) for at in (0, 1) for offset in range(45))
    assert world.exact() == old + new, "I5 generations apart"
    assert_decided(world, ("accept-topic", "migrated"))
    assert world.ok("audit", "demo", "--deep") == ""
    first = world.manifests()[0]["id"]
    replay = world.here("replay", "demo", "--manifest", str(first))
    assert replay.exit_code == 1
    assert "planned on a chain that has ended: its topic was recreated, or its log was truncated" in replay.stderr


def test_extending_back_reads_what_lies_before_the_anchor_beside_new_runs(make_world: Callable[..., World]) -> None:
    world = make_world(settings={"kafka": {"starting_offsets": "latest"}})
    world.produce(100)
    world.ok("run", "demo")
    world.produce(30)
    world.ok("run", "demo")
    assert sum(world.exact().values()) == 30
    asked = ("where", world.topic, "0", "3")
    assert "tidemark extend-back demo --why TEXT reads older records" in world.here(*asked).stdout
    assert "in 3 slices" in world.ok("extend-back", "demo", "--why", "history", "--dry-run")
    world.ok("extend-back", "demo", "--why", "history")
    world.produce(10)
    world.ok("run", "demo")
    world.ok("retry", "demo")
    world.assert_complete()
    world.ok(*asked)
    assert world.here("extend-back", "demo", "--why", "again").exit_code == 1
    assert_decided(world, ("extend-back", "history"))


def test_a_restored_older_database_adopts_what_the_lake_knows_better(world: World, postgres: Postgres) -> None:
    world.produce(40)
    world.ok("run", "demo")
    name = world.dsn.rpartition("/")[2].partition("?")[0]
    with postgres.temporary_database("older", name) as older:
        world.produce(60)
        world.ok("run", "demo")
        complete = world.exact()
        world.dsn = older
        refused = world.here("run", "demo")
        assert refused.exit_code == 1
        assert "tidemark db adopt demo" in refused.stderr
        records = [line for line in world.here("audit", "demo").stdout.splitlines() if line.startswith("_manifests/")]
        assert len(records) == 2
        assert all("next: tidemark db adopt demo --why TEXT, which reads it back" in line for line in records)
        assert len(world.ok("db", "adopt", "demo", "--why", "restored", "--dry-run").splitlines()) == 2
        world.ok("db", "adopt", "demo", "--why", "restored")
        assert world.exact() == complete
        world.produce(20)
        world.ok("run", "demo")
        world.assert_complete()
        assert_decided(world, ("adopt", "restored"))


def test_what_a_forgotten_attempt_staged_is_swept_by_the_restored_database_and_by_no_other(
    world: World, postgres: Postgres, template: str
) -> None:
    world.produce(20)
    world.ok("run", "demo")
    name = world.dsn.rpartition("/")[2].partition("?")[0]
    with postgres.temporary_database("older", name) as older, postgres.temporary_database("foreign", template) as other:
        with psycopg.connect(other) as connection:
            connection.execute("UPDATE tidemark.database SET id = gen_random_uuid()")
        world.produce(20)
        assert world.tidemark("run", "demo", failpoint="stage.done:kill9").returncode == -signal.SIGKILL
        staged = world.lake / "_staging/0000000002/0001"
        assert list(staged.rglob("*.parquet")), "the newer database's attempt died with staging, and left no record"
        world.dsn = other
        world.here("retry", "demo")
        assert list(staged.rglob("*.parquet")), "another database's staging is left alone"
        world.dsn = older
        world.ok("retry", "demo")
        assert not staged.exists()
        world.ok("run", "demo")
        world.assert_complete()


def test_schedule_15_what_an_older_attempt_of_a_reissued_number_staged_is_not_there_for_the_next(
    world: World, postgres: Postgres
) -> None:
    world.produce(20)
    world.ok("plan", "demo")
    with postgres.temporary_database("older", world.dsn.rpartition("/")[2].partition("?")[0]) as older:
        assert world.tidemark("retry", "demo", failpoint="stage.done:kill9").returncode == -signal.SIGKILL
        staging = world.lake / "_staging/0000000001/0001"
        (staging / "receipt.json").write_text("{}")
        assert list(staging.rglob("*.parquet")), "the attempt died with staging, and the older database knows nothing"
        world.dsn = older
        left: list[Path] = []

        def stage(order: Order) -> Receipt:
            left.extend(staging.rglob("*"))
            return arrow_stage(order)

        assert process(world.context(), 1, stage).attempt == 1
        assert left == []
        world.assert_complete()


def lose_output(world: World, manifest: dict[str, Any]) -> None:
    """Somebody removed the objects of its first attempt, and the record of them."""
    for object_ in [*manifest["objects"], *manifest["dead_letter_objects"]]:
        Path(object_["path"]).unlink()
    (world.lake / f"_manifests/demo/{manifest['id']:010d}.0001.json").unlink()


def test_an_empty_database_adopts_a_whole_lake_and_reads_the_holes_again(world: World) -> None:
    world.produce(120)
    world.ok("run", "demo")
    lose_output(world, world.manifests()[1])
    world.lose_manifest_database()
    world.ok("db", "adopt", "demo", "--why", "lost the database")
    world.ok("retry", "demo")
    world.assert_complete()
    world.produce(20)
    world.ok("run", "demo")
    world.assert_complete()


def test_repair_removes_strays_of_ours_writes_lost_records_and_leaves_other_files_alone(world: World) -> None:
    world.produce(40)
    world.ok("run", "demo")
    [manifest] = world.json("manifests", "demo")
    published = Path(manifest["objects"][0]["path"])
    stray = published.with_name(published.name.replace("-a0001-", "-a0002-"))
    stray.write_bytes(published.read_bytes())
    record = world.lake / f"_manifests/demo/{manifest['id']:010d}.0001.json"
    kept = json.loads(record.read_text())
    record.unlink()
    foreign = published.with_name("part-0.parquet")
    foreign.write_bytes(b"not ours")
    assert len(world.here("audit", "demo").stdout.splitlines()) == 3
    [removed, not_repaired] = world.ok("repair", "demo", "--why", "r", "--dry-run").splitlines()
    assert removed.startswith("would remove")
    assert not_repaired.endswith("shows no record of the published manifests 1; next: tidemark retry demo")
    assert stray.exists()
    world.ok("repair", "demo", "--why", "leftovers")
    assert not stray.exists()
    assert json.loads(record.read_text()) == kept
    assert foreign.exists()
    foreign.unlink()
    world.assert_complete()
    assert_decided(world, ("repair", "leftovers"))


def test_repair_says_whose_staging_it_removes_before_and_after(world: World) -> None:
    world.produce(40)
    world.ok("run", "demo")
    killed = world.tidemark("replay", "demo", "--manifest", "1", failpoint="publish.marked:kill9")
    assert killed.returncode < 0
    assert world.ok("repair", "demo", "--why", "r", "--dry-run") == "would remove the staging of manifest 1\n"
    assert list(world.lake.glob("_staging/*"))
    assert world.ok("repair", "demo", "--why", "leftovers") == "removed the staging of manifest 1\n"
    assert not list(world.lake.glob("_staging/*"))
    assert_decided(world, ("repair", "leftovers"))


@pytest.mark.parametrize("command", ["accept loss", "db adopt", "repair", "extend-back"])
def test_a_decision_without_a_reason_is_wrong_use(world: World, command: str) -> None:
    assert "Missing option '--why'" in world.here(*command.split(), "demo").stderr


def test_a_backfill_from_before_the_anchor_is_refused_and_names_the_way(make_world: Callable[..., World]) -> None:
    world = make_world(settings={"kafka": {"starting_offsets": "latest"}})
    world.produce(10)
    world.send('{"n": 0, "at": "2024-03-01T00:00:00Z"}', at=datetime.now(UTC))
    world.ok("run", "demo")
    context = world.context()
    with pytest.raises(PlanRefused, match="tidemark extend-back demo"):
        plan(context, Tick.at(datetime.now(UTC) - timedelta(hours=1), RunKind.BACKFILL))


def test_a_topic_taken_out_of_the_file_and_put_back_goes_on_where_its_chain_ended(world: World) -> None:
    world.produce(20)
    world.ok("run", "demo")
    other = f"{world.topic}-other"
    world.broker.create_topic(other, 1, {"retention.ms": "-1"})
    world.write_pipeline(topics=[other])
    world.ok("run", "demo")
    world.write_pipeline()
    world.produce(20)
    world.ok("run", "demo")
    world.broker.delete_topic(other)
    world.assert_complete()


def test_accepting_a_topic_that_was_never_another_one_reads_nothing_again(world: World) -> None:
    world.produce(20)
    world.ok("run", "demo")
    with ManifestDatabase(world.dsn, "test") as database:
        database.chains.block(
            [chain.id for chain in database.chains.of_pipeline("demo")], "it looked gone for a moment", None
        )
    world.produce(20)
    assert world.here("run", "demo").exit_code == 1
    assert "its chain goes on at 10" in world.ok(
        "accept", "topic", "demo", "--topic", world.topic, "--why", "it is back"
    )
    world.ok("run", "demo")
    world.assert_complete()
    assert_decided(world, ("accept-topic", "it is back"))


def test_what_an_attempt_recorded_is_not_lost_whichever_code_made_it(make_world: Make) -> None:
    world = make_world(partitions=1)
    world.produce(20)
    killed = world.tidemark("run", "demo", failpoint="publish.before_mark:kill9")
    assert killed.returncode == -signal.SIGKILL
    drop_before(world, 0, 5)
    refused = world.here("accept", "loss", "demo", "--why", "retention")
    assert refused.exit_code == 1
    assert "only its publication is missing" in refused.stderr
    world.settings["decode"] = {"format": "json", "schema": "n BIGINT NOT NULL, at TIMESTAMP"}  # other code
    world.write_pipeline()
    assert world.here("accept", "loss", "demo", "--why", "retention").exit_code == 1
    world.ok("retry", "demo")
    assert lost(world) == []
    assert world.exact() == Counter((world.topic, 0, offset) for offset in range(20))
    assert world.ok("audit", "demo", "--deep") == ""


def test_several_holes_of_one_partition_are_adopted_as_manifests_of_their_own(make_world: Make) -> None:
    world = make_world(partitions=1)
    world.produce(200)
    world.ok("run", "demo")
    for manifest in world.manifests()[1::2]:
        lose_output(world, manifest)
    world.lose_manifest_database()
    world.ok("db", "adopt", "demo", "--why", "lost the database")
    world.ok("retry", "demo")
    world.assert_complete()


def test_what_waits_for_a_retry_is_not_repaired_away(world: World) -> None:
    world.produce(20)
    killed = world.tidemark("run", "demo", failpoint="publish.before_mark:kill9")
    assert killed.returncode == -signal.SIGKILL
    world.ok("repair", "demo", "--why", "tidy")
    assert world.listing() == world.everything()
    world.ok("retry", "demo")
    assert world.manifests()[0]["published_attempt"] == 1, "found, not done again"
    world.assert_complete()


def test_a_moved_root_is_refused_by_a_retry_too(world: World) -> None:
    world.produce(20)
    world.ok("plan", "demo")
    world.settings["sinks"] = [{"files": {"root": str(world.folder / "elsewhere")}}]
    world.write_pipeline()
    refused = world.here("retry", "demo")
    assert refused.exit_code != 0
    assert "elsewhere" in refused.stderr
    assert not (world.folder / "elsewhere").exists()
