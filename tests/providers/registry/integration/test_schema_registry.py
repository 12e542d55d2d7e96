"""The client of the schema registry, against a real one: who may ask, what it gives, and what it says when it fails."""

import json
import uuid
from collections.abc import Iterator

import pytest

from sandbox.services.authority import Authority
from sandbox.services.registry import SchemaRegistry
from tests.worlds.registry_proxy import RegistryProxy, basic, guid_of
from tidemark.errors import AccessDenied, ConfigurationError, Unavailable
from tidemark.providers.registry.client import RegistryClient, UnknownSchema, open_registry
from tidemark.providers.registry.schemas import Schemas

POINT = {"type": "record", "name": "Point", "namespace": "geo", "fields": [{"name": "x", "type": "double"}]}
LINE = {"type": "record", "name": "Line", "fields": [{"name": "from", "type": "geo.Point"}]}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def subject() -> str:
    return f"s-{uuid.uuid4().hex[:10]}-value"


@pytest.fixture
def door(registry: SchemaRegistry) -> Iterator[RegistryProxy]:
    with RegistryProxy(registry) as proxy:
        yield proxy


def opened(url: str, **entry: object) -> RegistryClient:
    extra = entry.pop("extra", {})
    assert isinstance(extra, dict)
    connection = {**entry, "extra": {"url": url, **extra}}
    return open_registry({"connection": "reg"}, lambda _: connection)


def test_a_schema_comes_with_all_it_refers_to(registry: SchemaRegistry, subject: str) -> None:
    registry.register(f"{subject}-point", POINT)
    reference = {"name": "geo.Point", "subject": f"{subject}-point", "version": 1}
    number = registry.register(subject, LINE, references=[reference])
    client = open_registry({"url": registry.url})
    schema = client.by_writer(str(number))
    assert (schema.id, schema.kind, json.loads(schema.text)) == (number, "AVRO", LINE)
    assert [(name, json.loads(text)) for name, text in schema.references] == [("geo.Point", POINT)]
    assert client.by_subject(subject) == client.by_subject(subject, 1) == schema


def test_a_bearer_token_is_the_password_of_a_connection_without_a_login() -> None:
    tokens = [
        opened("http://registry", password="s3cret"), opened("http://registry", extra={"bearer.auth.token": "s3cret"}),
    ]  # fmt: skip
    assert tokens[0].options == tokens[1].options
    with pytest.raises(ConfigurationError, match=r"has a password and another bearer\.auth\.token"):
        opened("http://registry", password="s3cret", extra={"bearer.auth.token": "other"})


def test_what_the_registry_does_not_have_is_told_from_a_wrong_address(registry: SchemaRegistry, subject: str) -> None:
    client = open_registry({"url": registry.url})
    for ask in (lambda: client.by_writer("999999"), lambda: client.by_subject(subject)):
        with pytest.raises(UnknownSchema):
            ask()
    with pytest.raises(ConfigurationError, match="/apis/ccompat/v7"):
        open_registry({"url": f"http://127.0.0.1:{registry.port}/other"}).by_writer("1")


def test_a_schema_is_fetched_once_and_what_is_pinned_not_at_all(door: RegistryProxy, registry: SchemaRegistry) -> None:
    number = str(registry.register(f"s-{uuid.uuid4().hex}", POINT))
    guid = guid_of(int(number))
    first = Schemas({"url": door.url}, {})
    for _ in range(3):
        assert first.writer(number) == first.writer(guid)
        assert first.writer("999999") is None
    assert door.requests == [f"/schemas/ids/{number}", f"/schemas/guids/{guid}", "/schemas/ids/999999"]
    assert set(first.used) == {f"{door.url}: writer {number}", f"{door.url}: writer {guid}"}
    again = Schemas({"url": door.url}, json.loads(json.dumps(first.used)))
    assert again.writer(number) == first.writer(number)
    assert len(door.requests) == 3


