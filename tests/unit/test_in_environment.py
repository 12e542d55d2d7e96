"""What Airflow knows of a pipeline's connections stands in the environment while Spark is started, and not after."""

import importlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_connections import pipeline
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
    found = load(tmp_path / "both.yaml", {})
    assert found.connections() == {"events", "warehouse"}
    with suppress(RuntimeError), lookup.in_environment(found):
        seen = {name: json.loads(os.environ[f"AIRFLOW_CONN_{name}"])["host"] for name in ("EVENTS", "WAREHOUSE")}
        raise RuntimeError
    assert seen == {"EVENTS": "a", "WAREHOUSE": "b"}
    assert os.environ["AIRFLOW_CONN_EVENTS"] == "kafka://another:9092"
    assert "AIRFLOW_CONN_WAREHOUSE" not in os.environ


def test_a_pipeline_that_names_no_connection_changes_nothing(lookup: Any, tmp_path: Path) -> None:
    before = dict(os.environ)
    with lookup.in_environment(pipeline(tmp_path, "bootstrap_servers: 'a:9092'")):
        assert dict(os.environ) == before
