"""Measures a fleet: many pipelines that are due at the same moment, in a real Airflow over one Spark Connect server.

Each pipeline has a file, a topic and 1,000 new records of its own. One hour of all of them is measured: its duration,
the processor time of each kind of process, the sessions and statements of the manifest database. Before that, one
pipeline is triggered by hand. At the end, Airflow's DAG processor parses 1,000 files. All is counted: each manifest
must be done, and each record must be in the lake once.
"""

import json
import shutil
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import psutil
import yaml

from bench.records import SCHEMA, messages
from bench.statements import LoggedSession, log_statements, logged
from bench.timed import processor_seconds
from sandbox.bootstrap.checkout import CHECKOUT, STATE
from sandbox.errors import WrongResult
from sandbox.services.airflow import Airflow
from sandbox.services.airflow_api import TaskInstance
from sandbox.services.broker import Broker
from sandbox.services.postgres import Postgres
from sandbox.services.processes import wait_until
from sandbox.services.spark_server import SparkServer
from tidemark.database.client import ManifestDatabase
from tidemark.database.migrate import migrate
from tidemark.environment import set_variables
from tidemark.lifecycle.context import open_context
from tidemark.lifecycle.plan import Tick, plan
from tidemark.model.manifest import ManifestState, RunKind
from tidemark.pipeline.loader import find

PIPELINES = 200
RECORDS = 1_000  # new records of each pipeline
PARTITIONS = 2
PARSED = 1_000  # pipeline files that the DAG processor reads at the end
POOL, SLOTS = "fleet", 2  # manifests at work at once
TASKS = 4  # at once, of all kinds
TOPICS_AT_ONCE = 50
PATIENCE_S = 3 * 3_600
HOUR = timedelta(hours=1)
SINGLE = "by-hand"
COLUMNS = ("plan", "process", "close")


def measure(postgres: Postgres, broker: Broker, folder: Path, pipelines: int, runs: int) -> dict[str, Any]:
    """Return the figures for ``pipelines`` pipelines, and for ``runs`` runs by hand.

    Raises ``WrongResult`` unless all runs succeed and all counts are right.
    """
    with postgres.temporary_database("fleet") as dsn, postgres.temporary_database("airflow") as metadata:
        migrate(dsn)
        log_statements(dsn)
        with _services(folder, dsn, metadata, broker) as (airflow, spark):
            fleet = Fleet(folder, dsn, broker, postgres, airflow, spark)
            fleet.deploy(pipelines)
            figures: dict[str, Any] = {
                "pipelines": pipelines, "records": RECORDS, "partitions": PARTITIONS, "slots": SLOTS, "tasks": TASKS
            }  # fmt: skip
            figures["by_hand"] = fleet.by_hand(runs)
            figures |= fleet.hour()
            files = pipelines + 1
            figures["parsing"] = [fleet.parsed(number) for number in sorted({files, max(files, PARSED)})]
            return figures


@contextmanager
def _services(folder: Path, dsn: str, metadata: str, broker: Broker) -> Iterator[tuple[Airflow, SparkServer]]:
    """Start a Spark Connect server, and an Airflow with an empty folder of pipelines and the needed connection and
    pool.
    """
    environment = {
        "TIDEMARK_DB": dsn,
        "TIDEMARK_HOME": str(folder),
        "TIDEMARK_PIPELINES": str(folder / "pipelines"),
        "TIDEMARK_SPARK_JARS": str(STATE / "jars" / "spark"),
        # As docs/many-pipelines.md recommends.
        "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "180",
    }
    (folder / "pipelines").mkdir()
    dags = shutil.copytree(CHECKOUT / "dags", folder / "dags")
    with SparkServer(folder, environment) as spark:
        environment["TIDEMARK_SPARK_REMOTE"] = spark.remote
        with Airflow(folder, metadata, environment, dags=dags, parallelism=TASKS, parse_interval=300) as airflow:
            extra = json.dumps({"bootstrap.servers": broker.bootstrap_servers})
            airflow.create_connection("kafka_default", "kafka", "", extra=extra)
            airflow.create_pool(POOL, SLOTS)
            yield airflow, spark


