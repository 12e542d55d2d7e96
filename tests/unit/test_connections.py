"""Where Kafka is: every form of an Airflow connection, and messages that never hold a value."""

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.draws import draws
from tidemark.connections.lookup import Lookup, Secret, from_environment, revealed, variable_of
from tidemark.errors import ConfigurationError
from tidemark.kafka.connection import KafkaConnection
from tidemark.pipeline.loader import load
from tidemark.pipeline.settings import Pipeline
from tidemark.sources.kafka import source
from tidemark.sources.kafka.settings import Settings


def kafka_connection(pipeline: Pipeline, lookup: Lookup = from_environment) -> KafkaConnection:
    """The connection of a pipeline's source."""
    assert isinstance(pipeline.source, Settings)
    return source.kafka_connection(pipeline.name, pipeline.source, lookup)


VARIABLE = "AIRFLOW_CONN_KAFKA_DEFAULT"


def pipeline(folder: Path, address: str = "connection: kafka_default", options: str = "{}") -> Pipeline:
    path = folder / "p.yaml"
    path.write_text(
        f"pipeline: flights\nsource:\n  kafka:\n    {address}\n    topics: [flights]\n    options: {options}\n"
        "decode: {format: raw}\nsinks:\n  - files: {root: lake}\n"
    )
    return load(path, {})


def as_json(**connection: Any) -> str:
    return json.dumps({"conn_type": "kafka", **connection})


FORMS = [
    (as_json(extra={"bootstrap.servers": "a:9092,b:9092"}), "a:9092,b:9092", {}),
    (as_json(extra=json.dumps({"bootstrap.servers": "a:9092"})), "a:9092", {}),
    (as_json(host="a", port=9092), "a:9092", {}),
    (as_json(host="a", port="9092", extra=""), "a:9092", {}),
    (as_json(host="a:9092,b:9093"), "a:9092,b:9093", {}),
    (as_json(host="unused", port=1, extra={"bootstrap.servers": "a:9092"}), "a:9092", {}),
    (as_json(host="::1", port=9092), "[::1]:9092", {}),
    (as_json(host="a", port=9092, extra={"fetch.max.bytes": "50MiB"}), "a:9092", {"fetch.max.bytes": "52428800"}),
    (as_json(host="a", port=9092, extra={"request.timeout.ms": "5000"}), "a:9092", {"request.timeout.ms": "5000"}),
    ("kafka://a:9092", "a:9092", {}),
    ("kafka://?bootstrap.servers=a%3A9092%2Cb%3A9092", "a:9092,b:9092", {}),
    ("kafka://?__extra__=%7B%22bootstrap.servers%22%3A+%22a%3A9092%22%7D", "a:9092", {}),
    ("kafka://a:9092/?request.timeout.ms=7000", "a:9092", {"request.timeout.ms": "7000"}),
]


@pytest.mark.parametrize(("text", "servers", "config"), FORMS)
def test_both_forms_of_a_connection_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, servers: str, config: dict[str, str]
) -> None:
    monkeypatch.setenv(VARIABLE, text)
    connection = kafka_connection(pipeline(tmp_path))
    assert (connection.bootstrap_servers, revealed(connection.config)) == (servers, config)


def test_addresses_of_the_pipeline_file_need_no_connection(tmp_path: Path) -> None:
    def never(_: str) -> None:
        raise AssertionError("a connection was looked up")

    connection = kafka_connection(
        pipeline(tmp_path, "bootstrap_servers: 'a:9092, b:9092'", "{fetch.max.bytes: 1MiB}"), never
    )
    assert connection == KafkaConnection("a:9092,b:9092", {"fetch.max.bytes": "1048576"})


def test_options_of_the_pipeline_file_win_over_those_of_the_connection(tmp_path: Path) -> None:
    extra = {"bootstrap.servers": "a:9092", "fetch.max.bytes": 5, "request.timeout.ms": 5000}
    connection = kafka_connection(pipeline(tmp_path, options="{fetch.max.bytes: 9}"), lambda _: {"extra": extra})
    assert revealed(connection.config) == {"fetch.max.bytes": "9", "request.timeout.ms": "5000"}
    assert extra["bootstrap.servers"] == "a:9092"  # the caller's mapping is left alone


