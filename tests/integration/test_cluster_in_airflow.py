"""The command by which the task `process` starts a driver on a cluster, with the options of the Spark connection."""

import importlib
import json
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.test_connections import pipeline
from tidemark.errors import ConfigurationError, WorkFailed
from tidemark.model.order import Order, SourceOrder
from tidemark.model.receipt import Receipt
from tidemark.pipeline.settings import Engine, Spark
from tidemark.spark import masters
from tidemark.spark.cluster import APPLICATION, name_of

ORDER = Order("demo", 7, 1, (), SourceOrder("kafka", {}), {}, {}, "fail", ())
ARGUMENTS = ["s3://orders/1/order.json", "orders_keys"]


@pytest.fixture
def operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    pytest.importorskip("airflow")
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "airflow"))  # importing Airflow writes a configuration there
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path))
    monkeypatch.setattr(masters, "problem_with_address", lambda *_: None)  # no cluster is asked here
    module = importlib.import_module("tidemark.airflow.process")
    of = pipeline(tmp_path, "bootstrap_servers: 'a:9092'")
    return module.ProcessManifestOperator(task_id="process", pipeline=of, manifest_id=7)


def command_of(
    operator: Any, monkeypatch: pytest.MonkeyPatch, host: str, **extra: str
) -> tuple[list[str], Mapping[str, str]]:
    """The words of the command, and the properties among them."""
    connection = {"conn_type": "spark", "host": host, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
    words: list[str] = operator._to_cluster(name_of(ORDER), ARGUMENTS)
    given = [words[at + 1].partition("=") for at, word in enumerate(words) if word == "--conf"]
    return words, {name: value for name, _, value in given}


def test_yarn_gets_application_and_package_and_restarts_no_driver(
    operator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "yarn-site.xml").write_text("<configuration/>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    for _ in range(2):  # a second manifest of the same task
        words, conf = command_of(operator, monkeypatch, "yarn", queue="night", **{"deploy-mode": "client"})
        assert words[-3:] == [str(APPLICATION), *ARGUMENTS]
        assert words[words.index("--deploy-mode") + 1] == "cluster"
        assert words[words.index("--queue") + 1] == "night"
        assert words[words.index("--name") + 1] == "tidemark demo manifest 7 attempt 1"
        assert conf["spark.yarn.maxAppAttempts"] == "1"
        assert Path(conf["spark.submit.pyFiles"]).is_relative_to(tmp_path / "_packages")


@pytest.mark.parametrize("host", ["local[2]", "spark://there:7077"])
def test_a_master_that_runs_no_drivers_of_python_is_refused(
    operator: Any, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    with pytest.raises(ConfigurationError, match="Spark runs no driver of Python on") as refused:
        command_of(operator, monkeypatch, host)
    assert "engine: cluster needs the master yarn or k8s://" in refused.value.next_step


def stage_by(operator: Any, folder: Path, script: str) -> Receipt:
    """Do the order by a script in place of spark-submit, with orders in a folder of this machine."""
    file = folder / "job.sh"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    spark = Spark(engine=Engine.CLUSTER, orders=str(folder / "orders"), submit=(str(file),))
    operator.pipeline = operator.pipeline.model_copy(update={"spark": spark})
    database = SimpleNamespace(id=lambda: "database")
    context: Any = SimpleNamespace(pipeline=operator.pipeline, lookup=lambda _: None, database=database, sinks=[])
    receipt: Receipt = operator._stage_of({}, context)(ORDER)
    return receipt


def test_the_receipt_beside_the_order_is_taken_while_the_command_still_works(operator: Any, tmp_path: Path) -> None:
    made = Receipt(7, 1, (), (), ())
    (tmp_path / "made.json").write_text(made.to_json())
    script = f"grep -q demo $1 && cp {tmp_path}/made.json $(dirname $1)/receipt.json; exec sleep 600"
    assert stage_by(operator, tmp_path, script) == made
    assert list((tmp_path / "orders" / "database").iterdir()) == []


def test_a_task_that_airflow_ends_takes_its_order_back_and_tells_its_command(operator: Any, tmp_path: Path) -> None:
    told = tmp_path / "told"
    script = (
        f"trap 'ls {tmp_path}/orders/database > {told}; exit 1' TERM; kill -TERM $PPID; while :; do sleep 0.1; done"
    )
    before = signal.signal(signal.SIGTERM, lambda *_: operator.on_kill())  # as Airflow's task runner does
    try:
        with pytest.raises(WorkFailed, match="Airflow ended this task, and Spark with it"):
            stage_by(operator, tmp_path, script)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert told.read_text() == "", "the order was removed before the command was told"
    assert list((tmp_path / "orders" / "database").iterdir()) == []
