"""What lies before a chain's anchor, and what earlier log generations left: planned, adopted and given up right."""

import json
import signal
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from confluent_kafka import TopicPartition

from sandbox.services.broker import Broker
from sandbox.services.postgres import Postgres
from tests.worlds.table_world import TableWorld, table_sink
from tests.worlds.topic_world import TopicWorld
from tests.worlds.world import World
from tidemark.database.migrate import migrate

Make = Callable[..., World]
MakeTableWorld = Callable[..., TableWorld]
MakeTopicWorld = Callable[..., TopicWorld]
LATEST = {"kafka": {"starting_offsets": "latest"}}


def copy_of(world: World) -> str:
    """The name of its manifest database, to make copies of."""
    return world.dsn.rpartition("/")[2].partition("?")[0]


def recreate(world: World, broker: Broker) -> None:
    broker.delete_topic(world.topic)
    broker.create_topic(world.topic, world.partitions, {"retention.ms": "-1"})


def begin_another_generation(world: World, broker: Broker, count: int) -> None:
    """The topic is another one, with so many records; planning was refused, and a person accepted it."""
    recreate(world, broker)
    world.produce(count)
    assert world.here("plan", "demo").exit_code == 1
    world.ok("accept", "topic", "demo", "--topic", world.topic, "--why", "migrated")


def test_a_database_from_before_an_extension_adopts_the_older_region(make_world: Make, postgres: Postgres) -> None:
    world = make_world(settings=LATEST)
    world.produce(100)
    world.ok("run", "demo")
    world.produce(30)
    world.ok("run", "demo")
    with postgres.temporary_database("older", copy_of(world)) as older:
        world.ok("extend-back", "demo", "--why", "the whole history")
        world.ok("retry", "demo")
        world.assert_complete()
        world.dsn = older
        refused = world.here("extend-back", "demo", "--why", "again")
        assert refused.exit_code == 1
        assert "tidemark db adopt demo" in refused.stderr, "it would give out ids that the lake knows"
        world.ok("db", "adopt", "demo", "--why", "restored")
        world.produce(10)
        world.ok("run", "demo")
        world.assert_complete()


def test_a_part_of_the_older_region_that_left_no_record_is_planned_again(make_world: Make, postgres: Postgres) -> None:
    world = make_world(settings=LATEST, partitions=1)
    world.produce(100)
    world.ok("run", "demo")
    world.produce(10)
    world.ok("run", "demo")
    with postgres.temporary_database("older", copy_of(world)) as older:
        world.ok("extend-back", "demo", "--why", "the whole history")
        first, _, last = [manifest["id"] for manifest in world.manifests() if manifest["state"] == "planned"]
        world.ok("retry", "demo", "--manifest", str(first))
        world.ok("retry", "demo", "--manifest", str(last))
        world.dsn = older
        printed = world.ok("db", "adopt", "demo", "--why", "restored")
        assert f"{world.topic}-0: offsets [33, 66) are planned again" in printed
        world.ok("retry", "demo")
        world.assert_complete()


def test_extending_back_may_begin_at_a_time(make_world: Make) -> None:
    world = make_world(settings=LATEST, partitions=1)
    begin = datetime(2024, 3, 1, tzinfo=UTC)
    for hour in range(4):
        world.send(json.dumps({"n": hour, "at": begin.isoformat()}), at=begin + timedelta(hours=hour))
    world.ok("run", "demo")
    world.ok("extend-back", "demo", "--why", "from noon on", "--from", "2024-03-01T02:00:00")
    world.ok("retry", "demo")
    assert world.exact() == Counter({(world.topic, 0, 2): 1, (world.topic, 0, 3): 1})


@pytest.mark.parametrize("copied", [False, True], ids=["empty", "from before the new topic"])
def test_a_table_goes_on_after_a_database_adopted_two_generations_of_its_topic(
    make_table_world: MakeTableWorld, broker: Broker, postgres: Postgres, copied: bool
) -> None:
    """Rows are newer by their generation, so the database must find the right one again."""
    sink = table_sink()
    del sink["postgres"]["order_by"]
    world = make_table_world(settings={"sinks": [sink]})
    world.produce(60)
    world.ok("run", "demo")
    with postgres.temporary_database("older", copy_of(world) if copied else "template1") as older:
        begin_another_generation(world, broker, 60)
        world.ok("run", "demo")
        world.dsn = older
        if not copied:
            migrate(older)
        world.ok("db", "adopt", "demo", "--why", "the manifest database is another one")
        world.produce(60)
        world.ok("run", "demo")
        with psycopg.connect(older) as connection:
            generations = connection.execute(
                "SELECT generation, retired_at IS NULL FROM tidemark.chain ORDER BY partition, generation"
            ).fetchall()
    assert generations == [(1, False), (2, True)] * 2
    assert {row["n"] >= 120 for row in world.query("SELECT n FROM public.latest")} == {True}
    assert {row["_log_generation"] for row in world.query("SELECT _log_generation FROM public.latest")} == {2}


