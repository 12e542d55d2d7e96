"""``spark.parallel_slices``: errors, order and what is told when several slices work at once."""

import signal
from collections.abc import Callable

import pytest

from tests.worlds.topic_world import TopicWorld
from tests.worlds.world import World, wait_ended, wait_stopped

MakeWorld = Callable[..., World]


def test_an_error_of_one_slice_does_not_stop_the_others(make_world: MakeWorld) -> None:
    world = make_world(settings={"spark": {"parallel_slices": 3}, "on_error": "fail"}, partitions=1)
    world.produce(200, bad_every=150)  # the first and the fourth slice have one each
    failed = world.tidemark("run", "demo")
    assert failed.returncode == 1
    assert "Traceback" not in failed.stderr
    assert "2 of 5 manifests failed" in failed.stderr
    assert sorted(each["state"] for each in world.manifests()) == ["done"] * 3 + ["failed"] * 2
    world.settings["on_error"] = "dead_letter"
    world.write_pipeline()
    world.ok("retry", "demo")
    world.assert_complete()


def test_no_further_slice_begins_when_an_outside_system_is_down(make_world: MakeWorld) -> None:
    world = make_world(settings={"spark": {"parallel_slices": 2}})
    world.produce(400)
    world.ok("plan", "demo")
    world.write_pipeline(bootstrap_servers="127.0.0.1:9")
    down = world.tidemark("retry", "demo")
    assert down.returncode == 1
    assert "2 of 10 manifests failed" in down.stderr
    world.write_pipeline()
    world.ok("retry", "demo")
    world.assert_complete()


def test_an_attempt_that_is_at_work_elsewhere_is_left_out(make_world: MakeWorld) -> None:
    world = make_world()
    world.produce(160)
    elsewhere = world.start("run", "demo", "--run-key", "one", failpoint="stage.done:stop")
    wait_stopped(elsewhere)
    world.settings["spark"] = {"parallel_slices": 2}
    world.write_pipeline()
    beside = world.tidemark("retry", "demo")
    assert beside.returncode == 0, beside.stderr
    assert "is left out" not in beside.stderr or "attempt 1 is at work" in beside.stderr
    assert [each["state"] for each in world.manifests()].count("done") == len(world.manifests()) - 1
    elsewhere.send_signal(signal.SIGCONT)
    wait_ended(elsewhere)
    world.ok("retry", "demo")
    world.assert_complete()


def test_replay_works_on_several_at_once(make_world: MakeWorld) -> None:
    world = make_world(settings={"spark": {"parallel_slices": 2}})
    world.produce(160)
    world.ok("run", "demo", "--run-key", "one")
    for manifest in world.manifests():
        world.damage(manifest)
    world.ok("replay", "demo", "--run-key", "one")
    world.assert_complete()
    assert {each["attempt"] for each in world.manifests()} == {2}


def test_a_sink_that_keeps_the_order_refuses_slices_at_once(make_topic_world: Callable[..., TopicWorld]) -> None:
    world = make_topic_world(settings={"spark": {"parallel_slices": 2}})
    refused = world.tidemark("run", "demo")
    assert refused.returncode == 2
    assert "leave out spark.parallel_slices" in refused.stderr


@pytest.mark.parametrize("at_once", [1, 2])
def test_each_slice_is_told_when_it_begins_and_when_it_ends(make_world: MakeWorld, at_once: int) -> None:
    world = make_world(settings={"spark": {"parallel_slices": at_once}})
    world.produce(160)
    done = world.tidemark("run", "demo")
    lines = done.stderr.splitlines()
    for number, manifest in enumerate(world.manifests(), 1):
        assert any(line.startswith(f"[{number}/4] manifest {manifest['id']}: ") for line in lines), lines
        assert any(line.strip().startswith(f"manifest {manifest['id']} attempt 1 published") for line in lines), lines
