"""Where runs end, whatever the records are stamped; and what a plan does when topics come, go or lose records."""

import json
import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from confluent_kafka import TopicPartition

from sandbox.services.postgres import Postgres
from tests.worlds.world import World
from tidemark.errors import ForeignLake
from tidemark.lifecycle.plan import Tick, plan
from tidemark.model.manifest import RunKind

MakeWorld = Callable[..., World]
NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def record(number: int) -> str:
    return json.dumps({"n": number, "at": NOON.isoformat()})


def send_stamped(world: World, stamps: list[datetime], partition: int = 0) -> None:
    """One record per stamp, in this order."""
    producer = world.broker.producer()
    for number, at in enumerate(stamps):
        milliseconds = int(at.timestamp() * 1000)
        producer.produce(world.topic, record(number), partition=partition, timestamp=milliseconds)
    assert producer.flush(30) == 0


def until(moment: datetime) -> tuple[str, str]:
    return "--until", moment.isoformat()


def ends(world: World) -> dict[int, int]:
    """Where each partition's chain ends."""
    return {partition: end for partition, _, _, end in world.chain()}


# time cuts


@pytest.mark.parametrize("seed", range(4))
def test_timestamps_out_of_order_are_cut_at_the_first_one_past_the_cut_and_every_offset_is_read_once(
    make_world: MakeWorld, seed: int
) -> None:
    chance = random.Random(seed)
    world = make_world(partitions=3)
    stamps = {at: [NOON + chance.random() * 5 * HOUR for _ in range(30)] for at in range(3)}
    for partition, each in stamps.items():
        send_stamped(world, each, partition)
    expected = dict.fromkeys(stamps, 0)
    for cut in [NOON + hours * HOUR for hours in (1, 3, 2, 4, 5)]:  # one goes back: what is covered stays covered
        world.ok("plan", "demo", *until(cut))
        for partition, each in stamps.items():
            past = next((offset for offset, at in enumerate(each) if at >= cut), len(each))
            expected[partition] = max(expected[partition], past)
        assert ends(world) == expected
    world.ok("retry", "demo")
    assert world.exact() == Counter((world.topic, at, offset) for at in range(3) for offset in range(30))
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_cut_that_has_not_come_is_refused_and_its_key_stays_free(world: World) -> None:
    world.produce(20)
    refused = world.here("plan", "demo", *until(datetime.now(UTC) + HOUR))
    assert refused.exit_code == 1
    assert "the run reads up to" in refused.stderr
    assert "nothing was planned; give a time in the past, or none to read all there is" in refused.stderr
    assert world.chain() == []
    world.ok("plan", "demo", *until(datetime.now(UTC)))
    assert ends(world) == {0: 10, 1: 10}


def test_a_cut_with_no_record_past_it_ends_at_the_end_there_is_and_late_records_are_read_next(
    make_world: MakeWorld,
) -> None:
    world = make_world(partitions=1)
    send_stamped(world, [NOON - HOUR] * 3)
    first = world.json("plan", "demo", *until(NOON))
    assert (first["reached"], ends(world)) == (True, {0: 3})
    send_stamped(world, [NOON - 2 * HOUR, NOON - HOUR])
    assert world.json("plan", "demo", *until(NOON))["manifests"] == first["manifests"]
    assert ends(world) == {0: 3}, "an end is stored and never computed again"
    world.ok("plan", "demo", *until(NOON + HOUR))
    assert world.chain()[-1] == (0, "data", 3, 5)


def test_a_cut_before_every_record_plans_nothing_and_anchors_what_there_is(make_world: MakeWorld) -> None:
    world = make_world(partitions=2)
    send_stamped(world, [NOON] * 3)
    done = world.json("plan", "demo", *until(NOON - HOUR))
    assert (done["manifests"], done["reached"]) == ([], True)
    assert world.chain() == [(0, "anchor", None, 0), (1, "anchor", None, 0)]


def test_a_cut_that_one_partition_has_covered_goes_on_in_the_other(make_world: MakeWorld) -> None:
    world = make_world(partitions=2)
    send_stamped(world, [NOON, NOON + HOUR, NOON + 2 * HOUR])
    world.ok("plan", "demo", *until(NOON + HOUR))
    send_stamped(world, [NOON, NOON + HOUR], partition=1)
    done = world.json("plan", "demo", *until(NOON + HOUR), "--run-key", "the same cut again")
    assert done["covered_by"] == [1], "it stands for the first partition too, and manifest 1 is not published"
    assert world.chain()[1:] == [(0, "data", 0, 1), (1, "anchor", None, 0), (1, "data", 0, 1)]


