"""Why a broker is silent: the reason stands first in every message."""

import threading

import pytest
from confluent_kafka import KafkaError

from tidemark.kafka.cluster import KafkaCluster
from tidemark.operations.lags import Lags, System
from tidemark.operations.status import PipelineProblem, SharedCause, State, _trouble

FAILED = "kafka:9092/bootstrap: Connect to ipv4#10.0.0.7:9092 failed: Connection refused (after 0ms in state CONNECT)"
UNKNOWN = "kafka:9092/bootstrap: Failed to resolve 'kafka:9092': Name or service not known (after 5ms in state CONNECT)"
REFUSED = "ssl://kafka:9093/1: SSL handshake failed: error:0A000086:SSL routines::certificate verify failed: broker"
SLOW = "kafka:9092/1: Connection setup timed out in state CONNECT (after 30012ms in state CONNECT)"


@pytest.mark.parametrize(
    ("heard", "trouble"),
    [
        (FAILED, "Connection refused"),
        (UNKNOWN, "Failed to resolve 'kafka:9092': Name or service not known"),
        (f"{REFUSED} certificate could not be verified (after 4ms in state SSL_HANDSHAKE)",
         "SSL handshake failed: broker certificate could not be verified"),
        (SLOW, "Connection setup timed out in state CONNECT"),
    ],
)  # fmt: skip
def test_the_reason_of_a_connection_is_told_without_addresses_and_codes(heard: str, trouble: str) -> None:
    cluster = KafkaCluster("kafka:9092", {})
    assert cluster.trouble == ""
    cluster._remember(KafkaError(KafkaError._TRANSPORT, heard))
    cluster._remember(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert cluster.trouble == trouble


@pytest.mark.parametrize(
    ("heard", "about_tls"),
    [
        (FAILED.replace("kafka:9092", "ssl://kafka:9092"), False),
        ("kafka:9092/bootstrap: Disconnected: might be caused by incorrect security.protocol configuration", True),
        ("ssl://kafka:9092/bootstrap: SSL connection closed by peer: connecting to a PLAINTEXT broker listener?", True),
    ],
)
def test_the_advice_names_a_certificate_only_if_the_client_speaks_of_tls(heard: str, about_tls: bool) -> None:
    cluster = KafkaCluster("kafka:9092", {})
    cluster._remember(KafkaError(KafkaError._TRANSPORT, heard))
    advice = cluster._unavailable("timed out", None).next_step
    assert advice.startswith("check that the broker runs and that bootstrap_servers")
    assert ("certificate" in advice) is about_tls


def test_a_source_that_is_still_asked_says_why_it_has_not_answered_yet() -> None:
    lags = Lags(limit=0.01)
    lags.systems["demo"] = System("Kafka", "kafka:9092", lambda: "Connection refused")
    release = threading.Event()

    def silent() -> tuple[()]:
        assert release.wait(30)
        return ()

    answer = lags.of({"demo": silent})["demo"]
    release.set()
    assert answer.silent
    assert answer.why == "Connection refused, so the source has not answered within 0.01 s"


def test_a_cause_that_pipelines_share_has_the_first_reason_that_is_known() -> None:
    unknown = "Kafka at kafka:9092 has not answered within 1.5 s"
    known = "Connection refused, so Kafka does not answer within 10 s at kafka:9092 (and so on)"
    problems = [
        PipelineProblem(None, f"the lag is not known: {unknown}", "", kind=State.UNKNOWN, headline=unknown),
        PipelineProblem(None, f"plan has failed since 10:00 UTC: {known}", "", kind=State.FAILED, headline=known),
    ]
    assert _trouble(problems[:1]) == ""
    cause = SharedCause("Kafka at kafka:9092 does not answer", "", ("a", "b"), _trouble(problems))
    assert str(cause) == "Connection refused, so Kafka at kafka:9092 does not answer"
