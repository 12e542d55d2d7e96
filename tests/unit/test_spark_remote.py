"""Which engine does the work, and where a Spark Connect server is."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tidemark.environment import Environment
from tidemark.errors import ConfigurationError
from tidemark.spark.remote import Remote, parsed, remote_of

SESSION = UUID(int=7)


def environment(remote: str | None = None) -> Environment:
    return Environment(None, Path(), Path(), None, spark_remote=remote)


def of_connection(**connection: Any) -> Remote:
    return remote_of(environment(), lambda conn_id: connection if conn_id == "spark_connect" else None)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("sc://host", "sc://host:15002/;user_id=tidemark"),
        ("sc://host:1", "sc://host:1/;user_id=tidemark"),
        ("sc://host:1/", "sc://host:1/;user_id=tidemark"),
        ("sc://host:1/;use_ssl=true", "sc://host:1/;user_id=tidemark"),
        ("sc://host:1/;user_id=me;token=a%3Db", "sc://host:1/;user_id=me"),
    ],
)
def test_addresses(text: str, url: str) -> None:
    remote = parsed(text, "x")
    options = "".join(f";{option}" for option in remote.options)
    token = ";token=a%3Db" if "token" in text else ""
    assert remote.url(SESSION) == f"{url};session_id={SESSION}{options}{token}"
    assert remote.address == f"sc://host:{remote.port}"
    assert "a=b" not in repr(remote)


@pytest.mark.parametrize("text", ["", "host:15002", "http://host", "sc://", "sc://host:x", "sc://host/;token"])
def test_what_is_no_address_is_not_quoted(text: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r"^the variable is not the address of a Spark Connect server"
    ) as wrong:
        parsed(text, "the variable")
    assert "sc://host:15002" in wrong.value.next_step


def test_a_session_in_the_address_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="has a session_id"):
        parsed(f"sc://host/;session_id={SESSION}", "x")


def test_the_variable_wins_over_the_connection() -> None:
    remote = remote_of(environment("sc://variable:1"), lambda _: {"host": "connection"})
    assert (remote.host, remote.port) == ("variable", 1)


def test_a_connection_as_airflow_stores_it() -> None:
    remote = of_connection(host="spark", port=2, login="me", password="p=;/", extra={"use_ssl": True})
    assert remote.url(SESSION) == f"sc://spark:2/;user_id=me;session_id={SESSION};use_ssl=true;token=p%3D%3B%2F"
    assert of_connection(host="sc://spark").address == "sc://spark:15002"
    assert of_connection(host="spark", extra={}).user == "tidemark"


def test_without_a_server_the_error_says_how_to_name_one() -> None:
    with pytest.raises(ConfigurationError, match="no Spark Connect server is named") as none:
        remote_of(environment(), lambda _: None)
    assert "TIDEMARK_SPARK_REMOTE=sc://host:15002" in none.value.next_step
    assert "AIRFLOW_CONN_SPARK_CONNECT" in none.value.next_step


@pytest.mark.parametrize(("host", "here"), [("127.0.0.1", True), ("localhost", True), ("spark.example", False)])
def test_only_a_server_of_this_machine_gets_secrets(host: str, here: bool) -> None:
    assert parsed(f"sc://{host}:1", "x").is_here is here
