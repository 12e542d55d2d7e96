"""The label of a `process` task and the last lines of its log; and the log of commands for programs."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from sandbox.services.processes import wait_until
from tests.worlds.world import World
from tidemark.airflow.log_lines import ends
from tidemark.lifecycle.publish import Ending, Outcome
from tidemark.pipeline.loader import load


def test_a_task_bears_the_ranges_of_its_manifest_before_spark_has_started(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("airflow")
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "airflow"))  # importing Airflow writes a configuration there
    monkeypatch.setenv("TIDEMARK_DB", world.dsn)
    world.produce(30)
    world.ok("plan", "demo")
    module = importlib.import_module("tidemark.airflow.process")
    pipeline = load(world.pipelines / "demo.yaml", {})
    operator = module.ProcessManifestOperator(task_id="process", pipeline=pipeline, manifest_id=1)
    label = operator.manifest_label()
    assert label.startswith(f"manifest 1 {world.topic} 0:[0, ")
    assert " 1:[0, " in label
    monkeypatch.delenv("TIDEMARK_DB")
    assert operator.manifest_label() == label, "Airflow asks twice, the second time when the manifest is published"


def test_a_log_ends_with_records_files_the_lag_or_why_it_is_not_known_and_the_page(world: World) -> None:
    world.produce(30, bad_every=10)
    assert world.here("run", "demo").exit_code == 0
    world.produce(5)
    [manifest] = world.manifests()
    context = world.context()
    outcome = Outcome(1, 1, Ending.PUBLISHED, context.database.manifests.get(1).publications[0].counts)
    first, records, lag, page = ends(context, outcome, "https://example.org/tidemark/pipelines/demo/manifests/1")
    assert page == "page: https://example.org/tidemark/pipelines/demo/manifests/1"
    assert first == "pipeline demo manifest 1 attempt 1: published"
    files = len(manifest["objects"])
    assert records == f"read 30, written 27, dead-lettered 3, {files} files; more: tidemark show 1"
    assert lag == "lag of the pipeline: 5 offsets not planned yet, 0 planned and not published"
    world.administer("delete_topics", [world.topic])
    assert len(ends(context, outcome, None)) == 3
    wait_until(lambda: ends(context, outcome, None)[2].startswith("lag not known: "), "the error", timeout=30)


def logged(world: World, *words: str, exit_code: int = 0) -> list[dict[str, Any]]:
    """The lines of a command's log, each of them a JSON object, without those for people."""
    done = world.here(*words, "--log-format", "json")
    assert done.exit_code == exit_code, done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert all({"timestamp", "level", "event"} <= {*line} for line in lines)
    return [line for line in lines if line["event"] != "tidemark_note"]


def steps(lines: list[dict[str, Any]]) -> list[tuple[str, int | None, int | None]]:
    return [(line["event"].removeprefix("tidemark_"), line.get("manifest"), line.get("attempt")) for line in lines]


def test_a_run_logs_its_plan_each_attempt_and_the_hours_that_are_complete(world: World) -> None:
    world.produce(50)
    lines = logged(world, "run", "demo")
    assert steps(lines) == [
        ("planned", None, None),
        ("attempt_begins", 1, 1),
        ("attempt_ends", 1, 1),
        ("attempt_begins", 2, 1),
        ("attempt_ends", 2, 1),
        ("hours_complete", None, None),
    ]
    assert {line["pipeline"] for line in lines} == {"demo"}
    assert lines[0]["manifests"] == [1, 2]
    assert sum(line["written"] for line in lines if line["event"] == "tidemark_attempt_ends") == 50
    complete = [hour["start"] for hour in world.json("hours", "demo") if hour["complete"]]
    assert len(complete) > 0
    [[first, _], *_] = lines[-1]["hours"]
    assert complete[0].startswith(first.removesuffix("Z"))


def test_a_retry_and_a_replay_log_what_was_done_what_failed_and_what_was_left_out(world: World) -> None:
    world.produce(30)
    assert steps(logged(world, "plan", "demo")) == [("planned", None, None)]
    world.administer("delete_topics", [world.topic])
    wait_until(lambda: world.here("lag", "demo").exit_code != 0, "the topic to be gone", timeout=30)
    failed = logged(world, "retry", "demo", exit_code=1)
    assert steps(failed)[-1][:2] == ("failed", 1)
    assert failed[-1]["level"] == "error"
    assert failed[-1]["next_step"]


def test_a_manifest_that_is_at_work_is_logged_as_left_out_and_a_decision_with_its_name(world: World) -> None:
    world.produce(30)
    world.ok("run", "demo")
    context = world.context()
    assert context.database.attempts.start(1, "somebody") == 2
    left, failed = logged(world, "replay", "demo", "--manifest", "1", exit_code=1)
    assert steps([left]) == [("left_out", 1, 2)]
    assert failed["event"] == "tidemark_failed"
    assert steps(logged(world, "replay", "demo", "--manifest", "1", "--take-over")) == [
        ("attempt_begins", 1, 3),
        ("attempt_ends", 1, 3),
    ]
    [decided] = logged(world, "repair", "demo", "--why", "to see", "--dry-run")
    assert (decided["decision"], decided["pipeline"], decided["dry_run"]) == ("repair", "demo", True)