def test_the_unread_beginning_of_a_second_generation_is_planned_again(make_world: Make, broker: Broker) -> None:
    world = make_world(partitions=1)
    world.produce(30)
    world.ok("run", "demo")
    begin_another_generation(world, broker, 70)
    world.ok("plan", "demo")
    world.ok("retry", "demo", "--manifest", "3")
    world.lose_manifest_database()
    printed = world.ok("db", "adopt", "demo", "--why", "the manifest database is gone")
    assert f"{world.topic}-0: offsets [0, 35) are planned again" in printed
    world.ok("retry", "demo")
    world.ok("run", "demo")
    places = Counter((world.topic, 0, offset) for offset in range(70))
    assert world.exact() == places + Counter((world.topic, 0, offset) for offset in range(30))
    assert world.ok("audit", "demo", "--deep") == ""


def test_what_a_copy_planned_on_a_generation_that_is_over_is_given_up_when_it_adopts(
    make_world: Make, broker: Broker, postgres: Postgres
) -> None:
    world = make_world(partitions=1)
    world.produce(30)
    world.ok("plan", "demo", "--run-key", "one")
    with postgres.temporary_database("older", copy_of(world)) as older:
        begin_another_generation(world, broker, 20)
        world.ok("run", "demo")
        world.dsn = older
        printed = world.ok("db", "adopt", "demo", "--why", "restored")
        assert f"{world.topic}-0: planned and unread offsets [0, 30) are lost" in printed
        world.ok("retry", "demo")
        world.ok("run", "demo", "--run-key", "one")
        world.ok("run", "demo")
        assert world.exact() == Counter((world.topic, 0, offset) for offset in range(20))
        assert world.ok("audit", "demo", "--deep") == ""


def test_a_copy_that_knows_a_manifest_as_blocked_adopts_it(make_world: Make, postgres: Postgres) -> None:
    world = make_world(partitions=1)
    world.transact('{"n": 1, "at": "2024-03-01T00:00:00Z"}', commit=True)
    assert "hold no record" in world.here("run", "demo").stderr
    with postgres.temporary_database("older", copy_of(world)) as older:
        world.settings["kafka"] = {"gaps": "transactions"}
        world.write_pipeline()
        world.ok("retry", "demo", "--manifest", "1")
        world.dsn = older
        assert world.manifests()[0]["state"] == "blocked"
        world.ok("db", "adopt", "demo", "--why", "restored")
        assert world.manifests()[0]["state"] == "done"
        assert sum(world.exact().values()) == 1


def test_offsets_whose_rows_are_in_a_table_are_not_given_up(make_table_world: MakeTableWorld) -> None:
    world = make_table_world(partitions=1)
    world.produce(20)
    killed = world.tidemark("run", "demo", failpoint="publish.before_mark:kill9")
    assert killed.returncode == -signal.SIGKILL
    world.administer("delete_records", [TopicPartition(world.topic, 0, 5)])
    alive = world.targets["warehouse"]
    world.targets["warehouse"] = "postgresql://nobody:secret@127.0.0.1:1/none"
    down = world.here("accept", "loss", "demo", "--why", "too late")
    assert (down.exit_code, "cannot be reached" in down.stderr) == (1, True)
    world.targets["warehouse"] = alive
    refused = world.here("accept", "loss", "demo", "--why", "too late")
    assert refused.exit_code == 1
    assert "only its publication is missing" in refused.stderr
    world.ok("retry", "demo")
    world.assert_complete()


def test_a_record_that_cannot_be_read_is_named_and_nothing_is_adopted(world: World) -> None:
    world.produce(40)
    world.ok("run", "demo")
    [record] = world.lake.glob("_manifests/demo/*.json")
    record.write_text(json.dumps({**json.loads(record.read_text()), "ranges": [{"start": 0}]}))
    world.lose_manifest_database()
    refused = world.here("db", "adopt", "demo", "--why", "the manifest database is gone")
    assert refused.exit_code == 1
    assert f"_manifests/demo/{record.name} cannot be read as a record" in refused.stderr
    assert world.json("manifests", "demo") == []


