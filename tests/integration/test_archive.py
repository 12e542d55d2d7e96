"""``tidemark db archive``: old manifests are folded away, readers see what they saw, and the proof is kept."""

import getpass
import json
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import TopicPartition

from sandbox.services.broker import Broker
from sandbox.services.postgres import Postgres
from tests.worlds.table_world import TableWorld
from tests.worlds.world import World, wait_ended, wait_stopped, wake
from tidemark.database.client import ManifestDatabase
from tidemark.database.migrate import migrate
from tidemark.errors import IllegalTransition, TidemarkError
from tidemark.lifecycle.covering import manifests_between
from tidemark.model.digest import Digest
from tidemark.views.lanes import lane_views

Make = Callable[..., World]
MakeTable = Callable[..., TableWorld]
WHY = ("--why", "it grows")


def now() -> str:
    return datetime.now(UTC).isoformat()


def archived(world: World, *words: str, before: str = "") -> dict[str, Any]:
    done: dict[str, Any] = world.json("db", "archive", "demo", "--before", before or now(), *WHY, *words)
    return done


def runs(world: World, number: int = 3) -> None:
    """Several runs with two manifests each."""
    for _ in range(number):
        world.produce(80)
        world.ok("run", "demo")


def counted(world: World, table: str) -> int:
    with psycopg.connect(world.dsn) as connection:
        [[number]] = connection.execute(f"SELECT count(*) FROM tidemark.{table}")  # type: ignore[arg-type]
    return int(number)


@pytest.fixture(params=["files", "table", "a lake and a table", "a table in the manifest database"])
def any_world(request: pytest.FixtureRequest, make_world: Make, make_table_world: MakeTable) -> World:
    if request.param == "files":
        return make_world()
    return make_table_world(has_lake="lake" in request.param, same="manifest" in request.param)


def test_readers_see_what_they_saw_and_audits_plans_and_replays_go_on(any_world: World) -> None:
    world = any_world
    runs(world)
    before = world.manifests()
    middle = now()
    runs(world, 1)
    late = world.manifests()[len(before) :]
    would = archived(world, "--dry-run", before=middle)
    assert world.manifests() == before + late, "a dry run changes nothing"
    done = archived(world, before=middle)
    ids = [manifest["id"] for manifest in before]
    told = ("manifests", "first_manifest", "last_manifest", "offsets", "stops")
    assert [done[key] for key in told] == [len(ids), ids[0], ids[-1], 240, []]
    assert [would[key] for key in told] == [done[key] for key in told]
    assert (would["archive"], done["archive"]) == (None, 1)
    assert world.manifests() == late, "only live ones are listed"
    world.assert_whole()
    world.assert_complete()
    starts = [(partition, kind, start, end) for partition, kind, start, end in world.chain() if kind == "archived"]
    assert starts == [(0, "archived", 0, 120), (1, "archived", 0, 120)]
    for table in ("manifest", "publication", "attempt"):
        assert counted(world, table) <= len(late) * 2
    world.produce(80)
    world.ok("run", "demo")
    before_replay = now()
    world.ok("replay", "demo", "--manifest", str(late[0]["id"]))
    world.ok("retry", "demo")
    world.assert_complete()
    refused = world.here("db", "archive", "demo", "--before", before_replay, *WHY)
    assert refused.exit_code == 1
    assert f"manifest {late[0]['id']} was replayed, or tried again, since" in refused.stderr
    again = archived(world)
    assert (again["archive"], again["manifests"]) == (2, len(late) + 2)
    assert world.manifests() == []
    assert [row[1] for row in world.chain()] == ["anchor", "archived", "anchor", "archived"]
    world.produce(80)
    world.ok("run", "demo")
    world.assert_complete()


