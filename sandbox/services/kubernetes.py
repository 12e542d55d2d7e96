"""Kubernetes on a free port of 127.0.0.1, without containers: an API (`kubernetes_api.py`), and a node (`kubelet.py`).

It has no quotas, and runs no images.
"""

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import httpx

from sandbox.bootstrap.checkout import CHECKOUT
from sandbox.bootstrap.jars import fetch_for_tests, pyspark_jars
from sandbox.services.kubelet import Kubelet
from sandbox.services.processes import Child, Service, free_port
from sandbox.services.spark_cluster import INHERITED, READY_S
from sandbox.services.yarn import executors_in

SIZE_MB = 2560  # two drivers with an executor each
SECRET = "tidemark"  # noqa: S105 -- its name
EXAMPLES = CHECKOUT / "examples" / "kubernetes"
PODS = ("driver", "executor")


class KubernetesCluster(Service):
    """A cluster with one node. ``secrets``: variables that pods get from a secret. ``home`` keeps the jars."""

    def __init__(self, state: Path, home: Path, secrets: Mapping[str, str]) -> None:
        self.state = state.resolve() / "kubernetes"
        self._home, self._secrets = home.resolve(), secrets
        self._port = free_port()

    @property
    def master(self) -> str:
        return f"k8s://{self._address}"

    @property
    def _address(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that a driver needs."""
        return {}

    @property
    def conf(self) -> dict[str, str]:
        """Return the properties that a driver needs on this machine, or in a pod."""
        keys = {f"{pod}.secretKeyRef.{name}": f"{SECRET}:{name}" for name in self._secrets for pod in PODS}
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.kubernetes.driver.master": self._address,
            "spark.kubernetes.container.image": "this-machine",
            "spark.executor.instances": "2",
            "spark.executor.memory": "512m",
            **{f"spark.kubernetes.{pod}.podTemplateFile": str(EXAMPLES / f"{pod}.yaml") for pod in PODS},
            **{f"spark.kubernetes.{key}": value for key, value in keys.items()},
        }

    def start(self) -> None:
        """Fetch the jars if they are missing, and return when the API answers."""
        env = {name: os.environ[name] for name in INHERITED if name in os.environ}
        # The image has a Python with PySpark: this one, also if it is not that of `.venv`.
        env |= {"PATH": f"{Path(sys.executable).parent}:{env['PATH']}", "PYTHONPATH": str(pyspark_jars().parents[1])}
        [jars] = fetch_for_tests(self._home, "kubernetes")
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
        return sum(pod["status"]["phase"] in ("Pending", "Running") for pod in pods)

    @property
    def _node(self) -> Kubelet:
        return Kubelet(self._port, self.state, SIZE_MB)

    def _answers(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{self._address}/version", timeout=5).is_success
        return False
