"""Kafka as the source of a pipeline, for the process that plans."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from tidemark.connections.lookup import Lookup, from_environment
from tidemark.errors import ConfigurationError
from tidemark.kafka.address import dataset_of_topic
from tidemark.kafka.cluster import shared_cluster
from tidemark.kafka.connection import KafkaConnection, named_connection
from tidemark.model.dataset import Dataset
from tidemark.model.offsets import Range, TopicPartition
from tidemark.model.partitions import Bounds, OpenTransaction, Record
from tidemark.sources.base import Source
from tidemark.sources.kafka.settings import Settings
from tidemark.sources.kafka.starting import starting_offsets

_PIPELINE = "tidemark pipeline "  # followed by its name: the metadata of each offset committed for a progress group


class KafkaSource(Source):
    """Topics of one Kafka cluster, over one connection."""

    title = "Kafka"
    settings: Settings

    def __init__(self, pipeline_name: str, settings: Settings, connection: KafkaConnection) -> None:
        super().__init__(pipeline_name, settings)
        self.address = connection.bootstrap_servers
        self.cluster = shared_cluster(connection.bootstrap_servers, connection.config)
        self._connection = connection

    def trouble(self) -> str:
        return self.cluster.trouble

    def dataset(self, topic: str) -> Dataset:
        return dataset_of_topic(self.address, topic)

    def topics(self) -> list[str]:
        return self.cluster.topics()

    def cluster_id(self) -> str | None:
        return self.cluster.cluster_id()

    def partitions(self, topics: Sequence[str]) -> tuple[list[TopicPartition], list[str]]:
        return self.cluster.partitions(topics)

    def bounds(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, Bounds]:
        return self.cluster.bounds(places)

    def offsets_at(
        self, places: Sequence[TopicPartition], when: datetime
    ) -> dict[TopicPartition, tuple[int, datetime] | None]:
        return self.cluster.offsets_at(places, when)

    def starting_offsets(self, bounds: Mapping[TopicPartition, Bounds]) -> dict[TopicPartition, int]:
        return starting_offsets(self.pipeline_name, self.settings.starting_offsets, self.cluster, bounds)

    def records(self, covered: Range) -> Iterator[Record]:
        return self.cluster.records(covered)

    def records_from(
        self, offsets: Collection[tuple[TopicPartition, int]]
    ) -> dict[tuple[TopicPartition, int], Record | None]:
        return self.cluster.records_from(offsets)

    def order(self) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.address,
            "options": self._connection.tuning(),
            "connection": self._connection.secured_by(),
        }

    def endpoints(self) -> list[str]:
        return [server.strip() for server in self.address.split(",")]

    def jars(self) -> tuple[str, ...]:
        return self._connection.jars()

    def compacted(self, topics: Sequence[str]) -> list[str]:
        """Return the compacted topics, without those whose configuration this user may not see (DESCRIBE_CONFIGS).

        Their compaction then shows as gaps.
        """
        return self.cluster.compacted(topics)

    def open_transactions(self, bounds: Mapping[TopicPartition, Bounds]) -> dict[TopicPartition, OpenTransaction]:
        return self.cluster.open_transactions(bounds)

    @property
    def reports_progress(self) -> bool:
        return self.settings.progress_group is not None

    def report_progress(
        self, ends: Mapping[TopicPartition, int], database_id: str, former_names: Collection[str] = ()
    ) -> None:
        """Commit the offsets for ``progress_group``. The metadata of each offset name the pipeline and its manifest
        database.

        Tidemark 0.2.0 wrote only the name. Raises ``ConfigurationError`` if another pipeline commits for the group.
        """
        group = self.settings.progress_group
        if group is None or not ends:
            return
        names = [f"{_PIPELINE}{name}" for name in (self.pipeline_name, *former_names)]
        own = {f"{name}{suffix}" for name in names for suffix in ("", f" of database {database_id}")}
        for other in sorted(self.cluster.metadata_of(group, ends) - own):
            if other.startswith(_PIPELINE):
                topics = " ".join(f"--topic {topic}" for topic in sorted({at.topic for at in ends}))
                raise ConfigurationError(
                    f"consumer group {group} has offsets of {other} for the same topics: the two pipelines would "
                    "overwrite each other's offsets",
                    next_step="name a group that no other pipeline has in source.kafka.progress_group; or, when that "
                    "one does not name it any more, or its manifest database is gone, forget its offsets: "
                    f"kafka-consumer-groups.sh --bootstrap-server {self.address} --group {group} --delete-offsets "
                    f"{topics}",
                )
        self.cluster.commit(group, ends, f"{names[0]} of database {database_id}")

    def warnings(self) -> list[str]:
        return self._connection.warnings()


def kafka_connection(pipeline_name: str, settings: Settings, lookup: Lookup = from_environment) -> KafkaConnection:
    """Return the connection of a pipeline. Options of the pipeline file replace those of the Airflow connection.

    Raises ``ConfigurationError``, which names keys but never their values.
    """
    if settings.bootstrap_servers is not None:
        return KafkaConnection(settings.bootstrap_servers, dict(settings.options))
    connection = named_connection(settings.connection or "", pipeline_name, lookup)
    return KafkaConnection(connection.bootstrap_servers, {**connection.config, **settings.options}, connection.conn_id)


def open_source(pipeline_name: str, settings: Settings, lookup: Lookup) -> KafkaSource:
    return KafkaSource(pipeline_name, settings, kafka_connection(pipeline_name, settings, lookup))
