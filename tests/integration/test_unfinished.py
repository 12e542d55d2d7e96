"""What an earlier run left unfinished: ``tidemark run`` takes it along, and ``tidemark status`` says it."""

from collections.abc import Callable
from datetime import timedelta

import psycopg
import pytest

import tidemark
from tests.worlds.world import World

MakeWorld = Callable[..., World]


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """One partition and slices of 10 records."""
    return make_world(partitions=1, settings={"kafka": {"slice": {"max_records": 10}}, "unfinished": "retry"})


def fail_a_run(world: World) -> None:
    """A run of two manifests of which the first failed: it has a record that cannot be decoded."""
    world.settings["on_error"] = "fail"
    world.write_pipeline()
    world.produce(20, bad_every=20)
    assert world.here("run", "demo", "--run-key", "first").exit_code == 1
    assert [manifest["state"] for manifest in world.manifests()] == ["failed", "done"]


def mend(world: World) -> None:
    world.settings["on_error"] = "dead_letter"
    world.write_pipeline()


def age(world: World, manifest_id: int) -> None:
    """As if a manifest had been planned an hour ago."""
    with psycopg.connect(world.dsn) as connection:
        connection.execute("SELECT set_config('tidemark.actor', 'test', false)")
        connection.execute(
            "UPDATE tidemark.manifest SET created_at = created_at - interval '1 hour' WHERE id = %s", [manifest_id]
        )


def test_the_next_run_names_and_takes_along_what_failed_and_status_is_red_until_then(world: World) -> None:
    fail_a_run(world)
    red = world.here("status")
    assert red.exit_code == 1
    assert f"failed: manifest 1 of run first, {world.topic}-0 [0, 10) (failed): " in red.stdout
    assert "set on_error: dead_letter in the pipeline file; then: tidemark retry demo" in red.stdout
    mend(world)
    world.produce(10)
    planned = world.json("plan", "demo", "--dry-run")
    assert planned["not_done"] == [1]
    assert "not done: manifest 1 of run first" in planned["notes"][0]
    done = world.here("run", "demo", "--json")
    assert done.exit_code == 0, done.stderr
    assert "this run takes it along" in done.stderr
    assert '"taken_along": [\n    1\n  ]' in done.stdout
    world.assert_complete()
    [healthy] = world.json("status")
    assert (healthy["healthy"], healthy["dead_lettered"], healthy["problems"]) == (True, 1, [])


def test_a_run_is_green_or_fails_beside_an_unfinished_manifest_as_the_pipeline_file_says(world: World) -> None:
    fail_a_run(world)
    for policy, status in (("report", 0), ("fail", 1)):
        world.settings["unfinished"] = policy
        world.write_pipeline()
        world.send('{"n": 1, "at": "2024-03-01T00:00:00"}')
        done = world.here("run", "demo")
        assert done.exit_code == status, done.stderr
        assert "not done: manifest 1 of run first" in done.stderr
    assert "earlier runs left 1 manifest not done (unfinished: fail)" in done.stderr
    assert [manifest["state"] for manifest in world.manifests()] == ["failed", "done", "done", "done"]


def test_a_planned_manifest_waits_at_first_and_is_unfinished_when_nobody_comes(world: World) -> None:
    world.produce(10)
    world.ok("plan", "demo")
    [waiting] = world.json("status", "demo")
    assert (waiting["healthy"], waiting["waiting"], waiting["published_up_to"]) == (True, [1], None)
    age(world, 1)
    assert "(planned)" in world.here("status", "demo").stdout
    assert world.here("status", "demo").exit_code == 1


def test_a_pipeline_is_late_by_its_lag_and_by_the_age_of_what_is_published(world: World) -> None:
    world.produce(10)
    world.ok("run", "demo", "--until", "2024-03-02")
    world.ok("run", "demo")
    assert world.here("status", "--max-lag", "0", "--max-age", "1h").exit_code == 0
    world.produce(10)
    late = world.here("status", "--max-lag", "9")
    assert late.exit_code == 1
    assert "late: 10 offsets not published, and at most 9 are allowed" in late.stdout
    assert world.here("status", "--max-lag", "10").exit_code == 0
    old = world.here("status", "--max-age", "0s")
    assert old.exit_code == 1
    assert "not all is published that came after " in old.stdout
    assert world.here("status", "--max-age", "soon").exit_code == 2
    assert "next: tidemark lag demo\n" in late.stdout
    assert world.topic in world.ok("lag", "demo")
    assert sum(part["lag"] for part in world.json("lag", "demo")) == 10
    world.ok("run", "demo")
    world.ok("status", "--max-lag", "0")


def test_max_age_of_the_file_is_what_status_and_metrics_go_by(make_world: MakeWorld) -> None:
    world = make_world(settings={"max_age": "2h"})
    world.produce(10)
    world.ok("run", "demo", "--until", "2024-03-02")
    late = world.here("status")
    assert late.exit_code == 1
    assert "and at most 2:00:00 are allowed" in late.stdout
    [view] = tidemark.status(dsn=world.dsn, pipelines=world.pipelines)
    assert view.max_age_s == 7200
    printed = world.ok("monitor", "metrics", "--no-lag")
    assert 'tidemark_problems{pipeline="demo",kind="late"} 1' in printed
    assert 'tidemark_max_age_seconds{pipeline="demo"} 7200' in printed
    world.ok("run", "demo")
    assert world.here("status").exit_code == 0
    assert 'kind="late"} 0' in world.ok("monitor", "metrics", "--no-lag")
    assert world.here("status", "--max-age", "0s").exit_code == 1, "the option goes before the file"


def test_what_is_published_reaches_only_up_to_the_first_manifest_that_is_not_done(world: World) -> None:
    world.produce(10)
    world.ok("run", "demo", "--run-key", "one")
    [before] = world.json("status")
    world.produce(10)
    world.ok("plan", "demo")
    [after] = world.json("status")
    assert before["published_up_to"] == after["published_up_to"] is not None
    world.ok("retry", "demo")
    assert world.json("status")[0]["published_up_to"] > before["published_up_to"]


def test_a_wrong_file_and_a_refused_topic_are_problems_and_an_unknown_name_is_wrong_use(world: World) -> None:
    world.produce(10)
    world.ok("run", "demo")
    (world.pipelines / "wrong.yaml").write_text("pipeline: other\nsinkz: []\n")
    views = tidemark.status(dsn=world.dsn, pipelines=world.pipelines, max_age=timedelta(days=1))
    assert [(view.pipeline_name, view.healthy) for view in views] == [("wrong.yaml", False), ("demo", True)]
    assert "sinkz" in views[0].problems[0].what
    world.broker.delete_topic(world.topic)
    world.create_topic()
    assert world.here("plan", "demo").exit_code == 1
    [blocked] = tidemark.status("demo", dsn=world.dsn, pipelines=world.pipelines)
    assert {problem.kind for problem in blocked.problems} == {"blocked"}
    assert world.here("status", "dem").exit_code == 2