@pytest.mark.parametrize("way", ["login", "user info", "token"])
def test_a_password_or_a_token_opens_the_door(registry: SchemaRegistry, authority: Authority, way: str) -> None:
    wanted = "Bearer t0ken" if way == "token" else basic("ada", "s3cret:x")
    right = {
        "login": {"login": "ada", "password": "s3cret:x"},
        "user info": {"extra": {"basic.auth.user.info": "ada:s3cret:x"}},
        "token": {"extra": {"bearer.auth.token": "t0ken"}},
    }[way]
    trusted = {"ssl.ca.location": str(authority.certificate_file)}
    with RegistryProxy(registry, wanted, authority) as proxy:
        extra = {**trusted, **right.pop("extra", {})}  # type: ignore[dict-item]
        assert isinstance(opened(proxy.url, **right, extra=extra).subjects(), list)
        with pytest.raises(AccessDenied, match="reg refused access") as refused:
            opened(proxy.url, login="ada", password="wr0ng", extra=trusted).subjects()
        assert "wr0ng" not in str(refused.value)
        with pytest.raises(ConfigurationError, match=r"TLS.*CERTIFICATE_VERIFY_FAILED"):
            opened(proxy.url, login="ada", password="s3cret:x").subjects()


@pytest.mark.parametrize("inline", [False, True], ids=["files", "text"])
def test_a_certificate_opens_the_door(registry: SchemaRegistry, authority: Authority, *, inline: bool) -> None:
    own = authority.issue("reader", "reader", password="k3y")
    extra = {"ssl.ca.location": str(authority.certificate_file), "ssl.key.password": "k3y"}
    files = {"ssl.certificate.location": str(own.certificate_file), "ssl.key.location": str(own.key_file)}
    texts = {"ssl.certificate.pem": own.certificate, "ssl.key.pem": own.key}
    with RegistryProxy(registry, authority=authority, mutual=True) as proxy:
        assert isinstance(opened(proxy.url, extra={**extra, **(texts if inline else files)}).subjects(), list)
        with pytest.raises((ConfigurationError, Unavailable)):
            opened(proxy.url, extra=extra).subjects()
        with pytest.raises(ConfigurationError, match=r"certificates do not load.*|ssl.key.password"):
            opened(proxy.url, extra={**extra, **files, "ssl.key.password": "wr0ng"})


def test_a_registry_that_is_down_is_unavailable_and_says_what_to_do(door: RegistryProxy) -> None:
    door.down = "/subjects"
    with pytest.raises(Unavailable, match="answered subjects with 503") as down:
        open_registry({"url": door.url}).subjects()
    assert "tidemark retry" in down.value.next_step
    assert len(door.requests) == 3
    with pytest.raises(Unavailable, match="does not answer"):
        open_registry({"url": "http://127.0.0.1:9"}).subjects()


@pytest.mark.parametrize(
    ("connection", "message"),
    [
        (None, "does not exist"),
        ({"extra": {}}, "names no registry"),
        ({"extra": {"url": "http://u:p@h"}}, "has a password in its url"),
        ({"extra": {"url": "http://h", "basic.auth.userinfo": "x"}}, "sets basic.auth.userinfo"),
        ({"login": "a", "extra": {"url": "http://h", "bearer.auth.token": "t"}}, "a login and a bearer.auth.token"),
        ({"extra": {"url": "http://h", "ssl.ca.location": "/no/such"}}, "certificates do not load"),
    ],
)
def test_a_wrong_connection_says_what_to_write(connection: dict[str, object] | None, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as wrong:
        open_registry({"connection": "reg"}, lambda _: connection)
    assert wrong.value.next_step


def test_host_and_port_name_a_registry_too(registry: SchemaRegistry) -> None:
    entry = {"host": f"http://127.0.0.1:{registry.port}/apis/ccompat/v7", "extra": {}}
    assert open_registry({"connection": "reg"}, lambda _: entry).url == registry.url
    entry = {"host": "h", "port": 8081, "schema": "https", "extra": {}}
    assert open_registry({"connection": "reg"}, lambda _: entry).url == "https://h:8081"