def proof(world: World) -> dict[str, Any]:
    with ManifestDatabase(world.dsn, "reader") as database:
        [of_sink] = database.session.execute("SELECT * FROM archive_sink").fetchall()
        ranges = database.session.execute(
            "SELECT * FROM archive_range r JOIN chain c ON c.id = r.chain_id ORDER BY c.partition, r.start_offset"
        ).fetchall()
        return {**of_sink, "ranges": ranges, "false": database.audits.false_proofs("demo")}


def test_the_proof_is_the_sum_of_what_was_published_also_over_batches_and_with_lost_offsets(make_world: Make) -> None:
    world = make_world(settings={"kafka": {"on_data_loss": "record"}})
    world.produce(40, bad_every=8)
    world.ok("run", "demo")
    world.produce(40)
    world.administer("delete_records", [TopicPartition(world.topic, 0, 30)])
    world.ok("run", "demo")
    world.produce(40)
    world.ok("run", "demo")
    before, exact = world.manifests(), world.exact()
    status = world.json("status")
    pipeline_sums = sums(world)
    archived(world, "--batch", "1")
    kept = proof(world)
    publications = [manifest["publications"][0] for manifest in before]
    digests = [Digest.parse(published["digest"]) for published in publications]
    assert kept["digest"] == str(sum(digests, Digest.zero()))
    assert kept["manifests"] == len(before)
    assert kept["counts"] == {
        name: sum(published["counts"][name] for published in publications) for name in publications[0]["counts"]
    }
    ranges = [(row["partition"], row["start_offset"], row["end_offset"], row["lost"]) for row in kept["ranges"]]
    assert ranges == [(0, 0, 60, 10), (1, 0, 60, 0)], "batches of one archive are one range"
    assert [row["read"] for row in kept["ranges"]] == [50, 60]
    assert kept["false"] == []
    assert world.exact() == exact
    assert world.ok("audit", "demo", "--deep") == ""
    assert sums(world) == pipeline_sums
    after = world.json("status")
    assert [(pipeline["lost"], pipeline["dead_lettered"]) for pipeline in after] == [(10, 5)]
    assert [(pipeline["lost"], pipeline["dead_lettered"]) for pipeline in status] == [(10, 5)]
    [where] = json.loads(world.here("where", world.topic, "0", "25", "--json").stdout)
    assert (where["standing"], where["range"]) == ("lost", {"start": 20, "end": 30})
    complete = json.loads(world.here("complete", "demo", "--until", now(), "--json").stdout)
    assert [(part["start"], part["end"]) for part in complete["lost"]] == [(20, 30)]


def sums(world: World) -> list[object]:
    with ManifestDatabase(world.dsn, "reader") as database:
        counts = [dict(database.publications.sums("demo")), database.ranges.lost_offsets("demo")]
        return [*counts, {state: row["manifests"] for state, row in database.manifests.states("demo").items()}]


def test_somebody_who_changes_the_archive_by_hand_is_noticed_by_the_audit(world: World) -> None:
    runs(world)
    archived(world)
    for change in ("digest = repeat('0', 48)", "counts = counts || '{\"read\": 1}'"):
        with psycopg.connect(world.dsn) as connection:
            connection.execute("SET LOCAL session_replication_role = replica")
            connection.execute(f"UPDATE tidemark.archived_publication SET {change}")  # type: ignore[arg-type]
        audit = world.here("audit", "demo")
        assert audit.exit_code == 1
        assert "archive 1 has other publications in sink files than when it was made" in audit.stdout


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM archived_manifest",
        "UPDATE archived_manifest SET done_at = now()",
        "DELETE FROM archived_publication",
        "DELETE FROM archived_attempt",
        "DELETE FROM archive",
        "UPDATE archive SET why = 'another'",
        "DELETE FROM archive_range",
        "UPDATE archive_range SET lost = 0",
        "DELETE FROM archive_sink",
        "DELETE FROM manifest_range WHERE kind = 'archived'",
        "UPDATE manifest_range SET end_offset = 0 WHERE kind = 'archived'",
        "DELETE FROM manifest",
        "DELETE FROM attempt",
        "DELETE FROM publication",
    ],
)
def test_nothing_else_may_change_what_is_archived_or_delete_what_is_not(
    archived_in_part: tuple[World, datetime], statement: str
) -> None:
    world, _ = archived_in_part
    with psycopg.connect(world.dsn, options="-c search_path=tidemark -c tidemark.actor=person") as connection:
        with pytest.raises(psycopg.Error) as refused:
            connection.execute(statement)  # type: ignore[arg-type]
        assert refused.value.sqlstate == "TM002"