def test_a_missing_connection_says_what_to_set_and_what_is_near(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULTS", "kafka://a:9092")
    with pytest.raises(ConfigurationError) as caught:
        kafka_connection(pipeline(tmp_path))
    assert str(caught.value) == (
        'the Kafka connection kafka_default does not exist; did you mean "AIRFLOW_CONN_KAFKA_DEFAULTS"? '
        "[error=configuration pipeline=flights connection=kafka_default]\n"
        "next: set AIRFLOW_CONN_KAFKA_DEFAULT="
        """'{"conn_type": "kafka", "extra": {"bootstrap.servers": "HOST:PORT"}}', """
        "or add it in Airflow under Admin, Connections, or write source.kafka.bootstrap_servers instead"
    )


def test_an_id_becomes_the_variable_that_airflow_reads() -> None:
    assert variable_of("kafka_default") == VARIABLE


@pytest.mark.parametrize(
    ("connection", "expected"),
    [
        (
            {"host": "a", "port": 9092, "password": "hunter2"},
            "cannot be used: it sets password without security.protocol, so they would have no effect",
        ),
        (
            {"extra": {"bootstrap.servers": "a:9092", "sasl.password": "hunter2", "group.id": "hunter2"}},
            "sets group.id, which is not allowed",
        ),
        ({"extra": {"bootstrap.servers": "hunter2"}}, "names no broker in the form host:port"),
        ({"extra": {"bootstrap.servers": 2}}, "names no broker in the form host:port"),
        ({"host": "hunter2"}, "names no broker in the form host:port"),
        ({}, "names no broker in the form host:port"),
        (
            {"host": "a", "port": 9092, "extra": {"fetch.max.bytes": "hunter2"}},
            "sets fetch.max.bytes to a value that is not allowed",
        ),
    ],
)
def test_a_connection_that_cannot_be_used_names_keys_and_never_values(
    tmp_path: Path, connection: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        kafka_connection(pipeline(tmp_path), lambda _: connection)
    assert caught.value.what == f"the Kafka connection kafka_default {expected}"
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "{hunter2",
        "hunter2",
        '{"extra": 5}',
        '{"extra": "hunter2"}',
        "kafka://a:hunter2",
        "kafka://[hunter2",
        "a://b://c",
    ],
)
def test_a_variable_that_is_no_connection_is_named_without_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(ConfigurationError) as caught:
        kafka_connection(pipeline(tmp_path))
    assert caught.value.what.startswith(f"{VARIABLE} is not an Airflow connection: ")
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


PRINTABLE = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)
ANY = st.one_of(PRINTABLE, PRINTABLE.map("{{{}".format), PRINTABLE.map("kafka://{}".format)) | st.recursive(
    st.none() | st.booleans() | st.integers() | PRINTABLE,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["host", "port", "extra", "x"]), inner),
    max_leaves=6,
).map(lambda value: json.dumps({"host": value, "extra": value}))


@settings(max_examples=draws(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ANY)
def test_any_text_in_the_variable_is_a_connection_or_an_error_for_people(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv(VARIABLE, text)
    told = ""
    try:
        told = kafka_connection(pipeline(tmp_path)).bootstrap_servers
    except ConfigurationError as problem:
        told = problem.next_step
    assert told


def test_a_secret_prints_as_stars_and_leaves_only_by_reveal() -> None:
    secret = Secret("hunter2")
    shown = [
        str(secret),
        repr(secret),
        f"{secret}",
        f"{secret:>9}",
        repr(KafkaConnection("a:1", {"sasl.password": secret})),
    ]
    assert not any("hunter2" in text for text in shown)
    assert secret.reveal() == "hunter2"
    assert secret == Secret("hunter2")
    assert secret != "hunter2"
    assert revealed({"sasl.password": secret, "a": "b"}) == {"sasl.password": "hunter2", "a": "b"}


@pytest.mark.parametrize("write", [pickle.dumps, json.dumps, copy.deepcopy])
def test_a_secret_cannot_be_written_by_accident(write: Any) -> None:
    with pytest.raises(TypeError):
        write(Secret("hunter2"))
