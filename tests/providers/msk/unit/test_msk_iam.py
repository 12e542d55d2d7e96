"""Which connections mean MSK's login by IAM, for which region it signs, and what its tokens hold."""

import base64
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tidemark import extras
from tidemark.errors import AccessDenied, ConfigurationError
from tidemark.kafka.connection import KafkaConnection, java_options, named_connection
from tidemark.kafka.mechanisms import client_options

PROVISIONED = "b-1.demo.abcde1.c2.kafka.us-east-1.amazonaws.com:9098"
SERVERLESS = "boot-abcde1.c2.kafka-serverless.eu-west-1.amazonaws.com:9098"
CHINA = "b-1.demo.abcde1.c2.kafka.cn-north-1.amazonaws.com.cn:9098"
PRIVATE = "kafka.company.example:9098"
VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION",
             "AWS_DEFAULT_REGION")  # fmt: skip


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without keys, profile, region and role."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")


def connection(servers: str, mechanism: str = "AWS_MSK_IAM", **more: Any) -> KafkaConnection:
    named = {"bootstrap.servers": servers, "security.protocol": "SASL_SSL", "sasl.mechanism": mechanism}
    fields = {name: more.pop(name) for name in ("login", "password") if name in more}
    extra = {**named, **{name.replace("_", "."): value for name, value in more.items()}}
    return named_connection("msk", "demo", lambda _: {**fields, "extra": extra})


def token_of(servers: str) -> tuple[dict[str, str], float]:
    """What the token for librdkafka asks for, and how many seconds it is valid."""
    opened = connection(servers)
    options = client_options({name: str(value) for name, value in opened.config.items()}, opened.bootstrap_servers)
    assert options["sasl.mechanism"] == "OAUTHBEARER"
    token, expires = options["oauth_cb"]("")
    parts = urlsplit(base64.urlsafe_b64decode(token + "==").decode())
    return {"host": parts.netloc, **{name: values[0] for name, values in parse_qs(parts.query).items()}}, (
        expires - time.time()
    )


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize(
    ("servers", "region"), [(PROVISIONED, "us-east-1"), (SERVERLESS, "eu-west-1"), (CHINA, "cn-north-1")]
)
def test_a_token_is_a_url_that_is_signed_for_the_region_in_the_brokers_names(servers: str, region: str) -> None:
    asked, seconds = token_of(f"{servers},{servers}")
    assert asked["host"] == f"kafka.{region}.amazonaws.com"
    assert asked["Action"] == "kafka-cluster:Connect"
    assert asked["X-Amz-Credential"].startswith("AKIDEXAMPLE/")
    assert asked["X-Amz-Credential"].endswith(f"/{region}/kafka-cluster/aws4_request")
    assert asked["X-Amz-Expires"] == "900"
    assert 800 < seconds <= 900


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("variable", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_the_region_of_brokers_with_private_names_is_that_of_the_machine(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "ap-south-1")
    assert token_of(PRIVATE)[0]["host"] == "kafka.ap-south-1.amazonaws.com"
    assert token_of(PROVISIONED)[0]["host"] == "kafka.us-east-1.amazonaws.com"


@pytest.mark.usefixtures("keys")
def test_a_profile_gives_keys_and_region(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("[profile company]\nregion = sa-east-1\n")
    (tmp_path / "credentials").write_text("[company]\naws_access_key_id = AKIDPROFILE\naws_secret_access_key = s\n")
    for name in VARIABLES[:2]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_PROFILE", "company")
    asked, _ = token_of(PRIVATE)
    assert asked["host"] == "kafka.sa-east-1.amazonaws.com"
    assert asked["X-Amz-Credential"].startswith("AKIDPROFILE/")


def test_the_form_of_airflows_own_provider_means_the_same() -> None:
    assert connection(PROVISIONED, "OAUTHBEARER").config == connection(PROVISIONED, "aws_msk_iam").config
    with pytest.raises(ConfigurationError, match=r"token\.endpoint\.url is missing"):
        connection(PRIVATE, "OAUTHBEARER")


def test_java_logs_in_by_aws_own_module_and_gets_no_key() -> None:
    extra = {"bootstrap.servers": PROVISIONED, "security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM"}
    assert java_options("msk", {}, "demo", lambda _: {"extra": extra}) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
        "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
    }
    assert connection(PROVISIONED).jars() == ("aws-msk-iam-auth",)


@pytest.mark.parametrize(
    ("servers", "more", "what", "step"),
    [
        (PROVISIONED, {"security_protocol": "SASL_PLAINTEXT"}, "AWS_MSK_IAM needs TLS", "SASL_SSL"),
        (f"{PROVISIONED},{SERVERLESS}", {}, "its brokers are in eu-west-1 and us-east-1", "of one cluster"),
        (PRIVATE, {}, "have no region of AWS, and AWS_REGION is not set", "here and on Spark's machines"),
        (
            PROVISIONED,
            {"login": "AKID", "password": "s"},
            "a login or a password, which AWS_MSK_IAM does not",
            "remove",
        ),
        (PROVISIONED, {"sasl_username": "a"}, "sasl.username, which AWS_MSK_IAM does not use", "remove it"),
    ],
)
def test_a_connection_that_cannot_log_in_is_refused(servers: str, more: dict[str, str], what: str, step: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        connection(servers, **more)
    assert what in refused.value.what
    assert step in refused.value.next_step


def test_a_mechanism_that_nobody_has_is_named_with_this_one() -> None:
    with pytest.raises(ConfigurationError, match=r"is none of PLAIN, .*OAUTHBEARER, AWS_MSK_IAM"):
        connection(PROVISIONED, "AWS_IAM")


def test_a_missing_extra_is_named_before_anything_connects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "is_installed", set[str]().__contains__)
    with pytest.raises(ConfigurationError, match="needs aws_msk_iam_sasl_signer, not installed here") as refused:
        connection(PROVISIONED)
    assert 'pip install "tidemark[msk]"' in refused.value.next_step


def test_a_machine_without_keys_is_told_so_before_anything_connects() -> None:
    opened = connection(PROVISIONED)
    with pytest.raises(AccessDenied, match="keys of AWS for the Kafka connection were not found") as refused:
        client_options({name: str(value) for name, value in opened.config.items()}, opened.bootstrap_servers)
    assert "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE" in refused.value.next_step


def test_a_profile_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobodys")
    opened = connection(PROVISIONED)
    with pytest.raises(AccessDenied, match=r"cannot be had: .*nobodys"):
        client_options({name: str(value) for name, value in opened.config.items()}, opened.bootstrap_servers)
