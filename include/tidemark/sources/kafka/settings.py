"""``source: {kafka: ..}``."""

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator

from tidemark.config import values
from tidemark.config.base import wrong_at
from tidemark.kafka.address import one_address
from tidemark.kafka.options import KafkaOptions
from tidemark.model.address import Address
from tidemark.sources.kafka.starting_offsets import ExplicitOffsets, StartingOffsets
from tidemark.sources.settings import Connector, PatternSettings
from tidemark.text import with_nearest


def _client_config(value: object) -> dict[str, str]:
    return KafkaOptions.model_validate(value).client_config()


class Settings(PatternSettings):
    """Topics of one Kafka cluster. Exactly one of ``connection`` and ``bootstrap_servers`` is set."""

    kind = "kafka"
    connector = Connector(
        "Kafka connector",
        "kafka",
        "org.apache.spark",
        ("spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13"),
    )

    place_keys = frozenset({"connection", "bootstrap_servers", "options"})

    connection: Annotated[str, AfterValidator(values.connection_id)] | None = Field(
        default=None,
        description="The id of an [Airflow connection](#the-connection). Either this or `bootstrap_servers`.",
        examples=["kafka_default"],
    )
    bootstrap_servers: Annotated[str, AfterValidator(values.servers)] | None = Field(
        default=None,
        validate_default=True,
        description="`host:port`, several with commas, of a broker without [security](#secured-kafka).",
    )
    starting_offsets: StartingOffsets = Field(
        default="earliest",
        description="Where the first plan starts in the partitions that exist: a word, a time, or one of the two keys "
        "below ([taking over](#taking-over-from-another-tool)). Later ones are read from their beginning.",
    )
    progress_group: str | None = Field(
        default=None,
        min_length=1,
        description="A consumer group that commits what is published, for [tools that watch "
        "lag](#tools-that-watch-the-lag-of-groups).",
        examples=["tidemark-orders"],
    )
    options: Annotated[dict[str, str], BeforeValidator(_client_config, json_schema_input_type=KafkaOptions)] = Field(
        default_factory=dict, description="Tuning of the Kafka client, by Kafka's own names."
    )

    _one_address = field_validator("bootstrap_servers")(one_address)

    @field_validator("starting_offsets")
    @classmethod
    def _known_topics(cls, start: StartingOffsets, info: ValidationInfo) -> StartingOffsets:
        topics = info.data.get("topics")
        if isinstance(start, ExplicitOffsets) and topics is not None and info.data.get("topics_regex") is None:
            for topic in start.offsets:
                if topic not in topics:
                    message = with_nearest("is not in source.kafka.topics", topic, topics)
                    raise wrong_at(("offsets", topic), message)
        return start

    def address(self) -> Address:
        return Address(self.connection, self.bootstrap_servers)

    def connections(self) -> set[str]:
        return {self.connection} if self.connection else set()
