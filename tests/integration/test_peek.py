"""``tidemark peek``: what the job would make of real records, with nothing written anywhere."""

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

from tests.worlds.table_world import table_sink
from tests.worlds.world import World

MakeWorld = Callable[..., World]


def peek(world: World, *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in world.ok("peek", "demo", "--json", *words).splitlines()]


def places(records: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return sorted((record["partition"], record["offset"]) for record in records)


def test_the_newest_records_are_shown_spread_over_the_partitions(make_world: MakeWorld) -> None:
    world = make_world(partitions=3)
    world.produce(60)
    assert places(peek(world, "-n", "6")) == [(at, offset) for at in range(3) for offset in (18, 19)]
    assert Counter(record["partition"] for record in peek(world)) == {0: 20, 1: 20, 2: 20}
    world.produce(30, partition=1)
    assert Counter(record["partition"] for record in peek(world, "-n", "80")) == {0: 20, 1: 40, 2: 20}
    assert places(peek(world, "-n", "2", "--partition", "1")) == [(1, 48), (1, 49)]
    assert places(peek(world, "-n", "3", "--partition", "2", "--from", "4")) == [(2, 4), (2, 5), (2, 6)]


def test_rows_folders_and_dead_letters_are_those_of_a_run(world: World) -> None:
    world.produce(40, bad_every=9)
    world.send(b"\xff\x00", None, partition=1, key=b"k\xff", headers=[("h", b"\x01")])
    records = peek(world)
    world.ok("run", "demo")
    rows = {(record["partition"], record["offset"]): record for record in records if "data" in record}
    letters = {(record["partition"], record["offset"]): record for record in records if "data" not in record}
    written = world.data_paths()
    seen = set()
    for path in written:
        for row in pq.read_table(path, partitioning=None).to_pylist():
            place = row["_partition"], row["_offset"]
            seen.add(place)
            assert rows[place]["targets"] == [str(path.parent)]
            assert rows[place]["data"]["n"] == row["n"]
            assert rows[place]["event_time"] == row["at"].isoformat()
    assert seen == set(rows)
    kept = [Path(path) for path in world.ok("objects", "demo", "--dead-letters").splitlines()]
    for path in kept:
        for row in pq.read_table(path, partitioning=None).to_pylist():
            letter = letters.pop((row["_partition"], row["_offset"]))
            assert (letter["reason"], letter["targets"]) == (row["_reason"], [str(path.parent)])
            assert letter["value"] == (None if row["_value"] is None else b64encode(row["_value"]).decode())
    assert not letters


def test_nothing_is_written_and_no_database_is_needed(world: World, tmp_path: Path) -> None:
    world.produce(10, bad_every=5)
    before = set(world.folder.rglob("*"))
    world.dsn = "postgresql://nobody@127.0.0.1:1/nothing"
    assert len(peek(world)) == 10
    assert set(world.folder.rglob("*")) == before
    groups = world.broker.admin().list_consumer_groups().result(timeout=30)
    assert "tidemark-never-commits" not in {group.group_id for group in groups.valid}


def test_on_error_fail_still_shows_everything_and_says_that_a_manifest_would_fail(make_world: MakeWorld) -> None:
    world = make_world(settings={"on_error": "fail"})
    world.produce(4)
    world.send('{"n": 1}', partition=1)
    done = world.here("peek", "demo")
    assert done.exit_code == 0
    assert "4 rows, 1 dead letter; nothing was written" in done.stderr
    assert "(late)" not in done.stdout, "without an allowed lateness every row would be late"
    assert "a manifest with these records fails: a record cannot be used: field at: absent" in done.stderr
    assert "partition=1 offset=2" in done.stderr.replace("\n", " ")
    assert "then: tidemark peek demo\n" in done.stderr, "there is no manifest to retry"
    assert "manifest=" not in done.stderr
    assert "field at: absent" in done.stdout


def test_a_table_for_people_shows_rows_late_ones_and_dead_letters(make_world: MakeWorld) -> None:
    lake = {"files": {"root": "lake", "layout": "raw/{stream}/%Y"}}
    world = make_world(partitions=1)
    world.settings = {
        "sinks": [lake, table_sink(order_by=None, key=["n"])],
        "event_time": {"field": "at", "allowed_lateness": "1h"},
    }
    world.write_pipeline()
    world.targets = {"warehouse": "postgresql://nobody@127.0.0.1:1/nothing"}
    world.send('{"n": 1, "at": "2024-03-01T10:00:00Z", "name": "[red]x"}', "[bold]{", "x" * 500)
    out = world.ok("peek", "demo")
    assert '{"n":1,"at":"2024-03-01T10:00:00.000000Z","name":"[red]x"}' in out
    assert "2024-03-01 10:00:00 (late)" in out
    assert f"{world.folder}/lake/raw/{world.topic}/2024" in out
    assert "connection warehouse, table public.latest" in out
    assert "[bold]{" in out
    assert "x" * 98 + ".." in out
    assert "tidemark_target.dead_letter" in out


def test_gaps_make_it_look_further_back(make_world: MakeWorld) -> None:
    world = make_world(partitions=1, settings={"kafka": {"gaps": "transactions"}})
    world.produce(5)
    for _ in range(3):
        world.transact("aborted", "too", commit=False)
    assert places(peek(world, "-n", "3")) == [(0, 2), (0, 3), (0, 4)]
    assert places(peek(world, "-n", "100")) == [(0, at) for at in range(5)]


def test_an_empty_topic_and_wrong_places_are_told_apart(make_world: MakeWorld) -> None:
    world = make_world(partitions=2)
    assert peek(world) == []
    world.produce(4)
    for words, message in [
        (("--topic", "nothere"), "does not read topic nothere"),
        (("--partition", "7"), "there is no partition 7"),
        (("--from", "0"), "needs one partition"),
        (("--partition", "0", "--from", "9"), "Kafka holds [0, 2)"),
    ]:
        done = world.here("peek", "demo", *words)
        assert done.exit_code == 2
        assert message in done.stderr, words
        assert "next:" in done.stderr
    file = world.pipelines / "demo.yaml"
    config = yaml.safe_load(file.read_text())
    config["source"]["kafka"]["topics"] = ["vanished"]
    file.write_text(yaml.safe_dump(config))
    assert "topic vanished does not exist" in world.here("peek", "demo").stderr


def test_a_row_that_marks_its_key_as_deleted_is_shown_as_that(make_world: MakeWorld) -> None:
    decode = {"format": "json", "schema": "n BIGINT NOT NULL, at TIMESTAMP", "tombstones": ["n"]}
    world = make_world(partitions=1, settings={"decode": decode})
    world.send('{"n": 7, "at": "2024-03-01T10:00:00Z"}', None, partition=0, key=b'{"n": 7}')
    assert [row["is_deleted"] for row in peek(world)] == [False, True]
    assert 'deleted {"n":7,"at":null}' in world.ok("peek", "demo")


def test_the_records_that_a_run_refused_are_looked_at_as_its_message_says(make_world: MakeWorld) -> None:
    world = make_world(partitions=2, settings={"max_dead_letters": 0})
    world.produce(6)
    world.send("this one is bad", partition=1)
    refused = world.here("run", "demo")
    assert refused.exit_code == 1
    step = refused.stderr.split("Look at them: tidemark ")[1].split(";")[0].split()
    assert step == ["peek", "demo", "--topic", world.topic, "--partition", "1", "--from", "3"]
    [shown] = [json.loads(line) for line in world.ok(*step, "--json").splitlines()]
    assert (shown["partition"], shown["offset"]) == (1, 3)
    assert "not JSON" in shown["reason"]
    world.settings["max_dead_letters"] = None
    world.write_pipeline()
    world.ok(*refused.stderr.rsplit("then: tidemark ", 1)[1].split("\n")[0].split())
    assert world.json("dead-letters", "demo")["count"] == 1
    assert [manifest["state"] for manifest in world.manifests()] == ["done"]
