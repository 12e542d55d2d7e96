"""An emulator of DynamoDB (moto's) on a free port of 127.0.0.1, which accepts any access key.

It does one request after the other: moto's transactions are not isolated from those of other threads.
"""

import json
import sys
from pathlib import Path
from typing import Any

import boto3

from sandbox.services.processes import Child, Service, free_port, port_answers
from sandbox.services.s3 import KEY_ID, SECRET

SERVER = """
import sys
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple
app = DomainDispatcherApplication(create_backend_app)
run_simple("127.0.0.1", int(sys.argv[1]), app, threaded=False)
"""


class DynamoDB(Service):
    """One server; it loses its tables when it stops."""

    def __init__(self, state: Path) -> None:
        self.log = state.resolve() / "logs" / "dynamodb.log"
        self.port = free_port()

    @property
    def endpoint_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Return when the server answers."""
        self._child = Child("the emulator of DynamoDB", [sys.executable, "-c", SERVER, str(self.port)], self.log)
        self._child.wait_ready(lambda: port_answers(self.port), timeout=60)

    def client(self) -> Any:
        """A client with all rights."""
        session: Any = boto3.Session(aws_access_key_id=KEY_ID, aws_secret_access_key=SECRET)
        return session.client("dynamodb", endpoint_url=self.endpoint_url, region_name="us-east-1")

    def connection(self, endpoint_url: str = "") -> str:
        """The value of ``AIRFLOW_CONN_..`` for the emulator, or for a proxy in front of it."""
        extra = {"endpoint_url": endpoint_url or self.endpoint_url, "region_name": "us-east-1"}
        return json.dumps({"conn_type": "aws", "login": KEY_ID, "password": SECRET, "extra": extra})
