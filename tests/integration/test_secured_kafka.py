"""A real broker that lets nobody in without a password, a token or a certificate: who comes in, and what the others
are told, within seconds and without a secret."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation

from sandbox.services.authority import Authority
from tests.worlds.secured_world import CONNECTION, USER, VARIABLE, WAYS, Secured
from tests.worlds.world import World
from tidemark.errors import AccessDenied, ConfigurationError, TidemarkError, Unavailable
from tidemark.pipeline.loader import find

MakeWorld = Callable[..., World]
AT_ONCE = 9  # seconds on a busy machine: a refusal comes 2 s after the first no, and silence is given up after 10
PROMPTLY = 19  # a port that says nothing is given up after 10 s, and is not asked for so long twice


@pytest.fixture
def world(make_secured_world: MakeWorld) -> World:
    return make_secured_world("SCRAM-SHA-512")


def refused(within: float, kind: type[TidemarkError], secured: Secured, world: World, way: str, **changed: Any) -> str:
    source = secured.source(find(world.pipelines, "demo"), way, **changed)
    started = time.monotonic()
    with pytest.raises(kind) as caught:
        source.partitions([world.topic])
    assert time.monotonic() - started < within
    message = str(caught.value)
    for secret in (secured.password, secured.secret, secured.key_password, "hunter2"):
        assert secret not in message
    assert caught.value.context["bootstrap_servers"] == source.address
    return message


@pytest.mark.parametrize("way", WAYS)
def test_every_way_in_plans_and_reads_a_second_time(make_secured_world: MakeWorld, secured: Secured, way: str) -> None:
    world = make_secured_world(way, kafka={"gaps": "transactions"})
    world.produce(20)
    world.transact("never seen", commit=False)
    [*_, last] = world.json("plan", "demo")["manifests"]
    assert last
    assert [partition["lag"] for partition in world.json("lag", "demo")] == [0, 0]
    source = secured.source(find(world.pipelines, "demo"), way)
    [place, _], _ = source.partitions([world.topic])
    assert source.first_record_in(place, [(10, 12)]) is None


@pytest.mark.parametrize("way", ["PLAIN", "SCRAM-SHA-512"])
def test_a_wrong_password(secured: Secured, world: World, way: str) -> None:
    message = refused(AT_ONCE, AccessDenied, secured, world, way, sasl_password="hunter2")
    assert "Kafka refuses this client: " in message
    assert "check user, password (or client id and secret) and sasl.mechanism" in message


def test_a_wrong_client_secret(secured: Secured, world: World) -> None:
    message = refused(AT_ONCE, AccessDenied, secured, world, "OAUTHBEARER", sasl_oauthbearer_client_secret="hunter2")
    assert "check user, password (or client id and secret)" in message


def test_an_authority_that_did_not_sign_the_brokers_certificate(secured: Secured, world: World, tmp_path: Path) -> None:
    other = Authority(tmp_path)
    message = refused(AT_ONCE, AccessDenied, secured, world, "PLAIN", ssl_ca_location=str(other.certificate_file))
    assert "no TLS connection to Kafka: " in message
    assert "certificate verify failed" in message
    assert "ssl.ca.* has the authority of the broker's certificate" in message


def test_a_broker_whose_certificate_has_expired(secured: Secured, world: World) -> None:
    address = {"bootstrap_servers": secured.broker.address("EXPIRED")}
    message = refused(AT_ONCE, AccessDenied, secured, world, "mTLS", **address)
    assert "certificate verify failed" in message
    assert "the certificate is valid" in message


def test_a_broker_that_its_certificate_does_not_name(secured: Secured, world: World) -> None:
    address = secured.broker.address("MTLS").replace("localhost", "127.0.0.1")
    message = refused(AT_ONCE, AccessDenied, secured, world, "mTLS", bootstrap_servers=address)
    assert "certificate verify failed" in message
    assert "names this host" in message


@pytest.mark.parametrize("how", ["none", pytest.param("of another authority", marks=pytest.mark.thorough)])
def test_a_certificate_that_the_broker_does_not_take(secured: Secured, world: World, tmp_path: Path, how: str) -> None:
    changed: dict[str, Any] = dict.fromkeys(("ssl_certificate_location", "ssl_key_location", "ssl_key_password"))
    if how != "none":
        own = Authority(tmp_path).issue("stranger", "a-client")
        changed |= {"ssl_certificate_location": own.certificate_file, "ssl_key_location": own.key_file}
        changed = {key: value and str(value) for key, value in changed.items()}
    message = refused(PROMPTLY, Unavailable, secured, world, "mTLS", **changed)
    assert "alert bad certificate" in message
    assert "the client's certificate" in message


def test_a_client_without_tls_on_a_port_with_tls(secured: Secured, world: World) -> None:
    plain = dict.fromkeys(("sasl_mechanism", "sasl_username", "sasl_password", "ssl_ca_location"))
    message = refused(PROMPTLY, Unavailable, secured, world, "PLAIN", security_protocol="PLAINTEXT", **plain)
    assert "security.protocol" in message


@pytest.mark.thorough  # as long as the one above: librdkafka tries for 10 s
def test_a_client_with_tls_on_a_port_without(secured: Secured, world: World) -> None:
    address = secured.broker.bootstrap_servers
    message = refused(PROMPTLY, Unavailable, secured, world, "PLAIN", bootstrap_servers=address)
    assert "SSL connection closed by peer" in message
    assert "security.protocol" in message


def test_a_topic_without_the_right_to_see_it(secured: Secured, world: World) -> None:
    secured.broker.allow(world.topic, "somebody-else", AclOperation.READ)
    message = refused(AT_ONCE, AccessDenied, secured, world, "SCRAM-SHA-512")
    assert world.topic in message
    assert "grant the user of the Kafka connection DESCRIBE and READ" in message


def test_on_the_command_line_a_refusal_is_two_lines_and_leaves_nothing_behind(secured: Secured, world: World) -> None:
    world.produce(10)
    world.targets[CONNECTION] = secured.variable("SCRAM-SHA-512", sasl_password="hunter2")
    started = time.monotonic()
    done = world.tidemark("run", "demo")
    assert time.monotonic() - started < PROMPTLY
    assert done.returncode == 1
    error, advice = done.stderr.strip().splitlines()
    assert "Kafka refuses this client" in error
    assert advice.startswith("next: ")
    assert "hunter2" not in done.stdout + done.stderr
    world.targets[CONNECTION] = secured.variable("SCRAM-SHA-512")
    world.ok("run", "demo")
    world.assert_complete()


def test_a_certificate_that_has_gone_since_the_run_began_is_named(secured: Secured, world: World) -> None:
    extra = secured.extra("SCRAM-SHA-512", ssl_ca_location="/no/such/ca.pem")
    done = world.tidemark("plan", "demo", env={VARIABLE: json.dumps({"extra": extra})})
    assert done.returncode == ConfigurationError.exit_code
    assert "ssl.ca.location names /no/such/ca.pem, which cannot be read: No such file or directory" in done.stderr


def test_a_user_who_may_do_all_he_needs_and_no_more(secured: Secured, world: World) -> None:
    secured.broker.allow(world.topic, USER, AclOperation.DESCRIBE)
    secured.broker.allow(world.topic, USER, AclOperation.READ)
    world.produce(20)
    world.ok("run", "demo")
    world.assert_complete()
