"""A table filled through Airflow, over a connection that is known to Airflow alone."""

import json
from collections.abc import Callable

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.airflow_world import DAG, AirflowWorld
from tests.table_world import TableWorld

pytestmark = pytest.mark.timeout(600)  # Spark takes 20 s a manifest, ten times that on a busy machine


def test_a_table_and_a_lake_are_filled_and_the_password_of_the_connection_is_seen_nowhere(
    airflow_world: AirflowWorld, make_table_world: Callable[..., TableWorld]
) -> None:
    demo, airflow = airflow_world, airflow_world.airflow
    world = make_table_world(has_lake=True, settings={"retry_delay": "1s", "kafka": {"slice": {"max_records": 1000}}})
    world.dsn, demo.world = demo.world.dsn, world
    found = {key: str(value) for key, value in conninfo_to_dict(world.targets["warehouse"]).items()}
    airflow.create_connection(
        "warehouse", "postgres", found["host"], port=int(found["port"]), login=found["user"],
        password=found["password"], schema=found["dbname"],
    )  # fmt: skip
    try:
        world.produce(60, bad_every=20)
        demo.deploy()
        run_id = demo.trigger()
        demo.succeed(run_id)
        world.assert_complete()
        seen = demo.logs(run_id, ("success", "failed")) + json.dumps(airflow.task_instances(DAG, run_id), default=str)
        assert "manifest 1 attempt 1: published, read 60" in seen
        assert found["password"] not in seen
    finally:
        airflow.delete_connection("warehouse")
