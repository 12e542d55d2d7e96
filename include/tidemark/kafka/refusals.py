"""What Kafka says no to: who we are, whom we trust, what we may. A person has to mend each, and is told how."""

from typing import Final

from confluent_kafka import KafkaError

from tidemark.errors import AccessDenied

WHO: Final = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED)
WHAT: Final = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
)
NOT_LET_IN: Final = (*WHO, KafkaError._SSL, *WHAT)


def denied(code: int, said: str, **where: object) -> AccessDenied:
    """The error of one of ``NOT_LET_IN``; ``said`` is the client's own text, without secrets."""
    if code == KafkaError._SSL:
        return AccessDenied(
            f"Kafka and this client do not come together: {said}",
            next_step="check that this port speaks TLS, that ssl.ca.* has the authority of the broker's certificate, "
            "that the certificate is valid and names this host; with ssl.certificate.*: that the broker trusts it",
            **where,
        )
    return AccessDenied(
        f"Kafka refuses this client: {said}",
        next_step="check user, password (or client id and secret) and sasl.mechanism of the Kafka connection"
        if code in WHO
        else "grant the user of the Kafka connection DESCRIBE and READ on the topic (kafka-acls --add)",
        **where,
    )
