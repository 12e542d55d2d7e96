"""Kubernetes on a free port of 127.0.0.1, without containers: the API of fabric8's tests, and a node (`kubelet.py`).

It has no quotas, runs no images, and grants rights to everybody.
"""

import contextlib
import os
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from sandbox.bootstrap.checkout import CHECKOUT
from sandbox.bootstrap.jars import fetch_for_tests
from sandbox.services.kubelet import Kubelet
from sandbox.services.processes import Child, Service, free_port
from sandbox.services.spark_cluster import INHERITED, READY_S
from sandbox.services.yarn import executors_in

SIZE_MB = 2048  # two executors
SECRET = "tidemark"  # noqa: S105 -- its name


class KubernetesCluster(Service):
    """A cluster with one node. ``secrets``: variables that executors get from a secret. ``home`` keeps the jars."""

    def __init__(self, state: Path, home: Path, secrets: Mapping[str, str]) -> None:
        self.state = state.resolve() / "kubernetes"
        self._home, self._secrets = home.resolve(), secrets
        self._port = free_port()

    @property
    def master(self) -> str:
        return f"k8s://http://127.0.0.1:{self._port}"

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that a driver needs."""
        return {}

    @property
    def conf(self) -> dict[str, str]:
        """Return the properties that a driver needs on this machine."""
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.kubernetes.container.image": "this-machine",
            "spark.kubernetes.executor.podTemplateFile": str(CHECKOUT / "examples" / "kubernetes" / "executor.yaml"),
            "spark.executor.instances": "2",
            "spark.executor.memory": "512m",
            **{f"spark.kubernetes.executor.secretKeyRef.{name}": f"{SECRET}:{name}" for name in self._secrets},
        }

    def start(self) -> None:
        """Fetch the jars if they are missing, and return when the API answers."""
        env = {name: os.environ[name] for name in INHERITED if name in os.environ}
        env |= {"PATH": f"{Path(sys.executable).parent}:{env['PATH']}"}  # the image has a Python with PySpark
        jars = fetch_for_tests("kubernetes", self._home)
        self.state.mkdir(parents=True, exist_ok=True)
        arguments = (str(self._port), str(self.state), str(SIZE_MB), str(jars))
        command = [sys.executable, "-m", "sandbox.services.kubelet", *arguments]
        self._child = Child("Kubernetes", command, self.state / "log", env=env, cwd=CHECKOUT)
        self._child.wait_ready(self._answers, timeout=READY_S)
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "stringData": {**self._secrets}}
        self._node.ask("POST", "/secrets", secret)

    def executors(self) -> list[int]:
        """Return the process ids of the executors that run."""
        return executors_in(self.state)

    def at_work(self) -> int:
        """Return the number of pods that have not ended."""
        pods = self._node.ask("GET", "/pods")["items"]
        return sum(pod.get("status", {}).get("phase") in (None, "Pending", "Running") for pod in pods)

    @property
    def _node(self) -> Kubelet:
        return Kubelet(self._port, self.state, SIZE_MB)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self._port}/version", timeout=5):
            return True
        return False
