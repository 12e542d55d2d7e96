"""A world with its pipeline as a DAG in a real Airflow: its runs, and the processes of its attempts."""

import os
import shutil
import signal
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict

from sandbox.services.airflow import Airflow
from sandbox.services.airflow_api import TaskInstance
from sandbox.services.processes import wait_until
from tests.worlds.world import World

DAG = "demo"
LAUNCHER = "org.apache.spark.launcher.Main"  # a first JVM, which prints the command line of the real one


def postgres_connection(dsn: str) -> dict[str, Any]:
    """A connection to a database, as ``Airflow.create_connection`` takes it."""
    parts = {key: str(value) for key, value in conninfo_to_dict(dsn).items()}
    return {
        "conn_type": "postgres", "host": parts["host"], "port": int(parts["port"]), "login": parts["user"],
        "password": parts["password"], "schema": parts["dbname"],
    }  # fmt: skip


@dataclass
class AirflowWorld:
    """``world`` with its pipeline file in Airflow's folder; Airflow and the tests share one manifest database."""

    world: World
    airflow: Airflow
    pipelines: Path

    def deploy(self) -> None:
        """Give Airflow the current pipeline file as a new DAG, not paused."""
        self.update()
        self.airflow.delete_dag(DAG)
        self.airflow.parse()
        self.airflow.wait_dag(DAG)
        self.airflow.unpause(DAG)

    def update(self) -> None:
        """Replace Airflow's pipeline file by the current one; tasks that start later read it."""
        target = self.pipelines / "demo.yaml"
        new = target.with_suffix(".new")
        new.write_text((self.world.pipelines / "demo.yaml").read_text())
        new.rename(target)
        self.airflow.parse()

    def remove(self) -> None:
        """Remove the pipeline file, what it has staged beside its lake, and its processes: the next test has a DAG and
        a manifest database of the same name."""
        (self.pipelines / "demo.yaml").unlink(missing_ok=True)
        (self.pipelines.parent / "_pipelines" / "demo.json").unlink(missing_ok=True)
        for process in self.processes():
            process.send(signal.SIGCONT)
            process.send(signal.SIGKILL)
        shutil.rmtree(self.pipelines.parent / "staging", ignore_errors=True)

    def trigger(self, conf: dict[str, Any] | None = None, logical_date: datetime | None = None) -> str:
        return self.airflow.trigger(DAG, conf, logical_date)

    def succeed(self, run_id: str) -> None:
        """Wait for the end of the run, which must be success; check readers meanwhile."""
        assert self._wait(run_id) == "success", self.logs(run_id)

    def fail(self, run_id: str) -> str:
        """Wait for the end of the run, which must be failed; returns the logs of its failed tasks."""
        assert self._wait(run_id) == "failed"
        return self.logs(run_id)

    def _wait(self, run_id: str) -> str:
        return self.airflow.wait_run(DAG, run_id, lambda _: self.assert_whole(), timeout=240)

    def assert_whole(self) -> None:
        """``World.assert_whole`` while tasks publish: repeated until nothing was published during the check."""
        while True:
            before, seen, after = self.world.published_spans(), self.world.exact(), self.world.published_spans()
            if before == after:
                break
        assert max(seen.values(), default=1) == 1
        assert seen == after

    def states(self, run_id: str) -> dict[tuple[str, int], str | None]:
        return {
            (task["task_id"], task["map_index"]): task["state"] for task in self.airflow.task_instances(DAG, run_id)
        }

    def instance(self, run_id: str, task_id: str, map_index: int = -1) -> TaskInstance:
        tasks = self.airflow.task_instances(DAG, run_id)
        return next(task for task in tasks if (task["task_id"], task["map_index"]) == (task_id, map_index))

    def logs(self, run_id: str, states: Sequence[str] = ("failed",)) -> str:
        """The end of the log of each task instance in one of these states."""
        instances = [instance for instance in self.airflow.task_instances(DAG, run_id) if instance["state"] in states]
        return "\n".join(
            f"--- {instance['task_id']} {instance['map_index']}\n{self.airflow.task_log(DAG, run_id, instance)[-3000:]}"
            for instance in instances
        )

    def wait_tries(self, run_id: str, task: tuple[str, int], tries: int, timeout: float = 120) -> None:
        """Until Airflow is at the given try of a task instance, and it runs."""

        def reached() -> bool:
            instance = self.instance(run_id, *task)
            return bool(instance["try_number"] >= tries and instance["state"] == "running")

        wait_until(reached, f"try {tries} of {task}", timeout=timeout, interval=0.3)

    def processes(self) -> list["Process"]:
        """Every process of this lake: spark-submit and its children."""
        processes = [Process(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
        lake = f"{self.world.lake}/"
        return [process for process in processes if any(lake in word for word in process.words)]

    def spark(self, attempt: int, manifest: int = 1, timeout: float = 120) -> "Process":
        """The JVM of spark-submit for an attempt, as soon as it runs."""
        processes: list[Process] = []

        def started() -> bool:
            jvms = [jvm for jvm in self._at_work(attempt, manifest) if jvm.words[:1] and "java" in jvm.words[0]]
            processes[:] = [jvm for jvm in jvms if LAUNCHER not in jvm.words]
            return bool(processes)

        wait_until(started, f"Spark of manifest {manifest} attempt {attempt}", timeout=timeout, interval=0.1)
        return processes[0]

    def _at_work(self, attempt: int, manifest: int = 1) -> list["Process"]:
        order = str(self._staging(attempt, manifest) / "order.json")
        return [process for process in self.processes() if order in process.words]

    def _staging(self, attempt: int, manifest: int = 1) -> Path:
        return self.world.lake / "_staging" / f"{manifest:010}" / f"{attempt:04}"

    def hold_spark(self, attempt: int, *, manifest: int = 1, staged: bool = False) -> list["Process"]:
        """SIGSTOP to Spark (its JVM and its Python) after it has started, or staged a file; returns these processes.

        What the test does next happens while Spark runs.
        """
        self.spark(attempt, manifest)
        if staged:
            files = self._staging(attempt, manifest) / "files"
            wait_until(lambda: any(files.glob("*.parquet")), "something staged", timeout=240, interval=0.01)
        held = self._at_work(attempt, manifest)
        for process in held:
            process.send(signal.SIGSTOP)
        return held

    def wait_receipt(self, attempt: int) -> None:
        """Wait until Spark has written its receipt, a second before Airflow's task notices that Spark has ended."""
        receipt = self._staging(attempt) / "receipt.json"
        wait_until(receipt.exists, "the receipt", timeout=120, interval=0.01)

    def wait_spark_gone(self, timeout: float = 30) -> None:
        """Wait until this lake has no process any more."""
        wait_until(lambda: not self.processes(), "Spark to be gone", timeout=timeout)

    def attempts(self, manifest: int = 1) -> list[tuple[int, str]]:
        """(attempt, state) in order."""
        shown = self.world.json("show", str(manifest))
        return [(attempt["attempt"], attempt["state"]) for attempt in shown["attempts"]]


@dataclass(frozen=True)
class Process:
    """A process of the machine, by its id."""

    pid: int

    @property
    def words(self) -> list[str]:
        """Its command line; empty when it has ended."""
        with suppress(OSError):
            return (Path("/proc") / str(self.pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
        return []

    @property
    def parent(self) -> "Process":
        stat = Path(f"/proc/{self.pid}/stat").read_text()
        return Process(int(stat.rpartition(")")[2].split()[1]))

    @property
    def leader(self) -> "Process":
        """The leader of its process group: for Spark, the process that runs Airflow's task."""
        return Process(os.getpgid(self.pid))

    @property
    def alive(self) -> bool:
        """Whether it exists and is no zombie."""
        with suppress(OSError):
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        return False

    def send(self, number: signal.Signals) -> None:
        """Send a signal to it alone; no error when it has ended."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


def wake(processes: Iterable[Process]) -> None:
    """SIGCONT to each; no error when it has ended."""
    for process in processes:
        process.send(signal.SIGCONT)
