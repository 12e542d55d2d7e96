"""Security of a Kafka connection: set once, refused where one of the two clients cannot do it, translated for Java."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st

from sandbox.services.authority import Authority
from tests.unit.test_connections import pipeline
from tidemark.connections.lookup import Lookup, Secret, from_environment, masked, revealed
from tidemark.errors import ConfigurationError
from tidemark.kafka.connection import KafkaConnection, java_options
from tidemark.kafka.java import jaas
from tidemark.kafka.options import KafkaOptions
from tidemark.kafka.security import ALIASES, ALLOWED, INSTEAD, SECRETS, instead, is_security
from tidemark.pipeline.settings import Pipeline
from tidemark.sources.kafka import source
from tidemark.sources.kafka.settings import Settings


def kafka_connection(pipeline: Pipeline, lookup: Lookup = from_environment) -> KafkaConnection:
    """The connection of a pipeline's source."""
    assert isinstance(pipeline.source, Settings)
    return source.kafka_connection(pipeline.name, pipeline.source, lookup)


SCRAM = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "reader",
    "sasl.password": "hunter2",
}
OIDC = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.client.id": "reader",
    "sasl.oauthbearer.client.secret": "hunter2",
    "sasl.oauthbearer.token.endpoint.url": "https://example.com/oauth2/token",
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def connected(folder: Path, extra: dict[str, Any], **fields: Any) -> KafkaConnection:
    connection = {"host": "a", "port": 9092, "extra": extra, **fields}
    return kafka_connection(pipeline(folder), lambda _: connection)


def for_java(extra: dict[str, Any], **fields: Any) -> dict[str, str]:
    lookup = lambda _: {"host": "a", "port": 9092, "extra": extra, **fields}  # noqa: E731
    options = java_options("kafka_default", {"fetch.max.bytes": "9"}, "p", lookup)
    return revealed(options)


def refused(folder: Path, extra: dict[str, Any], **fields: Any) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        connected(folder, extra, **fields)
    assert "hunter2" not in str(caught.value)
    assert "KEY-----" not in str(caught.value)
    assert caught.value.next_step
    assert caught.value.context == {"pipeline": "flights", "connection": "kafka_default"}
    return caught.value


# one connection, two clients


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_and_a_password_become_an_entry_of_javas_login(tmp_path: Path, mechanism: str) -> None:
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    extra = {**SCRAM, "sasl.mechanism": mechanism}
    assert revealed(connected(tmp_path, extra).config) == extra
    assert for_java(extra) == {
        "fetch.max.bytes": "9",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'org.apache.kafka.common.security.{module} required username="reader" password="hunter2";',
    }


def test_login_and_password_of_the_connection_are_the_user_of_sasl(tmp_path: Path) -> None:
    extra = {"security.protocol": "sasl_ssl", "sasl.mechanisms": "scram-sha-512"}
    connection = connected(tmp_path, extra, login="reader", password="hunter2")
    assert revealed(connection.config) == SCRAM
    assert for_java(extra, login="reader", password="hunter2") == for_java(SCRAM)
    oidc = {key: option for key, option in OIDC.items() if not key.startswith("sasl.oauthbearer.client")}
    assert for_java(oidc, login="reader", password="hunter2") == for_java(OIDC)


def test_a_client_secret_becomes_an_entry_of_javas_login_with_its_token_endpoint(tmp_path: Path) -> None:
    extra = {**OIDC, "sasl.oauthbearer.scope": "kafka", "sasl.oauthbearer.extensions": "pool=one, cluster=two"}
    assert revealed(connected(tmp_path, extra).config) == {**extra, "sasl.oauthbearer.method": "oidc"}
    java = for_java(extra)
    assert java["sasl.jaas.config"] == (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'password="" clientId="reader" clientSecret="hunter2" scope="kafka" extension_pool="one" '
        'extension_cluster="two";'
    )
    assert java["sasl.oauthbearer.token.endpoint.url"] == "https://example.com/oauth2/token"
    assert java["sasl.login.callback.handler.class"].endswith(".oauthbearer.OAuthBearerLoginCallbackHandler")


