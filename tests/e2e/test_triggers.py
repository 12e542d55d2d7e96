"""``trigger`` on a real Airflow with a triggerer: bursts start runs without anyone asking."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from sandbox.services.airflow_api import FINAL
from sandbox.services.processes import wait_until
from tests.worlds.airflow_world import DAG, AirflowWorld

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(900)]
ASSET = f"tidemark_{DAG}_lag"


@pytest.fixture
def demo(served_world: AirflowWorld, monkeypatch: pytest.MonkeyPatch) -> Iterator[AirflowWorld]:
    """A pipeline with a trigger whose runs take ten records at most; its broker is in a connection that Airflow has."""
    world, airflow = served_world.world, served_world.airflow
    extra = json.dumps({"bootstrap.servers": world.broker.bootstrap_servers})
    airflow.create_connection("kafka_of_airflow", "kafka", "", extra=extra)
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_OF_AIRFLOW", json.dumps({"conn_type": "kafka", "extra": extra}))
    world.settings |= {
        "trigger": {"lag": 20, "at_most_every": "10s", "at_least_every": "1d"},
        "source": {
            "kafka": {
                "connection": "kafka_of_airflow",
                "topics": [world.topic],
                "slice": {"max_records": 10, "max_slices": 1},
            }
        },
    }
    world.write_pipeline()
    yield served_world
    airflow.delete_connection("kafka_of_airflow")


def wait_runs(demo: AirflowWorld, *run_types: str) -> None:
    """Until runs of exactly these types have succeeded; a busy Airflow may have one more at work."""
    wait_until(
        lambda: {run["run_type"] for run in demo.airflow.runs(DAG) if run["state"] in FINAL} == {*run_types},
        f"the end of runs {run_types}", timeout=300, interval=1,
    )  # fmt: skip
    ended = [run for run in demo.airflow.runs(DAG) if run["state"] in FINAL]
    assert {run["state"] for run in ended} == {"success"}, demo.logs(ended[0]["dag_run_id"])


def waiting(demo: AirflowWorld) -> int:
    return sum(part["lag"] for part in demo.world.json("lag", DAG))


def wait_until_few_wait(demo: AirflowWorld) -> None:
    """Until fewer records wait than start a run. A busy Airflow may start a run more, which takes some of the rest."""
    wait_until(lambda: waiting(demo) < 20, "runs that take what waits", timeout=300, interval=1)
    wait_runs(demo, *{run["run_type"] for run in demo.airflow.runs(DAG)})


def doctor(demo: AirflowWorld) -> tuple[str, str]:
    """Severity and text of what doctor says of the triggerer."""
    command = [sys.executable, "-m", "tidemark.cli", "doctor", DAG, "--airflow", "--json"]
    environment = {**demo.airflow.env, "TIDEMARK_PIPELINES": str(demo.world.pipelines)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    [finding] = [each for each in json.loads(done.stdout) if "triggerer is alive" in each["message"]]
    return finding["severity"], finding["message"]


def test_bursts_start_runs_that_are_not_by_hand_and_go_on_while_the_lag_lasts(demo: AirflowWorld) -> None:
    airflow, world = demo.airflow, demo.world
    airflow.kill_component("triggerer")
    without = f"the trigger of {DAG} starts no run and tasks of {DAG} that wait do so for ever"
    wait_until(lambda: doctor(demo) == ("failed", f"no triggerer is alive: {without}"), "it to be missed", timeout=180)
    airflow.start_component("triggerer")
    demo.deploy()
    wait_runs(demo, "asset_triggered")
    assert world.manifests() == [], "a pipeline that was never planned begins at once, here with nothing"
    assert doctor(demo) == ("ok", "a triggerer is alive")

    world.produce(60)
    wait_until_few_wait(demo)
    runs = {run["dag_run_id"]: run["run_type"] for run in airflow.runs(DAG)}
    assert {runs[manifest["run_key"]] for manifest in world.manifests()} == {"asset_triggered"}
    assert len(world.manifests()) >= 5, "ten records each, until fewer than 20 of 60 wait"
    with world.context().database as database:
        kinds = {run["kind"] for run_id in runs if (run := database.runs.find(DAG, run_id))}
    assert kinds == {"scheduled"}

    airflow.kill_component("triggerer")
    before = len(world.manifests())
    world.produce(30)
    airflow.start_component("triggerer")
    wait_until_few_wait(demo)
    assert len(world.manifests()) > before
    world.assert_whole()


def test_a_paused_dag_has_no_watcher_and_a_schedule_may_stand_beside_a_trigger(demo: AirflowWorld) -> None:
    airflow, world = demo.airflow, demo.world
    world.settings["schedule"] = "@yearly"
    world.write_pipeline()
    demo.deploy()
    world.produce(30)
    wait_runs(demo, "scheduled", "asset_triggered")
    wait_until_few_wait(demo)
    assert airflow.watchers(ASSET) == [f"tidemark_{DAG}"]
    airflow.pause(DAG)
    airflow.parse()
    wait_until(lambda: airflow.watchers(ASSET) == [], "the watcher to go", timeout=120, interval=1)
    before = len(world.manifests())
    world.produce(30)
    airflow.unpause(DAG)
    airflow.parse()
    wait_until_few_wait(demo)
    assert len(world.manifests()) > before
