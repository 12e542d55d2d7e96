"""An emulator of the S3 API (moto's server) on a free port of 127.0.0.1.

It has what we need of S3 (conditional PUT, multipart uploads, strongly consistent lists) and accepts any access key; in
tests a proxy answers with the refusals of a real store.
"""

import json
import sys
from pathlib import Path
from typing import Any

import boto3

from sandbox.services.processes import Child, Service, free_port, port_answers

KEY_ID, SECRET = "sandbox", "sandbox-secret"  # the emulator accepts any


class S3(Service):
    """One server; it loses its objects when it stops."""

    def __init__(self, state: Path) -> None:
        self.log = state.resolve() / "logs" / "s3.log"
        self.port = free_port()

    @property
    def endpoint_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Return when the server answers."""
        server = Path(__file__).with_name("moto_server.py")
        command = [sys.executable, str(server), "-H", "127.0.0.1", "-p", str(self.port)]
        self._child = Child("the S3 emulator", command, self.log)
        self._child.wait_ready(lambda: port_answers(self.port), timeout=60)

    def client(self) -> Any:
        """A client with all rights."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint_url,
            region_name="us-east-1",
            aws_access_key_id=KEY_ID,
            aws_secret_access_key=SECRET,
        )

    def create_bucket(self, name: str) -> None:
        self.client().create_bucket(Bucket=name)

    def connection(self, endpoint_url: str = "", *, key_id: str = KEY_ID, secret: str = SECRET) -> str:
        """The value of ``AIRFLOW_CONN_..`` for the emulator, or for a proxy in front of it."""
        extra = {"endpoint_url": endpoint_url or self.endpoint_url, "region_name": "us-east-1"}
        return json.dumps({"conn_type": "aws", "login": key_id, "password": secret, "extra": extra})