@pytest.fixture
def archived_in_part(world: World) -> tuple[World, datetime]:
    """A world with manifests 1 to 4 archived, at a time, and 5 and 6 not."""
    runs(world, 2)
    middle = datetime.now(UTC)
    runs(world, 1)
    assert archived(world, before=middle.isoformat())["manifests"] == 4
    return world, middle


def test_the_function_refuses_what_the_command_would_never_ask_for(world: World) -> None:
    runs(world, 2)
    world.produce(80)
    world.ok("plan", "demo")
    asked = {
        (2,): ("cannot be folded past manifest 1", 0),
        (1, 2, 3, 4, 5): ("manifest 5 may not be archived: unfinished", 0),
        (1, 99): ("manifest 99 may not be archived: not of the pipeline", 0),
        (1,): ("manifest 1 may not be archived: recent", 1),
    }
    for manifests, (refusal, days) in asked.items():
        with pytest.raises(TidemarkError, match=refusal):
            fold(world, manifests, datetime.now(UTC) - timedelta(days=days))
    assert counted(world, "archive") == 0
    assert len(world.manifests()) == 6
    with psycopg.connect(world.dsn, autocommit=True) as connection:
        connection.execute("SET tidemark.chain_surgery = 'on'")
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            connection.execute("DELETE FROM tidemark.manifest_range WHERE start_offset = 0")


def fold(world: World, manifests: tuple[int, ...], before: datetime) -> None:
    with ManifestDatabase(world.dsn, "test") as database, database.because("a test"):
        database.archives.fold(database.archives.begin("demo", before, "a test"), manifests)


def test_killed_between_two_batches_readers_see_all_and_the_same_command_goes_on(world: World) -> None:
    runs(world)
    before, exact = world.manifests(), world.exact()
    command = ("db", "archive", "demo", "--before", now(), *WHY, "--batch", "1")
    killed = world.tidemark(*command, failpoint="archive.batch:kill9@2")
    assert killed.returncode == -signal.SIGKILL
    left = world.manifests()
    assert 0 < len(left) < len(before)
    assert world.exact() == exact
    world.assert_complete()
    assert world.tidemark(*command).returncode == 0
    assert world.manifests() == []
    world.produce(80)
    world.ok("run", "demo")
    world.assert_complete()
    [kept, rest] = world.json("history", "demo")
    assert {kept["decision"], rest["decision"]} == {"archive"}


def test_a_plan_a_run_and_a_replay_between_two_batches_are_not_disturbed(world: World) -> None:
    runs(world)
    at_work = world.start(
        "db", "archive", "demo", "--before", now(), *WHY, "--batch", "1", failpoint="archive.batch:stop"
    )
    wait_stopped(at_work)
    world.produce(80)
    world.ok("run", "demo")
    world.ok("replay", "demo", "--manifest", "4")
    ended = wake(at_work)
    assert ended.returncode == 0, ended.stderr
    assert [manifest["id"] for manifest in world.manifests()] == [4, 5, 6, 7, 8]
    assert "it stops before manifest 4" in ended.stdout
    world.assert_complete()


