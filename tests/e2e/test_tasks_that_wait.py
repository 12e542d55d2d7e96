"""Tasks that only wait, on a real Airflow: in the triggerer they take no slot, and a killed triggerer loses none."""

import subprocess
import sys
from contextlib import closing
from typing import Any

import psycopg
import pytest

from sandbox.services.airflow import Airflow
from sandbox.services.processes import wait_until
from tests.worlds.airflow_slots import other_dag, parallelism
from tests.worlds.airflow_world import DAG, AirflowWorld
from tests.worlds.world import wait_stopped, wake

RUNS = 30
SLOTS = 2
pytestmark = [pytest.mark.thorough, pytest.mark.timeout(900)]


def metadata(airflow: Airflow, query: str) -> list[tuple[Any, ...]]:
    with closing(psycopg.connect(airflow._metadata_dsn)) as connection:
        return connection.execute(query).fetchall()


def closing_states(demo: AirflowWorld, runs: list[str]) -> list[str | None]:
    return [demo.states(run_id).get(("close", -1)) for run_id in runs]


def deployed_with_an_attempt_at_work(demo: AirflowWorld) -> "subprocess.Popen[str]":
    """Plan a manifest, and have a command at work on it, which goes on when it is woken."""
    demo.world.produce(20)
    demo.world.ok("plan", DAG)
    demo.deploy()
    at_work = demo.world.start("retry", DAG, failpoint="stage.done:stop")
    wait_stopped(at_work)
    return at_work


def test_tasks_that_wait_take_no_slot_and_go_on_once_after_their_triggerer_was_killed(
    airflow_world: AirflowWorld,
) -> None:
    demo, world, airflow = airflow_world, airflow_world.world, airflow_world.airflow
    world.settings["max_active_runs"] = RUNS
    world.write_pipeline()
    at_work = deployed_with_an_attempt_at_work(demo)
    with other_dag(airflow) as other, parallelism(airflow, SLOTS):
        runs = [demo.trigger() for _ in range(RUNS)]
        wait_until(lambda: set(closing_states(demo, runs)) == {"deferred"}, "all to wait", timeout=400, interval=2)
        log = airflow.task_log(DAG, runs[0], demo.instance(runs[0], "close"))
        assert "waiting for the end of attempt 1 at manifest 1 by " in log
        assert airflow.wait_run(other, airflow.trigger(other), timeout=120) == "success", "the slots are free"

        # A triggerer that dies, and tasks that a person ends: nothing else is at work for them.
        airflow.kill_component("triggerer")
        airflow.set_task_state(DAG, runs[0], ("close", -1), "failed")
        airflow.clear(DAG, runs[1], [("close", -1)])
        airflow.start_component("triggerer")
        assert wake(at_work).returncode == 0
        for run_id in runs[1:]:
            demo.succeed(run_id)
        assert airflow.run_state(DAG, runs[0]) == "failed"
        tries = [demo.instance(run_id, "close")["try_number"] for run_id in runs]
        assert tries == [1, 2, *[1] * (RUNS - 2)]
        wait_until(lambda: not metadata(airflow, "SELECT id FROM trigger"), "no trigger to be left", timeout=60)
    assert demo.attempts(1) == [(1, "published")]
    world.assert_complete()


def test_a_database_that_is_away_for_a_while_fails_no_task_that_waits(airflow_world: AirflowWorld) -> None:
    demo, world, airflow = airflow_world, airflow_world.world, airflow_world.airflow
    at_work = deployed_with_an_attempt_at_work(demo)
    run_id = demo.trigger()
    wait_until(lambda: closing_states(demo, [run_id]) == ["deferred"], "it to wait", timeout=120)

    def logged(words: str) -> bool:
        return words in airflow.task_log(DAG, run_id, demo.instance(run_id, "close"))

    name = psycopg.conninfo.conninfo_to_dict(world.dsn)["dbname"]
    with closing(psycopg.connect(airflow._metadata_dsn, autocommit=True)) as server:
        server.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        try:
            server.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND query LIKE %s",
                [name, "%is_alive(%"],
            )
            wait_until(lambda: logged("still waiting: the manifest database"), "the log to say so", timeout=120)
        finally:
            server.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
    assert closing_states(demo, [run_id]) == ["deferred"]
    assert wake(at_work).returncode == 0
    demo.succeed(run_id)
    assert demo.instance(run_id, "close")["try_number"] == 1


def test_without_a_triggerer_a_pipeline_that_does_not_defer_waits_in_its_slot(airflow_world: AirflowWorld) -> None:
    demo, world, airflow = airflow_world, airflow_world.world, airflow_world.airflow
    world.settings["airflow"] = {"deferrable": False}
    world.write_pipeline()
    at_work = deployed_with_an_attempt_at_work(demo)
    airflow.kill_component("triggerer")
    try:
        run_id = demo.trigger()
        words = "waiting for the end of attempt 1 at manifest 1 by "
        wait_until(lambda: closing_states(demo, [run_id]) == ["running"], "it to wait", timeout=120)
        wait_until(
            lambda: words in airflow.task_log(DAG, run_id, demo.instance(run_id, "close")), "the log", timeout=60
        )
        assert wake(at_work).returncode == 0
        demo.succeed(run_id)
        world.settings["airflow"] = {"deferrable": True}
        world.write_pipeline()
        command = [sys.executable, "-m", "tidemark.cli", "doctor", DAG, "--airflow", "--json"]
        environment = {**airflow.env, "TIDEMARK_PIPELINES": str(world.pipelines)}

        def is_missed() -> bool:
            findings = subprocess.run(command, env=environment, capture_output=True, text=True).stdout
            return "no triggerer is alive: tasks of demo that wait do so for ever" in findings

        wait_until(is_missed, "doctor to miss the triggerer", timeout=180, interval=5)
    finally:
        airflow.start_component("triggerer")
        airflow.wait_healthy()