def test_what_one_sink_has_and_kafka_lost_is_ended_without_the_other_sink(make_table_world: MakeTableWorld) -> None:
    world = make_table_world(has_lake=True)
    world.produce(50)
    alive = world.targets["warehouse"]
    world.targets["warehouse"] = "postgresql://nobody:secret@127.0.0.1:1/none"
    assert world.here("run", "demo").exit_code == 1
    world.targets["warehouse"] = alive
    world.administer("delete_records", [TopicPartition(world.topic, 0, 5)])
    accept = "tidemark accept damage demo --manifest 1 --why TEXT"
    failed = world.here("retry", "demo")
    assert failed.exit_code == 1
    assert f"damaged or missing in a sink: {accept}, then finish it with tidemark retry demo" in failed.stderr
    refused = world.here("accept", "loss", "demo", "--why", "too late")
    assert refused.exit_code == 1
    assert "the manifest is published in files, and the source has lost what postgres lacks" in refused.stderr
    assert f"accept that with {accept}, then finish it with tidemark retry demo" in refused.stderr
    told = world.json("accept", "damage", "demo", "--manifest", "1", "--why", "too late")["lines"]
    [manifest] = [manifest for manifest in world.json("manifests", "demo") if manifest["id"] == 1]
    ranges = [f"{part['topic']}-{part['partition']} [{part['start']}, {part['end']})" for part in manifest["ranges"]]
    assert told == [f"sink postgres stays without {', '.join(ranges)}"]
    world.ok("retry", "demo")
    world.produce(20)
    world.ok("run", "demo")
    assert world.exact() == world.everything()
    assert {manifest["state"] for manifest in world.json("manifests", "demo")} == {"done"}
    assert world.ok("audit", "demo", "--deep") == ""


def test_what_lies_below_a_truncation_and_one_sink_lacks_is_still_read(make_table_world: MakeTableWorld) -> None:
    world = make_table_world(has_lake=True)
    world.produce(50)
    alive = world.targets["warehouse"]
    world.targets["warehouse"] = "postgresql://nobody:secret@127.0.0.1:1/none"
    assert world.here("run", "demo").exit_code == 1
    world.truncated_at(25)
    world.truncated_at(25, partition=1)
    accept = ("accept", "truncation", "demo", "--topic", world.topic, "--why", "the disk was restored", "--partition")
    assert "lost" not in world.ok(*accept, "0")
    world.ok(*accept, "1")
    world.targets["warehouse"] = alive
    world.ok("replay", "demo", "--manifest", "1")  # as a cleared task of Airflow does it
    world.ok("retry", "demo")
    world.produce(20)
    world.ok("run", "demo")
    world.assert_complete()
    replayed = world.here("replay", "demo", "--manifest", "1")
    assert replayed.exit_code == 1
    assert "it cannot be replayed" in replayed.stderr
    told = [
        (decision["decision"], decision["why"], decision["actor"].split()[0])
        for decision in world.json("history", "demo")
    ]
    assert told == [("accept-truncation", "the disk was restored", "cli")] * 2


