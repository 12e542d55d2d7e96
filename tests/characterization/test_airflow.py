"""What Tidemark relies on in this version of Airflow; a test that fails here says which reliance an upgrade broke."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.services.airflow import Airflow
from sandbox.services.airflow_api import TaskInstance
from sandbox.services.postgres import Postgres
from sandbox.services.processes import wait_until
from tests.worlds.airflow_world import Process

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def airflow(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    """An Airflow on the DAG folder beside this file."""
    with postgres.temporary_database("airflow") as metadata:
        quick = {"AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1"}
        dags = Path(__file__).with_name("dags")
        with Airflow(tmp_path_factory.mktemp("state"), metadata, quick, dags=dags, parse_interval=3) as server:
            for dag_id in ("clearing", "mapping"):
                server.wait_dag(dag_id)
                server.unpause(dag_id)
            yield server


def instances(airflow: Airflow, dag_id: str, run_id: str, task_id: str) -> list[TaskInstance]:
    return [instance for instance in airflow.task_instances(dag_id, run_id) if instance["task_id"] == task_id]


def test_clearing_a_task_that_has_ended_raises_its_max_tries_above_its_retries(airflow: Airflow) -> None:
    run_id = airflow.trigger("mapping")
    assert airflow.wait_run("mapping", run_id) == "success"
    assert {instance["max_tries"] for instance in instances(airflow, "mapping", run_id, "each")} == {2}
    airflow.clear("mapping", run_id, [("each", 0)])
    assert airflow.wait_run("mapping", run_id) == "success"
    tries = {
        instance["map_index"]: (instance["max_tries"], instance["try_number"])
        for instance in instances(airflow, "mapping", run_id, "each")
    }
    assert tries == {0: (3, 2), 1: (2, 1)}


def test_a_mapped_task_bears_the_label_of_its_template(airflow: Airflow) -> None:
    run_id = airflow.trigger("mapping", {"list": [7, 9]})
    assert airflow.wait_run("mapping", run_id) == "success"
    labels = [instance["rendered_map_index"] for instance in instances(airflow, "mapping", run_id, "each")]
    assert sorted(labels) == ["number 7", "number 9"]


def test_a_list_of_length_zero_skips_the_mapped_task_and_what_follows_still_runs(airflow: Airflow) -> None:
    run_id = airflow.trigger("mapping", {"list": []})
    assert airflow.wait_run("mapping", run_id) == "success"
    states = {
        instance["task_id"]: (instance["map_index"], instance["state"])
        for instance in airflow.task_instances("mapping", run_id)
    }
    assert states == {"numbers": (-1, "success"), "each": (-1, "skipped"), "after": (-1, "success")}


def test_a_cleared_running_task_goes_on_for_seconds_and_is_dead_before_its_next_try(
    airflow: Airflow, tmp_path: Path
) -> None:
    file = tmp_path / "beats"
    run_id = airflow.trigger("clearing", {"file": str(file)})
    wait_until(file.exists, "the first try", timeout=120)
    cleared = time.time()
    airflow.clear("clearing", run_id, [("beat", -1)])
    wait_until(lambda: any(number == 2 for number, _ in beats(file)), "the second try", timeout=180)
    last = max(at for number, at in beats(file) if number == 1)
    first = min(at for number, at in beats(file) if number == 2)
    assert 2 < last - cleared < 60, "SIGTERM calls on_kill and Python goes on; SIGKILL comes 5 s later"
    assert last < first
    (task,) = instances(airflow, "clearing", run_id, "beat")
    assert task["max_tries"] > 1, "that is how a clear is told from a retry"
    airflow.set_task_state("clearing", run_id, ("beat", -1), "failed")
    assert airflow.wait_run("clearing", run_id) == "failed"


def test_a_supervisor_that_dies_alone_leaves_its_task_at_work_and_running_for_airflow(
    airflow: Airflow, tmp_path: Path
) -> None:
    file = tmp_path / "beats"
    run_id = airflow.trigger("clearing", {"file": str(file)})
    wait_until(file.exists, "the first try", timeout=120)
    (task,) = instances(airflow, "clearing", run_id, "beat")
    runner = Process(int(task["pid"]))
    runner.parent.send(signal.SIGKILL)
    killed = time.time()
    try:
        wait_until(lambda: any(at > killed + 3 for _, at in beats(file)), "three more seconds of beats", timeout=60)
        (task,) = instances(airflow, "clearing", run_id, "beat")
        assert (task["state"], task["try_number"]) == ("running", 1)
    finally:
        runner.send(signal.SIGKILL)


def beats(file: Path) -> list[tuple[int, float]]:
    """(try, time) of each beat that is written whole."""
    lines = file.read_text().split("\n")[:-1]
    return [(int(line.split()[0]), float(line.split()[1])) for line in lines]
