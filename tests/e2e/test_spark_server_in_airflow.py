"""A real Airflow whose tasks use a Spark Connect server that stays up, by a connection that Airflow alone knows."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from sandbox.services.processes import wait_until
from sandbox.services.spark_server import SparkServer
from tests.worlds.airflow_world import AirflowWorld, postgres_connection
from tests.worlds.slow_batches import at_work, slow
from tests.worlds.table_world import TableWorld

pytestmark = [pytest.mark.timeout(600), pytest.mark.thorough]

MakeTableWorld = Callable[..., TableWorld]
SETTINGS = {"retry_delay": "1s", "kafka": {"slice": {"max_records": 1000}}, "spark": {"engine": "connect"}}


@pytest.fixture
def demo(
    airflow_world: AirflowWorld, make_table_world: MakeTableWorld, spark_server: SparkServer
) -> Iterator[AirflowWorld]:
    """A pipeline with a lake and a table, both over the server; the password of the table is in Airflow alone."""
    world = make_table_world(settings=SETTINGS, has_lake=True)
    world.produce(60, bad_every=20)
    world.dsn, airflow_world.world = airflow_world.world.dsn, world
    airflow = airflow_world.airflow
    airflow.create_connection("warehouse", **postgres_connection(world.targets["warehouse"]))
    airflow.create_connection("spark_connect", conn_type="spark_connect", host="127.0.0.1", port=spark_server.port)
    yield airflow_world
    for conn_id in ("warehouse", "spark_connect"):
        airflow.delete_connection(conn_id)


def test_a_dag_run_publishes_on_the_server_and_starts_no_spark(demo: AirflowWorld) -> None:
    demo.deploy()
    run_id = demo.trigger()
    demo.succeed(run_id)
    demo.world.assert_complete()
    log = demo.logs(run_id, ("success",))
    assert "manifest 1 attempt 1: published" in log
    assert "spark-submit" not in log


@pytest.mark.thorough
def test_doctor_asks_airflow_for_the_server_and_for_pools(demo: AirflowWorld) -> None:
    demo.world.settings |= {"airflow": {"pool": "nowhere"}}
    demo.world.write_pipeline()
    command = [sys.executable, "-m", "tidemark.cli", "doctor", "demo", "--airflow", "--json"]
    environment = {**demo.airflow.env, "TIDEMARK_PIPELINES": str(demo.world.pipelines)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    findings = {finding["message"]: finding for finding in json.loads(done.stdout)}
    [missing] = [finding for text, finding in findings.items() if text.startswith("there is no pool nowhere")]
    assert (missing["severity"], "airflow pools set nowhere" in missing["next_step"]) == ("failed", True)
    assert any(text.startswith("the Spark Connect server is sc://127.0.0.1:") for text in findings)
    assert any("answers, Spark 4" in text for text in findings), findings
    assert "its Python answered, on 1 of its executors" in findings
    assert "a triggerer is alive" in findings
    assert not [text for text in findings if "Kafka connector" in text]


@pytest.mark.exhaustive
def test_a_task_that_is_marked_failed_ends_its_job_on_the_server(demo: AirflowWorld) -> None:
    """The job would hold the server's threads for two minutes."""
    slow(demo.world, 120)
    demo.deploy()
    run_id = demo.trigger()
    wait_until(lambda: at_work(demo.world), "a task to be at work", timeout=120)
    demo.airflow.set_task_state("demo", run_id, ("process", 0), "failed")
    demo.fail(run_id)
    slow(demo.world, 0)
    demo.update()
    started = time.monotonic()
    demo.succeed(demo.trigger({"retry_unfinished": True}))
    assert time.monotonic() - started < 90
    demo.world.assert_complete()


@pytest.mark.exhaustive
def test_a_server_that_is_killed_is_an_error_that_airflow_tries_again(
    demo: AirflowWorld, spark_server: SparkServer
) -> None:
    slow(demo.world, 120)
    demo.deploy()
    run_id = demo.trigger()
    wait_until(lambda: at_work(demo.world), "a task to be at work", timeout=120)
    spark_server.kill()
    slow(demo.world, 0)
    spark_server.restart()
    demo.succeed(run_id)
    demo.world.assert_complete()
    assert demo.instance(run_id, "process", 0)["try_number"] > 1
