"""Tuning options of Kafka's clients that a pipeline file or a connection may set."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field, StrictInt

from tidemark.config.base import Section, Size

AT_THE_END_MS = 10  # so long a broker waits for new records before it answers at the end of a log; the default is 500


class KafkaOptions(Section):
    """Client tuning that cannot change which records are read."""

    refused: ClassVar[Mapping[str, str]] = {
        "starting*": "the manifest says where a range starts; see source.kafka.starting_offsets",
        "ending*": "the manifest says where a range ends; see source.kafka.cut",
        "auto.offset.reset": "the manifest says where a range starts; see source.kafka.starting_offsets",
        "subscribe*": "the manifest says which partitions are read; see source.kafka.topics",
        "assign": "the manifest says which partitions are read; see source.kafka.topics",
        "failOnDataLoss": "it is always true here; see source.kafka.on_data_loss",
        "isolation.level": "only committed records are ever read",
        "group.id": "offsets are kept in manifests, there is no consumer group",
        "enable.auto.commit": "offsets are kept in manifests, nothing is committed to Kafka",
        "minPartitions": "see source.kafka.slice",
        "max*PerTrigger": "see source.kafka.slice",
        "bootstrap.servers": "write source.kafka.bootstrap_servers or source.kafka.connection",
        "sasl.*": "security belongs to an Airflow connection: write source.kafka.connection instead of addresses",
        "ssl.*": "security belongs to an Airflow connection: write source.kafka.connection instead of addresses",
        "security.*": "security belongs to an Airflow connection: write source.kafka.connection instead of addresses",
    }

    request_timeout_ms: StrictInt | None = Field(
        default=None,
        alias="request.timeout.ms",
        ge=1000,
        le=600_000,
        description="Milliseconds that one request to Kafka may take.",
    )
    fetch_max_bytes: Size | None = Field(
        default=None, alias="fetch.max.bytes", description="Size of one fetch, at most."
    )
    max_partition_fetch_bytes: Size | None = Field(
        default=None, alias="max.partition.fetch.bytes", description="Size of one partition's part of a fetch, at most."
    )

    def client_config(self) -> dict[str, str]:
        """Return the options that are set, by the names of Kafka's clients."""
        return {key: str(value) for key, value in self.model_dump(by_alias=True, exclude_none=True).items()}
