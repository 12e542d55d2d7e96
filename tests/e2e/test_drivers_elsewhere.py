"""Tasks of a real Airflow whose drivers a command of the user starts (`engine: cluster`)."""

import sys
from pathlib import Path

import psutil
import pytest

from sandbox.bootstrap.checkout import CHECKOUT
from sandbox.services.processes import wait_until
from tests.worlds.airflow_slots import other_dag, parallelism
from tests.worlds.airflow_world import DAG, AirflowWorld
from tests.worlds.on_cluster import local_driver, write_script
from tidemark.spark.orders import ORDER

MANIFESTS, DRIVERS, SLOTS = 8, 5, 2
pytestmark = [pytest.mark.thorough, pytest.mark.timeout(900)]


class Elsewhere:
    """A pipeline whose tasks leave their drivers to a script, and wait without a slot."""

    def __init__(self, demo: AirflowWorld, *commands: str) -> None:
        self.demo, self.world = demo, demo.world
        self.script, self.orders, self.go = (self.world.folder / name for name in ("job.sh", "orders", "go"))
        driver = f'{sys.executable} -m tests.worlds.driver_without_spark {self.go} "$1"'
        write_script(self.script, *commands, f"cd {CHECKOUT}", f"setsid {driver} > /dev/null 2>&1 &", "exit 0")
        self.world.settings |= {
            "airflow": {"deferrable": True},
            "spark": {
                "engine": "cluster", "orders": str(self.orders), "submit": [str(self.script)],
                "parallel_drivers": DRIVERS,
            },
        }  # fmt: skip
        self.world.write_pipeline()

    def files(self) -> list[Path]:
        return [path for path in self.orders.rglob("*") if path.is_file()]

    def orders_given(self) -> list[Path]:
        """The orders that are there; their drivers may not have begun."""
        return [path for path in self.files() if path.name == ORDER]

    def process_states(self, run_id: str) -> list[str | None]:
        return [state for (task_id, _), state in self.demo.states(run_id).items() if task_id == "process"]

    def wait_deferred(self, run_id: str, number: int) -> None:
        wait_until(
            lambda: self.process_states(run_id).count("deferred") == number,
            "the tasks to wait",
            timeout=240,
            interval=1,
        )


def test_a_task_publishes_what_the_driver_of_a_command_has_staged(airflow_world: AirflowWorld) -> None:
    demo, world = airflow_world, airflow_world.world
    script, orders = world.folder / "job.sh", world.folder / "orders"
    write_script(script, f"setsid {local_driver(world)} > /dev/null 2>&1 &", "exit 0")
    world.settings |= {
        "airflow": {"deferrable": True},
        "spark": {"engine": "cluster", "orders": str(orders), "submit": [str(script)]},
    }
    world.write_pipeline()
    world.produce(20)
    demo.deploy()
    demo.succeed(demo.trigger())
    world.assert_complete()
    assert [path for path in orders.rglob("*") if path.is_file()] == []


def test_tasks_take_no_slot_while_their_drivers_work_and_a_killed_triggerer_and_a_retry_change_nothing(
    airflow_world: AirflowWorld,
) -> None:
    demo, world, airflow = airflow_world, airflow_world.world, airflow_world.airflow
    world.settings["kafka"] = {"slice": {"max_records": 10, "max_slices": MANIFESTS}}
    elsewhere = Elsewhere(demo)
    world.produce(10 * MANIFESTS)
    demo.deploy()
    with other_dag(airflow) as other, parallelism(airflow, SLOTS):
        run_id = demo.trigger()
        elsewhere.wait_deferred(run_id, DRIVERS)
        assert airflow.wait_run(other, airflow.trigger(other), timeout=120) == "success", "the slots are free"
        assert len(elsewhere.orders_given()) == DRIVERS, "no more drivers than allowed"
        at_work = [str(manifest["id"]) for manifest in world.manifests() if manifest["alive"]]
        assert len(at_work) == DRIVERS
        refused = world.tidemark("retry", DAG, "--manifest", at_work[0])
        assert (refused.returncode, "is alive and at work" in refused.stderr) == (1, True), refused.stderr
        airflow.kill_component("triggerer")
        airflow.start_component("triggerer")
        elsewhere.go.touch()
        demo.succeed(run_id)
    assert [demo.attempts(manifest["id"]) for manifest in world.manifests()] == [[(1, "published")]] * MANIFESTS
    assert {demo.instance(run_id, "process", index)["try_number"] for index in range(MANIFESTS)} == {1}
    world.assert_complete()
    assert elsewhere.files() == []


def test_a_cleared_task_ends_its_driver_and_a_new_attempt_does_the_work(airflow_world: AirflowWorld) -> None:
    demo, world = airflow_world, airflow_world.world
    elsewhere = Elsewhere(demo)
    world.produce(20)
    demo.deploy()
    run_id = demo.trigger()
    elsewhere.wait_deferred(run_id, 1)
    [first] = elsewhere.orders_given()
    demo.airflow.clear(DAG, run_id, [("process", 0)])
    wait_until(lambda: len(demo.attempts()) == 2, "the second attempt", timeout=120)
    elsewhere.wait_deferred(run_id, 1)
    assert not first.exists(), "its order is gone, and its driver has ended"
    elsewhere.go.touch()
    demo.succeed(run_id)
    assert [state for _, state in demo.attempts()][-1] == "published"
    world.assert_complete()


@pytest.mark.exhaustive
def test_a_triggerer_that_is_paused_past_the_lease_and_wakes_changes_nothing(airflow_world: AirflowWorld) -> None:
    demo, world, airflow = airflow_world, airflow_world.world, airflow_world.airflow
    elsewhere = Elsewhere(demo)
    world.produce(20)
    demo.deploy()
    run_id = demo.trigger()
    elsewhere.wait_deferred(run_id, 1)
    triggerer = psutil.Process(airflow.pid("triggerer"))
    paused = [triggerer, *triggerer.children(recursive=True)]
    for process in paused:
        process.suspend()
    try:
        wait_until(lambda: not world.manifests()[0]["alive"], "the lease to end", timeout=200, interval=2)
        world.ok("retry", DAG)
        world.assert_complete()
    finally:
        for process in paused:
            process.resume()
    demo.succeed(run_id)
    assert demo.attempts() == [(1, "fenced"), (2, "published")]
    world.assert_complete()