@pytest.mark.parametrize("kind", ["location", "pem"])
def test_certificates_travel_to_java_as_text_whether_they_are_files_or_text(
    tmp_path: Path, authority: Authority, kind: str
) -> None:
    own = authority.issue("reader", "reader", password="hunter2")
    locked: Any = serialization.load_pem_private_key(own.key.encode(), b"hunter2")
    extra: dict[str, str] = {"security.protocol": "SSL", "ssl.key.password": "hunter2"}
    if kind == "pem":
        extra |= {"ssl.ca.pem": authority.certificate, "ssl.certificate.pem": own.certificate, "ssl.key.pem": own.key}
    else:
        extra |= {
            "ssl.ca.location": str(authority.certificate_file),
            "ssl.certificate.location": str(own.certificate_file),
            "ssl.key.location": str(own.key_file),
        }
    assert revealed(connected(tmp_path, extra).config) == extra
    java = for_java(extra)
    opened: Any = serialization.load_pem_private_key(java.pop("ssl.keystore.key").encode(), None)
    assert opened.private_numbers() == locked.private_numbers(), "Java 17 cannot open it itself"
    assert java.pop("ssl.keystore.certificate.chain").split() == own.certificate.split()
    assert java.pop("ssl.truststore.certificates").split() == authority.certificate.split()
    assert java == {
        "fetch.max.bytes": "9",
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
    }


def test_a_password_beside_a_key_that_is_not_encrypted_does_not_reach_java(authority: Authority) -> None:
    own = authority.issue("open", "reader")
    pems = {"ssl.certificate.pem": own.certificate, "ssl.key.pem": own.key}
    assert "ssl.key.password" not in for_java({"security.protocol": "SSL", "ssl.key.password": "hunter2", **pems})


def test_host_names_are_verified_unless_the_connection_says_otherwise(tmp_path: Path) -> None:
    name = "ssl.endpoint.identification.algorithm"
    assert name not in for_java({"security.protocol": "SSL"})
    assert for_java({"security.protocol": "SSL", name: "https"})[name] == "https"
    unverified = {"security.protocol": "SSL", name: "none"}
    assert for_java(unverified)[name] == ""
    assert revealed(connected(tmp_path, unverified).config)[name] == "none"
    assert "not verified" in connected(tmp_path, unverified).warnings()[0]


def test_a_password_in_clear_text_is_allowed_and_warned_of(tmp_path: Path) -> None:
    clear = {**SCRAM, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    [warning] = connected(tmp_path, clear).warnings()
    assert "crosses the network in clear text" in warning
    assert connected(tmp_path, SCRAM).warnings() == []


def tokenized(entry: str) -> dict[str, str]:
    """What Java's StreamTokenizer reads in the quoted values of one entry."""
    options, name, at = {}, "", 0
    while at < len(entry):
        if entry[at] == '"':
            at, value = at + 1, ""
            while entry[at] != '"':
                at += entry[at] == "\\"
                value += entry[at]
                at += 1
            options[name.split()[-1].rstrip("=")], name = value, ""
        else:
            name += entry[at]
        at += 1
    assert name == ";"
    return options


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1))
def test_any_password_comes_through_the_quotes_of_javas_login(password: str) -> None:
    made = jaas("plain.PlainLoginModule", {"username": "reader", "password": password}).reveal()
    assert tokenized(made) == {"username": "reader", "password": password}


# what is refused

WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"security.protocol": "SASL"}, "its security.protocol is none of PLAINTEXT, SSL", 'did you mean "SSL"?'),
    ({"sasl.mechanism": "PLAIN"}, "it sets sasl.mechanism without security.protocol", "SASL_SSL"),
    ({"ssl.ca.pem": "x"}, "it sets ssl.ca.pem without security.protocol", '"SSL"'),
    ({**SCRAM, "security.protocol": "SSL"}, "it sets sasl.mechanism, sasl.password, sasl.username, and", "SASL_SSL"),
    ({**SCRAM, "security.protocol": "PLAINTEXT"}, "security.protocol is PLAINTEXT", "SASL_SSL"),
    ({**SCRAM, "security.protocol": "SASL_PLAINTEXT", "ssl.ca.pem": "x"}, "it sets ssl.ca.pem, and", "SASL_SSL"),
    ({**SCRAM, "sasl.mechanism": "GSSAPI"}, "its sasl.mechanism is none of PLAIN, SCRAM-SHA-256", "SCRAM-SHA-512"),
    ({**SCRAM, "sasl.mechanism": "SCRAM-512"}, "its sasl.mechanism is none of", 'did you mean "SCRAM-SHA-512"?'),
    ({"security.protocol": "SASL_SSL"}, "its sasl.mechanism is missing", "SCRAM-SHA-512"),
    (
        {**SCRAM, "sasl.mechanisms": "PLAIN"},
        "it sets sasl.mechanisms and sasl.mechanism, which are the same option, to different values",
        "keep",
    ),
    ({**SCRAM, "sasl.password": ""}, "it sets sasl.password to an empty value", "give its value"),
    (
        {**SCRAM, "sasl.password": True},
        "it sets sasl.password to an empty value, or to one that is not text",
        "give its value",
    ),
    ({**SCRAM, "sasl.password": "hunter2\n"}, "sasl.password holds a control character", "line end"),
    ({**SCRAM, "sasl.oauthbearer.scope": "x"}, "it sets sasl.oauthbearer.scope, and sasl.mechanism is", "remove it"),
    ({**OIDC, "sasl.username": "x"}, "it sets sasl.username, and sasl.mechanism is OAUTHBEARER", "client.id"),
    ({**OIDC, "sasl.oauthbearer.method": "default"}, "its sasl.oauthbearer.method is not oidc", "oidc"),
    (
        {**OIDC, "sasl.oauthbearer.token.endpoint.url": "https://u:hunter2@example.com/"},
        "sasl.oauthbearer.token.endpoint.url is missing, or is not an address, or names a user",
        "https://",
    ),
    (
        {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""},
        "it sets ssl.endpoint.identification.algorithm to an empty value",
        "remove it",
    ),
    ({"security.protocol": "SSL", "ssl.ca.pem": "x", "ssl.ca.location": "x"}, "it sets ssl.ca.pem beside", "keep one"),
    ({"security.protocol": "SSL", "ssl.ca.pem": "hunter2"}, "ssl.ca.pem holds no certificate", "BEGIN CERTIFICATE"),
    ({"security.protocol": "SSL", "ssl.ca.location": "/no/such.pem"}, "which cannot be read: No such file", "path"),
    ({"security.protocol": "SSL", "ssl.key.password": "hunter2"}, "there is no ssl.key", "certificate and key"),
]