def test_what_is_archived_says_so_and_cannot_be_replayed(archived_in_part: tuple[World, datetime]) -> None:
    world, _ = archived_in_part
    me = f"cli {getpass.getuser()}"
    shown = world.json("show", "2")
    assert (shown["state"], shown["archived"]["by"], shown["archived"]["why"]) == ("done", me, "it grows")
    assert shown["counts"]["read"] == 40
    assert shown["objects"]
    assert [attempt["attempt"] for attempt in shown["attempts"]] == [1]
    assert world.json("show", "2", "--compare")["compared"][0]["verdict"] == "in step"
    assert f"by {me}: it grows; it cannot be replayed any more" in world.ok("show", "2")
    listed = world.here("manifests", "demo")
    assert "4 older manifests, 1 to 4, are archived" in listed.stderr
    [held] = world.json("where", world.topic, "1", "3")
    assert (held["standing"], held["manifest"]["id"], held["range"]) == ("held", 1, {"start": 0, "end": 20})
    assert "manifest 1 is archived on " in held["message"]
    for words in (("--manifest", "2"), ("--run-key", shown["run_key"])):
        refused = world.here("replay", "demo", *words)
        assert refused.exit_code == 1, refused.stdout
        assert "it cannot be attempted or replayed any more" in refused.stderr
        assert "tidemark show" in refused.stderr
        assert "pipeline=demo" in refused.stderr
        assert "manifest=" in refused.stderr
    refused = world.here("retry", "demo", "--manifest", "2")
    assert refused.exit_code == 0, "as for any that is done"
    assert "4 of them are archived" in world.here("audit", "demo").stderr
    [lag, _] = world.json("lag", "demo")
    assert (lag["planned"], lag["unpublished"], lag["lag"]) == (120, 0, 0)
    assert world.json("complete", "demo", "--until", "2020-01-01T00:00")["complete"]
    hours = world.json("hours", "demo")
    assert sum(hour["rows"] for hour in hours) == 240
    assert sum(hour["archived"] for hour in hours) == 160
    assert {number for hour in hours for number in hour["manifests"]} == {5, 6}
    [status] = world.json("status")
    assert status["healthy"]
    assert world.ok("db", "adopt", "demo", "--why", "nothing is unknown") == ""
    assert world.ok("repair", "demo", "--why", "nothing is left") == ""
    assert world.json("plan", "demo", "--dry-run")["slices"] == []
    [decision] = world.json("history", "demo")
    assert (decision["decision"], decision["actor"], decision["why"]) == ("archive", me, "it grows")


def test_late_rows_of_an_archived_hour_are_added_to_its_rows(archived_in_part: tuple[World, datetime]) -> None:
    world, _ = archived_in_part
    before = {hour["start"]: hour["rows"] for hour in world.json("hours", "demo")}
    runs(world, 1)
    after = {hour["start"]: hour["rows"] for hour in world.json("hours", "demo")}
    assert sum(after.values()) == sum(before.values()) + 80
    assert sum(after.values()) == 320


