"""A real Kafka Connect in one JVM, with Debezium's connector for PostgreSQL and Avro with a registry.

The jars are fetched at the first start: 100 MB. Its connectors are files. A later start with the same state folder
continues from the stored offsets.
"""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx

from sandbox.bootstrap.jars import fetch_for_tests, java
from sandbox.errors import SandboxFailed
from sandbox.services.broker import LOG4J_TO_STDOUT
from sandbox.services.processes import Child, Service, free_port, port_answers, wait_until

JVM: Final = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
PROGRAM: Final = "org.apache.kafka.connect.cli.ConnectStandalone"
JSON: Final = "org.apache.kafka.connect.json.JsonConverter"
AVRO: Final = "io.apicurio.registry.utils.converter.AvroConverter"


class KafkaConnect(Service):
    """One worker. ``home`` keeps the jars for later starts; ``state`` has its offsets, files and log.

    ``connectors`` are the settings of each connector, by name; they are read at each start.
    """

    def __init__(
        self, state: Path, home: Path, bootstrap_servers: str, connectors: Mapping[str, Mapping[str, str]]
    ) -> None:
        self.state = state.resolve() / "connect"
        self.log = state.resolve() / "logs" / "connect.log"
        self.connectors = dict(connectors)
        self.port = free_port()
        self._home = home.resolve()
        self._bootstrap_servers = bootstrap_servers

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Fetch the jars if they are missing, and return when each connector has a running task."""
        # The worker's own set has nothing that writes a log.
        program, converter, debezium, logger = fetch_for_tests(self._home, "connect", "converter", "debezium", "kafka")
        self._install("debezium", debezium)
        (self.state / "log4j2.properties").write_text(LOG4J_TO_STDOUT)
        files = [self._write("worker", self._worker())]
        files += [self._write(name, {"name": name, **settings}) for name, settings in self.connectors.items()]
        classes = os.pathsep.join((f"{program}/*", f"{converter}/*", *(str(jar) for jar in logger.glob("log4j-*.jar"))))
        command = [java(), *JVM, f"-Dlog4j2.configurationFile={self.state}/log4j2.properties", "-cp", classes, PROGRAM]
        self._child = Child("Kafka Connect", [*command, *map(str, files)], self.log, env=dict(os.environ))
        self._child.wait_ready(self.runs, timeout=240)

    def kill(self) -> None:
        """Send SIGKILL, but not while the file of offsets is half written.

        Only a standalone worker keeps offsets in a file, which it overwrites. If the file is truncated, it silently
        begins with a new snapshot, which lacks the deletions since then. Workers of a cluster use a topic.
        """
        offsets = self.state / "offsets"
        while True:
            self.stop_signal()
            if not offsets.exists() or is_whole(offsets.read_bytes()):
                break
            self.cont_signal()
            time.sleep(0.02)
        super().kill()

    def wait_for_offset(self, name: str, reached: Any, *, timeout: float = 240) -> None:
        """Return when the connector has stored an offset for which ``reached(offset)`` is true.

        Raises ``SandboxFailed`` if a connector fails meanwhile.
        """
        wait_until(
            lambda: self.runs() and any(map(reached, self._offsets(name))),
            f"{name} to read on",
            timeout=timeout,
            interval=0.2,
        )

    def _offsets(self, name: str) -> list[Any]:
        answer = httpx.get(f"{self.url}/connectors/{name}/offsets", timeout=20)
        return [each["offset"] for each in answer.json()["offsets"]] if answer.status_code == 200 else []

    def _install(self, plugin: str, jars: Path) -> None:
        """Link a plugin's jars into the folder of plugins, where each folder has class loaders of its own."""
        link = self.state / "plugins" / plugin
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(jars)

    def _worker(self) -> dict[str, str]:
        return {
            "bootstrap.servers": self._bootstrap_servers,
            "key.converter": JSON,
            "value.converter": JSON,
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "offset.storage.file.filename": str(self.state / "offsets"),
            "offset.flush.interval.ms": "1000",
            "plugin.path": str(self.state / "plugins"),
            # To scan all jars takes ten seconds. The converter's jars do not declare it as a plugin, so it is on the
            # worker's class path.
            "plugin.discovery": "service_load",
            "listeners": self.url,
        }

    def _write(self, name: str, settings: Mapping[str, str]) -> Path:
        path = self.state / f"{name}.properties"
        path.touch(0o600)
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path

    def runs(self) -> bool:
        """Return whether each connector has a running task. Raises ``SandboxFailed`` if one has failed."""
        try:
            if not port_answers(self.port):
                return False
            answer = httpx.get(f"{self.url}/connectors?expand=status", timeout=20)
            tasks = {name: each["status"]["tasks"] for name, each in answer.json().items()}
        except (httpx.HTTPError, json.JSONDecodeError):
            return False
        for name, of_connector in tasks.items():
            for task in of_connector:
                if task["state"] == "FAILED":
                    raise SandboxFailed(
                        f"connector {name} failed: {task['trace'][:2000]}", next_step=f"read {self.log}"
                    )
        running = {name for name, each in tasks.items() if [task["state"] for task in each] == ["RUNNING"]}
        return running == set(self.connectors)


def is_whole(file: bytes) -> bool:
    """Return whether a file has a complete ``HashMap<byte[], byte[]>`` in Java's serialization."""
    head, mark, rest = file.partition(b"\x77\x08")  # a block of 8 bytes: the numbers of buckets and of entries
    if not mark or b"java.util.HashMap" not in head or len(rest) < 8:
        return False
    at = 8
    for _ in range(2 * int.from_bytes(rest[4:8], "big")):
        if rest[at : at + 1] == b"\x70":  # null
            at += 1
            continue
        at += 19 if rest[at + 1 : at + 2] == b"\x72" else 6  # an array, with its class or a reference to that
        at += 4 + int.from_bytes(rest[at : at + 4], "big")
    return rest[at:] == b"\x78"


def schemas_beside() -> dict[str, str]:
    """Return settings for a connector that writes JSON with the schema beside each record and key."""
    return {f"{part}.converter{name}": value for part in ("key", "value")
            for name, value in (("", JSON), (".schemas.enable", "true"))}  # fmt: skip


def avro(registry: str) -> dict[str, str]:
    """Return settings for a connector that writes Avro and registers its schemas; ``registry`` is Apicurio's own API,
    v2.
    """
    options = {"url": registry, "auto-register": "true", "find-latest": "true", "as-confluent": "true",
               "use-id": "contentId", "headers.enabled": "false"}  # fmt: skip
    made = {"schema.name.adjustment.mode": "avro", "field.name.adjustment.mode": "avro"}
    for part in ("key", "value"):
        made[f"{part}.converter"] = AVRO
        made |= {f"{part}.converter.apicurio.registry.{name}": value for name, value in options.items()}
    return made