@pytest.mark.parametrize(("extra", "what", "advice"), WRONG)
def test_security_that_cannot_be_is_refused_with_what_to_write(
    tmp_path: Path, extra: dict[str, Any], what: str, advice: str
) -> None:
    error = refused(tmp_path, extra)
    assert error.what.startswith("the Kafka connection kafka_default cannot be used: ")
    assert what in error.what
    assert advice in error.next_step


def test_what_is_missing_or_said_twice_is_named(tmp_path: Path) -> None:
    for name, field in [("sasl.username", "login"), ("sasl.password", "password")]:
        without = {key: option for key, option in SCRAM.items() if key != name}
        assert f"{name} is missing for SCRAM-SHA-512" in refused(tmp_path, without).what
        assert f"its {field} and {name} differ" in refused(tmp_path, SCRAM, **{field: "another"}).what
    assert "which SSL does not use" in refused(tmp_path, {"security.protocol": "SSL"}, password="hunter2").what


def test_keys_and_certificates_that_cannot_work_are_refused(tmp_path: Path, authority: Authority) -> None:
    now, day = datetime.now(UTC), timedelta(days=1)
    own, other = authority.issue("own", "a"), authority.issue("other", "b")
    locked = authority.issue("locked", "a", password="right-one")
    old = authority.issue("old", "a", not_before=now - 3 * day, not_after=now - day)
    for pems, what in [
        ((own.certificate, None), "it sets ssl.certificate without ssl.key"),
        ((None, own.key), "it sets ssl.key without ssl.certificate"),
        ((own.certificate, other.key), "the private key does not belong to the certificate"),
        ((old.certificate, old.key), "ssl.certificate.pem: the client's certificate expired at "),
        ((locked.certificate, locked.key), "ssl.key.pem is encrypted, and ssl.key.password is missing"),
    ]:
        given = dict(zip(("ssl.certificate.pem", "ssl.key.pem"), pems, strict=True))
        extra = {"security.protocol": "SSL", **{key: option for key, option in given.items() if option}}
        assert what in refused(tmp_path, extra).what
    extra = {"security.protocol": "SSL", "ssl.certificate.pem": locked.certificate, "ssl.key.pem": locked.key}
    error = refused(tmp_path, {**extra, "ssl.key.password": "hunter2"})
    assert "the private key cannot be opened with ssl.key.password" in error.what


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ("sasl.jaas.config", "write user and password as login and password"),
        ("ssl.truststore.location", "write ssl.ca.location"),
        ("ssl.truststore.password", "write ssl.ca.location"),
        ("ssl.keystore.location", "write ssl.certificate.location and ssl.key.location"),
        ("ssl.cipher.suites", "restrict them on the broker"),
        ("enable.ssl.certificate.verification", "certificates are always verified"),
        ("sasl.kerberos.service.name", "Kerberos is not supported"),
        ("sasl.oauthbearer.config", "sasl.oauthbearer.method: oidc"),
        ("sasl.pasword", 'did you mean "sasl.password"?'),
        ("ssl.ca.locatoin", 'did you mean "ssl.ca.location"?'),
        ("isolation.level", "only committed records are ever read"),
        ("debug", "allowed beside security: fetch.max.bytes"),
    ],
)
def test_an_option_that_is_not_allowed_is_named_with_the_right_word(tmp_path: Path, key: str, advice: str) -> None:
    error = refused(tmp_path, {**SCRAM, key: "hunter2"})
    assert error.what == f"the Kafka connection kafka_default sets {key}, which is not allowed"
    assert advice in error.next_step


