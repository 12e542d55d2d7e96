"""``tidemark where``: which manifest covers an offset, and which file or row holds the record."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
from confluent_kafka import TopicPartition

from sandbox.services.broker import Broker
from tests.worlds.table_world import TableWorld
from tests.worlds.world import Place, World, places
from tidemark.database.statements import QUERIES

MakeWorld = Callable[..., World]


def where(world: World, offset: int, partition: int = 0, *words: str) -> list[dict[str, Any]]:
    """What the command says, whatever its exit status, which must be 0 exactly when some sink holds the record."""
    done = world.here("where", world.topic, str(partition), str(offset), "--json", *words)
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    assert done.exit_code == (0 if any(answer["standing"] == "held" for answer in answers) else 1)
    return answers


def test_every_record_is_found_in_the_file_that_holds_it(world: World) -> None:
    world.produce(60, bad_every=7)
    world.ok("run", "demo")
    for partition, offset in [(0, 0), (1, 3), (0, 29), (1, 29), (0, 7)]:
        [answer] = where(world, offset, partition)
        [sink] = answer["sinks"]
        rows = pq.read_table(sink["place"], partitioning=None, columns=["_topic", "_partition", "_offset"]).to_pylist()
        assert {"_topic": world.topic, "_partition": partition, "_offset": offset} in rows
        bad = (offset * 2 + partition) in world.bad
        assert sink["kind"] == ("dead_letter" if bad else "data")
        assert ("_dead_letters" in sink["place"]) is bad
        assert answer["range"]["start"] <= offset < answer["range"]["end"]
        assert (answer["manifest"]["state"], sink["attempt"]) == ("done", 1)
    manifest = where(world, 0)[0]["manifest"]["id"]
    printed = world.ok("where", world.topic, "0", "3")
    assert f"{world.topic}-0 offset 3 in pipeline demo: manifest {manifest}, done, offsets [0, 15)" in printed
    assert f"sink files, attempt 1: a row in {world.lake}/raw/{world.topic}/" in printed


def test_files_of_several_partitions_hold_what_where_says_for_duckdb_and_pyarrow_too(make_world: MakeWorld) -> None:
    """Rows that are not as expected are dead letters, which tell the condition, and `where` names their file."""
    world = make_world(partitions=5, expects=True)
    world.produce(60, bad_every=7)
    world.ok("run", "demo")
    paths = [Path(str(file["path"])) for file in world.json("objects", "demo", "--dead-letters")]
    paths += world.data_paths()
    in_duckdb: dict[Place, str] = {}
    in_pyarrow: dict[Place, str] = {}
    for path in paths:
        query = f"SELECT _topic, _partition, _offset FROM read_parquet('{path}', hive_partitioning = false)"
        in_duckdb |= dict.fromkeys(duckdb.sql(query).fetchall(), str(path))
        in_pyarrow |= dict.fromkeys(places([path]), str(path))
    assert max(len({place[1] for place in places([path])}) for path in paths) > 1
    told = {
        place: (sink["place"], sink["kind"] == "dead_letter")
        for place in world.everything()
        for answer in where(world, place[2], place[1])
        for sink in answer["sinks"]
    }
    assert in_duckdb == in_pyarrow == {place: path for place, (path, _) in told.items()}
    assert {place[2] * 5 + place[1] for place, (_, is_dead) in told.items() if is_dead} == world.bad
    letters = [str(path) for path in paths if "_dead_letters" in path.parts]
    query = f"SELECT _partition, _offset, _reason FROM read_parquet({letters}) WHERE _error_class = 'expectation'"
    refused = {row[1] * 5 + row[0]: row[2] for row in duckdb.sql(query).fetchall()}
    assert refused == dict.fromkeys(world.bad - world.undecodable, "expect no thirteenth")
    world.assert_complete()


def test_an_offset_that_is_planned_or_not_planned_yet_is_not_held(world: World) -> None:
    world.produce(20)
    world.ok("plan", "demo")
    [planned] = where(world, 3)
    assert (planned["standing"], planned["sinks"]) == ("unpublished", [])
    assert "tidemark retry demo" in planned["message"]
    [beyond] = where(world, 10)
    assert (beyond["standing"], beyond["manifest"]) == ("not planned", None)
    assert "the chain ends at 10" in beyond["message"]
    done = world.here("where", world.topic, "0", "10")
    assert (done.exit_code, "not planned; the chain ends at 10" in done.stdout) == (1, True)


def test_an_offset_before_the_anchor_and_a_lost_one_are_named(make_world: MakeWorld) -> None:
    world = make_world(partitions=1, settings={"kafka": {"on_data_loss": "record"}})
    world.produce(10)
    world.administer("delete_records", [TopicPartition(world.topic, 0, 4)])
    world.ok("run", "demo")
    assert where(world, 3)[0]["standing"] == "before the anchor"
    assert where(world, 4)[0]["standing"] == "held"
    world.produce(10)
    world.administer("delete_records", [TopicPartition(world.topic, 0, 15)])
    world.ok("run", "demo")
    [lost] = where(world, 12)
    assert (lost["standing"], lost["range"]) == ("lost", {"start": 10, "end": 15})


def test_the_mark_of_a_transaction_holds_no_record(make_world: MakeWorld) -> None:
    settings = {"kafka": {"gaps": "transactions"}, "on_error": "dead_letter", "max_dead_letters": None}
    world = make_world(partitions=1, settings=settings)
    world.transact("x", "y", commit=True)
    world.transact("z", commit=False)
    world.transact("last", commit=True)
    world.ok("run", "demo")
    assert [where(world, at)[0]["standing"] for at in range(6)] == [
        "held", "held", "no record", "no record", "no record", "held",
    ]  # fmt: skip
    assert "the end mark of a transaction" in where(world, 2)[0]["message"]


def test_a_record_of_a_topic_that_was_recreated_is_told_from_the_new_one(world: World, broker: Broker) -> None:
    world.produce(40)
    world.ok("run", "demo")
    broker.delete_topic(world.topic)
    broker.create_topic(world.topic, 2, {"retention.ms": "-1"})
    world.produce(20)
    world.here("run", "demo")
    world.ok("accept", "topic", "demo", "--topic", world.topic, "--why", "new")
    world.ok("run", "demo")
    old, new = where(world, 5)
    assert [(answer["generation"], answer["retired"], answer["standing"]) for answer in (old, new)] == [
        (1, True, "held"),
        (2, False, "held"),
    ]
    assert old["topic_id"] != new["topic_id"]
    assert old["sinks"][0]["place"] != new["sinks"][0]["place"]
    old, new = where(world, 15)
    assert (old["standing"], new["standing"]) == ("held", "not planned")


def test_a_file_that_is_gone_or_damaged_is_missing_and_the_audit_is_advised(world: World) -> None:
    world.produce(20)
    world.ok("run", "demo")
    path = Path(where(world, 3)[0]["sinks"][0]["place"])
    path.write_bytes(path.read_bytes()[:-9])
    [answer] = where(world, 3)
    assert answer["standing"] == "missing"
    assert "cannot be read" in answer["message"]
    assert "tidemark audit demo --deep" in answer["message"]
    manifest = answer["manifest"]["id"]
    audited = world.here("audit", "demo", "--deep")
    assert audited.exit_code == 1
    assert f"next: tidemark replay demo --manifest {manifest}\n" in audited.stdout
    world.ok("replay", "demo", "--manifest", str(manifest))
    [answer] = where(world, 3)
    assert answer["standing"] == "held"
    assert world.ok("audit", "demo", "--deep") == ""
    Path(answer["sinks"][0]["place"]).unlink()
    assert where(world, 3)[0]["standing"] == "missing"


def test_each_pipeline_is_asked_and_one_without_a_file_is_not_looked_into(make_world: MakeWorld) -> None:
    first = make_world()
    second = make_world(topic="", settings={"pipeline": "second"})
    second.write_pipeline(topics=[first.topic])
    first.produce(10)
    first.ok("run", "demo")
    second.ok("run", "second")
    by_pipeline = {answer["pipeline"]: answer for answer in where(first, 2)}
    assert {name: answer["standing"] for name, answer in by_pipeline.items()} == {"demo": "held", "second": "unread"}
    assert "there is no pipeline second" in by_pipeline["second"]["message"]
    assert [answer["pipeline"] for answer in where(first, 2, 0, "--pipeline", "demo")] == ["demo"]


def test_a_topic_that_no_pipeline_knows_is_answered_with_those_that_are_known(world: World) -> None:
    done = world.here("where", "flihgts", "0", "1")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "nothing was planned yet" in done.stderr
    world.produce(4)
    world.ok("plan", "demo")
    done = world.here("where", world.topic[:-1], "0", "1")
    assert f'did you mean "{world.topic}"?' in done.stderr
    assert "was never planned" in world.here("where", world.topic, "7", "1").stderr
    assert world.here("where", world.topic, "0", "-1").exit_code == 2


def test_in_a_table_the_row_the_dead_letter_or_the_newer_row_of_its_key_is_named(
    make_table_world: Callable[..., TableWorld],
) -> None:
    world = make_table_world()
    world.produce(40, bad_every=19)  # 9 keys: the last row of each replaces the others
    world.ok("run", "demo")
    newest = {place: k for k, (_, place) in world.rows().items()}
    (_, partition, offset), key = next(iter(newest.items()))
    [answer] = where(world, offset, partition)
    assert answer["sinks"][0]["key"] == {"k": key}
    assert "table public.latest" in answer["sinks"][0]["place"]
    assert where(world, 0)[0]["sinks"][0]["kind"] == "dead_letter"
    [replaced] = where(world, 1)
    assert replaced["standing"] == "replaced"
    assert "a newer row of its key" in replaced["message"]


def test_a_chain_of_many_ranges_is_asked_by_its_index(world: World) -> None:
    world.produce(2)
    world.ok("plan", "demo")
    context = world.context()
    with context.database.transaction():
        connection = context.database.session
        connection.execute(
            "INSERT INTO tidemark.manifest_range (chain_id, start_offset, end_offset, kind) "
            "SELECT c.id, n, n + 1, 'lost' FROM tidemark.chain c, generate_series(1, 5000) n"
        )
        connection.execute("ANALYZE tidemark.manifest_range")
        values = {"topic": world.topic, "partition": 0, "offset": 4000, "pipeline_name": None}
        plan = connection.execute("EXPLAIN " + QUERIES["ranges_at"], values).fetchall()  # type: ignore[arg-type]
        text = "\n".join(str(row) for row in plan)
        assert "Seq Scan on manifest_range" not in text
        assert text.count("Index") >= 3
