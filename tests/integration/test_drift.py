"""Fields that the schema does not have, and rows that lose to older ones: counted, shown, and told."""

import json
from collections.abc import Callable

import pytest

from tests.worlds.table_world import TABLE_SCHEMA, TableWorld, table_sink
from tests.worlds.world import World
from tidemark.airflow.lineage import lineage
from tidemark.model.unknown_fields import UnknownField

MakeWorld = Callable[..., World]
MakeTableWorld = Callable[..., TableWorld]
NOTIFY = ("monitor", "notify", "--command", "true", "--after", "0s")


def price(k: int, n: int) -> str:
    return json.dumps({"k": k, "n": n, "at": "2024-03-01T00:00:00Z"})


@pytest.fixture
def table(make_table_world: MakeTableWorld) -> TableWorld:
    return make_table_world(partitions=1)


# rows that are stale


def test_a_table_that_stands_still_since_its_numbers_start_again_is_told_until_order_by_is_mended(
    table: TableWorld,
) -> None:
    table.send(price(1, 100), price(2, 200))
    table.ok("run", "demo")
    assert table.status()[0]["state"] == "ok"
    table.send(price(1, 1), price(2, 1), price(2, 2))
    table.ok("run", "demo")
    [status] = table.status()
    [problem] = status["problems"]
    assert (status["state"], status["newest"]["stale"]) == ("stale", 2)
    assert problem["what"] == "all rows of manifest 2 were stale in sink postgres: a newer row of each key stood there"
    assert "superseded 1, stale 2" in table.here("status", "demo").stdout
    assert "demo: stale: all rows of manifest 2" in table.ok(*NOTIFY)
    metrics = table.ok("monitor", "metrics", "demo")
    assert 'tidemark_problems{pipeline="demo",kind="stale"} 1' in metrics
    assert 'tidemark_rows_stale{pipeline="demo"} 2' in metrics
    assert "tidemark fill demo NAME --why TEXT" in problem["next_step"]
    table.settings["sinks"] = [table_sink(name="second", table="second", order_by=None)]
    table.write_pipeline()
    table.ok("retire", "sink", "demo", "postgres", "--why", "another order")
    table.ok("fill", "demo", "second", "--why", "another order")
    rows = table.query("SELECT k, n FROM public.second")
    assert {row["k"]: row["n"] for row in rows} == {1: 1, 2: 2}
    assert table.status()[0]["state"] == "ok"
    assert "no longer stale" in table.ok(*NOTIFY)


def test_a_manifest_with_one_row_that_is_newer_or_of_a_new_key_alarms_nobody(table: TableWorld) -> None:
    table.send(price(1, 100))
    table.ok("run", "demo")
    table.send(price(1, 1), price(2, 1))
    table.ok("run", "demo")
    assert (table.status()[0]["state"], table.manifests()[1]["counts"]["stale"]) == ("ok", 1)


def test_what_is_replayed_or_published_late_may_be_stale(table: TableWorld) -> None:
    table.send(*(price(1, n) for n in range(80)))  # two manifests of at most 40 offsets
    table.ok("plan", "demo", "--run-key", "one")
    for manifest in ("2", "1"):
        table.ok("retry", "demo", "--manifest", manifest)
    assert [each["counts"]["stale"] for each in table.manifests()] == [1, 0]
    assert table.status()[0]["state"] == "ok"
    table.settings["transform"] = [{"filter": "n < 1000"}]
    table.write_pipeline()
    table.ok("replay", "demo", "--manifest", "1")
    assert table.status()[0]["state"] == "ok"


def test_a_table_that_stands_still_is_told_until_rows_come_that_are_newer(table: TableWorld) -> None:
    table.settings["transform"] = [{"filter": "n <> 0"}]
    table.write_pipeline()
    for version, state in ((100, "ok"), (1, "stale"), (0, "stale"), (101, "ok")):  # no row of manifest 3
        table.send(price(1, version))
        table.ok("run", "demo")
        [status] = table.status()
        assert (version, status["state"]) == (version, state)
        assert [problem["what"].partition(" were stale")[0] for problem in status["problems"]] == [
            "all rows of manifest 2"
        ] * (state == "stale")


def test_offsets_before_the_anchor_that_are_read_last_may_be_stale(make_table_world: MakeTableWorld) -> None:
    world = make_table_world(partitions=1, settings={"kafka": {"starting_offsets": "latest"}})
    world.send(price(1, 1))
    world.ok("run", "demo")
    world.send(price(1, 2))
    world.ok("run", "demo")
    world.ok("extend-back", "demo", "--why", "history")
    world.ok("retry", "demo")
    assert world.manifests()[-1]["counts"]["stale"] == 1
    assert world.status()[0]["state"] == "ok"


@pytest.mark.parametrize(("key", "stale"), [(1, 1), (2, 0)])
def test_a_table_that_stands_still_is_told_also_when_older_offsets_are_read_after_it(
    make_table_world: MakeTableWorld, key: int, stale: int
) -> None:
    world = make_table_world(partitions=1, settings={"kafka": {"starting_offsets": "latest"}})
    world.send(price(key, 5))
    world.ok("run", "demo")
    for version in (100, 1):
        world.send(price(1, version))
        world.ok("run", "demo")
    world.ok("extend-back", "demo", "--why", "history")
    world.ok("retry", "demo")
    assert [each["counts"]["stale"] for each in world.manifests()] == [0, 1, stale]
    [problem] = world.status()[0]["problems"]
    assert problem["what"].startswith("all rows of manifest 2 were stale in sink postgres")


