"""What the task `process` says when its Spark is gone; a shell takes the place of spark-submit."""

import importlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_connections import pipeline
from tidemark.errors import WorkFailed
from tidemark.model.order import Order, SourceOrder
from tidemark.spark.orders import OrderFolder, write_order
from tidemark.storage.local import LocalStore

ORDER = Order("demo", 7, 1, (), SourceOrder("kafka", {}), {}, {}, "fail", ())


class Submit:
    """A spark-submit that is a shell script."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.program = folder / "bin" / "spark-submit"
        self.program.parent.mkdir()
        monkeypatch.setenv("PATH", f"{self.program.parent}{os.pathsep}{os.environ['PATH']}")

    def does(self, command: str) -> None:
        self.program.write_text(f"#!/bin/sh\n{command}\n")
        self.program.chmod(0o755)


@pytest.fixture
def submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Submit:
    return Submit(tmp_path, monkeypatch)


@pytest.fixture
def operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    pytest.importorskip("airflow")
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "airflow"))  # importing Airflow writes a configuration there
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[1]"}')
    module = importlib.import_module("tidemark.airflow.process")
    of = pipeline(tmp_path, "bootstrap_servers: 'a:9092'")
    services = {process.pid for process in module.started()}  # children of the tests' process too, and not Spark's
    children = module.started
    monkeypatch.setattr(module, "started", lambda: [process for process in children() if process.pid not in services])
    made = module.ProcessManifestOperator(task_id="process", pipeline=of, manifest_id=7)
    yield made
    made._hook._submit_sp.stdout.close()  # the provider leaves that to the end of the task's process


def failure_of(operator: Any, folder: OrderFolder) -> WorkFailed:
    with pytest.raises(WorkFailed) as failed:
        operator._submit(folder, ORDER, {})
    return failed.value


@pytest.mark.parametrize(
    ("command", "what"),
    [
        ("kill -9 $$", "Spark was killed by signal 9 (SIGKILL), often because the machine had no memory left"),
        ("exit 137", "Spark was killed by signal 9 (SIGKILL), often because the machine had no memory left"),
        ("exit 52", "Spark ended with exit status 52: it had no memory left"),
        ("exit 1", "Spark ended with exit status 1"),
    ],
)
def test_a_spark_that_leaves_nothing_is_named_by_its_end(
    operator: Any, submit: Submit, tmp_path: Path, command: str, what: str
) -> None:
    submit.does(command)
    error = failure_of(operator, write_order(ORDER, LocalStore(str(tmp_path))))
    assert error.what == what
    assert error.next_step.endswith("tidemark retry demo")


def test_a_spark_that_airflow_ends_is_not_taken_for_one_without_memory(
    operator: Any, submit: Submit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit.does(f"kill -TERM {os.getpid()}; exec sleep 60")
    before = signal.signal(signal.SIGTERM, lambda *_: operator.on_kill())  # as Airflow's task runner does
    try:
        error = failure_of(operator, write_order(ORDER, LocalStore(str(tmp_path))))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert error.what.startswith("Airflow ended this task, and Spark with it")
    assert "clear the task to do the manifest, or: tidemark retry demo" in error.next_step
    assert "memory" not in str(error)


def test_the_driver_of_a_local_master_is_told_to_listen_on_loopback_and_that_of_a_cluster_is_not(
    operator: Any, submit: Submit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit.does(f'echo "$@" > {tmp_path}/words')
    operator._submit(write_order(ORDER, LocalStore(str(tmp_path))), ORDER, {})
    words = (tmp_path / "words").read_text()
    assert "spark.driver.host=127.0.0.1" in words
    assert "spark.driver.bindAddress=127.0.0.1" in words
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "spark://there", "port": 7077}')
    operator._hook._submit_sp.wait()
    operator._hook._submit_sp.stdout.close()
    operator._hook, operator.conf = None, {}
    operator._submit(write_order(ORDER, LocalStore(str(tmp_path))), ORDER, {})
    assert "127.0.0.1" not in (tmp_path / "words").read_text()