def test_refusals_name_pipeline_manifest_and_next_step(make_table_world: MakeTable) -> None:
    world = make_table_world(has_lake=True)
    never = world.here("db", "archive", "demo", "--keep", "1", *WHY)
    assert never.exit_code == 2
    assert "never planned" in never.stderr
    assert world.here("db", "archive", "nosuch", "--keep", "1", *WHY).exit_code == 2
    assert world.here("db", "archive", "demo", *WHY).exit_code == 2
    assert world.here("db", "archive", "demo", "--keep", "1", "--before", now(), *WHY).exit_code == 2
    world.produce(40)
    world.ok("run", "demo")
    future = world.here("db", "archive", "demo", "--before", "2999-01-01", *WHY)
    assert future.exit_code == 2
    assert "is in the future" in future.stderr
    recent = world.here("db", "archive", "demo", "--keep", "1", *WHY)
    assert (recent.exit_code, recent.stdout) == (0, "")
    assert "nothing that is not archived yet was done before" in recent.stderr
    middle = now()
    world.produce(40)
    world.ok("plan", "demo")
    both = world.settings["sinks"]
    done = archived(world)
    assert done["manifests"] == 1
    assert done["stops"] == [{"manifest_id": 2, "what": "manifest 2 is planned", "next_step": "tidemark retry demo"}], (
        "it stops on each chain at the first that may not be"
    )
    refused = world.here("db", "archive", "demo", "--before", now(), *WHY)
    assert refused.exit_code == 1
    assert "nothing can be archived: manifest 2 is planned [error=illegal-transition" in refused.stderr
    assert "pipeline=demo" in refused.stderr
    assert "next:  tidemark retry demo" in refused.stderr
    world.ok("retry", "demo")
    world.settings["sinks"] = [*both, {"files": {"root": str(world.folder / "second"), "name": "second",
                                                 "layout": "raw/{stream}/%Y/%m/%d/%H"}}]  # fmt: skip
    world.write_pipeline()
    world.produce(40)
    world.ok("run", "demo")
    unfilled = world.here("db", "archive", "demo", "--before", now(), *WHY)
    assert unfilled.exit_code == 1
    assert "manifest 2 is not in second" in unfilled.stderr
    assert "tidemark fill demo second --why TEXT" in unfilled.stderr
    told = world.ok("validate", "--against-history")
    assert "sink second will not get 1 archived manifests (1 to 1): what is archived is not read again" in told
    filled = world.here("fill", "demo", "second", "--why", "a new reader")
    assert filled.exit_code == 0
    assert "1 archived manifests are not in second, and are not processed any more" in filled.stderr
    assert world.json("fill", "demo", "second", "--why", "a new reader")["archived"] == 1
    assert "second" not in world.ok("validate", "--against-history"), "a sink that has all that it can get is no news"
    assert archived(world)["manifests"] == 2
    complete = json.loads(world.here("complete", "demo", "--until", middle, "--json").stdout)
    assert [(part["manifest_id"], part["sink"]) for part in complete["missing"]] == [(1, "second"), (1, "second")]
    assert "1 archived manifests are not in second" in world.here("audit", "demo", "--deep").stderr
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_manifest_that_its_target_does_not_show_is_not_archived(world: World) -> None:
    runs(world, 1)
    [record, *_] = sorted((world.lake / "_manifests" / "demo").glob("*.json"))
    content = record.read_text()
    record.unlink()
    refused = world.here("db", "archive", "demo", "--before", now(), *WHY)
    assert refused.exit_code == 1
    assert "a target does not show what is published of manifest 1" in refused.stderr
    assert "tidemark show 1 --compare" in refused.stderr
    record.write_text(content)
    assert archived(world)["manifests"] == 2


def test_archived_output_that_is_gone_is_named_restored_or_given_up(world: World) -> None:
    runs(world, 1)
    [path, *_] = world.data_paths()
    archived(world)
    content = path.read_bytes()
    path.unlink()
    audit = world.here("audit", "demo")
    assert audit.exit_code == 1
    assert "is missing" in audit.stdout
    assert "(it is archived on" in audit.stdout
    assert "tidemark replay" not in audit.stdout
    path.write_bytes(content)
    assert world.ok("audit", "demo", "--deep") == ""
    path.unlink()
    manifest = str(int(path.name[:10]))
    world.ok("accept", "damage", "demo", "--manifest", manifest, "--why", "no copy")
    assert world.ok("audit", "demo", "--deep") == ""
    assert path not in world.data_paths()


def test_a_record_of_an_archived_manifest_that_is_gone_is_written_again_by_a_retry(world: World) -> None:
    runs(world, 1)
    archived(world)
    [record, *_] = sorted((world.lake / "_manifests" / "demo").glob("*.json"))
    before = json.loads(record.read_text())
    record.unlink()
    audit = world.here("audit", "demo")
    assert audit.stdout.endswith("next: tidemark retry demo\n")
    world.ok("retry", "demo")
    assert json.loads(record.read_text()) == before
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_log_that_was_made_again_is_noticed_although_all_of_its_chain_is_archived(world: World) -> None:
    runs(world, 1)
    archived(world)
    with ManifestDatabase(world.dsn, "reader") as database:
        chains = database.chains.of_pipeline("demo")
        last = database.ranges.newest_published([(chain.id, chain.end) for chain in chains])[0]
    assert {part.last.offset for part in last.values()} == {39}
    assert {(part.start, part.end) for part in last.values()} == {(0, 40)}


