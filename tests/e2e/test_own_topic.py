"""docs/own-topic.md, from its first command to its last, on a real Airflow: the commands are those of the page."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.bootstrap.checkout import CHECKOUT
from sandbox.services.airflow import Airflow
from sandbox.services.broker import Broker
from sandbox.services.postgres import Postgres
from sandbox.services.processes import wait_until
from sandbox.services.stack import shell_text

PAGE = (CHECKOUT / "docs" / "own-topic.md").read_text()
FILE = re.compile(r"Save this as `([^`]+)`:\n\n```\w+\n(.*?)^```", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"^```(sh|sql)\n(.*?)^```", re.DOTALL | re.MULTILINE)
TIDEMARK = ("TIDEMARK_DB", "TIDEMARK_HOME", "TIDEMARK_PIPELINES", "TIDEMARK_SPARK_JARS", "PYSPARK_PYTHON")
KAFKA = "AIRFLOW_CONN_KAFKA_DEFAULT"
# The services of these tests stand for those of `make up`, and a run is due each minute, not every five.
REPLACED = {"make up": "true", "make down": "true", "*/5 * * * *": "* * * * *"}
pytestmark = [pytest.mark.thorough, pytest.mark.timeout(1800)]


class Newcomer:
    """Somebody who has the page and a checkout: a folder with `.tidemark` and `include/pipelines`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, name: str, text: str) -> None:
        (self.folder / name).write_text(_replaced(text))

    def type(self, commands: str) -> str:
        """All that is printed; each command must succeed."""
        script = f"set -e\n. .tidemark/env\n{_replaced(commands)}"
        done = subprocess.run(["bash", "-c", script], cwd=self.folder, text=True, capture_output=True, timeout=600)
        assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def newest_offset(self) -> int:
        """Of all rows of the table."""
        return int(self.type("psql warehouse -qAtc 'SELECT max(_offset) FROM sales.orders'"))


@pytest.fixture
def newcomer(
    tmp_path: Path, airflow: Airflow, airflow_home: Path, postgres: Postgres, broker: Broker
) -> Iterator[Newcomer]:
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "pipelines").symlink_to(airflow_home / "pipelines")
    (tmp_path / ".tidemark").symlink_to(airflow_home)
    variables = {name: airflow.env[name] for name in (*TIDEMARK, KAFKA)}
    (airflow_home / "env").write_text(shell_text(variables, airflow, postgres, broker))
    yield Newcomer(tmp_path)
    airflow.delete_connection("warehouse")
    postgres.drop_database("warehouse")
    broker.delete_topic("orders")
    for name in ("pipelines/orders.yaml", "_pipelines/orders.json", "env", "produce.py"):
        (airflow_home / name).unlink(missing_ok=True)
    shutil.rmtree(airflow_home / "lake", ignore_errors=True)


def states(airflow: Airflow) -> set[str]:
    """Of the scheduled runs: another test may have triggered a DAG of this name."""
    return {run["state"] for run in airflow.runs("orders") if run["run_type"] == "scheduled"}


def test_every_command_of_the_page_does_what_the_page_says(newcomer: Newcomer, airflow: Airflow) -> None:
    for name, text in FILE.findall(PAGE):
        newcomer.save(name, text)
    (shell, warehouse, produce, checks, table, run, schedule, results, end) = (text for _, text in BLOCK.findall(PAGE))

    newcomer.type(shell)
    newcomer.type(warehouse)
    assert "1000 orders sent, 0 not sent" in newcomer.type(produce)
    checked = newcomer.type(checks)
    assert "orders.yaml: ok" in checked
    assert " ".join(table.split()) in checked, "the statement of the page is the one that is printed"
    newcomer.type(f"psql -q warehouse <<'END'\n{table}END")
    assert "published: read 1,000, written 1,000, dead-lettered 0" in newcomer.type(run)

    before = newcomer.newest_offset()
    newcomer.type(schedule)
    wait_until(lambda: newcomer.newest_offset() > before, "a scheduled run", timeout=300, interval=2)
    newcomer.type("airflow dags pause orders")
    wait_until(lambda: "running" not in states(airflow), "its end", timeout=300, interval=0.5)
    assert states(airflow) <= {"success", "queued"}, "one that is due while another runs waits, now for ever"
    answers = newcomer.type(results)
    assert "2 of 2 manifests done, 2,000 rows; 0 differences" in answers
    assert "orders: ok; published up to " in answers

    newcomer.type(end)
    assert "orders: " not in newcomer.type("tidemark status"), "its file is not missed"
    airflow.parse()
    assert not (newcomer.folder / ".tidemark" / "_pipelines" / "orders.json").exists()


def _replaced(text: str) -> str:
    for words, others in REPLACED.items():
        text = text.replace(words, others)
    return text
