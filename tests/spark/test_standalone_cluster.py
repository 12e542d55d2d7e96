"""A standalone cluster: executors in other processes, which have neither our checkout nor our environment.

Their Python has what an administrator installs there (PySpark, pyarrow, psycopg) and no Tidemark. The password of the
table's database is in the workers' environment, as it would be on their machines.
"""

import os
import signal
import subprocess
import sysconfig
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.broker import Broker
from sandbox.postgres import Postgres
from sandbox.spark_cluster import SparkCluster
from tests.table_world import TableWorld
from tests.world import wait_stopped

pytestmark = pytest.mark.timeout(600)
CONF = {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1"}
START = 240  # seconds for a driver and two executors on a busy machine; 20 on an idle one


@pytest.fixture(scope="module")
def python_without_tidemark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with our packages but for Tidemark itself, as on the workers of somebody's cluster."""
    home = tmp_path_factory.mktemp("executors") / "venv"
    venv.create(home, symlinks=True)
    [site] = home.glob("lib/python3.*/site-packages")
    (site / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = home / "bin" / "python"
    known = [subprocess.run([python, "-c", f"import {one}"], cwd="/", env={}).returncode == 0 for one in
             ("pyarrow, pyspark, psycopg", "tidemark")]  # fmt: skip
    assert known == [True, False]
    return python


@pytest.fixture(scope="module")
def warehouse(postgres: Postgres) -> Iterator[str]:
    with postgres.temporary_database("warehouse") as dsn:
        yield dsn


@pytest.fixture(scope="module")
def cluster(services: Path, warehouse: str) -> Iterator[SparkCluster]:
    with SparkCluster(services, environment={"AIRFLOW_CONN_WAREHOUSE": warehouse}) as started:
        yield started


@pytest.fixture
def make_world(
    tmp_path: Path, database: str, warehouse: str, broker: Broker, spark_jars: Path, python_without_tidemark: Path
) -> Iterator[Callable[..., TableWorld]]:
    """A lake and a table fed from six partitions in one manifest: six tasks for two executors."""
    made: list[TableWorld] = []

    def make(**spark: Any) -> TableWorld:
        conf = {**CONF, "spark.pyspark.python": str(python_without_tidemark), **spark}
        settings = {"kafka": {"slice": {"max_records": 10_000}}, "spark": {"conf": conf}}
        world = TableWorld(
            tmp_path / f"world{len(made)}", database, broker, spark_jars,
            targets={"warehouse": warehouse}, has_lake=True, partitions=6, settings=settings,
        )  # fmt: skip
        made.append(world)
        world.produce(600, bad_every=9)
        return world

    yield make
    for world in made:
        world.stop()


def start(world: TableWorld, master: str, failpoint: str = "") -> "subprocess.Popen[str]":
    env = {"SPARK_LOCAL_IP": "127.0.0.1", "TIDEMARK_SPARK_MASTER": master}
    return world.start("run", "demo", failpoint=failpoint, spark=True, env=env)


def test_a_worker_that_dies_in_the_middle_costs_nothing_and_the_package_came_by_itself(
    make_world: Callable[..., TableWorld], cluster: SparkCluster
) -> None:
    world = make_world()
    process = start(world, cluster.master, "stage.mid:stop")
    wait_stopped(process, timeout=START)
    assert len(list(cluster.state.glob("work*/app-*/*/tidemark-*.zip"))) == 2, "each executor was sent the package"
    cluster.kill_worker(0)
    os.killpg(process.pid, signal.SIGCONT)
    said = process.communicate(timeout=START)[1]
    assert process.returncode == 0, said
    [manifest] = world.json("manifests", "demo")
    assert manifest["published_attempt"] == 1, "Spark did the tasks again; the attempt is one"
    world.assert_complete()
    seen = [path.read_bytes() for path in cluster.logs.glob("spark-*.log")]
    seen += [path.read_bytes() for path in cluster.state.rglob("std*")]
    seen.append((world.folder / "_logs" / "spark.log").read_bytes())
    password = world.targets["warehouse"].split(":")[2].split("@")[0].encode()
    assert not any(password in text for text in seen), "the executors have it from their own environment"
