"""A node of Kubernetes without containers: `python -m sandbox.services.kubelet PORT FOLDER MEGABYTES JARS`.

Each pod is a process: its command, which its template must name; its image is this machine. Pods wait until there is
memory for them and until their config maps exist, get the variables of their secrets, and end when they are deleted. A
volume is a folder, and its path stands in place of the pod's in arguments, variables and config maps. All pods and
services have the address 127.0.0.1; Java finds the names of services in a file.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from sandbox.services.kubernetes_api import OF_NODE, Api
from sandbox.services.spark_cluster import QUICK

EVERY_S = 0.2
ADDRESS = "127.0.0.1"
NAMESPACE = "default"
Pod = dict[str, Any]


class Kubelet:
    def __init__(self, port: int, folder: Path, megabytes: int) -> None:
        self._address = f"http://{ADDRESS}:{port}/api/v1/namespaces/{NAMESPACE}"
        self._folder, self._megabytes = folder, megabytes
        self._running: dict[str, tuple[Pod, subprocess.Popen[bytes]]] = {}

    def look(self) -> None:
        """Start pods that are new, and end those that are gone."""
        pods: list[Pod] = self.ask("GET", "/pods")["items"]
        names = {pod["metadata"]["name"] for pod in pods}
        for name, (pod, process) in list(self._running.items()):
            if name not in names:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                del self._running[name]
            elif process.poll() is not None:
                code = process.returncode if process.returncode >= 0 else 128 - process.returncode
                self._report(pod, "Failed" if code else "Succeeded", {"terminated": {"exitCode": code}})
                del self._running[name]
        for pod in pods:
            used = sum(memory_of(running) for running, _ in self._running.values())
            maps = self._config_maps(pod) if pod["status"]["phase"] == "Pending" else None
            if maps is not None and used + memory_of(pod) <= self._megabytes:
                self._running[pod["metadata"]["name"]] = (pod, self._start(pod, maps))
                self._report(pod, "Running", {"running": {}})

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        headers = OF_NODE | {"Content-Type": f"application/{'json-patch+' if method == 'PATCH' else ''}json"}
        answer = httpx.request(method, f"{self._address}{path}", json=body, headers=headers, timeout=30)
        return answer.raise_for_status().json()

    def _report(self, pod: Pod, phase: str, state: dict[str, Any]) -> None:
        name = pod["spec"]["containers"][0]["name"]
        container = {"name": name, "ready": phase == "Running", "restartCount": 0, "state": state}
        status = {"phase": phase, "podIP": ADDRESS, "containerStatuses": [container]}
        with contextlib.suppress(httpx.HTTPStatusError):  # it has been deleted since
            change = {"op": "add", "path": "/status", "value": status}  # a merge would append to its list
            self.ask("PATCH", f"/pods/{pod['metadata']['name']}", [change])

    def _config_maps(self, pod: Pod) -> dict[str, dict[str, str]] | None:
        """Return the files of each volume of a pod, none for an empty folder; None until all config maps exist."""
        existing = {each["metadata"]["name"]: each.get("data", {}) for each in self.ask("GET", "/configmaps")["items"]}
        volumes = {volume["name"]: volume.get("configMap") for volume in pod["spec"]["volumes"]}
        if not existing.keys() >= {source["name"] for source in volumes.values() if source}:
            return None
        return {
            volume: _files(source, existing[source["name"]]) if source else {} for volume, source in volumes.items()
        }

    def _start(self, pod: Pod, maps: dict[str, dict[str, str]]) -> "subprocess.Popen[bytes]":
        [container] = pod["spec"]["containers"]
        home = self._folder / pod["metadata"]["name"]
        mounts = {mount["mountPath"]: home / mount["name"] for mount in container.get("volumeMounts", [])}

        def here(text: str) -> str:
            for path, folder in mounts.items():
                text = text.replace(path, str(folder))
            return text

        for folder in (home, *mounts.values()):
            folder.mkdir(parents=True, exist_ok=True)
            for name, content in maps.get(folder.name, {}).items():
                (folder / name).write_text(here(content))
        env = {entry["name"]: here(self._value(pod, entry)) for entry in container["env"]}
        own = {"SPARK_SCALA_VERSION": "2.13", "JAVA_TOOL_OPTIONS": " ".join([*QUICK, self._names(home)])}
        with (home / "log").open("wb") as log:
            return subprocess.Popen(
                [*container["command"], *map(here, container["args"])], cwd=home, env={**os.environ, **own, **env},
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def _names(self, home: Path) -> str:
        """Write the names of all services for a pod, and return Java's option. An executor starts after the service of
        its driver.
        """
        services = [each["metadata"]["name"] for each in self.ask("GET", "/services")["items"]]
        names = ["localhost", socket.gethostname(), *(f"{service}.{NAMESPACE}.svc" for service in services)]
        file = home / "hosts"
        file.write_text("".join(f"{ADDRESS} {name}\n" for name in names))
        return f"-Djdk.net.hosts.file={file}"

    def _value(self, pod: Pod, entry: dict[str, Any]) -> str:
        """Return the value of a variable: its own, a field of the pod, or a key of a secret."""
        source = entry.get("valueFrom", {})
        if "fieldRef" in source:
            return {"metadata.name": str(pod["metadata"]["name"])}.get(source["fieldRef"]["fieldPath"], ADDRESS)
        if "secretKeyRef" in source:
            secret = self.ask("GET", f"/secrets/{source['secretKeyRef']['name']}")
            return str(secret["stringData"][source["secretKeyRef"]["key"]])
        return str(entry.get("value", ""))


def _files(source: dict[str, Any], data: dict[str, str]) -> dict[str, str]:
    """Return the files that a volume makes of a config map: those it names, or all."""
    paths = {item["key"]: item["path"] for item in source.get("items", [])} or {key: key for key in data}
    return {path: data[key] for key, path in paths.items()}


def memory_of(pod: Pod) -> int:
    """Return the memory that a pod asks for, in MiB."""
    text = pod["spec"]["containers"][0]["resources"]["requests"]["memory"]
    return int(text.removesuffix("Mi"))


def main(port: str, folder: str, megabytes: str, jars: str) -> None:
    with Api(int(port), jars):
        kubelet = Kubelet(int(port), Path(folder), int(megabytes))
        while True:
            kubelet.look()
            time.sleep(EVERY_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
