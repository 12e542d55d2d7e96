"""A task of a real Airflow whose driver a command of the user starts (`engine: cluster`)."""

import pytest

from tests.worlds.airflow_world import AirflowWorld
from tests.worlds.on_cluster import local_driver, write_script

pytestmark = pytest.mark.timeout(600)


@pytest.mark.thorough
def test_a_task_publishes_what_the_driver_of_a_command_has_staged(airflow_world: AirflowWorld) -> None:
    demo, world = airflow_world, airflow_world.world
    script, orders = world.folder / "job.sh", world.folder / "orders"
    write_script(script, f"exec {local_driver(world)}")
    world.settings |= {"spark": {"engine": "cluster", "orders": str(orders), "submit": [str(script)]}}
    world.write_pipeline()
    world.produce(20)
    demo.deploy()
    demo.succeed(demo.trigger())
    world.assert_complete()
    assert [path for path in orders.rglob("*") if path.is_file()] == []
