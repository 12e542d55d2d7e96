"""The cluster of a sink's topic. In addition to what sources need, it creates topics and writes transactions."""

import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import NewTopic, ResourceType

from tidemark.errors import SinkRefused, TidemarkError, Unavailable
from tidemark.kafka.cluster import SILENT, TIMEOUT_S, KafkaCluster


class TopicCluster(KafkaCluster):
    def producer(self, settings: Mapping[str, Any]) -> Producer:
        """Return a producer with these settings, which replace those of the connection."""
        return Producer({**self._options, **settings}, logger=SILENT)

    def options_of(self, topic: str) -> Mapping[str, str]:
        """Return the configuration of a topic; empty if this user may not see it, or if the topic does not exist."""
        return self._configs(ResourceType.TOPIC, [topic], KafkaError.TOPIC_AUTHORIZATION_FAILED).get(topic, {})

    def longest_transaction_s(self) -> float | None:
        """Return the longest time that the brokers allow for a transaction; None if this user may not see their
        configuration."""
        broker = str(min(self._metadata().brokers))
        options = self._configs(ResourceType.BROKER, [broker], KafkaError.CLUSTER_AUTHORIZATION_FAILED).get(broker)
        return int(options["transaction.max.timeout.ms"]) / 1000 if options else None

    def create_topic(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        """Create a topic with the cluster's default number of replicas; do nothing if it exists.

        Returns when its partitions answer. Raises ``SinkRefused`` if the cluster does not create it.
        """
        new = NewTopic(topic, num_partitions=partitions, config=dict(config))
        [future] = self._answered(lambda admin: admin.create_topics([new], request_timeout=TIMEOUT_S)).values()
        try:
            future.result()
        except KafkaException as failed:
            error = failed.args[0]
            if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._not_created(error, topic, partitions, config) from failed
        deadline = time.monotonic() + TIMEOUT_S
        while not self._answers_for(topic):
            if time.monotonic() > deadline:
                raise Unavailable(f"topic {topic} was created and does not answer yet", next_step="repeat the command")
            time.sleep(0.05)

    def _answers_for(self, topic: str) -> bool:
        """Return whether a topic that was just created can be asked for its offsets."""
        try:
            self.topics()  # else this client goes on without the leaders of the topic for over 10 s
            places, _ = self.partitions([topic])
            return bool(places and self.bounds(places))
        except Unavailable:
            return False

    def _not_created(self, error: KafkaError, topic: str, partitions: int, config: Mapping[str, str]) -> TidemarkError:
        if error.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT):
            return self.translated(error)
        options = " ".join(f"--config {name}={value}" for name, value in config.items())
        return SinkRefused(
            f"topic {topic} does not exist, and cannot be created: {self._text(error)}",
            next_step="create it: kafka-topics.sh --bootstrap-server "
            f"{self.bootstrap_servers} --create --topic {topic} --partitions {partitions} {options}; "
            "then repeat the command",
            bootstrap_servers=self.bootstrap_servers,
        )
