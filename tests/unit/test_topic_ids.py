"""Schedule 15: brokers that are older than topic ids."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Uuid

from tidemark.errors import ConfigurationError
from tidemark.kafka.cluster import Ask, KafkaCluster


class OldCluster(KafkaCluster):
    """Answers every question as brokers before Kafka 2.8 do, whose protocol has no topic ids."""

    def _results(self, ask: Ask[Any], *also: int) -> dict[Any, Any]:
        del ask, also
        return {"flights": SimpleNamespace(topic_id=Uuid(0, 0), partitions=[])}


def test_brokers_without_topic_ids_are_refused_with_the_version_that_is_needed() -> None:
    with pytest.raises(ConfigurationError, match="the brokers give topic flights no id") as refused:
        OldCluster("127.0.0.1:1", {}).partitions(["flights"])
    assert "Kafka 2.8 or newer" in refused.value.next_step
