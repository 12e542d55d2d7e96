"""YARN on free ports of 127.0.0.1: a resource manager and one node manager, the programs of a real cluster.

The node manager starts containers in its own folder, with its own environment only as far as
``yarn.nodemanager.env-whitelist`` names variables: secrets of sinks come that way. The jars are fetched at the first
start: 89 MB; PySpark has the others. There is no HDFS: what a driver sends to its executors lies in a folder.
"""

import contextlib
import json
import os
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from sandbox.bootstrap.jars import fetch_for_tests, java, pyspark_jars
from sandbox.services.processes import Child, Service, free_port
from sandbox.services.spark_cluster import INHERITED, QUICK, READY_S

# Hadoop's Guice makes classes by reflection.
JVM = (*QUICK, "-Xmx256m", "--add-opens=java.base/java.lang=ALL-UNNAMED")
ADDRESSES = ("", ".scheduler", ".resource-tracker", ".admin", ".webapp")  # of the resource manager
PORTS_OF_NODE = ("", ".localizer", ".webapp")
SIZE_MB = 3072  # an application master and two executors
FIFO = "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler"


class YarnCluster(Service):
    """A cluster. ``environment``: more variables for containers. ``home`` keeps the jars."""

    master = "yarn"

    def __init__(self, state: Path, home: Path, environment: Mapping[str, str]) -> None:
        self.state = state.resolve() / "yarn"
        self._home, self._secrets = home.resolve(), environment
        self._ports = {name: free_port() for name in ADDRESSES}
        self._node: Child | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that a driver needs."""
        return {"HADOOP_CONF_DIR": str(self.state / "conf")}

    @property
    def conf(self) -> dict[str, str]:
        """Return the properties that a driver needs on this machine."""
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.yarn.jars": f"local:{pyspark_jars()}/*",
            "spark.yarn.stagingDir": (self.state / "sent").as_uri(),
            "spark.yarn.am.memory": "384m",
            "spark.executor.instances": "2",
            "spark.executor.memory": "512m",
        }

    def start(self) -> None:
        """Fetch the jars if they are missing, and return when the node has registered."""
        [jars] = fetch_for_tests(self._home, "yarn")
        (self.state / "conf").mkdir(parents=True, exist_ok=True)
        (self.state / "sent").mkdir(exist_ok=True)
        entries = "".join(
            f"<property><name>{name}</name><value>{escape(value)}</value></property>"
            for name, value in self._properties().items()
        )
        (self.state / "conf" / "yarn-site.xml").write_text(f"<configuration>{entries}</configuration>")
        classes = f"{self.state}/conf:{jars}/*:{pyspark_jars()}/*"
        self._child = self._launch("resourcemanager.ResourceManager", classes)
        self._node = self._launch("nodemanager.NodeManager", classes)
        self._child.wait_ready(lambda: self._ask("metrics").get("activeNodes") == 1, timeout=READY_S)

    def stop(self) -> None:
        """Stop both managers and all containers."""
        if self._node is not None:
            self._node.stop()
            self._node = None
        super().stop()

    def executors(self) -> list[int]:
        """Return the process ids of the executors that run."""
        return executors_in(self.state)

    def at_work(self) -> int:
        """Return the number of applications that have not ended."""
        metrics = self._ask("metrics")
        return int(metrics["appsPending"] + metrics["appsRunning"])

    def _properties(self) -> dict[str, str]:
        whitelist = ("JAVA_HOME", "PATH", *self._secrets)
        return {
            "yarn.resourcemanager.hostname": "127.0.0.1",
            **{f"yarn.resourcemanager{name}.address": f"127.0.0.1:{port}" for name, port in self._ports.items()},
            "yarn.resourcemanager.scheduler.class": FIFO,
            "yarn.nodemanager.hostname": "127.0.0.1",
            **{f"yarn.nodemanager{name}.address": "127.0.0.1:0" for name in PORTS_OF_NODE},
            "yarn.nodemanager.local-dirs": str(self.state / "containers"),
            "yarn.nodemanager.log-dirs": str(self.state / "logs"),
            "yarn.nodemanager.env-whitelist": ",".join(whitelist),
            "yarn.nodemanager.resource.memory-mb": str(SIZE_MB),
            "yarn.nodemanager.pmem-check-enabled": "false",
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
            "yarn.scheduler.minimum-allocation-mb": "128",
            "yarn.scheduler.maximum-allocation-mb": str(SIZE_MB),
        }

    def _launch(self, main: str, classes: str) -> Child:
        env = {name: os.environ[name] for name in INHERITED if name in os.environ} | dict(self._secrets)
        command = [java(), *JVM, "-cp", classes, f"org.apache.hadoop.yarn.server.{main}"]
        name = main.partition(".")[0]
        return Child(f"YARN {name}", command, self.state / f"{name}.log", env=env, cwd=self.state)

    def _ask(self, question: str) -> dict[str, Any]:
        """Return an answer of the resource manager; an empty one while it does not answer."""
        with contextlib.suppress(OSError, ValueError):
            page = f"http://127.0.0.1:{self._ports['.webapp']}/ws/v1/cluster/{question}"
            with urllib.request.urlopen(page, timeout=5) as answer:
                answered: dict[str, Any] = json.load(answer)
                return answered
        return {}


def executors_in(folder: Path) -> list[int]:
    """Return the process ids of the executors of Spark that work in a folder below this one."""
    running = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            is_executor = Path(command[0]).name == "java" and any("ExecutorBackend" in word for word in command)
            if is_executor and (entry / "cwd").resolve().is_relative_to(folder):
                running.append(int(entry.name))
    return running
