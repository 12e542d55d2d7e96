"""``tidemark validate --against-history``: what a changed file does to what exists, and how to go on."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.worlds.world import World
from tidemark.lifecycle.plan import Tick, plan
from tidemark.model.manifest import RunKind

MakeWorld = Callable[..., World]


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """30 records in one manifest, published to a lake."""
    world = make_world()
    world.produce(30)
    world.ok("run", "demo")
    return world


def history(world: World) -> str:
    return world.ok("validate", "--against-history")


def changes(world: World) -> list[dict[str, Any]]:
    [file] = world.json("validate", "--against-history")
    assert file["error"] is None
    return list(file["changes"])


def test_a_file_that_is_as_it_was_has_no_changes(world: World) -> None:
    assert history(world) == f"{world.pipelines / 'demo.yaml'}: ok, as it was run last\n"
    assert changes(world) == []


def test_a_schedule_that_changes_and_goes_is_told(world: World) -> None:
    world.settings |= {"schedule": "@daily", "start_date": "2024-03-01"}
    world.write_pipeline()
    assert changes(world) == [], "no run was scheduled yet"
    newest = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    for back in (2, 1, 0):
        plan(world.context(), Tick.at(newest - timedelta(days=back), RunKind.SCHEDULED))
    assert changes(world) == []
    world.settings |= {"schedule": "@hourly"}
    world.write_pipeline()
    [change] = changes(world)
    assert 'schedule is "@hourly", and the newest scheduled runs, those of' in change["what"]
    assert change["next_step"] in history(world)
    del world.settings["schedule"]
    world.write_pipeline()
    [change] = changes(world)
    assert change["what"].startswith("it has no schedule any more")


def test_without_the_option_the_history_is_not_told(world: World) -> None:
    assert world.ok("validate") == f"{world.pipelines / 'demo.yaml'}: ok\n"
    assert "changes" not in world.json("validate")[0]


def test_other_rows_and_other_folders_are_told_with_the_replay_that_brings_them_in_line(world: World) -> None:
    assert {key for key in world.object_keys() if key.startswith("raw/")}
    world.settings["decode"] = {"format": "json", "schema": "n BIGINT NOT NULL, at TIMESTAMP NOT NULL, name STRING"}
    world.settings["sinks"] = [{"files": {"root": str(world.lake), "layout": "by_day/{stream}/%Y/%m/%d"}}]
    world.write_pipeline()
    rows, folders = changes(world)
    assert "are others than those of 1 done manifests (1)" in rows["what"]
    assert f"sink files will write topic {world.topic} into" in folders["what"]
    assert "readers that list folders must list both" in folders["what"]
    assert "  the settings that decide rows" in history(world)
    command = rows["next_step"].split("tidemark ")[-1].split()
    world.ok(*command)
    assert not {key for key in world.object_keys() if key.startswith("raw/")}, "the replay took them away"
    world.produce(10)
    world.ok("run", "demo")
    assert changes(world) == [], "the new folders are known by now"


def test_a_new_sink_is_told_with_the_command_that_fills_it_and_is_no_change_of_rows(
    world: World, tmp_path: Path
) -> None:
    world.settings["sinks"] = [world.lake_entry(), {"files": {**world.lake_entry()["files"], "name": "copy"}}]
    world.settings["sinks"][1]["files"]["root"] = str(tmp_path / "copy")
    world.write_pipeline()
    [change] = changes(world)
    assert "sink copy is not filled: it lacks 1 done manifest (" in change["what"]
    assert change["next_step"] == "tidemark fill demo copy --why TEXT"
    world.ok(*change["next_step"].split()[1:])
    assert changes(world) == []
    world.settings["sinks"].pop()
    world.write_pipeline()
    [change] = changes(world)
    assert "is known and not in the pipeline file" in change["what"]
    assert "tidemark retire sink demo copy" in change["next_step"]


def test_topics_that_come_and_go_are_told(world: World) -> None:
    old = world.topic
    world.topic = f"{old}-more"
    world.create_topic()
    world.write_pipeline()
    come, gone = changes(world)
    assert come["what"].startswith(f"topics {world.topic} are new")
    assert come["next_step"] is None
    assert gone["what"].startswith(f"topics {old} are not read any more")


def test_a_renamed_pipeline_is_told_what_its_name_is_for(world: World) -> None:
    file = world.pipelines / "demo.yaml"
    file.write_text(file.read_text().replace("demo", "other", 1))
    told = world.here("validate", "--against-history")
    assert "pipeline demo was planned and has no file" in told.stderr
    assert "was never planned" in told.stdout
    assert "if it was renamed: tidemark rename pipeline demo other --why TEXT" in told.stdout
    file.write_text(file.read_text().replace("other", "demo", 1))
    assert changes(world) == []


def test_a_pipeline_that_was_never_planned_says_where_it_starts(make_world: MakeWorld) -> None:
    [change] = changes(make_world())
    assert change["what"] == "it was never planned: the first run starts where source.starting_offsets says"


def test_a_file_that_is_wrong_has_no_changes_and_a_database_that_is_not_there_is_an_error(
    world: World,
) -> None:
    (world.pipelines / "wrong.yaml").write_text("pipeline: wrong\n")
    told = world.here("validate", "--against-history")
    assert told.exit_code == 2
    assert "demo.yaml: ok, as it was run last" in told.stdout
    (world.pipelines / "wrong.yaml").unlink()
    world.dsn = "postgresql://nobody@127.0.0.1:1/none"
    told = world.here("validate", "--against-history")
    assert (told.exit_code, "cannot be reached" in told.stderr or "does not answer" in told.stderr) == (1, True), told


def test_a_sink_that_was_out_of_the_file_for_one_run_is_damaged_until_it_is_filled(
    make_table_world: Callable[..., World],
) -> None:
    world = make_table_world(has_lake=True)
    both = world.settings["sinks"]
    for sinks in (both, both[:1], both):
        world.settings["sinks"] = sinks
        world.write_pipeline()
        world.produce(20)
        world.ok("run", "demo")
    [told] = world.status("demo")
    [problem] = told["problems"]
    assert (told["state"], world.here("status", "demo").exit_code) == ("damaged", 1)
    assert problem["what"] == "sink postgres is not filled: it lacks 1 done manifest (2)"
    assert problem["next_step"] == "tidemark fill demo postgres --why TEXT"
    world.ok("fill", "demo", "postgres", "--why", "it was out")
    assert world.status("demo")[0]["state"] == "ok"
    world.assert_readers_complete()


def test_a_sink_that_is_new_lacks_what_was_done_before_and_nobody_is_called(
    make_table_world: Callable[..., World],
) -> None:
    world = make_table_world(has_lake=True)
    both = world.settings["sinks"]
    for sinks in (both[:1], both):
        world.settings["sinks"] = sinks
        world.write_pipeline()
        world.produce(20)
        world.ok("run", "demo")
    assert world.status("demo")[0]["state"] == "ok"
