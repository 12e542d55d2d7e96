"""Records of AWS's serializers become rows by schemas in moto's Glue, over HTTP; what Glue answers becomes errors."""

import json
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from sandbox.services.s3 import S3Emulator
from tests.worlds.glue_world import REGION, WRITTEN, GlueOfMoto, written
from tests.worlds.local_http import LocalHttp
from tests.worlds.world import World
from tidemark.connections.lookup import Secret
from tidemark.errors import AccessDenied, ConfigurationError, TidemarkError, Unavailable
from tidemark.providers.glue.registry import GlueRegistry
from tidemark.providers.registry.registered_schema import UnknownSchema
from tidemark.storage.s3.client import Access

MakeWorld = Callable[..., World]
AT = datetime(2024, 3, 1, 11, tzinfo=UTC)
UNKNOWN = "00000000-0000-4000-8000-000000000000"


@pytest.fixture(scope="module")
def glue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GlueOfMoto]:
    with S3Emulator(tmp_path_factory.mktemp("moto")) as server:  # moto's server has all of its services
        yield GlueOfMoto(f"http://127.0.0.1:{server.port}")


def opened(endpoint_url: str, secret: str | None = "secret") -> GlueRegistry:
    key = Secret("key") if secret else None
    return GlueRegistry(
        "default-registry", Access(key, secret and Secret(secret), region=REGION, endpoint_url=endpoint_url)
    )


def rows(world: World, *words: str) -> list[dict[str, Any]]:
    published = [row for path in world.data_paths(*words) for row in pq.read_table(path).to_pylist()]
    return sorted(published, key=lambda row: row["_offset"])


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
def test_what_java_wrote_becomes_rows_by_the_schemas_in_glue(
    make_world: MakeWorld, glue: GlueOfMoto, kind: str
) -> None:
    decode: dict[str, Any] = {"registry": {"glue": {"connection": "glue"}}, "format": kind.lower()}
    if kind == "JSON":
        decode["format"] = "json_schema"
    if kind == "PROTOBUF":
        decode |= {"message": "shop.Order", "descriptor_set": "order.desc"}
    world = make_world(
        partitions=1,
        settings={"decode": decode, "event_time": {"from": "source_timestamp"}, "max_dead_letters": None},
        targets={"glue": glue.connection()},
    )
    (world.pipelines / "order.desc").write_bytes((WRITTEN / "order.desc").read_bytes())
    records = [record for record in written() if record.format == kind]
    writer = glue.register(world.topic, kind, records[0].schema)
    world.send(*(record.of(writer) for record in records), records[0].of(UNKNOWN), b"\0\0\0\0\x01confluent's", at=AT)
    world.ok("run", "demo")
    assert [row["id"] for row in rows(world)] == [7, 7]
    *_, unknown, other = [row["_reason"] for row in rows(world, "--dead-letters")]
    assert f"the registry has no schema {UNKNOWN}" in unknown
    assert "not framed as AWS's serializers do it: its first byte is 0, and must be 3" in other
    assert world.ok("audit", "demo", "--deep") == ""


def test_a_schema_by_name_version_and_uuid(glue: GlueOfMoto) -> None:
    name = f"orders-{uuid.uuid4().hex[:8]}"
    first, second = '{"type": "record", "name": "A", "fields": []}', '{"type": "record", "name": "B", "fields": []}'
    ids = [glue.register(name, "AVRO", first), glue.register_version(name, second)]
    registry = opened(glue.endpoint_url)
    assert [registry.by_writer(each).text for each in ids] == [first, second]
    assert (registry.by_subject(name).id, registry.by_subject(name, 1).id) == (ids[1], ids[0])
    for ask in (
        lambda: registry.by_writer(UNKNOWN),
        lambda: registry.by_subject("nothing"),
        lambda: registry.by_subject(name, 9),
    ):
        with pytest.raises(UnknownSchema):
            ask()


def test_a_glue_that_does_not_answer() -> None:
    with pytest.raises(Unavailable, match="Glue's schema registry default-registry does not answer") as down:
        opened("http://127.0.0.1:9").by_writer(UNKNOWN)
    assert "check the network, and region and endpoint_url of registry.glue" in down.value.next_step


def test_a_machine_without_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(AccessDenied, match=r"the keys for .* are missing") as refused:
        opened("http://127.0.0.1:9", None).by_writer(UNKNOWN)
    assert "a connection of type aws in registry.glue" in refused.value.next_step


@pytest.mark.parametrize(
    ("code", "kind", "step"),
    [
        ("AccessDeniedException", AccessDenied, "give these keys glue:GetSchemaVersion"),
        ("UnrecognizedClientException", AccessDenied, "a connection of type aws in registry.glue"),
        ("ThrottlingException", Unavailable, "wait a moment"),
        ("InvalidInputException", ConfigurationError, "check name, region and endpoint_url"),
    ],
)
def test_a_refusal_of_glue(code: str, kind: type[TidemarkError], step: str) -> None:
    class Refusing(BaseHTTPRequestHandler):
        """Answers as AWS's JSON services do when they refuse; moto has no rights to lack."""

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            answer = json.dumps({"__type": code, "message": "no"}).encode()
            self.send_response(400)
            self.send_header("Content-Type", "application/x-amz-json-1.1")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *words: object) -> None:  # noqa: A002
            pass

    with LocalHttp(Refusing) as server, pytest.raises(kind) as refused:
        opened(f"http://127.0.0.1:{server.own_port}").by_writer(UNKNOWN)
    assert "Glue's schema registry default-registry" in refused.value.what
    assert step in refused.value.next_step


def test_doctor_names_a_schema_that_glue_does_not_have(make_world: MakeWorld, glue: GlueOfMoto) -> None:
    decode = {"format": "avro", "registry": {"glue": {"connection": "glue"}}}
    settings = {"decode": decode, "event_time": {"from": "source_timestamp"}}
    world = make_world(partitions=1, settings=settings, targets={"glue": glue.connection()})
    findings = json.loads(world.tidemark("doctor", "demo", "--json").stdout)
    [finding] = [each for each in findings if each["check"] == "demo: schema registry"]
    assert (finding["severity"], finding["message"]) == ("failed", f"the schema registry has no subject {world.topic}")
    glue.register(world.topic, "AVRO", next(written()).schema)
    findings = json.loads(world.tidemark("doctor", "demo", "--json").stdout)
    [finding] = [each for each in findings if each["check"] == "demo: schema registry"]
    assert finding["message"] == "it answers, and the schema of the rows has the columns id, item"
