"""Connections mean the same to Airflow and to us, and stand in the environment only while Spark is started."""

import importlib
import json
import os
from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from confluent_kafka.admin import AdminClient

from tests.unit.test_connections import FORMS, VARIABLE, pipeline
from tidemark.connections.lookup import from_environment
from tidemark.errors import Unavailable
from tidemark.pipeline.loader import load
from tidemark.sources.registry import open_source

BOTH = """pipeline: prices
source:
  kafka: {connection: events, topics: [prices]}
decode: {format: json, schema: id BIGINT NOT NULL}
sinks:
  - postgres: {connection: warehouse, table: prices, key: [id]}
  - files: {root: lake}
"""


@pytest.fixture
def lookup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("airflow")
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))  # importing Airflow writes a configuration there
    module = importlib.import_module("tidemark.airflow.lookup")
    known = {"events": {"host": "a", "port": 9092, "extra": {}}, "warehouse": {"host": "b", "extra": {}}}
    monkeypatch.setattr(module, "airflow_lookup", known.get)
    return module


def test_every_connection_that_a_pipeline_names_is_there_as_airflow_has_it_and_gone_afterwards(
    lookup: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "both.yaml").write_text(BOTH)
    monkeypatch.setenv("AIRFLOW_CONN_EVENTS", "kafka://another:9092")
    monkeypatch.delenv("AIRFLOW_CONN_WAREHOUSE", raising=False)
    settings = load(tmp_path / "both.yaml", {})
    assert settings.connections() == {"events", "warehouse"}
    with suppress(RuntimeError), lookup.put_in_environment(settings, lookup.airflow_lookup):
        seen = {name: json.loads(os.environ[f"AIRFLOW_CONN_{name}"])["host"] for name in ("EVENTS", "WAREHOUSE")}
        raise RuntimeError
    assert seen == {"EVENTS": "a", "WAREHOUSE": "b"}
    assert os.environ["AIRFLOW_CONN_EVENTS"] == "kafka://another:9092"
    assert "AIRFLOW_CONN_WAREHOUSE" not in os.environ


def test_a_pipeline_that_names_no_connection_changes_nothing(lookup: Any, tmp_path: Path) -> None:
    before = dict(os.environ)
    with lookup.put_in_environment(pipeline(tmp_path, "bootstrap_servers: 'a:9092'"), lookup.airflow_lookup):
        assert dict(os.environ) == before


def test_a_task_asks_airflow_once_for_each_connection(
    lookup: Any, tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "both.yaml").write_text(BOTH)
    settings = load(tmp_path / "both.yaml", {})
    asked: list[str] = []
    known = lookup.airflow_lookup

    def counted(conn_id: str) -> Any:
        asked.append(conn_id)
        return known(conn_id)

    monkeypatch.setattr(lookup, "airflow_lookup", counted)
    monkeypatch.setenv("TIDEMARK_DB", database)
    instance = SimpleNamespace(dag_id="prices", run_id="a run", task_id="process", map_index=0, try_number=1)
    with lookup.opened(settings, {"ti": instance}) as context, lookup.put_in_environment(settings, context.lookup):
        assert sorted(asked) == ["events", "warehouse"]


def test_a_source_that_is_asked_nothing_starts_no_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task opens the source, and `close` seldom asks it. A client has threads, and connects by itself."""
    monkeypatch.setattr("tidemark.kafka.cluster.TIMEOUT_S", 0.2)
    settings = pipeline(tmp_path, "bootstrap_servers: '127.0.0.1:1'")

    def threads() -> set[int]:
        return {thread.id for thread in psutil.Process().threads()}

    made: list[set[int]] = []

    def with_threads(options: dict[str, Any], **more: Any) -> AdminClient:
        client = AdminClient(options, **more)
        made.append(threads())
        return client

    monkeypatch.setattr("tidemark.kafka.cluster.AdminClient", with_threads)
    before = threads()  # those of clients of earlier tests may end at any time
    source = open_source("demo", settings.source, from_environment)
    assert (threads() <= before, made) == (True, [])
    with pytest.raises(Unavailable):
        source.topics()
    assert made
    assert not made[0] <= before


def test_a_connection_means_here_what_it_means_in_airflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))  # importing Airflow writes a configuration there
    connections = pytest.importorskip("airflow.models.connection")
    for text, _, _ in FORMS:
        of_airflow = connections.Connection
        theirs = of_airflow.from_json(text) if text[0] == "{" else of_airflow(uri=text)
        monkeypatch.setenv(VARIABLE, text)
        ours = from_environment("kafka_default") or {}
        assert (ours.get("host") or None) == (theirs.host or None), text
        assert int(ours.get("port") or 0) == (theirs.port or 0), text
        assert {key: str(value) for key, value in ours["extra"].items()} == {
            key: str(value) for key, value in theirs.extra_dejson.items()
        }, text


def test_airflow_hides_the_password_of_a_command_and_nothing_of_extra(
    lookup: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `airflow connections add` leaves in Airflow's audit log: the reason why our docs put secrets elsewhere."""
    from airflow.utils.cli import _build_metrics

    connection = {"conn_type": "kafka", "login": "u", "password": "canary-1", "extra": {"sasl.password": "canary-2"}}
    command = ["airflow", "connections", "add", "events", "--conn-json", json.dumps(connection)]
    monkeypatch.setattr("sys.argv", command)
    logged = str(_build_metrics("connections_add", Namespace()))
    assert "canary-1" not in logged
    assert "canary-2" in logged, "if Airflow hides it now, say so in docs/configuration.md"
