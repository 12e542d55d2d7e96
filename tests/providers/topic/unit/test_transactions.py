"""What people are told when brokers begin no transaction at all."""

from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from tidemark.errors import SinkRefused
from tidemark.providers.topic.cluster import TopicCluster
from tidemark.providers.topic.transaction import Transaction


class Refused(Producer):
    """Its brokers answer the first request with an error; no broker of today does."""

    def __init__(self, code: int) -> None:
        super().__init__({})
        self.code = code

    def init_transactions(self, timeout: float = -1) -> None:  # noqa: ARG002
        raise KafkaException(KafkaError(self.code, "as the broker says"))


class Cluster(TopicCluster):
    def __init__(self, code: int) -> None:
        super().__init__("127.0.0.1:1", {"log_level": "0"})
        self.code = code

    def producer(self, settings: Mapping[str, Any]) -> Producer:  # noqa: ARG002
        return Refused(self.code)


@pytest.mark.parametrize(
    ("code", "what", "next_step"),
    [
        (
            KafkaError.UNSUPPORTED_VERSION,
            "these brokers do not support transactions",
            "use brokers of Kafka 2.8 or newer",
        ),
        (KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT, "these brokers do not support transactions", "Kafka 2.8 or newer"),
        (
            KafkaError._UNSUPPORTED_FEATURE,
            "these brokers do not support transactions",
            "use brokers of Kafka 2.8 or newer",
        ),
        (
            KafkaError.INVALID_TRANSACTION_TIMEOUT,
            "the brokers do not allow a transaction of 300 s",
            "set transaction_timeout of the sink to at most transaction.max.timeout.ms of the brokers",
        ),
    ],
)
def test_brokers_that_begin_no_transaction_are_named_with_what_to_do(code: int, what: str, next_step: str) -> None:
    with Transaction(Cluster(code), "t", 300.0, {}) as transaction, pytest.raises(SinkRefused) as refused:
        transaction.fence()
    assert refused.value.what == f"{what}: as the broker says"
    assert next_step in refused.value.next_step
    assert refused.value.context["bootstrap_servers"] == "127.0.0.1:1"