class Fleet:
    """The pipelines ``fleet-0000`` and so on, and one more that is triggered by hand."""

    def __init__(
        self, folder: Path, dsn: str, broker: Broker, postgres: Postgres, airflow: Airflow, spark: SparkServer
    ) -> None:
        self.folder = folder
        self.dsn = dsn
        self.broker = broker
        self.postgres = postgres
        self.airflow = airflow
        self.spark = spark
        self.names: list[str] = []
        # All are due once, a minute ago, and then not for an hour.
        self.due = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=1)

    def deploy(self, pipelines: int) -> None:
        """Create topics, files and DAGs, which are paused. Plan each pipeline once, for an hour earlier, without any
        records.

        So the measured hour has no first plans, which look for more than others.
        """
        self.names = [f"fleet-{number:04}" for number in range(pipelines)]
        topics = [*self.names, SINGLE]
        for first in range(0, len(topics), TOPICS_AT_ONCE):
            chunk = topics[first : first + TOPICS_AT_ONCE]
            self.broker.create_topics(chunk, PARTITIONS, {"retention.ms": "-1"})
        for name in self.names:
            self._write(name, f"{self.due.minute} * * * *")
        self._write(SINGLE, None)
        kafka = json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": self.broker.bootstrap_servers}})
        environment = {"TIDEMARK_HOME": str(self.folder), "AIRFLOW_CONN_KAFKA_DEFAULT": kafka}
        with set_variables(environment), ManifestDatabase(self.dsn, "bench") as database:
            for name in self.names:
                context = open_context(find(self._file(name).parent, name), database)
                plan(context, Tick.at(self.due - HOUR, RunKind.SCHEDULED))
        self._wait_known(len(topics))

    def _file(self, name: str) -> Path:
        return self.folder / "pipelines" / f"{name}.yaml"

    def _write(self, name: str, schedule: str | None) -> None:
        pipeline = {
            "pipeline": name,
            "schedule": schedule,
            "retry_delay": "1m",
            "airflow": {"pool": POOL},
            "source": {"kafka": {"connection": "kafka_default", "topics": [name]}},
            "decode": {"format": "json", "schema": SCHEMA},
            "event_time": {"field": "at"},
            "on_error": "dead_letter",
            "spark": {"engine": "connect"},
            "sinks": [{"files": {"root": "lake", "layout": "raw/{stream}/%Y/%m/%d/%H"}}],
        }
        self._file(name).write_text(yaml.safe_dump(pipeline))

    def _wait_known(self, dags: int) -> None:
        self.airflow.parse()
        wait_until(lambda: self.airflow.number_of_dags() == dags, f"{dags} DAGs", timeout=600, interval=1)
        _tell(f"{dags} DAGs are known")

    def by_hand(self, runs: int) -> list[dict[str, float]]:
        """Return the seconds from a trigger to the end of its run, and of each task. The first run is not measured."""
        self.airflow.unpause(SINGLE)
        measured = []
        for number in range(runs + 1):
            now = datetime.now(UTC)
            self._produce([SINGLE], now)
            began = datetime.now(UTC)
            run_id = self.airflow.trigger(SINGLE)
            if self.airflow.wait_run(SINGLE, run_id) != "success":
                self._refuse_failed()
            [run] = [run for run in self.airflow.runs(SINGLE) if run["dag_run_id"] == run_id]
            tasks = self.airflow.task_instances(SINGLE, run_id)
            seconds = {"whole": (_moment(run["end_date"]) - began).total_seconds(), **_seconds_of(tasks)}
            _tell(f"by hand {number}: {_listed(seconds)}")
            measured.append(seconds)
        return measured[1:]

    def hour(self) -> dict[str, Any]:
        """Make all pipelines due at once. Return the figures of their runs, when all have succeeded and all is
        counted.
        """
        self._produce(self.names, self.due)
        log = self.postgres.log.stat().st_size
        used = self._used()
        began = datetime.now(UTC)
        self.airflow.unpause_all("fleet-%")
        self._wait_ended(began)
        spent = {kind: seconds - used[kind] for kind, seconds in self._used().items()}
        runs = self.airflow.runs_of_all(run_type="scheduled", run_after_lte=self.due.isoformat())
        tasks = self.airflow.task_instances_of_all(run_after_lte=self.due.isoformat())
        tasks = [task for task in tasks if task["dag_id"] in self.names]
        processing = [_interval(task) for task in tasks if task["task_id"] == "process"]
        number = len(self.names)
        return {
            "wall": (max(_moment(run["end_date"]) for run in runs) - began).total_seconds(),
            "run": statistics.median(_length(_interval(run)) for run in runs),
            "tasks_of_runs": _seconds_of(tasks),
            "processing_at_once": most_at_once(processing),
            "tasks_at_once": most_at_once(map(_interval, tasks)),
            "processor": {kind: seconds / number for kind, seconds in spent.items()},
            "database": per_run(logged(self.postgres.log, log, self.dsn), number),
            "counted": self._counted(),
        }

    def _wait_ended(self, began: datetime) -> None:
        deadline = time.monotonic() + PATIENCE_S
        ended = -1
        while ended < len(self.names):
            until = {"run_type": "scheduled", "run_after_lte": self.due.isoformat()}
            if self.airflow.number_of_runs(state="failed", **until) or time.monotonic() > deadline:
                self._refuse_failed()
            now_ended = self.airflow.number_of_runs(state="success", **until)
            if now_ended != ended:
                ended = now_ended
                _tell(f"{ended} of {len(self.names)} runs after {(datetime.now(UTC) - began).total_seconds():.0f} s")
            time.sleep(2)

    def _refuse_failed(self) -> None:
        """Raise ``WrongResult``, with the log of a failed task if there is one."""
        for task in self.airflow.task_instances_of_all(state="failed"):
            text = self.airflow.task_log(task["dag_id"], task["dag_run_id"], task)[-3000:]
            raise WrongResult(f"{task['dag_id']} {task['task_id']} failed:\n{text}", next_step="read the log above")
        raise WrongResult(f"not all runs have ended well after {PATIENCE_S} s", next_step=f"read {self.airflow.logs}")

    def _used(self) -> dict[str, float]:
        """Return the processor time so far, by kind of process. Tasks are children of the scheduler, whose executor
        starts them.
        """
        scheduler = self.airflow.pid("scheduler")
        own = _own_seconds(scheduler)
        return {
            "scheduler": own,
            "tasks and their supervisors": processor_seconds(scheduler) - own,
            "API server": processor_seconds(self.airflow.pid("api-server")),
            "DAG processor": processor_seconds(self.airflow.pid("dag-processor")),
            "Spark Connect server": processor_seconds(self.spark.pid),
            "PostgreSQL, with Airflow's own database": processor_seconds(self.postgres.pid),
            "Kafka": processor_seconds(self.broker.pid),
        }

    def _counted(self) -> dict[str, int]:
        """Return the counts of the database and the lake. Raises ``WrongResult`` unless each record is there once."""
        with ManifestDatabase(self.dsn, "bench") as database:
            manifests = [manifest for name in self.names for manifest in database.manifests.page(name, limit=RECORDS)]
        done = [manifest for manifest in manifests if manifest.state is ManifestState.DONE]
        counts = [publication.counts for manifest in done for publication in manifest.publications]
        counted: dict[str, int] = {
            "manifests": len(manifests),
            "done": len(done),
            "read": sum(count.read for count in counts),
            "written": sum(count.written for count in counts),
        }
        files = str(self.folder / "lake" / "raw" / "fleet-*" / "**" / "*.parquet")
        row = duckdb.execute(
            "SELECT count(*) AS rows, count(DISTINCT (_topic, _partition, _offset)) AS records, "
            "count(DISTINCT _topic) AS topics FROM read_parquet($files, hive_partitioning = false)",
            {"files": files},
        ).fetchone()
        assert row is not None
        counted |= dict(zip(("rows", "records", "topics"), row, strict=True))
        number = len(self.names)
        expected = {"manifests": number, "done": number, "topics": number}
        expected |= dict.fromkeys(("read", "written", "rows", "records"), number * RECORDS)
        if counted != expected:
            raise WrongResult(f"counted {counted}, expected {expected}", next_step="look at the lake and the manifests")
        return counted

    def parsed(self, files: int) -> dict[str, float]:
        """Measure how long the DAG processor takes to read ``files`` pipeline files again, when it knows their DAGs.

        ``seconds``: for the file that has the DAGs, by Airflow. Processor time until all is idle again: ``reading``, of
        the processes that read the DAG files, both of them; ``storing``, of the DAG processor itself, which compares
        their result with the stored DAGs.
        """
        for number in range(len(self.names) + 1, files):
            self._write(f"parsed-{number:04}", "0 * * * *")
        self._wait_known(files)
        pid = self.airflow.pid("dag-processor")
        self._wait_idle(pid)
        read, stored = self._read_and_stored()
        asked = datetime.now(UTC)
        self.airflow.parse()
        wait_until(
            lambda: _moment(self.airflow.dag(SINGLE)["last_parsed_time"]) > asked, "the DAGs to be parsed",
            timeout=600, interval=1,
        )  # fmt: skip
        self._wait_idle(pid)
        seconds = float(self.airflow.dag(SINGLE)["last_parse_duration"])
        reading, storing = self._read_and_stored()
        figures = {"files": files, "seconds": seconds, "reading": reading - read, "storing": storing - stored}
        _tell(f"parsing: {_listed(figures)}")
        return figures

    def _read_and_stored(self) -> tuple[float, float]:
        """Return the processor time so far of the DAG processor's children, and its own."""
        pid = self.airflow.pid("dag-processor")
        own = _own_seconds(pid)
        return processor_seconds(pid) - own, own

    def _wait_idle(self, pid: int) -> None:
        used = [processor_seconds(pid)]

        def idle() -> bool:
            used.append(processor_seconds(pid))
            return used[-1] - used[-2] < 0.3

        time.sleep(3)
        wait_until(idle, "the DAG processor to be idle", timeout=600, interval=3)

    def _produce(self, topics: Sequence[str], end: datetime) -> None:
        """Send its records to each topic, with events and timestamps spread over the hour that ends at ``end``."""
        producer = self.broker.producer(
            enable_idempotence=True, compression_type="lz4", linger_ms=20, queue_buffering_max_messages=1_000_000
        )
        records = list(records_of_hour(end - HOUR))
        for topic in topics:
            for number, (stamp_ms, key, value) in enumerate(records):
                producer.produce(topic, value, key, number % PARTITIONS, timestamp=stamp_ms)
            producer.poll(0)
        assert producer.flush(120) == 0