def test_one_record_in_the_far_future_does_not_stop_the_runs_that_come_after_it(make_world: MakeWorld) -> None:
    world = make_world(partitions=1, topic_config={"message.timestamp.after.max.ms": str(2**60)})
    now = datetime.now(UTC).replace(microsecond=0)
    send_stamped(world, [now - 2 * HOUR, now + timedelta(days=400), now - 2 * HOUR])
    world.ok("run", "demo", *until(now - HOUR))
    assert ends(world) == {0: 3}
    for number in range(3):  # Kafka answers every later cut with the offset of that record
        send_stamped(world, [now - HOUR + timedelta(minutes=number)])
        done = world.json("plan", "demo", *until(now - HOUR + timedelta(minutes=number + 1)))
        assert "offset 1 has the timestamp" in done["notes"][0]
        assert ends(world) == {0: 4 + number}
    world.ok("retry", "demo")
    assert world.exact() == Counter((world.topic, 0, offset) for offset in range(6))


def test_a_record_a_little_ahead_of_the_clock_delays_what_follows_and_loses_nothing(make_world: MakeWorld) -> None:
    world = make_world(partitions=1)
    now = datetime.now(UTC).replace(microsecond=0)
    send_stamped(world, [now - HOUR, now + timedelta(seconds=2), now - HOUR])
    world.ok("plan", "demo", *until(now))
    assert ends(world) == {0: 1}
    world.ok("plan", "demo", *until(now + timedelta(seconds=2)))
    assert ends(world) == {0: 1}
    world.ok("plan", "demo", *until(now + timedelta(seconds=3)))
    assert ends(world) == {0: 3}


def test_a_run_without_a_logical_date_reads_all_there_is_and_is_known_by_its_run_id(make_world: MakeWorld) -> None:
    world = make_world(partitions=1)
    future = datetime.now(UTC) + timedelta(minutes=30)
    send_stamped(world, [NOON, future, NOON - HOUR])
    context = world.context()
    first = plan(context, Tick("manual__one", RunKind.MANUAL, None))
    assert (ends(world), first.reached, first.repeated) == ({0: 3}, True, False)
    send_stamped(world, [NOON])
    again = plan(context, Tick("manual__one", RunKind.MANUAL, None))
    assert (again.manifests, again.repeated, ends(world)) == (first.manifests, True, {0: 3})
    empty = plan(context, Tick("manual__two", RunKind.MANUAL, None)).manifests
    assert len(empty) == 1
    nothing = [plan(context, Tick("manual__three", RunKind.MANUAL, None)) for _ in range(2)]
    assert [(planned.manifests, planned.repeated) for planned in nothing] == [((), False), ((), True)]


def test_a_cut_latest_goes_on_beside_runs_of_any_logical_date(make_world: MakeWorld) -> None:
    world = make_world(partitions=1, settings={"kafka": {"cut": "latest"}})
    send_stamped(world, [NOON + HOUR])
    world.ok("plan", "demo", *until(NOON))
    send_stamped(world, [NOON - HOUR])
    world.ok("plan", "demo", *until(NOON - 5 * HOUR))
    assert ends(world) == {0: 2}


# topics that come and go


def test_a_topic_that_the_file_names_later_is_read_from_its_beginning(make_world: MakeWorld) -> None:
    world = make_world(partitions=1, settings={"kafka": {"starting_offsets": "latest"}})
    world.send(record(0))
    world.ok("run", "demo")
    other = make_world(topic=f"{world.topic}-more", partitions=2)
    other.send(record(1), record(2), partition=1)
    other.administer("delete_records", [TopicPartition(other.topic, 1, 1)])
    world.write_pipeline(topics=[world.topic, other.topic])
    done = world.json("run", "demo")
    assert other.chain() == [
        (0, "anchor", None, 0), (1, "anchor", None, 0), (1, "lost", 0, 1), (1, "data", 1, 2)
    ]  # fmt: skip
    assert done["counts"]["read"] == 1, "the first topic still starts where it did"
    assert world.chain() == [(0, "anchor", None, 1)]


def test_a_topic_that_vanished_stops_the_plan_of_all_until_a_person_accepts_it(make_world: MakeWorld) -> None:
    world = make_world(partitions=1)
    other = make_world(topic=f"{world.topic}-gone", partitions=2)
    world.write_pipeline(topics=[world.topic, other.topic])
    world.send(record(0))
    other.send(record(0))
    world.ok("run", "demo")
    before = world.chain(), other.chain()
    world.send(record(1))
    world.broker.delete_topic(other.topic)
    for message in (f"topic {other.topic} no longer exists", "planning was refused before"):
        done = world.here("run", "demo")
        assert done.exit_code == 1
        assert message in done.stderr
        assert f"tidemark accept topic demo --topic {other.topic}" in done.stderr
    assert (world.chain(), other.chain()) == before
    with psycopg.connect(world.dsn) as connection:
        blocked = connection.execute("SELECT topic, blocked IS NOT NULL FROM tidemark.chain ORDER BY id").fetchall()
    assert blocked == [(world.topic, False), (other.topic, True), (other.topic, True)]
    world.write_pipeline()
    world.ok("accept", "topic", "demo", "--topic", other.topic, "--why", "it was shut down")
    world.ok("run", "demo")
    assert world.chain()[-1] == (0, "data", 1, 2)