# fields that the schema does not have


def drifted(world: World) -> None:
    """A manifest of three records, of which two have a field more."""
    at = "2024-03-01T00:00:00Z"
    known = {"k": 1, "n": 1, "at": at}
    world.send(*map(json.dumps, (known, {**known, "zip": "8000"}, {**known, "zip": None, "address": {"no": 1}})))
    world.ok("run", "demo")


def test_unknown_fields_are_kept_by_name_and_shown_wherever_counts_are(table: TableWorld) -> None:
    drifted(table)
    fields = [UnknownField("address", 1, table.topic, 0, 2), UnknownField("zip", 2, table.topic, 0, 1)]
    [manifest] = table.manifests()
    assert manifest["counts"]["unknown_fields"] == 3
    as_json = [vars(field) for field in fields]
    assert table.json("show", "1")["unknown_fields"] == as_json
    shown = table.ok("show", "1")
    assert "fields that the schema does not have" in shown
    assert "zip" in shown
    assert "fields not in the schema 3" in table.ok("status", "demo")
    assert table.status()[0]["state"] == "ok"
    assert 'tidemark_unknown_fields{pipeline="demo"} 3' in table.ok("monitor", "metrics", "demo")
    assert lineage(table.context(), 1, 1).unknown_fields == tuple(fields)


def test_a_replay_and_an_adopted_target_have_the_same_unknown_fields(make_world: MakeWorld) -> None:
    world = make_world(partitions=1, settings={"decode": {"format": "json", "schema": TABLE_SCHEMA}})
    drifted(world)
    before = world.json("show", "1")["unknown_fields"]
    assert len(before) == 2
    world.ok("replay", "demo", "--manifest", "1")
    assert world.json("show", "1")["unknown_fields"] == before
    world.lose_manifest_database()
    world.ok("db", "migrate")
    world.ok("db", "adopt", "demo", "--why", "the database is gone")
    assert world.json("show", "1")["unknown_fields"] == before
    assert world.manifests()[0]["counts"]["unknown_fields"] == 3


def test_a_pipeline_may_refuse_them_and_bring_them_back_when_the_schema_has_them(make_world: MakeWorld) -> None:
    decode = {"format": "json", "schema": TABLE_SCHEMA, "unknown_fields": "fail"}
    world = make_world(partitions=1, settings={"decode": decode, "max_dead_letters": None})
    at = "2024-03-01T00:00:00Z"
    world.send(*(json.dumps({"k": 1, "n": n, "at": at, **({"zip": "8"} if n else {})}) for n in range(3)))
    failed = world.here("run", "demo")
    assert failed.exit_code == 1
    assert "field zip: not in the schema" in failed.stderr
    decode["unknown_fields"] = "dead_letter"
    world.write_pipeline()
    world.ok("retry", "demo")
    assert "field zip: not in the schema" in world.ok("dead-letters", "demo")
    assert world.manifests()[0]["counts"]["dead_lettered"] == 2
    decode["schema"] = f"{TABLE_SCHEMA}, zip STRING"
    world.write_pipeline()
    world.ok("dead-letters", "demo", "--replay", "--why", "the schema has zip now")
    counts = world.manifests()[0]["counts"]
    assert (counts["written"], counts["dead_lettered"], counts["unknown_fields"]) == (3, 0, 0)


def test_peek_proposes_the_lines_that_the_schema_lacks_until_it_has_them(make_world: MakeWorld) -> None:
    decode = {"format": "json", "schema": TABLE_SCHEMA, "unknown_fields": "fail"}
    world = make_world(partitions=1, settings={"decode": decode})
    known = {"k": 1, "n": 1, "at": "2024-03-01T00:00:00Z"}
    world.send(*map(json.dumps, (known, {**known, "zip": "8000", "no": [1]}, {**known, "zip": None})))
    plain = world.here("peek", "demo", "--drift")
    assert plain.exit_code == 0
    assert "zip STRING" in plain.stdout
    assert '"zip": {"type": ["string", "null"]}' in plain.stdout
    assert "the schema lacks 2 fields of 3 records; nothing was written" in plain.stderr
    drift = world.json("peek", "demo", "--drift")
    assert (drift["records"], [field["ddl"] for field in drift["fields"]]) == (3, ["no ARRAY<BIGINT>", "zip STRING"])
    assert drift["fields"][1]["field"] == {"path": "zip", "count": 2, "topic": world.topic, "partition": 0, "offset": 1}
    peeked = world.here("peek", "demo")
    assert "field no: not in the schema" in peeked.stdout
    assert "a manifest with these records fails" in peeked.stderr
    decode["schema"] = ", ".join([TABLE_SCHEMA, *(field["ddl"] for field in drift["fields"])])
    world.write_pipeline()
    assert "the schema has all fields of 3 records" in world.here("peek", "demo", "--drift").stderr
    world.ok("run", "demo")
    world.settings |= {"decode": {"format": "raw"}, "event_time": {}}
    world.write_pipeline()
    refused = world.here("peek", "demo", "--drift")
    assert refused.exit_code == 2
    assert "decode.format raw does not look for fields" in refused.stderr
