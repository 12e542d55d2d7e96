"""On the command line, Airflow's connections are found when the shell is set up for an Airflow, which is said."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tidemark.airflow import shell
from tidemark.cli.opened import connections_of, connections_of_sources
from tidemark.connections.lookup import from_environment
from tidemark.errors import Unavailable
from tidemark.pipeline.loader import load
from tidemark.pipeline.settings import Pipeline

PIPELINE = """pipeline: prices
source:
  kafka: {connection: events, topics: [prices]}
decode: {format: json, schema: id BIGINT NOT NULL}
sinks:
  - postgres: {connection: warehouse, table: prices, key: [id]}
"""


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """A pipeline with two connections, in a shell that has neither of them and no Airflow."""
    for name in [name for name in os.environ if name.startswith("AIRFLOW_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "prices.yaml").write_text(PIPELINE)
    return load(tmp_path / "prices.yaml", {})


def traces(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "home").rglob("*"))


def test_a_shell_without_an_airflow_is_told_so_and_airflow_is_not_imported(
    pipeline: Pipeline, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "home" / "nowhere"))
    monkeypatch.setenv("AIRFLOW_CONN_EVENTS", "kafka://a:9092")
    monkeypatch.setattr(shell, "connections", None)
    with connections_of(pipeline):
        assert from_environment("warehouse") is None
    printed = capsys.readouterr().err
    assert "connection warehouse is not in the environment, and this shell is set up for no Airflow" in printed
    assert ". .tidemark/env" in printed
    assert traces(tmp_path) == []


def test_nothing_is_asked_when_the_environment_has_every_connection(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_EVENTS", "kafka://a:9092")
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", "postgresql://b/c")
    monkeypatch.setattr(shell, "configuration", None)
    with connections_of(pipeline):
        assert (from_environment("events") or {})["host"] == "a"
    monkeypatch.setenv("AIRFLOW_CONN_EVENTS", "neither JSON nor a URI")
    with connections_of(pipeline):
        pass
    assert capsys.readouterr().err == "", "whoever needs the connection says what is wrong with it"


def test_a_connection_of_airflows_database_is_found_and_its_home_stays_as_it_is(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table of connections is made by hand: all of Airflow's tables take a minute."""
    home = tmp_path / "airflow"
    home.mkdir()
    (home / "airflow.cfg").write_text(f"[database]\nsql_alchemy_conn = sqlite:///{home}/airflow.db\n")
    monkeypatch.setenv("AIRFLOW_HOME", str(home))
    with closing(sqlite3.connect(home / "airflow.db")) as database:
        database.execute(
            "CREATE TABLE connection (id INTEGER PRIMARY KEY, conn_id, conn_type, description, host, schema, login, "
            "password, port INTEGER, is_encrypted BOOLEAN, is_extra_encrypted BOOLEAN, extra, team_name)"
        )
        database.execute(
            "INSERT INTO connection (conn_id, conn_type, host, schema, login, password, is_encrypted, "
            "is_extra_encrypted) VALUES ('warehouse', 'postgres', 'h', 'd', 'u', 'p', 0, 0)"
        )
        database.commit()
    before = sorted(home.rglob("*"))
    with connections_of(pipeline):
        warehouse = from_environment("warehouse") or {}
        assert (warehouse["host"], warehouse["password"], warehouse["schema"]) == ("h", "p", "d")
    assert from_environment("warehouse") is None
    assert sorted(home.rglob("*")) == before
    printed = capsys.readouterr().err
    assert f"connection warehouse from Airflow ({home}/airflow.cfg)" in printed
    assert f"connection events is not in the environment, and not in the Airflow of this shell ({home}" in printed


def test_an_airflow_that_only_variables_describe_gets_no_home_and_is_named_when_its_database_is_down(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(shell.DATABASE, "postgresql+psycopg2://airflow:canary@127.0.0.1:1/airflow")
    with connections_of(pipeline):
        assert from_environment("warehouse") is None
    printed = capsys.readouterr().err
    assert f"Airflow ({shell.DATABASE} of this shell) cannot be asked for connections events, warehouse" in printed
    assert "canary" not in printed
    assert traces(tmp_path) == []
    with pytest.raises(Unavailable):
        shell.connections(Path(os.devnull), ["events"])


def test_the_commands_go_on_and_the_error_stands_after_the_note(pipeline: Pipeline, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tidemark.cli", "peek", "prices", "--pipelines", str(tmp_path)]
    done = subprocess.run(command, env=dict(os.environ), text=True, capture_output=True)
    note, _, error = done.stderr.partition("error: ")
    assert "this shell is set up for no Airflow" in note
    assert "connection events" in error
    assert json.dumps(done.stdout) == '""'


def test_a_command_that_asks_sources_looks_up_no_connection_of_a_sink(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(shell, "configuration", lambda: Path("airflow.cfg"))
    monkeypatch.setattr(shell, "connections", lambda _, ids, **_limit: asked.extend(ids) or {})
    with connections_of_sources(pipeline):
        pass
    assert asked == ["events"]
    assert "warehouse" not in capsys.readouterr().err