# records that are gone


@pytest.mark.parametrize("on_data_loss", ["fail", "record"])
def test_retention_that_took_all_there_was_past_the_chains_end_is_loss_too(
    make_world: MakeWorld, on_data_loss: str
) -> None:
    world = make_world(partitions=1, settings={"kafka": {"on_data_loss": on_data_loss}})
    world.send(*map(record, range(4)))
    world.ok("run", "demo")
    world.send(*map(record, range(6)))
    world.administer("delete_records", [TopicPartition(world.topic, 0, 10)])
    if on_data_loss == "fail":
        assert f"retention took offsets [4, 10) of {world.topic}-0" in world.here("run", "demo").stderr
        world.ok("accept", "loss", "demo", "--why", "it was a test")
    world.ok("run", "demo")
    assert world.chain()[-1] == (0, "lost", 4, 10)
    world.send(record(10))
    world.ok("run", "demo")
    assert world.chain()[-1] == (0, "data", 10, 11)
    assert world.ok("audit", "demo", "--deep") == ""


def test_retention_exactly_up_to_the_chains_end_is_no_loss(make_world: MakeWorld) -> None:
    world = make_world(partitions=1)
    world.send(*map(record, range(4)))
    world.ok("run", "demo")
    world.send(record(4))
    world.administer("delete_records", [TopicPartition(world.topic, 0, 4)])
    world.ok("run", "demo")
    assert world.chain()[1:] == [(0, "data", 0, 4), (0, "data", 4, 5)]


# a lake that is not this database's


def test_a_plan_into_the_lake_of_another_database_is_refused_and_stores_nothing(
    world: World, postgres: Postgres, template: str
) -> None:
    world.produce(20)
    world.ok("run", "demo")
    files = sorted(world.lake.rglob("*"))
    own = world.dsn
    with postgres.temporary_database("foreign", template) as foreign:
        with psycopg.connect(foreign) as connection:
            connection.execute("UPDATE tidemark.database SET id = gen_random_uuid()")
        world.dsn = foreign
        with pytest.raises(ForeignLake):
            plan(world.context(), Tick("one", RunKind.MANUAL, None))
        done = world.here("run", "demo")
        assert done.exit_code == 1
        assert "belongs to another manifest database" in " ".join(done.stderr.split())
        assert (world.chain(), world.json("manifests", "demo")) == ([], [])
        assert sorted(world.lake.rglob("*")) == files
    world.dsn = own
    world.assert_complete()


def test_slices_span_an_hour_of_timestamps_at_most_and_empty_hours_make_none(make_world: MakeWorld) -> None:
    world = make_world(settings={"kafka": {"slice": {"max_span": "1h"}}})
    hours = [0, 0, 1, 5, 5, 30]
    for minute, hour in enumerate(hours):
        for partition in (0, 1):
            when = NOON + timedelta(hours=hour, minutes=10 * minute)
            world.send(json.dumps({"n": hour, "at": when.isoformat()}), at=when, partition=partition)
    planned = world.json("plan", "demo", "--dry-run")
    spans = [[(part["partition"], part["start"], part["end"]) for part in cut] for cut in planned["slices"]]
    assert spans == [
        [(0, 0, 2), (1, 0, 2)], [(0, 2, 3), (1, 2, 3)], [(0, 3, 5), (1, 3, 5)], [(0, 5, 6), (1, 5, 6)],
    ]  # fmt: skip
    assert planned["reached"]
    world.ok("run", "demo")
    assert [manifest["counts"]["read"] for manifest in world.manifests()] == [4, 2, 4, 2]
    world.settings["kafka"]["slice"]["max_slices"] = 2
    world.write_pipeline()
    for hour in (40, 50, 60):
        when = NOON + timedelta(hours=hour)
        world.send(json.dumps({"n": hour, "at": when.isoformat()}), at=when)
    first, second = world.json("run", "demo"), world.json("run", "demo")
    assert (first["reached"], second["reached"]) == (False, True)
    assert [len(run["manifests"]) for run in (first, second)] == [2, 1]
