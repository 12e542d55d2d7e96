"""``make unit`` needs no service and no minute: shown in processes of their own, with the tests as they are."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.services.processes import Child

CHECKOUT = Path(__file__).parents[2]
PLUGIN = """
import sys


def pytest_collection_finish(session):
    heavy = [name for name in ("airflow", "pyspark", "tests.fixtures.services") if name in sys.modules]
    print("collected", len(session.items), "imported", heavy)
"""
OF_A_STRANGER = """
import importlib


def test_that_imports_spark():
    importlib.import_module("pyspark")


def test_that_comes_after_it():
    pass


def test_that_wants_a_service(postgres):
    pass
"""


def run(*words: str, folder: Path) -> str:
    """What pytest says in a fresh process, with ``folder`` to import plugins from."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", *words]
    return subprocess.run(command, cwd=CHECKOUT, env=environment, text=True, capture_output=True).stdout


@pytest.mark.thorough
def test_collecting_them_imports_neither_spark_nor_airflow_nor_services(tmp_path: Path) -> None:
    (tmp_path / "what_is_there.py").write_text(PLUGIN)
    folders = ["tests/unit", *map(str, sorted(CHECKOUT.glob("tests/providers/*/unit")))]
    printed = run("--collect-only", "-p", "what_is_there", *folders, folder=tmp_path)
    [collected] = [line for line in printed.splitlines() if line.startswith("collected")]
    assert int(collected.split()[1]) > 1000
    assert collected.endswith("imported []")


@pytest.mark.thorough
def test_one_that_imports_spark_or_wants_a_service_fails_and_only_that_one(tmp_path: Path) -> None:
    folder = CHECKOUT / "tests" / "unit"
    copy = tmp_path / "tests"
    copy.mkdir()
    (copy / "conftest.py").write_text((folder / "conftest.py").read_text())
    (copy / "test_stranger.py").write_text(OF_A_STRANGER)
    printed = run("-c", str(CHECKOUT / "pyproject.toml"), "--rootdir", str(CHECKOUT), str(copy), folder=CHECKOUT)
    assert "a unit test imports Spark or Airflow" in printed
    assert "fixture 'postgres' not found" in printed
    assert "2 passed, 2 errors" in printed


def test_one_that_starts_a_service_by_itself_fails(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="a unit test starts Kafka"):
        Child("Kafka", ["true"], tmp_path / "log")
