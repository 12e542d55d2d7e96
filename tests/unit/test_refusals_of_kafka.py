"""Each code with which Kafka refuses a client leads to the setting or the right that is missing."""

import pytest
from confluent_kafka import KafkaError

from tidemark.kafka.refusals import REFUSALS, denied


@pytest.mark.parametrize(
    ("code", "named"),
    [
        (KafkaError._AUTHENTICATION, "check user, password"),
        (KafkaError.SASL_AUTHENTICATION_FAILED, "check user, password"),
        (KafkaError._SSL, "ssl.ca.*"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "DESCRIBE and READ on the topic"),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, "DESCRIBE on the cluster"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "READ on the consumer group"),
    ],
)
def test_a_refusal_names_what_to_correct(code: int, named: str) -> None:
    assert code in REFUSALS
    assert named in denied(code, "refused", topic="orders").next_step
