"""A Spark standalone cluster of one master and some workers, from PySpark's own jars, on free ports of 127.0.0.1.

The workers start the executors, in their own folders and with the workers' environment, not the driver's. That
environment is what an administrator would set up on those machines: secrets of sinks, a Python.
"""

import contextlib
import importlib.util
import json
import os
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from sandbox.bootstrap.jars import java
from sandbox.errors import SandboxFailed
from sandbox.services.processes import Child, Service, free_port, wait_until

QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
READY_S = 240  # 4 s on idle cores, more than 60 on busy ones
INHERITED = (
    "PATH",
    "JAVA_HOME",
    "LANG",
    "LC_ALL",
    "TMPDIR",
)  # no PYTHONPATH: executors must not import from the checkout


def spark_home() -> Path:
    """Return the folder of PySpark, which has jars and scripts like a Spark installation."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SandboxFailed("PySpark is not installed", next_step="make setup")
    return Path(spec.origin).parent


class SparkCluster(Service):
    """A cluster; each worker has one core and 1 GiB. ``environment``: more variables for executors, beside PATH and
    JAVA_HOME.
    """

    def __init__(self, state: Path, *, workers: int = 2, environment: Mapping[str, str] | None = None) -> None:
        self.state = state.resolve() / "spark-cluster"
        self.logs = state.resolve() / "logs"
        self.workers: list[Child] = []
        self._count = workers
        self._port, self._page = free_port(), free_port()
        inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
        # Spark's scripts, which are not used here, would set the Scala version.
        own = {"SPARK_HOME": str(spark_home()), "SPARK_SCALA_VERSION": "2.13", "SPARK_LOCAL_IP": "127.0.0.1"}
        own["JAVA_TOOL_OPTIONS"] = " ".join(QUICK)  # executors work for seconds
        self._environment = {**inherited, **own, **(environment or {})}

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start the master and the workers, and return when every worker has registered."""
        self.state.mkdir(parents=True, exist_ok=True)
        page = ("--webui-port", str(self._page))
        self._child = self._launch("master", "master.Master", "--port", str(self._port), *page)
        self._child.wait_ready(lambda: self._alive() is not None, timeout=READY_S)
        for number in range(self._count):
            self.add_worker(number)
        wait_until(lambda: self._alive() == self._count, f"{self._count} workers to register", timeout=READY_S)

    def add_worker(self, number: int) -> None:
        """Start one more worker; its executors use the folder ``work<number>``."""
        size = ("--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(self.state / f"work{number}"))
        self.workers.append(self._launch(f"worker{number}", "worker.Worker", *size, self.master))

    def stop(self) -> None:
        """Stop workers, executors and the master."""
        for worker in self.workers:
            worker.begin_stop()
        super().stop()
        for worker in self.workers:
            worker.stop()
        self.workers = []

    def kill_worker(self, number: int) -> None:
        """Send SIGKILL to a worker and its executors, as if their machine failed."""
        self.workers[number].kill(tree=True)

    def _launch(self, name: str, main: str, *arguments: str) -> Child:
        # The class path that executors have: Java compares it with that of the archive.
        classes = (
            java(),
            "-Xmx256m",
            "-cp",
            f"{spark_home()}/conf/:{spark_home()}/jars/*",
            f"org.apache.spark.deploy.{main}",
        )
        log = self.logs / f"spark-{name}.log"
        return Child(
            f"Spark {name}", [*classes, "--host", "127.0.0.1", *arguments], log, env=self._environment, cwd=self.state
        )

    def _alive(self) -> int | None:
        """Return the number of workers that the master calls alive; None while it does not answer."""
        with contextlib.suppress(OSError, ValueError):
            page = f"http://127.0.0.1:{self._page}/json/"
            with urllib.request.urlopen(page, timeout=5) as answer:
                return int(json.load(answer)["aliveworkers"])
        return None
