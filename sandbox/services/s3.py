"""The S3 of tests: a prefix of a bucket, in an emulator of the API (moto's server) or in the store of the environment.

The emulator has the features of S3 that we need (conditional PUT, multipart uploads, strongly consistent lists) and
accepts any access key. In tests a proxy adds the refusals of a real store.
"""

import json
import os
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import boto3

from sandbox.errors import SandboxFailed
from sandbox.services.processes import Child, Service, free_port, port_answers

VARIABLES = {
    "root": "TIDEMARK_TEST_S3_ROOT",
    "endpoint_url": "TIDEMARK_TEST_S3_ENDPOINT",
    "key_id": "TIDEMARK_TEST_S3_KEY_ID",
    "secret": "TIDEMARK_TEST_S3_SECRET",
}
REGION = "us-east-1"
REMOVED_AT_ONCE = 1000  # the most objects that one request may name


@dataclass(frozen=True)
class Bucket:
    """``root`` is ``s3://bucket`` or ``s3://bucket/prefix``; the keys may do everything below it."""

    root: str
    endpoint_url: str
    key_id: str
    secret: str

    @classmethod
    def of_environment(cls, variables: Mapping[str, str] = os.environ) -> "Bucket | None":
        """Return the store that ``TIDEMARK_TEST_S3_..`` names; None if none of them is set."""
        given = {field: variables[name].rstrip("/") for field, name in VARIABLES.items() if variables.get(name)}
        missing = [name for field, name in VARIABLES.items() if field not in given]
        if given and missing:
            every = ", ".join(VARIABLES.values())
            raise SandboxFailed(f"{', '.join(missing)} must be set, too", next_step=f"set all of {every}, or none")
        return cls(**given) if given else None

    def environment(self) -> dict[str, str]:
        """Return the variables that name this place."""
        return {name: str(getattr(self, field)) for field, name in VARIABLES.items()}

    @property
    def name(self) -> str:
        return self.root.removeprefix("s3://").partition("/")[0]

    @property
    def prefix(self) -> str:
        """Return the prefix with which keys of objects begin; empty for the whole bucket."""
        return self.root.removeprefix("s3://").partition("/")[2]

    def below(self, folder: str) -> "Bucket":
        return replace(self, root=f"{self.root}/{folder}")

    def client(self) -> Any:
        """Return a client with all rights."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint_url,
            region_name=REGION,
            aws_access_key_id=self.key_id,
            aws_secret_access_key=self.secret,
        )

    def connection(self, endpoint_url: str = "") -> str:
        """Return the value of ``AIRFLOW_CONN_..`` for the store, or for a proxy in front of it."""
        extra = {"endpoint_url": endpoint_url or self.endpoint_url, "region_name": REGION}
        return json.dumps({"conn_type": "aws", "login": self.key_id, "password": self.secret, "extra": extra})

    def uploads(self) -> list[tuple[str, str]]:
        """Return (key, id) of the unfinished uploads below the prefix. Not every store lists uploads by prefix."""
        pages = self.client().get_paginator("list_multipart_uploads").paginate(Bucket=self.name)
        uploads = [(upload["Key"], upload["UploadId"]) for page in pages for upload in page.get("Uploads", ())]
        return sorted(upload for upload in uploads if upload[0].startswith(f"{self.prefix}/"))

    def empty(self) -> None:
        """Remove all objects and unfinished uploads below the prefix."""
        client = self.client()
        for key, upload_id in self.uploads():
            client.abort_multipart_upload(Bucket=self.name, Key=key, UploadId=upload_id)
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=f"{self.prefix}/")
        keys = [{"Key": entry["Key"]} for page in pages for entry in page.get("Contents", ())]
        for at in range(0, len(keys), REMOVED_AT_ONCE):
            client.delete_objects(Bucket=self.name, Delete={"Objects": keys[at : at + REMOVED_AT_ONCE]})


class S3Emulator(Service):
    """One server, which loses its objects when it stops."""

    def __init__(self, state: Path) -> None:
        self.log = state.resolve() / "logs" / "s3.log"
        self.port = free_port()

    def start(self) -> None:
        """Return when the server answers."""
        server = Path(__file__).with_name("moto_server.py")
        command = [sys.executable, str(server), "-H", "127.0.0.1", "-p", str(self.port)]
        self._child = Child("the S3 emulator", command, self.log)
        self._child.wait_ready(lambda: port_answers(self.port), timeout=60)

    def create_bucket(self, name: str) -> Bucket:
        """Create a bucket with new keys and return it; the emulator accepts any keys."""
        return created(
            f"http://127.0.0.1:{self.port}",
            name,
            f"canary-key-{secrets.token_hex(8)}",
            f"canary-{secrets.token_hex(20)}",
        )


def created(endpoint_url: str, name: str, key_id: str, secret: str) -> Bucket:
    """Create a bucket in a store and return it."""
    bucket = Bucket(f"s3://{name}", endpoint_url, key_id, secret)
    bucket.client().create_bucket(Bucket=name)
    return bucket
