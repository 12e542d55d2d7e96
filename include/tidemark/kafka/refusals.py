"""Errors with which Kafka refuses a client: authentication, TLS, authorization. You must correct the cause of each."""

from typing import Final

from confluent_kafka import KafkaError

from tidemark.errors import AccessDenied

AUTHENTICATION: Final = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED)
AUTHORIZATION: Final = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
)
_LOG_IN: Final = "check user, password (or client id and secret) and sasl.mechanism of the Kafka connection"
_GRANT: Final = "grant the user of the Kafka connection"
_NEXT_STEPS: Final = dict.fromkeys(AUTHENTICATION, _LOG_IN) | {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: f"{_GRANT} DESCRIBE and READ on the topic (kafka-acls --add)",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: f"{_GRANT} DESCRIBE on the cluster (kafka-acls --add --cluster)",
    KafkaError.GROUP_AUTHORIZATION_FAILED: f"{_GRANT} READ on the consumer group (kafka-acls --add --group)",
}
REFUSALS: Final = (*AUTHENTICATION, KafkaError._SSL, *AUTHORIZATION)


def denied(code: int, detail: str, advice: str | None = None, **context: object) -> AccessDenied:
    """Return the error for a code of ``REFUSALS``.

    ``detail`` is the text of the client, without secrets, ``advice`` what to check if brokers know no users and ACLs.
    """
    if code == KafkaError._SSL:
        return AccessDenied(
            f"no TLS connection to Kafka: {detail}",
            next_step="check that this port speaks TLS, that ssl.ca.* has the authority of the broker's certificate, "
            "that the certificate is valid and names this host; with ssl.certificate.*: that the broker trusts it",
            **context,
        )
    return AccessDenied(f"Kafka refuses this client: {detail}", next_step=advice or _NEXT_STEPS[code], **context)
