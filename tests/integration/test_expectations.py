"""Expectations in a run: counts, dead letters, a block and its two ways out, on real Kafka and PostgreSQL."""

import json
import re
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.worlds.table_world import TABLE_SCHEMA, TableWorld, table_sink
from tests.worlds.world import World
from tidemark.airflow.verdict import may_help
from tidemark.errors import Blocked

MakeWorld = Callable[..., World]
pytestmark = pytest.mark.road
EVERY_TENTH = {"name": "no tenth", "check": "n % 10 <> 3"}


def expecting(world: World, *expect: Any) -> None:
    world.settings["expect"] = list(expect)
    world.write_pipeline()


def counts(world: World, manifest_id: int) -> dict[str, tuple[int, int, int]]:
    shown = json.loads(world.ok("show", str(manifest_id), "--json"))
    return {each["name"]: (each["rows"], each["unmet"], each["unknown"]) for each in shown["expectations"]}


def test_rows_that_do_not_meet_a_condition_are_counted_and_published(make_world: MakeWorld) -> None:
    world = make_world(settings={"expect": ["n >= 5", EVERY_TENTH, "name::INT > 0"]})
    world.produce(40)
    world.ok("run", "demo")
    assert counts(world, 1) == {"n >= 5": (40, 5, 0), "no tenth": (40, 4, 0), "name::INT > 0": (40, 40, 40)}
    world.assert_complete()
    table = world.ok("show", "1")
    assert re.search(r"no tenth\W+40\W+4\W+0\W", table)
    assert "expectations not met 49" in world.ok("status")
    assert 'tidemark_expectations_unmet{pipeline="demo"} 49' in world.ok("monitor", "metrics")


def test_a_row_may_become_a_dead_letter_that_names_the_condition_and_comes_back(make_world: MakeWorld) -> None:
    world = make_world(settings={"expect": [{**EVERY_TENTH, "otherwise": "dead_letter"}]})
    world.produce(40)
    world.ok("run", "demo")
    letters = json.loads(world.ok("dead-letters", "demo", "--json"))
    assert [(each["error_class"], each["reason"], each["count"]) for each in letters["groups"]] == [
        ("expectation", "expect no tenth", 4)
    ]
    expecting(world, EVERY_TENTH)
    world.ok("dead-letters", "demo", "--replay", "--why", "they are right")
    assert json.loads(world.ok("dead-letters", "demo", "--json"))["groups"] == []
    world.assert_complete()


def test_more_rows_than_allowed_block_the_manifest_until_a_person_accepts_them(make_world: MakeWorld) -> None:
    world = make_world(partitions=1, settings={"expect": [{**EVERY_TENTH, "at_most": "5%"}, "n >= 0"]})
    world.produce(40)
    blocked = world.here("run", "demo")
    assert blocked.exit_code == 1
    assert "4 of 40 rows do not meet no tenth (n % 10 <> 3), and at_most is 5%" in blocked.stderr
    assert f"{world.topic}-0 offset 3, {world.topic}-0 offset 13, {world.topic}-0 offset 23" in blocked.stderr
    assert "tidemark accept expectation demo --manifest 1 --why TEXT" in blocked.stderr
    assert not may_help(Blocked("", next_step="")), "Airflow does not try it again"
    assert not world.listing()
    assert "blocked" in world.here("status").stdout
    world.produce(5)
    world.ok("run", "demo")  # later manifests go on
    dry = world.ok("accept", "expectation", "demo", "--manifest", "1", "--why", "they are known", "--dry-run")
    assert "manifest 1 may have rows that do not meet: no tenth" in dry
    assert world.here("retry", "demo", "--manifest", "1").exit_code == 1
    world.ok("accept", "expectation", "demo", "--manifest", "1", "--why", "they are known")
    world.ok("retry", "demo", "--manifest", "1")
    world.assert_complete()
    assert counts(world, 1)["no tenth"] == (40, 4, 0)
    refused = world.here("accept", "expectation", "demo", "--manifest", "1", "--why", "again")
    assert (refused.exit_code, "it is done" in refused.stderr) == (1, True), refused.stderr
    assert "they are known" in world.ok("history", "demo")


def test_another_condition_is_another_question_and_a_changed_file_is_the_other_way_out(make_world: MakeWorld) -> None:
    world = make_world(partitions=1, settings={"expect": [{**EVERY_TENTH, "at_most": 0}]})
    world.produce(40)
    assert world.here("run", "demo").exit_code == 1
    world.ok("accept", "expectation", "demo", "--manifest", "1", "--why", "they are known")
    expecting(world, {"name": "no tenth", "check": "n % 10 <> 4", "at_most": 0})
    assert "4 of 40 rows do not meet" in world.here("retry", "demo", "--manifest", "1").stderr
    expecting(world, {"name": "no tenth", "check": "n % 10 <> 4", "at_most": 4})
    world.ok("retry", "demo", "--manifest", "1")
    world.assert_complete()


