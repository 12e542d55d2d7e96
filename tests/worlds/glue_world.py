"""Glue's schema registry in moto's server, and records that AWS's own serializers wrote."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import boto3

WRITTEN = Path(__file__).parents[1] / "providers" / "glue" / "written_by_java"
REGION = "eu-central-1"


@dataclass(frozen=True)
class Written:
    """One record, with the schema that its UUID stood for."""

    format: str
    compression: str
    record: bytes
    schema: str

    @property
    def writer(self) -> str:
        return str(UUID(bytes=self.record[2:18]))

    def of(self, writer: str) -> bytes:
        """The record with the UUID that the schema has in another registry."""
        return self.record[:2] + UUID(writer).bytes + self.record[18:]


def written() -> Iterator[Written]:
    for line in (WRITTEN / "records.jsonl").read_text().splitlines():
        raw = json.loads(line)
        yield Written(raw["format"], raw["compression"], bytes.fromhex(raw["record"]), raw["schema"])


@dataclass(frozen=True)
class GlueOfMoto:
    """Registers schemas. moto takes any keys."""

    endpoint_url: str

    def client(self) -> Any:
        return boto3.client(
            "glue",
            endpoint_url=self.endpoint_url,
            region_name=REGION,
            aws_access_key_id="key",
            aws_secret_access_key="secret",
        )

    def register(self, name: str, kind: str, schema: str) -> str:
        """The UUID of a schema's first version."""
        made = self.client().create_schema(
            RegistryId={"RegistryName": "default-registry"},
            SchemaName=name,
            DataFormat=kind,
            Compatibility="NONE",
            SchemaDefinition=schema,
        )
        return str(made["SchemaVersionId"])

    def register_version(self, name: str, schema: str) -> str:
        named = {"RegistryName": "default-registry", "SchemaName": name}
        return str(self.client().register_schema_version(SchemaId=named, SchemaDefinition=schema)["SchemaVersionId"])

    def connection(self) -> str:
        extra = {"endpoint_url": self.endpoint_url, "region_name": REGION}
        return json.dumps({"conn_type": "aws", "login": "key", "password": "secret", "extra": extra})
