"""A standalone cluster: executors in other processes, which have neither our checkout nor our environment.

Their Python has what an administrator installs there (PySpark, pyarrow, psycopg) and no Tidemark. The password of the
table's database is in the workers' environment, as it would be on their machines.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from sandbox.services.processes import free_port
from sandbox.services.spark_cluster import SparkCluster
from tests.worlds.airflow_world import AirflowWorld
from tests.worlds.on_cluster import START, assert_logic_and_avro, end, start, with_logic_and_avro
from tests.worlds.table_world import TableWorld
from tests.worlds.world import wait_stopped

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def cluster(services: Path, warehouse: str) -> Iterator[SparkCluster]:
    with SparkCluster(services, environment={"AIRFLOW_CONN_WAREHOUSE": warehouse}) as started:
        yield started
    shutil.rmtree(started.state)


@pytest.fixture
def mortal(tmp_path: Path, warehouse: str) -> Iterator[SparkCluster]:
    """Of which a worker may die."""
    with SparkCluster(tmp_path, environment={"AIRFLOW_CONN_WAREHOUSE": warehouse}) as started:
        yield started


def test_a_worker_that_dies_in_the_middle_costs_nothing_and_the_package_came_by_itself(
    make_cluster_world: Callable[..., TableWorld], mortal: SparkCluster
) -> None:
    world = make_cluster_world()
    process = start(world, mortal.master, "run", "demo", failpoint="stage.mid:stop")
    wait_stopped(process, timeout=START)
    assert len(packages(mortal)) == 2, "each executor was sent the package"
    mortal.kill_worker(0)
    os.killpg(process.pid, signal.SIGCONT)
    _, printed = end(process)
    assert process.returncode == 0, printed
    [manifest] = world.json("manifests", "demo")
    assert manifest["published_attempt"] == 1, "Spark did the tasks again; the attempt is one"
    world.assert_complete()
    assert_not_told(world, mortal)


def test_logic_and_decoders_of_two_formats_work_on_executors_that_have_none_of_their_files(
    make_cluster_world: Callable[..., TableWorld], cluster: SparkCluster
) -> None:
    world = make_cluster_world()
    with_logic_and_avro(world)
    process = start(world, cluster.master, "run", "demo")
    _, printed = end(process)
    assert process.returncode == 0, printed
    assert_logic_and_avro(world)


def packages(cluster: SparkCluster) -> set[Path]:
    """The zips of our package that executors of all applications were sent."""
    return set(cluster.state.glob("work*/app-*/*/tidemark-*.zip"))


def assert_not_told(world: TableWorld, cluster: SparkCluster) -> None:
    """The executors have the password from their own environment, and nobody wrote it down."""
    password = world.targets["warehouse"].split(":")[2].split("@")[0].encode()
    seen = [*cluster.logs.glob("spark-*.log"), *cluster.state.rglob("std*"), *world.folder.rglob("_logs/*")]
    assert len(seen) > 5
    assert [path for path in seen if password in path.read_bytes()] == []


def test_the_doctor_asks_every_executor(make_cluster_world: Callable[..., TableWorld], cluster: SparkCluster) -> None:
    world = make_cluster_world()
    world.lake.mkdir()
    process = start(world, cluster.master, "doctor", "demo", "--json")
    out, printed = end(process)
    assert process.returncode == 0, out + printed
    findings = json.loads(out)
    assert {finding["severity"] for finding in findings if finding["check"].startswith("executor")} == {"ok"}
    assert "2 of 2 answered" in " ".join(finding["message"] for finding in findings if finding["check"] == "executors")
    assert list(world.lake.iterdir()) == []
    assert_not_told(world, cluster)


def test_a_driver_that_dies_leaves_executors_that_do_no_harm(
    make_cluster_world: Callable[..., TableWorld], cluster: SparkCluster
) -> None:
    world = make_cluster_world()
    process = start(world, cluster.master, "run", "demo", failpoint="stage.mid:kill9")
    process.communicate(timeout=START)
    assert process.returncode == -signal.SIGKILL
    world.assert_whole()
    process = start(world, cluster.master, "retry", "demo")
    _, printed = end(process)
    assert process.returncode == 0, printed
    world.ok("run", "demo")
    world.assert_complete()


def test_the_spark_connection_of_airflow_decides_and_may_name_a_cluster(
    airflow_world: AirflowWorld,
    make_cluster_world: Callable[..., TableWorld],
    cluster: SparkCluster,
    warehouse: str,
) -> None:
    demo, airflow = airflow_world, airflow_world.airflow
    world = make_cluster_world()
    world.dsn, demo.world = demo.world.dsn, world
    parts = {key: str(value) for key, value in conninfo_to_dict(warehouse).items()}
    airflow.create_connection(
        "warehouse", "postgres", parts["host"], port=int(parts["port"]), login=parts["user"],
        password=parts["password"], schema=parts["dbname"],
    )  # fmt: skip
    airflow.delete_connection("spark_default")
    host, _, port = cluster.master.rpartition(":")
    airflow.create_connection("spark_default", "spark", host, port=int(port))
    try:
        demo.deploy()
        before = packages(cluster)
        demo.succeed(demo.trigger())
        world.assert_complete()
        assert len(packages(cluster) - before) == 2
        assert_not_told(world, cluster)
    finally:
        airflow.delete_connection("warehouse")
        airflow.delete_connection("spark_default")
        airflow.create_connection("spark_default", "spark", "local[2]")


def test_a_master_that_is_not_there_is_said_at_once(make_cluster_world: Callable[..., TableWorld]) -> None:
    world = make_cluster_world()
    started = time.monotonic()
    process = start(world, f"spark://127.0.0.1:{free_port()}", "run", "demo")
    _, printed = end(process)
    assert process.returncode == 1
    assert "the Spark master cannot be reached" in printed
    assert time.monotonic() - started < 60, "Spark itself tries for a minute, and would be started first"
    [manifest] = world.json("manifests", "demo")
    assert manifest["state"] == "failed"


def test_a_cluster_without_room_ends_the_attempt_instead_of_keeping_it_for_ever(
    make_cluster_world: Callable[..., TableWorld], cluster: SparkCluster
) -> None:
    world = make_cluster_world(**{"spark.executor.memory": "2g"})  # a worker has one
    program = "from tidemark.spark import jobs; jobs.PATIENCE_S = 5; from tidemark.cli.main import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "run", "demo", "--master", cluster.master],
        env=world.environment(SPARK_LOCAL_IP="127.0.0.1"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    world.started.append(process)
    _, printed = end(process)
    assert process.returncode == 1
    assert "Spark had no executor for 5 s" in printed
    world.assert_whole()
    world.ok("retry", "demo")
    world.assert_complete()
