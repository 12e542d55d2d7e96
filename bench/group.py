"""Measures a group: many small topics in one file, planned and then run by hand, in one session of Spark.

The run covers all topics; a second run has nothing new. All rows of the lake are counted. The DAG of the file is made
as Airflow's DAG processor makes it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import yaml

from bench.records import SCHEMA
from bench.timed import watched
from sandbox.bootstrap.checkout import STATE
from sandbox.errors import SandboxFailed, WrongResult
from sandbox.services.broker import Broker
from sandbox.services.postgres import Postgres
from tidemark.database.migrate import migrate

MEMBERS = 200
RECORDS = 200  # of each topic
NAME = "bench"
# The run with the key of the plan processes what that plan has stored.
STEPS = {
    "plan": ("plan", NAME, "--run-key", "first"),
    "run": ("run", NAME, "--run-key", "first"),
    "idle": ("run", NAME),
}
DAG = """
import time
from tidemark.airflow.dag import dags
began = time.process_time()
[dag] = dags().values()
print(time.process_time() - began, len(dag.tasks))
"""
Fill = Callable[[str, int, int], None]


def measure(postgres: Postgres, broker: Broker, fill: Fill, folder: Path, members: int) -> dict[str, Any]:
    """Return the seconds and the processor time of each step. Raises ``WrongResult`` unless each record is there
    once.
    """
    home = Path(tempfile.mkdtemp(prefix="group-", dir=folder))
    for number in range(members):
        fill(f"{NAME}-{number:04}", RECORDS, 1)
    pipelines = home / "pipelines"
    pipelines.mkdir()
    (pipelines / f"{NAME}.yaml").write_text(yaml.safe_dump(_file(broker.bootstrap_servers, str(home / "lake"))))
    figures: dict[str, Any] = {"members": members, "records": RECORDS, "steps": {}}
    try:
        with postgres.temporary_database("group") as dsn:
            migrate(dsn)
            environment = {
                **os.environ,
                "TIDEMARK_DB": dsn,
                "TIDEMARK_HOME": str(home),
                "TIDEMARK_PIPELINES": str(pipelines),
                "TIDEMARK_SPARK_JARS": str(STATE / "jars" / "spark"),
            }
            for step, words in STEPS.items():
                figures["steps"][step] = _step(words, environment, home / f"{step}.log")
            figures["dag"] = _dag({**environment, "AIRFLOW_HOME": str(home / "airflow")})
        files = list((home / "lake" / "raw").rglob("*.parquet"))
        rows = sum(pq.read_metadata(path).num_rows for path in files)
        if rows != members * RECORDS:
            raise WrongResult(f"the lake has {rows:,} rows of {members * RECORDS:,}", next_step=str(home))
        return {**figures, "files": len(files)}
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _file(servers: str, root: str) -> dict[str, Any]:
    return {
        "pipeline": NAME,
        "each_topic": True,
        "source": {"kafka": {"bootstrap_servers": servers, "topics_regex": f"{NAME}-.*"}},
        "decode": {"format": "json", "schema": SCHEMA},
        "event_time": {},
        "sinks": [{"files": {"root": root, "layout": "raw/{stream}/%Y-%m-%d/%H"}}],
    }


def _dag(environment: Mapping[str, str]) -> dict[str, float]:
    """Return the processor time to make the DAG, after all imports, and the number of its tasks."""
    command = [sys.executable, "-c", DAG]
    made = subprocess.run(command, env=dict(environment), capture_output=True, text=True)
    if made.returncode != 0:
        raise SandboxFailed(f"the DAG was not made\n{made.stderr[-3000:]}", next_step=f"tidemark validate {NAME}")
    cpu, tasks = made.stdout.split()[-2:]
    return {"cpu": float(cpu), "tasks": int(tasks)}


def _step(words: tuple[str, ...], environment: Mapping[str, str], log: Path) -> dict[str, float]:
    load = psutil.getloadavg()[0]
    began = time.monotonic()
    with log.open("wb") as output:
        command = [sys.executable, "-m", "tidemark.cli", *words]
        process = subprocess.Popen(command, env=dict(environment), stdout=output, stderr=output)
        _, cpu = watched(process, None)
    if process.wait() != 0:
        end = log.read_text()[-3000:]
        raise SandboxFailed(f"{words[0]} ended with {process.returncode}\n{end}", next_step=" ".join(words))
    return {"whole": time.monotonic() - began, "cpu": cpu, "load": load}
