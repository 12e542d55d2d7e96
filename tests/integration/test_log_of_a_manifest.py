"""The label of a `process` task, and the last lines of its log."""

import importlib
from pathlib import Path

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
    assert operator.manifest_label().startswith(f"manifest 1 {world.topic} 0:[0, ")
    assert " 1:[0, " in operator.manifest_label()


def test_a_log_ends_with_records_files_the_lag_or_why_it_is_not_known_and_the_page(world: World) -> None:
    world.produce(30, bad_every=10)
    assert world.here("run", "demo").exit_code == 0
    world.produce(5)
    [manifest] = world.manifests()
    context = world.context()
    outcome = Outcome(1, 1, Ending.PUBLISHED, context.database.manifest(1).publications[0].counts)
    first, records, lag, page = ends(context, outcome, "https://example.org/tidemark/pipelines/demo/manifests/1")
    assert page == "page: https://example.org/tidemark/pipelines/demo/manifests/1"
    assert first == "pipeline demo manifest 1 attempt 1: published"
    files = len(manifest["objects"])
    assert records == f"read 30, written 27, dead-lettered 3, {files} files; more: tidemark show 1"
    assert lag == "lag of the pipeline: 5 offsets not planned yet, 0 planned and not published"
    world.administer("delete_topics", [world.topic])
    assert len(ends(context, outcome, None)) == 3
    wait_until(lambda: ends(context, outcome, None)[2].startswith("lag not known: "), "the error", timeout=30)
