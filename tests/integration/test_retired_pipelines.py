"""A pipeline whose file is gone is taken off the lists, and may come back."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.worlds.arrow_stage import arrow_stage
from tests.worlds.world import World, wait_stopped
from tidemark.errors import ConfigurationError
from tidemark.lifecycle import plan as planning
from tidemark.lifecycle.attempt import process
from tidemark.operations.retire import retire_pipeline
from tidemark.pipeline.deployed import deployed
from tidemark.pipeline.kept import kept_path

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
    return [view["pipeline"] for view in world.status()]


def test_it_is_refused_while_there_is_a_file_and_done_without_one(world: World) -> None:
    file = world.pipelines / "demo.yaml"
    refused = world.here("retire", "pipeline", "demo", *WHY)
    assert refused.exit_code == 2
    assert "the pipeline has a file" in refused.stderr
    text = file.read_text()
    file.unlink()
    assert "tidemark retire pipeline demo --why TEXT" in world.here("status").stdout
    objects = world.object_keys()
    assert "2 manifests done" in world.ok("retire", "pipeline", "demo", *WHY, "--dry-run")
    assert names(world) == ["demo"], "a dry run changes nothing"
    assert world.json("retire", "pipeline", "demo", *WHY)["lines"]
    assert names(world) == []
    assert world.object_keys() == objects
    assert "demo" not in world.ok("monitor", "metrics")
    [decision] = world.json("history", "demo")
    assert (decision["decision"], decision["why"]) == ("retire", WHY[1])
    again = world.here("retire", "pipeline", "demo", *WHY)
    assert "the pipeline was retired on" in again.stderr
    file.write_text(text)
    for verb in ("plan", "run", "retry", "audit"):
        refused = world.here(verb, "demo")
        assert refused.exit_code == 2, verb
        assert "tidemark retire pipeline demo --undo --why TEXT" in refused.stderr, verb
    world.ok("retire", "pipeline", "demo", "--undo", *WHY)
    assert "is not retired" in world.here("retire", "pipeline", "demo", "--undo", *WHY).stderr
    world.produce(20)
    world.ok("run", "demo")
    world.assert_complete()
    assert names(world) == ["demo"]


def test_a_file_that_is_wrong_or_only_kept_and_a_folder_that_is_not_there_refuse(world: World) -> None:
    file = world.pipelines / "demo.yaml"
    text = file.read_text()
    file.write_text(f"{text}\nunknown_key: 1\n")
    refused = world.here("retire", "pipeline", "demo", *WHY)
    assert (refused.exit_code, f"the pipeline has a file: {file}" in refused.stderr) == (2, True), refused.stderr
    file.write_text(text)
    deployed(world.pipelines, world.environment())  # as Airflow reads it
    file.unlink()
    refused = world.here("retire", "pipeline", "demo", *WHY)
    kept = kept_path("demo", world.pipelines, world.environment())
    assert (refused.exit_code, f"rm {kept}" in refused.stderr) == (2, True), refused.stderr
    kept.unlink()
    refused = world.here("retire", "pipeline", "demo", *WHY, "--pipelines", f"{world.pipelines}-elsewhere")
    assert (refused.exit_code, "there is no folder of pipelines" in refused.stderr) == (2, True), refused.stderr
    assert names(world) == ["demo"], "nothing of this has retired it"


def test_a_retired_pipeline_whose_file_is_back_is_a_problem_wherever_somebody_looks(world: World) -> None:
    file = world.pipelines / "demo.yaml"
    text = file.read_text()
    file.unlink()
    world.ok("retire", "pipeline", "demo", *WHY)
    assert "demo" in world.ok("monitor", "metrics", "demo"), "by its name it is still measured"
    file.write_text(text)
    step = "tidemark retire pipeline demo --undo --why TEXT"
    checked = world.here("validate")
    assert (checked.exit_code, step in checked.stdout + checked.stderr) == (2, True), checked
    looked = world.here("status", "demo", "--json")
    [view] = json.loads(looked.stdout)
    assert looked.exit_code == 1
    assert [(problem["kind"], step in problem["next_step"]) for problem in view["problems"]] == [("blocked", True)]
    file.write_text(text.replace("demo", "other", 1))
    told = world.here("validate", "--against-history").stdout
    assert f"if it was renamed: {step}, then: tidemark rename pipeline demo other --why TEXT" in told


def test_a_plan_that_began_before_the_pipeline_was_retired_stores_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, honest = world.context(), planning.observe
    world.produce(20)
    manifests = world.manifests()

    def retiring(*words: Any, **names: Any) -> Any:
        retire_pipeline(context.database, "demo", [], WHY[1], dry_run=False)
        return honest(*words, **names)

    monkeypatch.setattr(planning, "observe", retiring)
    with pytest.raises(ConfigurationError, match="was retired on"):
        planning.plan(context, planning.Tick.by_hand(None, None))
    assert world.manifests() == manifests


def test_a_run_that_is_older_than_the_decision_starts_no_further_manifest(world: World) -> None:
    """It has opened the pipeline, and nothing of it was alive when the pipeline was retired."""
    context = world.context()
    world.produce(20)
    world.ok("plan", "demo")
    retire_pipeline(context.database, "demo", [], WHY[1], dry_run=False)
    with pytest.raises(ConfigurationError, match="was retired on"):
        process(context, world.manifests()[-1]["id"], arrow_stage)
    assert world.manifests()[-1]["published_attempt"] is None


def test_a_comment_with_its_name_in_the_file_of_another_pipeline_is_no_file_of_it(world: World) -> None:
    file = world.pipelines / "demo.yaml"
    other = world.pipelines / "other.yaml"
    other.write_text(file.read_text().replace("demo", "other", 1) + "\n# made like pipeline: demo\n")
    file.unlink()
    (world.pipelines / "empty.yaml").write_text("")
    refused = world.here("retire", "pipeline", "demo", *WHY)
    assert (refused.exit_code, "empty.yaml: is empty" in refused.stderr) == (2, True), refused.stderr
    (world.pipelines / "empty.yaml").unlink()
    world.ok("retire", "pipeline", "demo", *WHY)


def test_manifests_that_are_not_done_are_named_and_an_attempt_at_work_refuses(make_world: MakeWorld) -> None:
    world = make_world()
    world.produce(30)
    world.ok("plan", "demo")
    attempt = world.start("retry", "demo", failpoint="stage.done:stop")
    wait_stopped(attempt)
    (world.pipelines / "demo.yaml").unlink()
    refused = world.here("retire", "pipeline", "demo", *WHY)
    assert (refused.exit_code, "at work" in refused.stderr) == (1, True), refused.stderr
    attempt.kill()
    attempt.wait()
    assert "1 manifest not done, which nothing processes any more: 1" in world.ok("retire", "pipeline", "demo", *WHY)
    assert not world.listing(), "nothing became visible"


def test_a_name_that_was_never_planned_is_told_with_the_nearest(world: World) -> None:
    refused = world.here("retire", "pipeline", "demp", *WHY)
    assert refused.exit_code == 2
    assert 'no pipeline demp was ever planned; did you mean "demo"?' in refused.stderr
    assert "tidemark status lists those that were" in refused.stderr
    assert world.ok("status").startswith("demo: ok")
    (world.pipelines / "demo.yaml").unlink()
    world.ok("retire", "pipeline", "demo", *WHY)
    assert "demo" not in world.ok("status")