@pytest.mark.parametrize("key", ["sasl.password", "ssl.ca.location", "security.protocol"])
def test_security_has_no_place_in_a_pipeline_file(tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        pipeline(tmp_path, options=f"{{{key}: hunter2}}")
    assert "security belongs to an Airflow connection: write source.kafka.connection" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_every_option_is_either_allowed_or_refused_and_every_secret_is_one() -> None:
    assert set(SECRETS) <= set(ALLOWED)
    assert set(ALIASES.values()) <= set(ALLOWED)
    assert not [key for key in ALLOWED if KafkaOptions.problem_with_key(key) is None]
    assert not any(is_security(pattern) for pattern in INSTEAD)
    assert instead("nothing.like.it") == ""


# who learns of it


def test_an_order_names_the_connection_and_holds_none_of_its_security(tmp_path: Path) -> None:
    connection = connected(tmp_path, {**SCRAM, "fetch.max.bytes": 9})
    assert connection.secured_by() == "kafka_default"
    assert connection.tuning() == {"fetch.max.bytes": "9"}
    assert "hunter2" not in repr(connection)
    assert connected(tmp_path, {"fetch.max.bytes": 9}).secured_by() is None


def test_a_secret_in_somebody_elses_words_becomes_stars() -> None:
    config = {"sasl.password": Secret("hunter2"), "sasl.username": "reader", "ssl.key.pem": Secret("")}
    assert masked("reader:hunter2 is not let in", config) == "reader:*** is not let in"


# the file of connections


def in_file(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, mode: int = 0o600) -> Path:
    file = folder / "connections.json"
    file.write_text(text)
    file.chmod(mode)
    monkeypatch.setenv("TIDEMARK_CONNECTIONS", str(file))
    return file


def test_a_connection_may_stand_in_a_file_and_a_variable_wins_over_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_object = {"host": "a", "port": 9092, "extra": SCRAM}
    for form in (as_object, json.dumps(as_object), "kafka://a:9092"):
        in_file(tmp_path, monkeypatch, json.dumps({"kafka_default": form}))
        assert kafka_connection(pipeline(tmp_path)).bootstrap_servers == "a:9092"
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", "kafka://b:9093")
    assert kafka_connection(pipeline(tmp_path)).bootstrap_servers == "b:9093"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o622, 0o700 | 0o010])
def test_a_file_of_connections_that_others_may_open_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    file = in_file(tmp_path, monkeypatch, json.dumps({"kafka_default": {"extra": SCRAM}}), mode)
    with pytest.raises(
        ConfigurationError, match=f"holds secrets, and its mode {mode:04o} lets others use it"
    ) as caught:
        kafka_connection(pipeline(tmp_path))
    assert caught.value.next_step == f"chmod 600 {file}"
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["hunter2", "[]", "{hunter2}", "\x00", '{"kafka_default": 5}', '{"kafka_default": []}']
)
def test_a_file_that_holds_no_connections_is_named_without_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    file = in_file(tmp_path, monkeypatch, text)
    with pytest.raises(ConfigurationError) as caught:
        kafka_connection(pipeline(tmp_path))
    assert str(file) in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_file_of_connections_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_CONNECTIONS", str(tmp_path / "none.json"))
    with pytest.raises(ConfigurationError, match="cannot be read: No such file or directory"):
        kafka_connection(pipeline(tmp_path))
    assert "AIRFLOW_CONN_KAFKA_DEFAULT" not in os.environ


def test_the_password_of_a_connection_opens_the_key_of_a_client_without_sasl(
    tmp_path: Path, authority: Authority
) -> None:
    own = authority.issue("reader", "reader", password="hunter2")
    extra = {"security.protocol": "SSL", "ssl.certificate.pem": own.certificate, "ssl.key.pem": own.key}
    inside = {**extra, "ssl.key.password": "hunter2"}
    assert connected(tmp_path, extra, password="hunter2").config == connected(tmp_path, inside).config
    assert "ssl.key.pem is encrypted" in refused(tmp_path, extra).what
    assert "differ" in refused(tmp_path, inside, password="another").what
    assert "it has a login or a password" in refused(tmp_path, extra, login="reader", password="hunter2").what
    assert "it has a login or a password" in refused(tmp_path, {"security.protocol": "SSL"}, password="hunter2").what