def records_of_hour(start: datetime) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield (timestamp in ms, key, value) of the records of one hour, in order: the records of the other parts at other
    times.
    """
    for number, message in enumerate(messages(RECORDS)):
        at = start + HOUR * number / RECORDS
        value = {**json.loads(message.value), "at": at.isoformat(timespec="milliseconds")}
        yield int(at.timestamp() * 1000), message.key, json.dumps(value, separators=(",", ":")).encode()


def most_at_once(intervals: Iterable[tuple[datetime, datetime]]) -> int:
    """Return the largest number of intervals, half-open, that share a moment."""
    changes = sorted(change for start, end in intervals for change in ((start, 1), (end, -1)))
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def per_run(sessions: Iterable[LoggedSession], runs: int) -> dict[str, dict[str, float]]:
    """Return sessions and statements of one run, by task."""
    sums: dict[str, dict[str, float]] = {}
    for session in sessions:
        of_task = sums.setdefault(session.task, {"sessions": 0.0, "statements": 0.0})
        of_task["sessions"] += 1 / runs
        of_task["statements"] += session.statements / runs
    return sums


def _own_seconds(pid: int) -> float:
    """Return the processor time of a process without its children."""
    return float(sum(psutil.Process(pid).cpu_times()[:2]))


def _seconds_of(tasks: Sequence[TaskInstance]) -> dict[str, float]:
    """Return the median time of the tasks of each name."""
    return {
        name: statistics.median(_length(_interval(task)) for task in tasks if task["task_id"] == name)
        for name in COLUMNS
    }


def _interval(of: Mapping[str, Any]) -> tuple[datetime, datetime]:
    return _moment(of["start_date"]), _moment(of["end_date"])


def _length(interval: tuple[datetime, datetime]) -> float:
    return (interval[1] - interval[0]).total_seconds()


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _listed(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {figure:.1f}" for name, figure in figures.items())


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