def test_what_one_sink_lacks_of_a_topic_that_was_cut_and_then_recreated_is_given_up(
    make_table_world: MakeTableWorld, broker: Broker
) -> None:
    """The manifest was planned on a generation that a person has ended, so no decision about the topic is left."""
    world = make_table_world(has_lake=True, partitions=1)
    world.produce(20)
    alive = world.targets["warehouse"]
    world.targets["warehouse"] = "postgresql://nobody:secret@127.0.0.1:1/none"
    assert world.here("run", "demo").exit_code == 1
    world.targets["warehouse"] = alive
    world.produce(10)
    world.ok("plan", "demo")
    world.truncated_at(25)
    world.ok(
        "accept", "truncation", "demo", "--topic", world.topic, "--partition", "0", "--why", "the disk was restored"
    )
    begin_another_generation(world, broker, 15)
    failed = world.here("retry", "demo")
    assert failed.exit_code == 1
    assert "was recreated" in failed.stderr
    accept = "tidemark accept damage demo --manifest 1 --why TEXT"
    assert f"damaged or missing in a sink: {accept}, then finish it with tidemark retry demo" in failed.stderr
    assert "accept topic" not in failed.stderr, "that is done"
    told = world.json("accept", "damage", "demo", "--manifest", "1", "--why", "the old topic is gone")["lines"]
    assert told == [f"sink postgres stays without {world.topic}-0 [0, 20)"]
    world.ok("retry", "demo")
    world.ok("run", "demo")
    assert {manifest["state"] for manifest in world.json("manifests", "demo")} == {"done"}
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_truncation_accepted_from_elsewhere_says_what_is_lost_and_what_may_be_there_twice(make_world: Make) -> None:
    world = make_world(partitions=1)
    world.produce(50)
    world.ok("run", "demo")
    world.truncated_at(40)
    accept = ("accept", "truncation", "demo", "--topic", world.topic, "--partition", "0", "--why", "restored", "--from")
    beyond = world.here(*accept, "51")
    assert beyond.exit_code == 1
    assert f"{world.topic}-0 ends at 50: nothing can be read from offset 51 on" in beyond.stderr
    assert world.here(*accept, "-1").exit_code == 2
    printed = world.ok(*accept, "20", "--dry-run")
    assert "offsets [20, 40) are read again, though manifests 1, 2 have published some of them" in printed
    assert "the next starts at 20\n" in printed
    assert world.json("history", "demo") == []
    assert "the next starts at 40, and its offsets [40, 45) are lost" in world.ok(*accept, "45")
    world.ok("run", "demo")
    assert world.chain()[-3:] == [(0, "anchor", None, 40), (0, "lost", 40, 45), (0, "data", 45, 50)]
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_topic_gets_what_lies_below_a_cut_before_what_came_after_it(make_topic_world: MakeTopicWorld) -> None:
    world = make_topic_world(partitions=1, settings={"kafka": {"slice": {"max_records": 100}}})
    world.produce(25)
    world.ok("plan", "demo")
    world.truncated_at(15)
    world.ok(
        "accept", "truncation", "demo", "--topic", world.topic, "--partition", "0", "--why", "the disk was restored"
    )
    world.ok("plan", "demo")  # the ten after the cut
    refused = world.here("retry", "demo", "--manifest", "2")
    assert refused.exit_code == 1
    assert "finish it first: tidemark retry demo" in refused.stderr
    assert world.seen() == Counter()
    world.ok("retry", "demo", "--manifest", "1")
    world.ok("retry", "demo", "--manifest", "2")
    world.assert_complete()


def test_the_history_says_who_decided_what_and_why(world: World) -> None:
    assert "nobody has decided anything" in world.here("history", "demo").stderr
    world.produce(40)
    world.ok("plan", "demo")
    world.administer("delete_records", [TopicPartition(world.topic, 0, 5)])
    world.ok("accept", "loss", "demo", "--why", "too late", "--dry-run")
    world.ok("accept", "loss", "demo", "--why", "too late")
    [decision] = world.json("history", "demo")
    assert (decision["decision"], decision["why"], decision["manifests"]) == ("accept-loss", "too late", [1])
    assert decision["actor"].startswith("cli ")
    assert decision["lines"] == [f"{world.topic}-0: offsets [0, 5) are given up"]
    table = world.ok("history", "demo")
    assert all(word in table for word in ("accept-loss", "too late", "[0, 5) are given up"))
    told = world.ok("show", "1")
    assert "decision=accept-loss, why=too late" in " ".join(told.split())


def test_schedule_6_a_table_of_every_record_keeps_the_first_generation_of_a_topic_that_is_made_again(
    make_table_world: MakeTableWorld, broker: Broker
) -> None:
    sink = table_sink(key=["_topic", "_partition", "_offset", "_log_generation"])
    del sink["postgres"]["order_by"]
    world = make_table_world(settings={"sinks": [sink]})
    world.produce(20)
    world.ok("run", "demo")
    begin_another_generation(world, broker, 20)
    world.ok("run", "demo")
    world.ok("replay", "demo", "--manifest", str(world.manifests()[-1]["id"]))
    assert [row["n"] for row in world.query("SELECT n FROM public.latest ORDER BY n")] == list(range(40))
    generations = world.query("SELECT _log_generation, count(*) FROM public.latest GROUP BY 1 ORDER BY 1")
    assert [(row["_log_generation"], row["count"]) for row in generations] == [(1, 20), (2, 20)]
    assert world.ok("audit", "demo", "--deep") == ""
