"""Timestamps that a producer gives to Kafka in another unit, or none: Spark itself cannot read all of them."""

import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from tests.worlds.world import World, happened
from tidemark.model.partitions import FIRST_TIMESTAMP, LAST_TIMESTAMP, NO_TIMESTAMP

NOW_MS = int(datetime.now(UTC).timestamp() * 1000)
TOLD = {"now": NOW_MS, "before 1970": -2, "first": FIRST_TIMESTAMP, "last of 9999": 253_402_300_799_999}
NOT_TOLD = {
    "microseconds": NOW_MS * 1_000, "year 10000": 253_402_300_800_000, "last": LAST_TIMESTAMP,
    "year 1": -62_135_596_800_000, "nanoseconds": NOW_MS * 1_000_000,
}  # fmt: skip
ANY = {"message.timestamp.after.max.ms": str(2**63 - 1), "message.timestamp.before.max.ms": str(2**63 - 1)}
WITHOUT_NANOSECONDS = {name: stamp for name, stamp in NOT_TOLD.items() if name != "nanoseconds"}


def stamped(world: World, stamps: dict[str, int]) -> None:
    producer = world.broker.producer()
    for number, stamp in enumerate(stamps.values()):
        value = {"n": number, "at": happened(number).isoformat(), "name": "r"}
        producer.produce(world.topic, json.dumps(value), partition=0, timestamp=stamp)
    assert producer.flush(30) == 0


@pytest.mark.thorough
@pytest.mark.parametrize("stamps", [{**TOLD, **WITHOUT_NANOSECONDS}, {**TOLD, **NOT_TOLD}], ids=["Spark", "beside it"])
@pytest.mark.parametrize("event_time", [{"field": "at"}, {}], ids=["of a field", "of the source"])
def test_a_timestamp_of_another_unit_costs_at_most_its_own_record(
    make_world: Callable[..., World], stamps: dict[str, int], event_time: dict[str, str]
) -> None:
    kafka = {"slice": {"max_records": 1_000}}
    settings = {"event_time": event_time, "kafka": kafka, "max_dead_letters": "100%"}
    world = make_world(partitions=1, topic_config=ANY, settings=settings)
    stamped(world, stamps)
    done = world.tidemark("run", "demo", spark=True)
    assert done.returncode == 0, done.stderr
    names = list(stamps)
    letters = world.json("dead-letters", "demo", "--show")["records"]
    if event_time:
        assert letters == []
    else:
        usable = [name for name in names if 0 <= stamps[name] <= NOW_MS]
        assert [names[letter["offset"]] for letter in letters] == [name for name in names if name not in usable]
    assert len(world.exact()) == len(stamps)
    told = {offset for _, _, offset in world.exact() if names[offset] in TOLD}
    shown = {letter["offset"] for letter in letters if letter["timestamp"] is not None} | {
        row["_offset"] for row in rows_of(world) if row["_timestamp"] is not None
    }
    assert shown == told
    world.send(json.dumps({"n": 99, "at": happened(0).isoformat(), "name": "r"}))
    assert world.here("run", "demo").exit_code == 0, "the last record is compared with the log, and is no other"
    assert world.ok("audit", "demo", "--deep") == ""


def rows_of(world: World) -> list[dict[str, object]]:
    import pyarrow.parquet as pq

    return [row for path in world.data_paths() for row in pq.read_table(path, partitioning=None).to_pylist()]


def test_no_timestamp_ends_a_plan_that_cuts_by_time(make_world: Callable[..., World]) -> None:
    kafka = {"cut": "schedule", "slice": {"max_span": "1h"}}
    world = make_world(partitions=1, topic_config=ANY, settings={"kafka": kafka})
    stamped(world, {"now": NOW_MS - 3_600_000, **NOT_TOLD})
    planned = world.here("plan", "demo", "--until", datetime.now(UTC).isoformat(timespec="seconds"))
    assert planned.exit_code == 0, planned.stderr
    assert "more than an hour ahead" in planned.stderr
    assert world.here("peek", "demo").exit_code == 0


def test_a_secured_broker_gives_timestamps_of_any_unit_too(make_secured_world: Callable[..., World]) -> None:
    kafka = {"cut": "schedule", "slice": {"max_records": 1_000, "max_span": "1h"}}
    world = make_secured_world("SCRAM-SHA-512", topic_config=ANY, kafka=kafka)
    stamps = {"an hour ago": NOW_MS - 3_600_000, "none": NO_TIMESTAMP, **NOT_TOLD}
    stamped(world, stamps)
    planned = world.here("plan", "demo", "--dry-run", "--until", datetime.now(UTC).isoformat(timespec="seconds"))
    assert (planned.exit_code, "more than an hour ahead" in planned.stderr) == (0, True), planned.stderr
    done = world.tidemark("run", "demo", spark=True)
    assert done.returncode == 0, done.stderr
    assert {list(stamps)[row["_offset"]]: row["_timestamp"] is not None for row in rows_of(world)} == {
        name: name == "an hour ago" for name in stamps
    }
    assert world.status()[0]["state"] == "ok"
    assert world.ok("audit", "demo", "--deep") == ""
