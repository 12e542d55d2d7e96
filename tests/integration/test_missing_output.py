"""Published manifests that a plan, an adopt or a close does not find in a target: ``damaged`` until they are mended."""

from collections.abc import Callable
from pathlib import Path

import pytest

import tidemark
from tests.worlds.table_world import TableWorld
from tests.worlds.world import World
from tidemark.operations.status import PipelineProblem, Status

MakeWorld = Callable[..., World]
MakeTableWorld = Callable[..., TableWorld]


def status_of(world: World) -> Status:
    [status] = tidemark.status("demo", dsn=world.dsn, pipelines=world.pipelines)
    return status


def damage_of(world: World) -> PipelineProblem:
    """The only problem; the command line says the same with exit status 1."""
    [problem] = status_of(world).problems
    printed = world.here("status", "demo")
    assert (printed.exit_code, problem.kind) == (1, "damaged")
    assert problem.what in printed.stdout
    return problem


def follow(world: World, problem: PipelineProblem) -> None:
    """Type the commands of the next step."""
    for command in problem.next_step.split("; then: "):
        world.ok(*command.split()[1:])


def test_a_record_that_a_plan_does_not_find_is_damage_until_it_is_written_again(make_world: MakeWorld) -> None:
    world = make_world(partitions=1)
    for _ in range(2):
        world.produce(10)
        world.ok("run", "demo")
    record = world.lake / "_manifests/demo/0000000001.0001.json"
    kept = record.read_text()
    record.unlink()
    assert "shows no record of the published manifests 1" in world.here("plan", "demo", "--dry-run").stderr
    assert status_of(world).state == "ok", "a dry run stores nothing"
    for _ in range(2):
        assert "shows no record of the published manifests 1" in world.here("plan", "demo").stderr
        problem = damage_of(world)
        assert problem.manifest_id == 1
        assert f"it is published and not in {world.lake}" in problem.what
    not_mended = world.here("replay", "demo", "--damaged")
    assert (not_mended.exit_code, "not all that is damaged can be mended by a replay" in not_mended.stderr) == (1, True)
    follow(world, problem)
    world.ok("audit", "demo")
    assert record.read_text() == kept
    assert status_of(world).state == "ok"

    record.unlink()
    world.ok("plan", "demo")
    record.write_text(kept)
    damage_of(world)
    world.ok("plan", "demo")
    assert status_of(world).state == "ok", "somebody has put it back"

    record.unlink()
    world.ok("run", "demo")
    assert record.exists(), "the run has written it again"
    assert status_of(world).state == "ok"


def test_a_marker_that_a_plan_does_not_find_is_damage_until_its_rows_are_replayed(
    make_table_world: MakeTableWorld,
) -> None:
    world = make_table_world()
    for _ in range(3):
        world.produce(10)
        world.ok("run", "demo")
    world.query("DELETE FROM tidemark_target.marker WHERE manifest < 3 RETURNING manifest")
    world.ok("plan", "demo")
    problems = status_of(world).problems
    assert [problem.kind for problem in problems] == ["damaged"]
    assert "each of the manifests 1, 2" in problems[0].what
    world.ok("run", "demo")
    follow(world, damage_of(world))
    assert status_of(world).state == "ok", "one replay mends both"
    world.assert_complete()


@pytest.mark.parametrize("mended_by", ["replay", "audit"])
def test_output_that_an_adopt_does_not_find_whole_is_damage_until_it_is_there(
    make_world: MakeWorld, mended_by: str
) -> None:
    world = make_world(partitions=1)
    world.produce(10)
    world.ok("run", "demo")
    file = Path(world.manifests()[0]["objects"][0]["path"])
    content = file.read_bytes()
    file.unlink()
    world.lose_manifest_database()
    assert "some of them are missing in files" in world.ok("db", "adopt", "demo", "--why", "lost the database")
    problem = damage_of(world)
    assert problem.what.endswith("some of its published output is missing in sink files")
    world.ok("plan", "demo")
    assert damage_of(world) == problem, "a plan looks at records alone"
    if mended_by == "replay":
        follow(world, problem)
    else:
        file.write_bytes(content)
        world.ok("audit", "demo")
    assert status_of(world).state == "ok"