def test_older_records_are_planned_below_the_archive_and_archived_after_it(make_world: Make) -> None:
    world = make_world(settings={"kafka": {"starting_offsets": "latest"}})
    world.produce(80)
    world.ok("run", "demo")
    runs(world, 2)
    archived(world)
    world.ok("extend-back", "demo", "--why", "all of it")
    assert [(kind, start, end) for at, kind, start, end in world.chain() if at == 0][0] == ("anchor", None, 0)
    world.ok("retry", "demo")
    world.assert_complete()
    with ManifestDatabase(world.dsn, "reader") as database:
        assert database.audits.broken_chains("demo") == []
    assert archived(world)["offsets"] == 80
    assert [row for row in world.chain() if row[1] != "anchor"] == [(at, "archived", 0, 120) for at in (0, 1)]
    world.assert_complete()
    world.produce(80)
    world.ok("run", "demo")
    world.assert_complete()


def test_a_sink_is_renamed_and_retired_with_what_is_archived_of_it(make_world: Make) -> None:
    world = make_world()
    runs(world, 1)
    archived(world)
    exact = world.exact()
    entry = world.lake_entry()
    entry["files"]["name"] = "lake"
    world.settings["sinks"] = [entry]
    world.write_pipeline()
    world.ok("rename", "sink", "demo", "files", "lake", "--why", "a better word")
    assert world.exact() == exact
    assert world.ok("audit", "demo", "--deep") == ""
    world.settings["sinks"] = [
        {"files": {"root": str(world.folder / "second"), "name": "second", "layout": "raw/{stream}/%Y/%m/%d/%H"}}
    ]
    world.write_pipeline()
    would = world.ok("retire", "sink", "demo", "lake", "--why", "moved")
    assert "2 manifests published nowhere else: 1, 2" in would
    assert world.exact() == Counter()


def test_a_database_that_was_lost_adopts_what_was_archived_as_live(make_world: Make, empty_database: str) -> None:
    world = make_world()
    runs(world, 1)
    archived(world)
    world.dsn = empty_database
    world.ok("db", "adopt", "demo", "--why", "the database is lost")
    assert [manifest["archived"] for manifest in world.manifests()] == [None, None]
    world.assert_complete()


@pytest.fixture
def empty_database(postgres: Postgres) -> Iterator[str]:
    with postgres.temporary_database("another") as dsn:
        migrate(dsn)
        yield dsn


def test_two_who_archive_at_once_archive_each_manifest_once(world: World) -> None:
    runs(world)
    command = ("db", "archive", "demo", "--before", now(), *WHY, "--batch", "1")
    both = [world.start(*command), world.start(*command)]
    ended = [wait_ended(process) for process in both]
    assert {process.returncode for process in ended} == {0}, ended
    assert counted(world, "archived_manifest") == 6
    assert world.manifests() == []
    world.assert_complete()


def test_a_path_of_an_archived_manifest_is_an_absolute_path(archived_in_part: tuple[World, datetime]) -> None:
    world, _ = archived_in_part
    paths = world.data_paths()
    assert all(isinstance(path, Path) and path.exists() for path in paths)
    assert {int(path.name[:10]) for path in paths} == {1, 2, 3, 4, 5, 6}


