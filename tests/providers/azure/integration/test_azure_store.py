"""The store behind abfss://: what it keeps of the promises that publishing relies on, in Azurite."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from azure.storage.blob import BlobBlock

from sandbox.services.azurite import ACCOUNT, KEY, RIGHTS, Container
from sandbox.services.processes import free_port
from tests.faults.s3_proxy import Answer, Rule, ServiceProxy, without
from tests.worlds.moved_files import assert_moved_and_removed, stage
from tidemark.connections.lookup import from_environment
from tidemark.errors import AccessDenied, ConfigurationError, SinkRefused, Unavailable
from tidemark.providers.azure import client
from tidemark.providers.azure.address import AzureAddress
from tidemark.providers.azure.client import CONNECTION_STRING, SAS
from tidemark.providers.azure.client import KEY as KEY_OF_ENVIRONMENT
from tidemark.providers.azure.store import AzureStore

OWNER = "_manifests/_owner.json"


class AzureProxy(ServiceProxy):
    """A proxy in front of Azurite. A SAS token signs no headers, so a condition may be dropped."""

    def unconditional(self, method: str, path: str, headers: dict[str, str], body: bytes) -> dict[str, str]:
        del method, path, body
        return without({"if-none-match", "if-match"}, headers)


@pytest.fixture
def proxy(azure: Container) -> Iterator[AzureProxy]:
    with AzureProxy(azure.endpoint_url) as made:
        yield made


@pytest.fixture
def place(azure: Container) -> Container:
    """An empty prefix."""
    return azure.below(uuid4().hex)


@pytest.fixture
def open_with(place: Container, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], AzureStore]:
    """Opens the store with a connection."""

    def opened(connection: str) -> AzureStore:
        monkeypatch.setenv("AIRFLOW_CONN_LAKE_KEYS", connection)
        return AzureStore(place.root, {"connection": "lake_keys"}, from_environment)

    return opened


@pytest.fixture
def store(open_with: Callable[[str], AzureStore], azure: Container) -> AzureStore:
    return open_with(azure.connection())


@pytest.fixture
def through_proxy(open_with: Callable[[str], AzureStore], azure: Container, proxy: AzureProxy) -> AzureStore:
    return open_with(azure.connection_by_sas(f"{proxy.endpoint_url}/{ACCOUNT}"))


@pytest.mark.parametrize("size", [0, 1, 2 * client.MIB + 1])
def test_a_blob_is_staged_moved_and_removed_by_a_token(
    open_with: Callable[[str], AzureStore], azure: Container, size: int
) -> None:
    store = open_with(azure.connection_by_sas())
    store.check(replaces=True)
    assert [*store.list()] == [], "the probe is gone"
    assert_moved_and_removed(store, size, refused_with="no longer exists, and was not copied", final=True)


def test_a_large_blob_is_put_in_blocks(store: AzureStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "BLOCKS_FROM", client.MIB)
    monkeypatch.setattr(client, "BLOCK_BYTES", client.MIB)
    client._service.cache_clear()
    content = os.urandom(3 * client.MIB + 1)
    move = stage(store, "a", content)
    client._service.cache_clear()
    committed, waiting = store._blob(move.staged).get_block_list("all")
    assert (len(committed), waiting) == (4, [])
    store.move(move.staged, move.key, move.size)
    assert store.get("raw/a") == content


def test_blocks_that_a_dead_process_left_are_no_blob_and_hinder_nobody(store: AzureStore) -> None:
    """Azure keeps them for a week. They have no id by which they could be removed."""
    store._blob("_staging/1/0001/a").stage_block("left", b"half")
    assert ([*store.list()], store.folders("_staging"), store.get("_staging/1/0001/a")) == ([], [], None)
    move = stage(store, "a", b"whole")
    store.move(move.staged, move.key, move.size)
    assert store.get("raw/a") == b"whole"
    store._blob("raw/b").stage_block("left", b"half")
    store.delete(["raw/b"])
    store._blob("raw/b").commit_block_list([BlobBlock("left")])  # as a paused process would in the end
    assert store.get("raw/b") == b"half"


def test_of_two_that_have_read_the_same_blob_one_replaces_it(
    store: AzureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("raw/h/_SUCCESS", b"2")
    put = store._put_over

    def overtaken(key: str, etag: str, content: bytes) -> bool:
        store.put(key, b"3")
        return put(key, etag, content)

    monkeypatch.setattr(store, "_put_over", overtaken)
    assert not store.replace("raw/h/_SUCCESS", b"2", b"4")
    assert store.get("raw/h/_SUCCESS") == b"3"


def test_names_after_another_are_found_and_the_outermost_store_is_the_container(store: AzureStore) -> None:
    for key in ("_staging/2/0001/x", "_staging/10/0001/x", "_staging/10/0002/files/y", "_staging/loose"):
        store.put(key, b"1")
    assert [*store.names("_staging/10", beginning="00", after="0001/x")] == ["_staging/10/0002/files/y"]
    assert [outer.root for outer in store.around()][-1] == f"abfss://lake@{ACCOUNT}.dfs.core.windows.net"


@pytest.mark.parametrize("key", ["_staging/1/0001/a", "raw/a", OWNER])
def test_a_request_whose_answer_is_lost_is_looked_up(through_proxy: AzureStore, proxy: AzureProxy, key: str) -> None:
    rule = proxy.arm(Rule(Answer.LOST, "PUT", key))
    move = stage(through_proxy, "a", b"content")
    through_proxy.move(move.staged, move.key, move.size)
    assert through_proxy.put_if_absent(OWNER, b"mine")
    assert rule.struck == rule.times
    proxy.disarm()
    assert not through_proxy.put_if_absent(OWNER, b"another's")
    assert (through_proxy.get("raw/a"), through_proxy.get(OWNER)) == (b"content", b"mine")


@pytest.mark.parametrize(
    ("header", "replaces", "message"),
    [
        ("If-None-Match", False, "overwrites objects that must be created only when absent"),
        ("If-Match", True, "overwrites an object that has changed"),
    ],
)
def test_a_store_without_conditional_writes_is_refused_and_one_with_them_is_taken(
    through_proxy: AzureStore, proxy: AzureProxy, header: str, replaces: bool, message: str
) -> None:
    proxy.arm(Rule(Answer.UNCONDITIONAL, "PUT", header=header, times=-1))
    with pytest.raises(SinkRefused, match=message) as caught:
        through_proxy.check(replaces=replaces)
    assert "Use a store" in caught.value.next_step or "use a store" in caught.value.next_step
    assert [*through_proxy.list()] == []
    proxy.disarm()  # a store that has them
    through_proxy.check(replaces=replaces)


@pytest.mark.parametrize("lacking", RIGHTS)
def test_a_token_without_one_right_is_refused_with_the_rights_and_one_with_them_is_taken(
    open_with: Callable[[str], AzureStore], azure: Container, lacking: str
) -> None:
    with pytest.raises(AccessDenied) as caught:
        open_with(azure.connection_by_sas(rights=RIGHTS.replace(lacking, ""))).check(replaces=True)
    assert "give the SAS token the rights read, write, delete and list (rwdl)" in caught.value.next_step
    open_with(azure.connection_by_sas()).check(replaces=True)


def test_keys_that_are_wrong_or_expired_are_refused_and_the_right_ones_are_taken(
    open_with: Callable[[str], AzureStore], azure: Container
) -> None:
    other = {**json.loads(azure.connection()), "password": "Y2FuYXJ5"}
    for connection in (json.dumps(other), azure.connection_by_sas(valid_for=-timedelta(hours=1))):
        with pytest.raises(AccessDenied) as caught:
            open_with(connection).check()
        assert "check the key or SAS token of the connection" in caught.value.next_step
        assert "Y2FuYXJ5" not in str(caught.value)
    open_with(azure.connection()).check()


def test_a_container_that_does_not_exist_is_named_and_taken_once_it_is_created(
    azure: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LAKE_KEYS", azure.connection())
    other = Container(azure.endpoint_url, f"c{uuid4().hex}")
    store = AzureStore(other.root, {"connection": "lake_keys"}, from_environment)
    for ask in (store.check, lambda: store.get("a"), lambda: store.size("a"), lambda: [*store.list()]):
        with pytest.raises(SinkRefused, match="ContainerNotFound") as caught:
            ask()
        assert caught.value.next_step.startswith("create the container")
    other.client().create_container()
    store.check()


def test_an_endpoint_that_does_not_answer_is_named_without_the_token(
    open_with: Callable[[str], AzureStore], azure: Container
) -> None:
    connection = azure.connection_by_sas(f"http://127.0.0.1:{free_port()}/{ACCOUNT}")
    with pytest.raises(Unavailable, match="Azure did not answer the request to read abfss://lake@") as caught:
        open_with(connection).get("key")
    assert "host of its connection" in caught.value.next_step
    assert "sig=" not in str(caught.value)


@pytest.mark.parametrize("variable", [CONNECTION_STRING, KEY_OF_ENVIRONMENT, SAS])
def test_without_a_connection_keys_come_from_the_environment(
    place: Container, azure: Container, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    for name in (CONNECTION_STRING, KEY_OF_ENVIRONMENT, SAS):
        monkeypatch.delenv(name, raising=False)
    store = AzureStore(place.root, {}, from_environment)
    with pytest.raises(AccessDenied, match=f"no keys were found for the account {ACCOUNT}") as caught:
        store.get("a")
    assert variable in caught.value.next_step
    values = {CONNECTION_STRING: azure.connection_string(), KEY_OF_ENVIRONMENT: KEY, SAS: azure.sas()}
    monkeypatch.setenv(variable, values[variable])
    # A key alone does not say where Azurite is.
    monkeypatch.setattr(AzureAddress, "parse", at(azure))
    store = AzureStore(place.root, {}, from_environment)
    store.check()


def at(azure: Container) -> Any:
    """Replaces the endpoint of every address, which only a connection may do otherwise."""
    parse = AzureAddress.parse
    return lambda address: replace(parse(address), endpoint=azure.endpoint_url)


@pytest.mark.parametrize(
    ("connection", "message"),
    [
        (None, "the Azure connection lake_keys does not exist"),
        ({"login": ACCOUNT}, "has neither a key nor a SAS token"),
        ({"password": KEY, "extra": {"tenant_id": "t"}}, "has unknown keys in its extra: tenant_id"),
        ({"password": KEY, "host": "https://me:canary@company"}, "has a host that is not the address of a store"),
        ({"login": "other", "password": KEY}, f"is of the account other, and the sink writes to {ACCOUNT}"),
        ({"password": "canary!"}, "are not as Azure writes them"),
        ({"extra": {"connection_string": "canary"}}, "are not as Azure writes them"),
        (
            {"extra": {"connection_string": f"AccountName=other;AccountKey={KEY}"}},
            f"the keys are of the account other, and the sink writes to {ACCOUNT}",
        ),
    ],
)
def test_a_connection_that_cannot_be_used_is_named_without_its_values(
    place: Container, monkeypatch: pytest.MonkeyPatch, connection: dict[str, Any] | None, message: str
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_LAKE_KEYS", raising=False)
    if connection:
        monkeypatch.setenv("AIRFLOW_CONN_LAKE_KEYS", json.dumps(connection))
    store = AzureStore(place.root, {"connection": "lake_keys"}, from_environment)
    with pytest.raises(ConfigurationError, match=message) as caught:
        store.get("key")
    assert "canary" not in str(caught.value)
    assert KEY not in str(caught.value)
