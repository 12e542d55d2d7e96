"""A pipeline whose lake is a prefix of a bucket of the emulator; its readers look through a client of their own."""

import json
from collections import Counter
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import psycopg
import pyarrow.parquet as pq
from botocore.exceptions import ClientError

from sandbox.services.s3 import KEY_ID, S3, SECRET
from tests.worlds.world import Place, World
from tidemark.database.client import ManifestDatabase

BUCKET = "lake"
CONNECTION = "lake_keys"


class Prefix:
    """What lies below a prefix of the bucket, by a client that is a reader's own; keys are relative to it."""

    def __init__(self, client: Any, prefix: str) -> None:
        self._client = client
        self._prefix = prefix

    def keys(self, below: str = "") -> list[str]:
        """Every key that begins so, sorted."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=self._key(below))
        found = (one["Key"] for page in pages for one in page.get("Contents", ()))
        return sorted(key.removeprefix(f"{self._prefix}/") for key in found)

    def content(self, key: str) -> bytes:
        found: bytes = self._client.get_object(Bucket=BUCKET, Key=self._key(key))["Body"].read()
        return found

    def remove(self, key: str) -> None:
        self._client.delete_object(Bucket=BUCKET, Key=self._key(key))

    def state(self, key: str) -> object | None:
        """Another value when the object is another one; None when there is none."""
        try:
            found = self._client.head_object(Bucket=BUCKET, Key=self._key(key))
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] != 404:
                raise
            return None
        return key, found["ETag"], found["LastModified"]

    def _key(self, key: str) -> str:
        return f"{self._prefix}/{key}"


@dataclass
class S3World(World):
    """A world with a lake in the bucket; ``endpoint_url`` is a proxy before the emulator, if there is one."""

    s3: S3 = field(kw_only=True)
    endpoint_url: str = ""
    key_id: str = KEY_ID
    secret: str = SECRET

    def __post_init__(self) -> None:
        self.prefix = f"{self.folder.parent.name}/{self.folder.name}/lake"
        files = {"root": self.root, "connection": CONNECTION, "layout": "raw/{stream}/%Y/%m/%d/%H"}
        self.settings = {"sinks": [{"files": files}], **self.settings}
        keys = self.s3.connection(self.endpoint_url, key_id=self.key_id, secret=self.secret)
        self.targets = {CONNECTION: keys, **self.targets}
        self.client = self.s3.client()
        self._below = Prefix(self.client, self.prefix)
        super().__post_init__()

    @property
    def root(self) -> str:
        return f"s3://{BUCKET}/{self.prefix}"

    def object_keys(self) -> list[str]:
        """Every key of the lake, relative to its root, sorted."""
        return self._below.keys()

    def keys_of_receipt(self, attempt: int) -> list[str]:
        """Where an attempt at manifest 1 puts its objects."""
        with ManifestDatabase(self.dsn, "reader") as database:
            receipt = database.receipt(1, attempt)
        assert receipt is not None
        return [one.path for one in receipt.objects]

    def rows_as_text(self) -> list[str]:
        """Every row of the manifest database."""
        with psycopg.connect(self.dsn) as connection:
            tables = connection.execute("SELECT relname FROM pg_class WHERE relnamespace = 'tidemark'::regnamespace "
                                        "AND relkind = 'r'").fetchall()  # fmt: skip
            found = [connection.execute(f"SELECT t::text FROM tidemark.{name} t").fetchall() for (name,) in tables]
        return [text for rows in found for (text,) in rows]

    def content(self, key: str) -> bytes:
        return self._below.content(key)

    def remove(self, key: str) -> None:
        self._below.remove(key)

    def begin_upload(self, key: str) -> None:
        """As a process that died while it put an object in parts leaves it."""
        self.client.create_multipart_upload(Bucket=BUCKET, Key=f"{self.prefix}/{key}")

    def uploads(self) -> list[str]:
        """The keys of the uploads that were begun and not ended."""
        found = self.client.list_multipart_uploads(Bucket=BUCKET, Prefix=f"{self.prefix}/").get("Uploads", ())
        return sorted(one["Key"].removeprefix(f"{self.prefix}/") for one in found)

    def lies_in_files(self) -> bool:
        return True

    def staging(self) -> list[str]:
        return [one for one in [*self.object_keys(), *self.uploads()] if one.startswith("_staging/")]

    def damage(self, manifest: dict[str, Any]) -> None:
        self.remove(manifest["objects"][0]["path"].removeprefix(f"{self.root}/"))

    def exact(self) -> Counter[Place]:
        with ManifestDatabase(self.dsn, "reader") as database:
            return self.places([one.path for _, _, one in database.published_objects("demo")])

    def listing(self) -> Counter[Place]:
        return self.places([key for key in self.object_keys() if key.startswith(("raw/", "_dead_letters/"))])

    def recorded(self) -> Counter[Place]:
        names = [key for key in self.object_keys() if key.startswith("_manifests/demo/")]
        newest = {key.rpartition("/")[2].split(".")[0]: key for key in names}
        records = [json.loads(self.content(key)) for key in newest.values()]
        return self.places([one["path"] for record in records for one in record["objects"]])

    def places(self, keys: list[str]) -> Counter[Place]:
        seen: Counter[Place] = Counter()
        for key in keys:
            table = pq.read_table(BytesIO(self.content(key)), columns=["_topic", "_partition", "_offset"])
            seen.update(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))
        return seen
