"""What an attempt that is alive keeps others from, and what it does not."""

import pytest

from tests.worlds.world import World, wait_stopped, wake
from tidemark.errors import IllegalTransition
from tidemark.lifecycle.select import refuse_at_work, replayable


def test_an_attempt_at_work_is_taken_over_only_when_a_person_says_so(world: World) -> None:
    world.produce(30)
    at_work = world.start("run", "demo", "--run-key", "one", failpoint="stage.done:stop")
    wait_stopped(at_work)
    context = world.context()
    [manifest] = replayable(context, run_key="one")
    assert manifest.alive
    with pytest.raises(IllegalTransition, match="attempt 1 is alive and at work"):
        refuse_at_work([manifest])
    named = world.here("retry", "demo", "--manifest", str(manifest.id))
    assert named.exit_code == 1
    take_over = f"tidemark replay demo --manifest {manifest.id} --take-over"
    assert f"next:  wait for it; or take over from it: {take_over}" in named.stderr
    for words in (["retry", "demo"], ["run", "demo", "--run-key", "one"]):
        others = world.here(*words)
        assert f"manifest {manifest.id} is left out: attempt 1 is at work" in others.stderr
        assert "next:  tidemark retry" not in others.stderr
    wait = f"next:  wait until the attempt at work on manifest {manifest.id} has ended: tidemark show {manifest.id}"
    assert wait in others.stderr, "run cannot close yet, and a retry would leave the manifest out, too"
    late = world.here("run", "demo", "--run-key", "two")
    assert wait.replace("next:  ", "next:  another planner was faster, and is at work: ") in late.stderr
    shown = world.json("show", str(manifest.id))
    assert (shown["attempt"], shown["alive"]) == (1, True), "nobody has taken over"
    ended = wake(at_work)
    assert ended.returncode == 0, ended.stderr
    shown = world.json("show", str(manifest.id))
    assert (shown["attempt"], shown["alive"], shown["state"]) == (1, False, "done"), "now the wait has ended"
    for run_key in ("one", "two"):
        world.ok("run", "demo", "--run-key", run_key)
    world.assert_complete()


def test_an_attempt_that_is_taken_over_wakes_and_changes_nothing(world: World) -> None:
    world.produce(30)
    at_work = world.start("run", "demo", failpoint="stage.done:stop")
    wait_stopped(at_work)
    refused = world.here("retry", "demo", "--manifest", "1")
    assert "or take over from it: tidemark replay demo --manifest 1 --take-over" in refused.stderr
    world.ok("replay", "demo", "--manifest", "1", "--take-over")
    before = world.files()
    ended = wake(at_work)
    assert ended.returncode == 0, ended.stderr
    assert world.files() == before
    world.assert_complete()


def test_what_somebody_has_begun_since_retry_listed_it_is_left_to_them(world: World) -> None:
    world.produce(60)
    world.ok("plan", "demo")
    first = world.start("retry", "demo", failpoint="stage.done:stop")
    wait_stopped(first)
    other = world.start("retry", "demo", "--manifest", "2", failpoint="publish.receipt:stop")
    wait_stopped(other)
    ended = wake(first)
    assert ended.returncode == 0, ended.stderr
    assert "manifest 2 is left out: attempt 1 is at work" in ended.stderr
    ended = wake(other)
    assert ended.returncode == 0, ended.stderr
    assert [manifest["attempt"] for manifest in world.manifests()] == [1, 1]
    world.assert_complete()


def test_show_tells_an_error_once_beside_its_attempt(world: World) -> None:
    world.produce(10)
    assert world.tidemark("run", "demo", failpoint="stage.done:raise").returncode == 1
    [manifest] = world.manifests()
    assert manifest["reason"]
    words = " ".join(manifest["reason"].split())
    assert " ".join(world.ok("show", "1").split()).count(words.partition(" [")[0]) == 1
    assert world.json("show", "1")["attempts"][0]["error"] == manifest["reason"]
