"""A pipeline with its lake in a bucket. Its readers use their own S3 client."""

import os
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import pytest
from click.testing import Result

from sandbox.services.s3 import REGION, VARIABLES, Bucket
from tests.worlds.forked_command import UPLOADS_FROM
from tests.worlds.store_world import StoreWorld
from tidemark.storage.s3.store import S3Store

CONNECTION = "lake_keys"
ENCRYPTS = pytest.mark.skipif(VARIABLES["root"] in os.environ, reason="not every store has keys to encrypt with")


def delta_options(bucket: Bucket) -> dict[str, str]:
    """Access to a bucket as a reader with deltalake has it."""
    return {
        "aws_access_key_id": bucket.key_id, "aws_secret_access_key": bucket.secret, "aws_region": REGION,
        "aws_endpoint_url": bucket.endpoint_url, "aws_allow_http": "true",
    }  # fmt: skip


class Prefix:
    """The objects below a prefix of a bucket, read with a separate client; keys are relative to the prefix."""

    def __init__(self, bucket: Bucket) -> None:
        self._client = bucket.client()
        self._bucket = bucket
        self._prefix = bucket.prefix

    def keys(self, below: str = "") -> list[str]:
        """Every key that starts with ``below``, sorted."""
        return sorted(self.etags(below))

    def etags(self, below: str = "") -> dict[str, str]:
        """The ETag, which is another one for other bytes, by key."""
        return {key: entry["ETag"] for key, entry in self.listed(below).items()}

    def listed(self, below: str = "") -> dict[str, dict[str, Any]]:
        """What the bucket lists of each object, by key."""
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket.name, Prefix=self._key(below)
        )
        entries = (entry for page in pages for entry in page.get("Contents", ()))
        return {entry["Key"].removeprefix(f"{self._prefix}/"): entry for entry in entries}

    def content(self, key: str) -> bytes:
        content: bytes = self._client.get_object(Bucket=self._bucket.name, Key=self._key(key))["Body"].read()
        return content

    def uploads(self) -> list[str]:
        """The keys of unfinished uploads."""
        return [key.removeprefix(f"{self._prefix}/") for key, _ in self._bucket.uploads()]

    def begin_upload(self, key: str) -> None:
        """Leave an unfinished upload, as a process does that dies while it uploads an object in parts."""
        self._client.create_multipart_upload(Bucket=self._bucket.name, Key=self._key(key))

    def remove(self, key: str) -> None:
        self._client.delete_object(Bucket=self._bucket.name, Key=self._key(key))

    def _key(self, key: str) -> str:
        return f"{self._prefix}/{key}"


@dataclass
class S3World(StoreWorld):
    """A world with a lake in the bucket; ``endpoint_url`` may be a proxy in front of the store.

    Files of at least ``uploads_from`` bytes are multipart uploads; None means the limit of production.
    """

    s3: Bucket = field(kw_only=True)  # of all tests; the world has a folder of it
    endpoint_url: str = ""
    uploads_from: int | None = None

    def __post_init__(self) -> None:
        own = self.s3.below(f"{self.folder.parent.name}/{self.folder.name}/lake")
        self.root = own.root
        files = {"root": self.root, "connection": CONNECTION, "layout": "raw/{stream}/%Y/%m/%d/%H"}
        self.settings = {"sinks": [{"files": files}], **self.settings}
        self.targets = {CONNECTION: self.s3.connection(self.endpoint_url), **self.targets}
        self._below = Prefix(own)
        super().__post_init__()

    @property
    def below(self) -> Prefix:
        return self._below

    def environment(self, **more: str) -> dict[str, str]:
        told = {} if self.uploads_from is None else {UPLOADS_FROM: str(self.uploads_from)}
        return super().environment(**told, **more)

    def here(self, *words: str) -> Result:
        with mock.patch.object(S3Store, "uploads_from", self.uploads_from or S3Store.uploads_from):
            return super().here(*words)

    def begin_upload(self, key: str) -> None:
        self._below.begin_upload(key)

    def uploads(self) -> list[str]:
        """The keys of unfinished uploads."""
        return self._below.uploads()

    def staging(self) -> list[str]:
        return [key for key in [*self.object_keys(), *self.uploads()] if key.startswith("_staging/")]