def test_every_kind_of_sink_is_read_and_audited_as_before(make_all_sinks_world: Callable[..., World]) -> None:
    world = make_all_sinks_world()
    runs(world, 2)
    middle = now()
    runs(world, 1)
    late = world.manifests()[-1]["id"]
    assert archived(world, before=middle)["manifests"] == 4
    assert world.ok("audit", "demo", "--deep") == ""
    runs(world, 1)
    world.ok("replay", "demo", "--manifest", str(late))
    assert world.ok("audit", "demo", "--deep") == ""
    for row in world.json("where", world.topic, "0", "3")[0]["sinks"]:
        assert row["standing"] in ("held", "replaced"), row
    assert archived(world)["manifests"] == 4
    assert world.ok("audit", "demo", "--deep") == ""
    assert world.ok("db", "adopt", "demo", "--why", "nothing is unknown") == ""


def test_a_topic_that_is_recreated_after_all_was_archived_is_refused_and_accepted(world: World, broker: Broker) -> None:
    runs(world, 1)
    archived(world)
    old = world.exact()
    broker.delete_topic(world.topic)
    broker.create_topic(world.topic, 2, {"retention.ms": "-1"})
    world.produce(100)
    refused = world.here("run", "demo")
    assert refused.exit_code == 1
    assert f"tidemark accept topic demo --topic {world.topic}" in refused.stderr
    world.ok("accept", "topic", "demo", "--topic", world.topic, "--why", "migrated")
    world.ok("run", "demo")
    assert world.exact() == old + Counter((world.topic, at, offset) for at in (0, 1) for offset in range(50))
    assert world.ok("audit", "demo", "--deep") == ""
    assert archived(world)["offsets"] == 100
    assert world.ok("audit", "demo", "--deep") == ""
    assert world.json("show", "1")["archived"]["archive"] == 1


def test_a_run_of_archived_manifests_is_closed_again_and_its_interval_is_not_replayed(world: World) -> None:
    begin = datetime.now(UTC)
    world.produce(80, bad_every=8)
    world.ok("run", "demo", "--run-key", "the first")
    letters = world.json("dead-letters", "demo")
    archived(world)
    before = world.files()
    closed = world.json("run", "demo", "--run-key", "the first")
    assert [manifest["id"] for manifest in closed["manifests"]] == [1, 2]
    assert closed["counts"]["read"] == 80
    assert world.files() == before
    assert world.json("dead-letters", "demo") == letters
    refused = world.here("dead-letters", "demo", "--replay", "--why", "the schema is mended")
    assert refused.exit_code == 1
    assert "cannot be attempted or replayed any more" in refused.stdout + refused.stderr
    with pytest.raises(IllegalTransition, match="are archived, and cannot be replayed"):
        manifests_between(world.context(), begin - timedelta(hours=1), datetime.now(UTC))
    world.produce(40)
    world.ok("run", "demo")
    world.assert_complete()


def test_an_attempt_that_sleeps_while_its_manifest_is_archived_changes_nothing(world: World) -> None:
    world.produce(40)
    asleep = world.start("run", "demo", failpoint="publish.mid:stop")
    wait_stopped(asleep)
    world.ok("replay", "demo", "--manifest", "1", "--take-over")
    archived(world)
    before = world.exact()
    woken = wake(asleep)
    assert woken.returncode == 0
    assert "manifest 1 attempt 1 superseded" in woken.stderr
    assert world.exact() == before
    world.assert_complete()


def test_the_lane_of_a_partition_says_what_is_archived_and_what_of_that_is_lost(make_world: Make) -> None:
    world = make_world(settings={"kafka": {"on_data_loss": "record"}})
    world.produce(40)
    world.ok("run", "demo")
    world.produce(40)
    world.administer("delete_records", [TopicPartition(world.topic, 0, 30)])
    world.ok("run", "demo")
    with ManifestDatabase(world.dsn, "reader") as database:
        before = lane_views(database, "demo")
        archived(world)
        after = lane_views(database, "demo")
    assert [lane.archived for lane in before] == [None, None]
    assert [lane.archived for lane in after] == [40, 40]
    assert [replace(lane, archived=None) for lane in after] == before
    assert [(part.start, part.end, part.state) for part in after[0].parts] == [(20, 30, "lost")]
