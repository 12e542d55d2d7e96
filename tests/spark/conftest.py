"""These tests need real services."""

import subprocess
import sysconfig
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from sandbox.services.broker import Broker
from sandbox.services.postgres import Postgres
from tests.fixtures import plugin
from tests.worlds.table_world import TableWorld

CONF = {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1"}


def pytest_configure(config: pytest.Config) -> None:
    plugin.load(config)


@pytest.fixture(scope="session")
def python_without_tidemark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with our packages but for Tidemark itself, as on the workers of somebody's cluster."""
    home = tmp_path_factory.mktemp("executors") / "venv"
    venv.create(home, symlinks=True)
    [site] = home.glob("lib/python3.*/site-packages")
    folders = [str(Path(pyspark.__file__).parents[1]), sysconfig.get_path("purelib")]  # often the same
    (site / "packages.pth").write_text("\n".join(folders) + "\n")
    python = home / "bin" / "python"
    known = [
        subprocess.run([python, "-c", f"import {modules}"], cwd="/", env={}, capture_output=True).returncode == 0
        for modules in ("pyarrow, pyspark, psycopg", "tidemark")
    ]
    assert known == [True, False]
    return python


@pytest.fixture(scope="session")
def warehouse(postgres: Postgres) -> Iterator[str]:
    with postgres.temporary_database("warehouse") as dsn:
        yield dsn


@pytest.fixture
def make_cluster_world(
    tmp_path: Path, database: str, warehouse: str, broker: Broker, spark_jars: Path, python_without_tidemark: Path
) -> Iterator[Callable[..., TableWorld]]:
    """A lake and a table fed from six partitions in one manifest: six tasks for two executors."""
    made: list[TableWorld] = []

    def make(**spark: Any) -> TableWorld:
        conf = {**CONF, "spark.pyspark.python": str(python_without_tidemark), **spark}
        settings = {"kafka": {"slice": {"max_records": 10_000}}, "spark": {"conf": conf, "records_per_task": 1}}
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
        world.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public; DROP SCHEMA IF EXISTS tidemark_target CASCADE")
