"""A node of Kubernetes without containers: `python -m sandbox.services.kubelet PORT FOLDER MEGABYTES JARS`.

The API is that of the tests of fabric8's client; everybody has all rights, but none to create pods in one namespace.
Each pod is a process: its command, which its template must name; its image is this machine. Pods wait until there is
memory for them, get the variables of their secrets, and end when they are deleted.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway  # type: ignore[import-untyped]

from sandbox.bootstrap.jars import java, pyspark_jars
from sandbox.services.spark_cluster import QUICK

EVERY_S = 0.2
FORBIDDEN = "forbidden"  # a namespace where nobody may create pods
Pod = dict[str, Any]


class Kubelet:
    def __init__(self, port: int, folder: Path, megabytes: int) -> None:
        self._address = f"http://127.0.0.1:{port}/api/v1/namespaces/default"
        self._folder, self._megabytes = folder, megabytes
        self._running: dict[str, tuple[Pod, subprocess.Popen[bytes]]] = {}

    def look(self) -> None:
        """Start pods that are new, and end those that are gone."""
        pods: list[Pod] = self.ask("GET", "/pods")["items"]
        names = {pod["metadata"]["name"] for pod in pods}
        for name, (_, process) in list(self._running.items()):
            if name not in names:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                del self._running[name]
            elif process.poll() is not None:
                code = process.returncode if process.returncode >= 0 else 128 - process.returncode
                self._report(name, "Failed" if code else "Succeeded", {"terminated": {"exitCode": code}})
                del self._running[name]
        for pod in pods:
            name, phase = pod["metadata"]["name"], pod.get("status", {}).get("phase", "")
            used = sum(memory_of(running) for running, _ in self._running.values())
            if phase in ("", "Pending") and used + memory_of(pod) <= self._megabytes:
                self._running[name] = (pod, self._start(pod))
                self._report(name, "Running", {"running": {}})
            elif not phase:
                self._report(name, "Pending", {"waiting": {}})

    def ask(self, method: str, path: str, body: Pod | None = None) -> Any:
        headers = {"Content-Type": "application/merge-patch+json" if method == "PATCH" else "application/json"}
        answer = httpx.request(method, f"{self._address}{path}", json=body, headers=headers, timeout=30)
        return answer.raise_for_status().json()

    def _report(self, name: str, phase: str, state: dict[str, Any]) -> None:
        container = {"name": "executor", "ready": phase == "Running", "restartCount": 0, "state": state}
        status = {"phase": phase, "podIP": "127.0.0.1", "containerStatuses": [container]}
        with contextlib.suppress(httpx.HTTPStatusError):  # it has been deleted since
            self.ask("PATCH", f"/pods/{name}", {"status": status})

    def _start(self, pod: Pod) -> "subprocess.Popen[bytes]":
        [container] = pod["spec"]["containers"]
        env = {entry["name"]: self._value(pod, entry) for entry in container["env"]}
        home = self._folder / pod["metadata"]["name"]
        home.mkdir(parents=True)
        own = {"SPARK_SCALA_VERSION": "2.13", "SPARK_LOCAL_DIRS": str(home), "JAVA_TOOL_OPTIONS": " ".join(QUICK)}
        with (home / "log").open("wb") as log:
            return subprocess.Popen(
                [*container["command"], *container["args"]], cwd=home, env={**os.environ, **own, **env},
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def _value(self, pod: Pod, entry: dict[str, Any]) -> str:
        """Return the value of a variable: its own, a field of the pod, or a key of a secret."""
        source = entry.get("valueFrom", {})
        if "fieldRef" in source:
            return {"metadata.name": str(pod["metadata"]["name"])}.get(source["fieldRef"]["fieldPath"], "127.0.0.1")
        if "secretKeyRef" in source:
            secret = self.ask("GET", f"/secrets/{source['secretKeyRef']['name']}")
            return str(secret["stringData"][source["secretKeyRef"]["key"]])
        return str(entry.get("value", ""))


def memory_of(pod: Pod) -> int:
    """Return the memory that a pod asks for, in MiB."""
    text = pod["spec"]["containers"][0]["resources"]["requests"]["memory"]
    return int(text.removesuffix("Mi"))


def start_api(port: int, jars: str) -> JavaGateway:
    """Start the API in a JVM that ends with this process."""
    path = f"{jars}/*:{pyspark_jars()}/*"
    classes = launch_gateway(classpath=path, javaopts=[*QUICK, "-Xmx256m"], die_on_exit=True, java_path=java())
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=classes))
    web = gateway.jvm.io.fabric8.mockwebserver
    mock = gateway.jvm.io.fabric8.kubernetes.client.server.mock
    answers = gateway.jvm.java.util.HashMap()
    parts = (web.Context(), web.MockWebServer(), answers, mock.KubernetesMixedDispatcher(answers))
    server = mock.KubernetesMockServer(*parts, False)
    server.init(gateway.jvm.java.net.InetAddress.getByName("127.0.0.1"), port)
    refusal = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403}
    refusal["message"] = "pods is forbidden: User cannot create resource pods"
    pods = f"/api/v1/namespaces/{FORBIDDEN}/pods"
    server.expect().post().withPath(pods).andReturn(403, json.dumps(refusal)).always()
    return gateway


def main(port: str, folder: str, megabytes: str, jars: str) -> None:
    gateway = start_api(int(port), jars)
    kubelet = Kubelet(int(port), Path(folder), int(megabytes))
    while gateway is not None:
        kubelet.look()
        time.sleep(EVERY_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
