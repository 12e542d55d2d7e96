"""What a plan covers, and what it refuses, on a real broker."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from unittest import mock

import psycopg
import pytest
import yaml
from confluent_kafka import TopicPartition

from sandbox.services.processes import free_port, wait_until
from tests.worlds.arrow_stage import messages
from tests.worlds.world import World
from tidemark.errors import WorkFailed
from tidemark.lifecycle.close import close

MakeWorld = Callable[..., World]
NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)


def record(number: int) -> str:
    return json.dumps({"n": number, "at": NOON.isoformat()})


def planned(world: World, *words: str) -> list[tuple[int, int, int]]:
    """(partition, start, end) of every range a plan made."""
    ids = world.json("plan", "demo", *words)["manifests"]
    manifests = [manifest for manifest in world.manifests() if manifest["id"] in ids]
    return [(each["partition"], each["start"], each["end"]) for manifest in manifests for each in manifest["ranges"]]


def refused(world: World, *words: str) -> str:
    done = world.here(*words)
    assert done.exit_code == 1, f"exit {done.exit_code}: {done.stdout} {done.stderr}"
    return done.stderr


@contextmanager
def a_batch_that_loses_offset(lost: int) -> Iterator[None]:
    """The batch never sees this record; the second read of the check does."""
    with mock.patch(
        "tests.worlds.arrow_stage.messages",
        lambda *of: (message for message in messages(*of) if message.offset() != lost),
    ):
        yield


# where a pipeline starts


def test_earliest_starts_at_the_log_start(make_world: MakeWorld) -> None:
    world = make_world(partitions=1)
    world.produce(10)
    world.administer("delete_records", [TopicPartition(world.topic, 0, 4)])
    assert planned(world) == [(0, 4, 10)]
    assert world.chain() == [(0, "anchor", None, 4), (0, "data", 4, 10)]


def test_latest_starts_at_the_end_and_covers_what_comes_then(make_world: MakeWorld) -> None:
    world = make_world(partitions=2, settings={"kafka": {"starting_offsets": "latest"}})
    world.send(*map(record, range(10)))
    assert planned(world) == []
    assert world.chain() == [(0, "anchor", None, 10), (1, "anchor", None, 0)], "also where there is nothing to read"
    world.send(*map(record, range(5)))
    world.send(record(0), partition=1)
    assert planned(world) == [(0, 10, 15), (1, 0, 1)]


def test_a_time_starts_at_the_first_record_stamped_then_or_later(make_world: MakeWorld) -> None:
    world = make_world(partitions=2, settings={"kafka": {"starting_offsets": NOON.isoformat()}})
    for hours in (-2, -1, 0, 1):
        world.send(record(hours), at=NOON + timedelta(hours=hours))
    world.send(record(9), at=NOON - timedelta(hours=9), partition=1)
    assert planned(world) == [(0, 2, 4)]
    assert world.chain() == [(0, "anchor", None, 2), (0, "data", 2, 4), (1, "anchor", None, 1)]


# where a run ends


def test_a_cut_ends_before_the_first_record_stamped_then_or_later(make_world: MakeWorld) -> None:
    world = make_world(partitions=2)
    for minutes in (-30, -10, 5, -5, 20):  # out of order: the fourth record is older than the third
        world.send(record(minutes), at=NOON + timedelta(minutes=minutes))
    world.send(record(0), at=NOON - timedelta(minutes=1), partition=1)
    assert planned(world, "--until", NOON.isoformat()) == [(0, 0, 2), (1, 0, 1)]
    later = NOON + timedelta(minutes=10)
    assert planned(world, "--until", later.isoformat()) == [(0, 2, 4)]
    assert planned(world) == [(0, 4, 5)]


def test_the_end_of_a_run_is_not_computed_again_when_late_records_arrive(make_world: MakeWorld) -> None:
    world = make_world(partitions=1)
    world.send(record(0), at=NOON - timedelta(minutes=1))
    until = ("--until", NOON.isoformat())
    assert planned(world, *until) == [(0, 0, 1)]
    world.send(record(1), at=NOON - timedelta(minutes=1))
    assert planned(world, *until) == [(0, 0, 1)]
    assert planned(world, *until, "--run-key", "the same time under another key") == [(0, 1, 2)]


def test_a_record_from_the_far_future_is_no_cut(make_world: MakeWorld) -> None:
    world = make_world(partitions=1, topic_config={"message.timestamp.after.max.ms": str(2**60)})
    world.send(record(0), record(1), at=NOON)
    world.send(record(2), at=datetime.now(UTC) + timedelta(days=400))
    world.send(record(3), at=NOON)
    done = world.json("plan", "demo", "--until", datetime.now(UTC).isoformat(timespec="seconds"))
    assert world.chain()[-1] == (0, "data", 0, 4)
    assert "offset 2 has the timestamp" in done["notes"][0]
    assert "more than an hour ahead" in done["notes"][0]


def test_cut_latest_reads_what_is_there_whatever_the_moment(make_world: MakeWorld) -> None:
    world = make_world(partitions=1, settings={"kafka": {"cut": "latest"}})
    world.send(record(0), record(1), at=NOON)
    assert planned(world, "--until", (NOON - timedelta(days=1)).isoformat()) == [(0, 0, 2)]


def test_an_open_transaction_caps_the_plan_until_it_ends(make_world: MakeWorld) -> None:
    world = make_world(partitions=1, settings={"kafka": {"gaps": "transactions"}})
    world.send(record(0), record(1))
    open_one = world.broker.producer(transactional_id=f"{world.topic}-open")
    open_one.init_transactions(30)
    open_one.begin_transaction()
    open_one.produce(world.topic, record(2), partition=0)
    assert open_one.flush(30) == 0
    world.send(record(3))
    world.ok("run", "demo")
    assert world.chain()[-1] == (0, "data", 0, 2)
    [lag] = world.json("lag", "demo")
    assert (lag["planned"], lag["last_stable"], lag["log_end"], lag["lag"]) == (2, 2, 4, 0)
    open_one.commit_transaction(30)
    wait_until(lambda: world.json("lag", "demo")[0]["last_stable"] == 5, "the commit is visible", timeout=60)
    world.ok("run", "demo")
    assert world.chain()[-1] == (0, "data", 2, 5)
    assert sorted(world.exact()) == [(world.topic, 0, offset) for offset in (0, 1, 2, 3)]


def test_max_slices_ends_a_run_early_and_the_next_one_goes_on(make_world: MakeWorld) -> None:
    world = make_world(settings={"kafka": {"slice": {"max_records": 10, "max_slices": 2}}})
    world.produce(50)
    first = world.json("run", "demo", "--run-key", "one")
    assert (first["reached"], first["counts"]["read"], len(first["manifests"])) == (False, 20, 2)
    world.assert_whole()
    assert world.json("run", "demo")["reached"] is False
    last = world.json("run", "demo")
    assert (last["reached"], last["counts"]["read"]) == (True, 10)
    world.assert_complete()


def test_slices_are_as_small_as_max_records_says_and_share_all_partitions(make_world: MakeWorld) -> None:
    world = make_world(partitions=3)
    world.produce(200)
    done = world.json("plan", "demo")
    spans = [sum(covered["end"] - covered["start"] for covered in part) for part in done["slices"]]
    assert sum(spans) == 200
    assert max(spans) <= 40 + 3
    assert all(len(part) == 3 for part in done["slices"])


# planning again


def test_a_planned_key_asks_kafka_nothing(world: World) -> None:
    empty = world.json("plan", "demo", "--run-key", "empty")
    world.produce(10)
    full = world.json("plan", "demo", "--run-key", "full")
    world.write_pipeline(bootstrap_servers=f"127.0.0.1:{free_port()}")
    started = time.monotonic()
    assert world.json("plan", "demo", "--run-key", "empty")["manifests"] == empty["manifests"] == []
    assert world.json("plan", "demo", "--run-key", "full")["manifests"] == full["manifests"] != []
    assert "planned before" in world.ok("plan", "demo", "--run-key", "full")
    assert time.monotonic() - started < 10, "asking a broker that is not there takes 10 s"


def test_the_same_key_with_another_cut_is_refused_and_both_are_named(world: World) -> None:
    world.produce(10)
    world.ok("plan", "demo", "--run-key", "one", "--until", "2024-03-01T10:00")
    message = refused(world, "plan", "demo", "--run-key", "one", "--until", "2024-03-01T11:00")
    assert "2024-03-01 10:00:00+00:00" in message
    assert "2024-03-01 11:00:00+00:00" in message
    same_moment = world.json("plan", "demo", "--run-key", "one", "--until", "2024-03-01T11:00+01:00")
    assert same_moment["repeated"]


def test_a_cut_in_covered_time_plans_nothing_and_names_who_covers_it(make_world: MakeWorld) -> None:
    world = make_world(partitions=1, settings={"kafka": {"slice": {"max_records": 2}}})
    for minutes in range(6):
        world.send(record(minutes), at=NOON + timedelta(minutes=minutes))
    first = world.json("run", "demo", "--until", (NOON + timedelta(hours=1)).isoformat())
    ids = [manifest["id"] for manifest in first["manifests"]]
    assert len(ids) == 3
    again = world.json("run", "demo", "--until", (NOON + timedelta(minutes=3)).isoformat())
    assert (again["manifests"], again["covered_by"]) == ([], [ids[1]])
    before = world.json("run", "demo", "--until", (NOON - timedelta(hours=1)).isoformat())
    assert (before["manifests"], before["covered_by"]) == ([], [])


def test_a_second_run_with_nothing_new_processes_nothing(world: World) -> None:
    world.produce(30)
    world.ok("run", "demo")
    manifests = world.manifests()
    done = world.here("run", "demo")
    assert done.exit_code == 0
    assert "nothing new up to offset " in done.stderr
    assert world.manifests() == manifests
    world.assert_complete()


def test_a_dry_run_shows_the_ranges_and_stores_nothing(world: World) -> None:
    world.produce(30)
    shown = world.json("plan", "demo", "--dry-run")
    assert [sum(covered["end"] - covered["start"] for covered in part) for part in shown["slices"]] == [30]
    assert world.chain() == []
    assert not world.lake.exists()
    assert "nothing was stored" in world.ok("plan", "demo", "--dry-run")


def test_a_run_whose_manifests_are_not_all_published_says_which(world: World) -> None:
    world.produce(80)
    ids = world.json("plan", "demo", "--run-key", "one")["manifests"]
    context = world.context()
    context.database.attempts.start(ids[0], "f")
    with pytest.raises(WorkFailed, match="2 of 2 manifests are not published") as unfinished:
        close(context, "one")
    text = str(unfinished.value)
    assert f"manifest {ids[0]} of run one, {world.topic}-0 [0, 20), {world.topic}-1 [0, 20) (running" in text
    assert "attempt 1 by test" in text
    assert f"manifest {ids[1]} of run one" in text
    assert "(planned): no attempt has started" in text
    assert "; then: tidemark retry demo" in str(unfinished.value), "the first is at work"


# topics that change


def test_a_partition_added_later_is_covered_from_its_first_record(make_world: MakeWorld) -> None:
    world = make_world(partitions=1, settings={"kafka": {"starting_offsets": "latest"}})
    world.send(record(0))
    world.ok("run", "demo")
    world.broker.add_partitions(world.topic, 3)
    world.send(record(1), record(2), partition=1)
    assert planned(world) == [(1, 0, 2)]
    assert world.chain() == [(0, "anchor", None, 1), (1, "anchor", None, 0), (1, "data", 0, 2), (2, "anchor", None, 0)]
    world.ok("retry", "demo")


def test_what_retention_took_of_a_later_partition_is_a_lost_range(make_world: MakeWorld) -> None:
    world = make_world(partitions=1)
    world.ok("run", "demo")
    world.broker.add_partitions(world.topic, 2)
    world.send(*map(record, range(5)), partition=1)
    world.administer("delete_records", [TopicPartition(world.topic, 1, 3)])
    done = world.json("plan", "demo")
    assert world.chain()[1:] == [(1, "anchor", None, 0), (1, "lost", 0, 3), (1, "data", 3, 5)]
    assert "offsets [0, 3) are lost" in done["notes"][0]


def test_records_lost_before_they_were_read_fail_the_plan_or_are_recorded(make_world: MakeWorld) -> None:
    world = make_world(partitions=1)
    world.send(*map(record, range(4)))
    world.ok("run", "demo")
    world.send(*map(record, range(6)))
    world.administer("delete_records", [TopicPartition(world.topic, 0, 7)])
    before = world.chain()
    message = refused(world, "run", "demo")
    assert f"retention took offsets [4, 7) of {world.topic}-0" in message
    assert "on_data_loss: record" in message
    assert world.chain() == before
    world.write_pipeline(on_data_loss="record")
    world.ok("run", "demo")
    assert world.chain()[-2:] == [(0, "lost", 4, 7), (0, "data", 7, 10)]
    assert world.ok("audit", "demo", "--deep") == ""


def test_records_lost_after_planning_fail_the_attempt_and_name_the_offsets(make_world: MakeWorld) -> None:
    world = make_world(partitions=1)
    world.send(*map(record, range(6)))
    world.ok("plan", "demo")
    world.administer("delete_records", [TopicPartition(world.topic, 0, 2)])
    message = refused(world, "retry", "demo")
    assert f"retention took offsets [0, 2) of {world.topic}-0 before they were read" in message
    assert "tidemark accept loss demo --why TEXT" in message
    [manifest] = world.json("manifests", "demo")
    assert (manifest["state"], manifest["published_attempt"]) == ("failed", None)
    assert not list(world.lake.rglob("*.parquet"))


def test_a_recreated_topic_is_refused_and_the_refusal_stands(make_world: MakeWorld) -> None:
    world = make_world(partitions=2)
    world.produce(20)
    world.ok("run", "demo")
    before = world.chain()
    world.broker.delete_topic(world.topic)
    assert f"topic {world.topic} no longer exists" in refused(world, "run", "demo")
    world.create_topic()
    world.produce(40)
    message = refused(world, "run", "demo")
    assert "planning was refused before" in message
    assert f"topic {world.topic} no longer exists" in message
    assert world.chain() == before
    assert len(world.json("manifests", "demo")) == 1


def test_a_topic_recreated_between_two_plans_is_seen_by_its_id(make_world: MakeWorld) -> None:
    world = make_world(partitions=1)
    world.produce(20)
    world.ok("run", "demo")
    world.produce(5)
    world.ok("plan", "demo")
    world.broker.delete_topic(world.topic)
    world.create_topic()
    world.produce(60)
    message = refused(world, "plan", "demo")
    assert f"topic {world.topic} was recreated" in message
    assert "was recreated, or is of another cluster: planned on id" in refused(world, "retry", "demo"), (
        "nor is an old plan read from the new topic"
    )
    with psycopg.connect(world.dsn) as connection:
        [blocked] = connection.execute("SELECT blocked FROM tidemark.chain").fetchall()
    assert "was recreated" in blocked[0]


def test_a_missing_topic_is_named_with_the_nearest_that_exists(world: World) -> None:
    world.write_pipeline(topics=[world.topic, f"{world.topic}x"])
    done = world.here("plan", "demo")
    assert done.exit_code == 2
    assert f'topic {world.topic}x does not exist; did you mean "{world.topic}"?' in done.stderr
    assert world.chain() == []


@pytest.mark.parametrize("gaps", ["none", "transactions"])
def test_a_compacted_topic_is_refused_with_the_word_to_write(make_world: MakeWorld, gaps: str) -> None:
    world = make_world(topic_config={"cleanup.policy": "compact,delete"}, settings={"kafka": {"gaps": gaps}})
    world.produce(10)
    message = refused(world, "plan", "demo")
    assert f"topic {world.topic} is compacted" in message
    assert "gaps: compacted" in message
    assert world.chain() == []
    world.write_pipeline(gaps="compacted")
    world.ok("run", "demo")
    world.assert_complete()


def test_a_topic_that_becomes_compacted_later_is_refused_too(world: World) -> None:
    world.produce(10)
    world.ok("run", "demo")
    world.broker.configure_topic(world.topic, "cleanup.policy", "compact")
    assert "is compacted" in refused(world, "run", "demo")


# gaps


def test_gaps_none_blocks_with_the_gaps_and_transactions_lets_the_same_manifest_pass(make_world: MakeWorld) -> None:
    world = make_world(partitions=1)
    world.send(record(0))
    world.transact(record(1), record(2), commit=False)
    world.transact(record(3), commit=True)
    message = refused(world, "run", "demo")
    assert "4 offsets hold no record a reader may see: [1,4), [5,6)" in message
    assert "gaps: transactions" in message
    [manifest] = world.json("manifests", "demo")
    assert (manifest["state"], manifest["published_attempt"]) == ("blocked", None)
    assert not list(world.lake.rglob("*.parquet"))
    assert "there is nothing to retry" in world.here("retry", "demo").stderr, "a person has to name a blocked one"
    world.write_pipeline(gaps="transactions")
    retry = ("retry", "demo", "--manifest", str(manifest["id"]))
    with mock.patch(
        "tests.worlds.arrow_stage.messages", lambda *of: (message for message in messages(*of) if message.offset() != 4)
    ):
        assert "a second read found a record at offset 4" in refused(world, *retry), "a batch that lost one"
    cluster = world.context().source
    [place], _ = cluster.partitions([world.topic])
    gaps = [(1, 4), (5, 6)]
    assert (cluster.first_record_in(place, gaps), cluster.first_record_in(place, [*gaps, (3, 6)])) == (None, 4)
    assert world.manifests()[0]["state"] == "blocked"
    world.ok(*retry)
    [manifest] = world.json("manifests", "demo")
    assert (manifest["state"], manifest["counts"]["read"], manifest["counts"]["invisible"]) == ("done", 2, 4)
    assert sorted(world.exact()) == [(world.topic, 0, 0), (world.topic, 0, 4)]
    assert world.ok("audit", "demo", "--deep") == ""


def test_more_gaps_than_are_probed_are_checked_by_counting_again(make_world: MakeWorld) -> None:
    world = make_world(partitions=1, settings={"kafka": {"gaps": "transactions", "slice": {"max_records": 1000}}})
    producer = world.broker.producer(transactional_id=world.topic)
    producer.init_transactions(30)
    for number in range(120):
        producer.begin_transaction()
        producer.produce(world.topic, record(number), partition=0)
        producer.commit_transaction(30)
    wait_until(lambda: world.broker.log_end(world.topic, 0) == 240, "the end of the last transaction", timeout=30)
    with mock.patch(
        "tests.worlds.arrow_stage.messages", lambda *of: (message for message in messages(*of) if message.offset() != 4)
    ):
        assert "a second read found 120 records where the batch saw 119" in refused(world, "run", "demo")
    [blocked] = world.json("manifests", "demo", "--state", "blocked")
    world.ok("retry", "demo", "--manifest", str(blocked["id"]))
    [manifest] = world.json("manifests", "demo")
    assert (manifest["counts"]["written"], manifest["counts"]["invisible"]) == (120, 120)


def test_a_range_of_aborted_records_alone_is_done_with_no_objects(make_world: MakeWorld) -> None:
    world = make_world(partitions=1, settings={"kafka": {"gaps": "transactions"}})
    world.transact(record(1), record(2), commit=False)
    done = world.json("run", "demo")
    assert done["counts"] == {
        "read": 0, "invisible": 3, "written": 0, "dead_lettered": 0, "filtered": 0, "deduplicated": 0, "exploded": 0,
        "superseded": 0, "stale": 0, "unknown_fields": 0, "unmet": 0,
    }  # fmt: skip
    assert done["manifests"][0]["objects"] == []
    assert world.ok("audit", "demo", "--deep") == ""


def test_schedule_15_a_second_pipeline_of_a_topic_in_the_same_folders_is_refused_unless_its_file_says_so(
    world: World,
) -> None:
    def write(**files: object) -> None:
        pipeline = yaml.safe_load(world.another("again"))
        [sink] = pipeline["sinks"]
        sink["files"].update(files)
        (world.pipelines / "again.yaml").write_text(yaml.safe_dump(pipeline))

    world.produce(20)
    world.ok("run", "demo")
    write()
    for words in (["--dry-run"], [], []):
        refused = world.here("plan", "again", *words)
        printed = " ".join(refused.stderr.split())
        assert refused.exit_code == 1
        assert "where pipeline demo writes it too" in printed
        assert "to let both write there, set shared_with: [demo] on the sink" in printed
    assert world.json("manifests", "again") == []
    write(layout="{pipeline}/{stream}")
    world.ok("plan", "again", "--dry-run")
    write(shared_with=["demo"])
    world.ok("run", "again")
    world.produce(20)
    world.ok("run", "demo")
    assert [manifest["pipeline"] for manifest in world.json("manifests")] == ["demo", "again", "demo"]
    write()
    assert world.here("plan", "again").exit_code == 1, "and taken out of the file again"
