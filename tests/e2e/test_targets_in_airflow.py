"""Targets filled through Airflow, over connections that are known to Airflow alone."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.worlds.airflow_world import DAG, AirflowWorld, postgres_connection
from tests.worlds.all_sinks_world import KINDS, AllSinksWorld
from tests.worlds.s3_world import CONNECTION, S3World
from tests.worlds.world import World

pytestmark = pytest.mark.timeout(600)  # Spark takes 20 s a manifest, ten times that on a busy machine

ONE_SLICE = {"retry_delay": "1s", "kafka": {"slice": {"max_records": 1000}}}


def test_a_sink_of_each_kind_is_filled_and_the_password_of_the_connection_is_seen_nowhere(
    airflow_world: AirflowWorld, make_all_sinks_world: Callable[..., AllSinksWorld]
) -> None:
    world = make_all_sinks_world(kinds=KINDS, settings=ONE_SLICE)
    assert_filled(airflow_world, world, "warehouse", postgres_connection(world.targets["warehouse"]))


@pytest.mark.exhaustive
def test_a_bucket_is_filled_and_the_keys_of_the_connection_are_seen_nowhere(
    airflow_world: AirflowWorld, make_s3_world: Callable[..., S3World]
) -> None:
    world = make_s3_world(secret="canary-secret", settings=ONE_SLICE)
    found = json.loads(world.targets[CONNECTION])
    connection = {**found, "host": "", "extra": json.dumps(found["extra"])}
    assert_filled(airflow_world, world, CONNECTION, connection)


def assert_filled(demo: AirflowWorld, world: World, conn_id: str, connection: dict[str, Any]) -> None:
    """A run of Airflow's fills the world's targets, and no log or page shows the connection's password."""
    world.dsn, demo.world = demo.world.dsn, world
    demo.airflow.create_connection(conn_id, **connection)
    try:
        world.produce(60, bad_every=20)
        demo.deploy()
        run_id = demo.trigger()
        demo.succeed(run_id)
        world.assert_complete()
        instances = demo.airflow.task_instances(DAG, run_id)
        seen = demo.logs(run_id, ("success", "failed")) + json.dumps(instances, default=str)
        assert "manifest 1 attempt 1: published" in seen
        assert "read 60" in seen
        assert connection["password"] not in seen
    finally:
        demo.airflow.delete_connection(conn_id)
