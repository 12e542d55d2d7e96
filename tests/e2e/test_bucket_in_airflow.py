"""A lake in a bucket filled through Airflow, over a connection that is known to Airflow alone."""

import json
from collections.abc import Callable

import pytest

from tests.airflow_world import DAG, AirflowWorld
from tests.s3_world import CONNECTION, S3World

pytestmark = [pytest.mark.timeout(600), pytest.mark.exhaustive]


def test_a_bucket_is_filled_and_the_keys_of_the_connection_are_seen_nowhere(
    airflow_world: AirflowWorld, make_s3_world: Callable[..., S3World]
) -> None:
    demo, airflow = airflow_world, airflow_world.airflow
    world = make_s3_world(
        secret="canary-secret", settings={"retry_delay": "1s", "kafka": {"slice": {"max_records": 1000}}}
    )
    world.dsn, demo.world = demo.world.dsn, world
    found = json.loads(world.targets[CONNECTION])
    airflow.create_connection(
        CONNECTION, "aws", "", login=found["login"], password=found["password"], extra=json.dumps(found["extra"])
    )
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
        airflow.delete_connection(CONNECTION)
