"""Connections mean the same to Airflow and to us, and stand in the environment only while Spark is started."""

import importlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_connections import FORMS, VARIABLE, pipeline
from tidemark.connections import from_environment
from tidemark.pipeline.loader import load

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
    with suppress(RuntimeError), lookup.in_environment(settings):
        seen = {name: json.loads(os.environ[f"AIRFLOW_CONN_{name}"])["host"] for name in ("EVENTS", "WAREHOUSE")}
        raise RuntimeError
    assert seen == {"EVENTS": "a", "WAREHOUSE": "b"}
    assert os.environ["AIRFLOW_CONN_EVENTS"] == "kafka://another:9092"
    assert "AIRFLOW_CONN_WAREHOUSE" not in os.environ


def test_a_pipeline_that_names_no_connection_changes_nothing(lookup: Any, tmp_path: Path) -> None:
    before = dict(os.environ)
    with lookup.in_environment(pipeline(tmp_path, "bootstrap_servers: 'a:9092'")):
        assert dict(os.environ) == before


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
