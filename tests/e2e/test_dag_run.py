"""One pipeline through a real Airflow: scheduler, LocalExecutor, spark-submit, two manifests, one killed on the way."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox.airflow import Airflow
from sandbox.processes import wait_until
from tests.world import World

DAG = "demo"


@pytest.fixture
def world(make_world: Callable[..., World], airflow: Airflow, airflow_home: Path) -> Iterator[World]:
    """A world whose pipeline file lies where Airflow looks, on Airflow's manifest database."""
    found = make_world(settings={"retry_delay": "1s"})
    found.dsn = airflow.env["TIDEMARK_DB"]
    link = airflow_home / "pipelines" / "demo.yaml"
    link.write_text((found.pipelines / "demo.yaml").read_text())
    yield found
    link.unlink()


def test_a_dag_run_publishes_what_was_planned_survives_a_kill_and_replays_what_is_cleared(
    world: World, airflow: Airflow
) -> None:
    world.produce(60, bad_every=20)
    airflow.wait_dag(DAG)
    airflow.unpause(DAG)

    run_id = airflow.trigger(DAG)
    assert airflow.wait_run(DAG, run_id) == "success", _logs(airflow, run_id)
    world.assert_complete()
    manifests = world.json("manifests", DAG)
    assert [one["state"] for one in manifests] == ["done", "done"]
    assert sum(one["counts"]["dead_lettered"] for one in manifests) == 3

    # A cleared, already successful task does its manifest once more: equal rows, so nothing moves.
    before = {path: path.stat().st_mtime_ns for path in world.lake.rglob("*.parquet")}
    airflow.clear(DAG, run_id, [("process", 0)])
    assert airflow.wait_run(DAG, run_id) == "success", _logs(airflow, run_id)
    replayed = world.json("show", str(manifests[0]["id"]))
    assert (replayed["attempt"], replayed["published_attempt"]) == (2, 1)
    assert "airflow demo" in replayed["attempts"][-1]["actor"]
    assert {path: path.stat().st_mtime_ns for path in world.lake.rglob("*.parquet")} == before

    # Killed with SIGKILL in the middle of publishing, the task is tried again by Airflow and loses nothing.
    world.produce(60)
    run_id = airflow.trigger(DAG)
    _kill_what_has_staged(world)
    assert airflow.wait_run(DAG, run_id) == "success", _logs(airflow, run_id)
    world.assert_complete()

    # A run with nothing new skips its mapped tasks and passes; what covers it is published.
    run_id = airflow.trigger(DAG)
    assert airflow.wait_run(DAG, run_id) == "success", _logs(airflow, run_id)
    states = {one["task_id"]: one["state"] for one in airflow.task_instances(DAG, run_id)}
    assert states == {"plan": "success", "process": "skipped", "close": "success"}
    assert len(world.json("manifests", DAG)) == 4


def _kill_what_has_staged(world: World) -> None:
    """SIGKILL the process group of the task that has a file staged: Spark and Airflow's task die at once."""
    wait_until(
        lambda: any(world.lake.glob("_staging/*/*/files/*.parquet")), "something staged", timeout=120, interval=0.02
    )
    os.killpg(_group_of_spark_submit(world), signal.SIGKILL)


def _group_of_spark_submit(world: World) -> int:
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if any(str(world.lake).encode() in word for word in words):
                return os.getpgid(int(process.name))
    raise AssertionError("no process works on this lake")


def _logs(airflow: Airflow, run_id: str) -> str:
    failed = [one for one in airflow.task_instances(DAG, run_id) if one["state"] == "failed"]
    return json.dumps([airflow.task_log(DAG, run_id, one)[-3000:] for one in failed], indent=1)
