"""DynamoDB Local, which AWS gives to developers, on a free port of 127.0.0.1: in memory, with any access key.

It is fetched when it is first started: 60 MB.
"""

import json
from pathlib import Path
from typing import Any

import boto3

from sandbox.bootstrap.jars import Jar, fetch_file, fetch_for_tests, java
from sandbox.services.processes import Child, Service, free_port, port_answers

KEY_ID, SECRET = "sandbox", "sandbox-secret"  # any are accepted; other keys have other tables
JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
SERVER = "com.amazonaws.services.dynamodbv2.local.main.ServerRunner"
SQLITE = Jar(
    "files",
    "com.almworks.sqlite4java",
    "libsqlite4java-linux-amd64",
    "1.0.392",
    "da3d7d21eef476baf644026e449b392dbd738bf9246fca48ce072987264c3aca",
)


class DynamoDB(Service):
    """One server, which loses its tables when it stops. ``home`` keeps the program for later starts, ``state`` has its
    log.
    """

    def __init__(self, state: Path, home: Path) -> None:
        self.log = state.resolve() / "logs" / "dynamodb.log"
        self.port = free_port()
        self._home = home.resolve()

    @property
    def endpoint_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Fetch the program if it is missing, and return when the server answers."""
        [jars] = fetch_for_tests(self._home, "dynamodb")
        libraries = fetch_file(SQLITE, self._home, "so").parent
        command = [java(), *JVM, f"-Dsqlite4java.library.path={libraries}", "-cp", f"{jars}/*", SERVER]
        command += ["-inMemory", "-disableTelemetry", "-port", str(self.port)]
        self._child = Child("DynamoDB Local", command, self.log, cwd=self.log.parent)  # it writes a file there
        self._child.wait_ready(lambda: port_answers(self.port), timeout=60)

    def client(self) -> Any:
        """Return a client with all rights."""
        session: Any = boto3.Session(aws_access_key_id=KEY_ID, aws_secret_access_key=SECRET)
        return session.client("dynamodb", endpoint_url=self.endpoint_url, region_name="us-east-1")

    def connection(self, endpoint_url: str = "") -> str:
        """Return the value of ``AIRFLOW_CONN_..`` for the server, or for a proxy in front of it."""
        extra = {"endpoint_url": endpoint_url or self.endpoint_url, "region_name": "us-east-1"}
        return json.dumps({"conn_type": "aws", "login": KEY_ID, "password": SECRET, "extra": extra})
