"""A pipeline whose file is gone is taken off the lists, and may come back."""

from collections.abc import Callable

import pytest

from tests.worlds.world import World, wait_stopped

MakeWorld = Callable[..., World]
WHY = ("--why", "nobody reads it any more")


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """60 records, published in two manifests."""
    world = make_world()
    world.produce(60)
    world.ok("run", "demo")
    return world


def names(world: World) -> list[str]:
    return [view["pipeline"] for view in world.json("status")]


def test_it_is_refused_while_there_is_a_file_and_done_without_one(world: World) -> None:
    file = world.pipelines / "demo.yaml"
    refused = world.here("retire", "demo", *WHY)
    assert refused.exit_code == 2
    assert "the pipeline has a file" in refused.stderr
    text = file.read_text()
    file.unlink()
    objects = world.object_keys()
    assert "2 manifests are done" in world.ok("retire", "demo", *WHY, "--dry-run")
    assert names(world) == ["demo"], "a dry run changes nothing"
    assert world.json("retire", "demo", *WHY)["lines"]
    assert names(world) == []
    assert world.object_keys() == objects
    assert "demo" not in world.ok("metrics")
    [decision] = world.json("history", "demo")
    assert (decision["decision"], decision["why"]) == ("retire", WHY[1])
    again = world.here("retire", "demo", *WHY)
    assert "the pipeline was retired on" in again.stderr
    file.write_text(text)
    for verb in ("plan", "run", "retry", "audit"):
        refused = world.here(verb, "demo")
        assert refused.exit_code == 2, verb
        assert "tidemark retire demo --undo --why TEXT" in refused.stderr, verb
    world.ok("retire", "demo", "--undo", *WHY)
    assert "is not retired" in world.here("retire", "demo", "--undo", *WHY).stderr
    world.produce(20)
    world.ok("run", "demo")
    world.assert_complete()
    assert names(world) == ["demo"]


def test_manifests_that_are_not_done_are_named_and_an_attempt_at_work_refuses(make_world: MakeWorld) -> None:
    world = make_world()
    world.produce(30)
    world.ok("plan", "demo")
    attempt = world.start("retry", "demo", failpoint="stage.done:stop")
    wait_stopped(attempt)
    (world.pipelines / "demo.yaml").unlink()
    refused = world.here("retire", "demo", *WHY)
    assert (refused.exit_code, "at work" in refused.stderr) == (1, True), refused.stderr
    attempt.kill()
    attempt.wait()
    assert "1 manifests are not done, and nobody does them any more: 1" in world.ok("retire", "demo", *WHY)
    assert not world.listing(), "nothing became visible"


def test_a_name_that_was_never_planned_is_told_with_the_nearest(world: World) -> None:
    refused = world.here("retire", "demp", *WHY)
    assert refused.exit_code == 2
    assert 'no pipeline demp was ever planned; did you mean "demo"?' in refused.stderr
