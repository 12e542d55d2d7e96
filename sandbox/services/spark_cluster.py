"""A Spark standalone cluster of one master and some workers, from PySpark's own jars, on free ports of 127.0.0.1.

Executors are started by the workers: in folders of their own, with the workers' environment and not with the driver's.
What they find there (secrets of sinks, a Python) is what an administrator would have put on those machines.
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

JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
READY_S = 240  # 4 on idle cores; 60 were too short on busy ones
INHERITED = ("PATH", "JAVA_HOME", "LANG", "LC_ALL", "TMPDIR")  # no PYTHONPATH: executors must not find a checkout by it


def spark_home() -> Path:
    """PySpark's folder, which has jars and scripts as a Spark installation does."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SandboxFailed("PySpark is not installed", next_step="make setup")
    return Path(spec.origin).parent


class SparkCluster(Service):
    """One core and 1 GiB for each worker; ``environment`` is what executors find beside PATH and JAVA_HOME."""

    def __init__(self, state: Path, *, workers: int = 2, environment: Mapping[str, str] | None = None) -> None:
        self.state = state.resolve() / "spark-cluster"
        self.logs = state.resolve() / "logs"
        self.workers: list[Child] = []
        self._count = workers
        self._port, self._page = free_port(), free_port()
        inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
        # Spark's scripts, which are not used here, would find the Scala version out.
        own = {"SPARK_HOME": str(spark_home()), "SPARK_SCALA_VERSION": "2.13", "SPARK_LOCAL_IP": "127.0.0.1"}
        self._environment = {**inherited, **own, **(environment or {})}

    @property
    def master(self) -> str:
        """``spark://host:port`` for drivers."""
        return f"spark://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Return when every worker has registered with the master."""
        self.state.mkdir(parents=True, exist_ok=True)
        page = ("--webui-port", str(self._page))
        self._child = self._launch("master", "master.Master", "--port", str(self._port), *page)
        self._child.wait_ready(lambda: self._alive() is not None, timeout=READY_S)
        for number in range(self._count):
            self.add_worker(number)
        wait_until(lambda: self._alive() == self._count, f"{self._count} workers to register", timeout=READY_S)

    def add_worker(self, number: int) -> None:
        """One more worker, whose executors work below a folder of this number."""
        size = ("--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(self.state / f"work{number}"))
        self.workers.append(self._launch(f"worker{number}", "worker.Worker", *size, self.master))

    def stop(self) -> None:
        """End workers, executors and the master."""
        for worker in self.workers:
            worker.begin_stop()
        super().stop()
        for worker in self.workers:
            worker.stop()
        self.workers = []

    def kill_worker(self, number: int) -> None:
        """SIGKILL to a worker and its executors at once, as when their machine is gone."""
        self.workers[number].kill(tree=True)

    def _launch(self, name: str, main: str, *words: str) -> Child:
        classes = (java(), *JVM, "-cp", f"{spark_home()}/jars/*", f"org.apache.spark.deploy.{main}")
        log = self.logs / f"spark-{name}.log"
        return Child(
            f"Spark {name}", [*classes, "--host", "127.0.0.1", *words], log, env=self._environment, cwd=self.state
        )

    def _alive(self) -> int | None:
        """How many workers the master knows to be alive; None while it does not answer."""
        with contextlib.suppress(OSError, ValueError):
            page = f"http://127.0.0.1:{self._page}/json/"
            with urllib.request.urlopen(page, timeout=5) as answer:
                return int(json.load(answer)["aliveworkers"])
        return None
