"""A Spark Connect server that stays up, started in the same way as by users: ``tidemark spark serve``, on a free
port.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from sandbox.services.processes import Child, Service, kept_ports, port_answers

READY_S = 120


class SparkServer(Service):
    """One server. Its port stays the same for the state folder, unless another process has taken it.

    ``environment``: variables beside ours, with TIDEMARK_SPARK_JARS. It also has the connections of sinks, if clients
    other than this user's processes on this machine use the server.
    """

    def __init__(self, state: Path, environment: Mapping[str, str] | None = None, *, master: str = "local[*]") -> None:
        self.state = state.resolve() / "spark-server"
        self.log = state.resolve() / "logs" / "spark-server.log"
        self.state.mkdir(parents=True, exist_ok=True)
        [self.port] = kept_ports(self.state / "port.json", 1)
        self._master = master
        self._environment = dict(environment or {})

    @property
    def remote(self) -> str:
        """Return the value of TIDEMARK_SPARK_REMOTE."""
        return f"sc://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.begin()
        self.wait_ready()

    def begin(self, environment: Mapping[str, str] | None = None) -> None:
        """Start it without waiting until it answers; with more variables, if given."""
        self._environment |= environment or {}
        command = [sys.executable, "-m", "tidemark.cli", "spark", "serve", "--port", str(self.port)]
        variables = {**os.environ, **self._environment, "TMPDIR": str(self.state)}
        name = "the Spark Connect server"
        self._child = Child(name, [*command, "--master", self._master], self.log, env=variables, cwd=self.state)

    def wait_ready(self) -> None:
        self._started.wait_ready(lambda: port_answers(self.port), timeout=READY_S)