def test_a_replay_that_moves_nothing_shows_what_is_expected_now(make_world: MakeWorld) -> None:
    world = make_world(settings={"expect": []})
    world.produce(40)
    world.ok("run", "demo")
    assert counts(world, 1) == {}
    before = world.files()
    expecting(world, EVERY_TENTH)
    world.ok("replay", "demo", "--manifest", "1")
    assert counts(world, 1) == {"no tenth": (40, 4, 0)}
    assert "expectations not met 4" in world.ok("status")
    assert world.files() == before


def test_killed_anywhere_each_row_is_asked_once_in_what_is_published(make_world: MakeWorld) -> None:
    world = make_world(
        settings={"expect": [{**EVERY_TENTH, "otherwise": "dead_letter"}, "n >= 5"], "spark": {"records_per_task": 1}}
    )
    for number, point in enumerate(["stage.mid", "stage.done", "publish.mid", "publish.before_mark"]):
        world.produce(20)
        killed = world.tidemark("run", "demo", "--run-key", point, failpoint=f"{point}:kill9")
        assert killed.returncode == -signal.SIGKILL, (point, killed.stderr)
        world.ok("retry", "demo")
        assert counts(world, number + 1) == {"no tenth": (20, 2, 0), "n >= 5": (20, 0 if number else 5, 0)}
    assert sum(each["count"] for each in json.loads(world.ok("dead-letters", "demo", "--json"))["groups"]) == 8
    world.assert_readers_complete()


def test_twenty_conditions_that_all_fail_are_asked_of_what_dedupe_leaves_and_of_no_deletion(
    make_table_world: Callable[..., TableWorld],
) -> None:
    """All sinks get the same rows: here a table with a key, and files."""
    world = make_table_world(
        partitions=1,
        has_lake=True,
        settings={
            "decode": {"format": "json", "schema": TABLE_SCHEMA, "tombstones": ["k"]},
            "event_time": {"from": "source_timestamp"},
            "transform": [{"dedupe": {"keys": ["k", "name"]}}],
            "expect": [
                *(f"n < {limit}" for limit in range(19)),
                {"name": "named", "check": "name <> 'bad'", "otherwise": "dead_letter", "at_most": "50%"},
            ],
        },
    )
    world.settings["sinks"][1] = table_sink(order_by=None)
    world.write_pipeline()
    for k, n, name in [(1, 20, "a"), (2, 30, "bad"), (2, 31, "bad"), (3, 40, "a")]:
        row = {"n": n, "at": "2024-03-01T00:00:00Z", "name": name, "k": k}
        world.send(json.dumps(row), key=json.dumps({"k": k}).encode())
    world.send(None, key=b'{"k": 3}')
    world.ok("run", "demo")
    assert counts(world, 1) == {f"n < {limit}": (3, 3, 0) for limit in range(19)} | {"named": (3, 1, 0)}
    assert world.query("SELECT k, n, _is_deleted FROM public.latest ORDER BY k") == [
        {"k": 1, "n": 20, "_is_deleted": False}, {"k": 3, "n": None, "_is_deleted": True},
    ]  # fmt: skip
    [demo] = json.loads(world.ok("objects", "demo", "--json", "--dead-letters", "--sink", "files"))
    assert demo["rows"] == 1
    letters = world.query("SELECT _offset, _reason FROM tidemark_target.dead_letter")
    assert [(row["_offset"], row["_reason"]) for row in letters] == [(1, "expect named")]
    assert world.ok("audit", "demo", "--deep") == ""


def test_peek_tries_conditions_on_real_records(make_world: MakeWorld) -> None:
    world = make_world(settings={"expect": ["n >= 5"]})
    world.produce(40)
    told = world.here("peek", "demo", "--expect", "n % 10 <> 3", "--expect", "name = 'r1'").stderr
    assert "expect n >= 5: 5 of 40 rows do not meet it" in told
    assert "expect n % 10 <> 3: 4 of 40 rows do not meet it" in told
    assert "expect name = 'r1': 39 of 40 rows do not meet it" in told
    wrong = world.here("peek", "demo", "--expect", "m > 1")
    assert wrong.exit_code != 0
    assert "there is no column m" in wrong.stderr
