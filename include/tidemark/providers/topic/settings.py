"""``sinks: [{topic: ..}]``."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, PrivateAttr, StrictBool, ValidationInfo, field_validator, model_validator

from tidemark.config import values
from tidemark.config.base import Duration, Name, Topic, wrong_at
from tidemark.config.values import wrong
from tidemark.decoders.pins import Pins
from tidemark.decoders.settings import RowSettings
from tidemark.errors import ConfigurationError
from tidemark.kafka.address import one_address
from tidemark.model.address import Address
from tidemark.model.storable import Storable
from tidemark.paths import is_remote
from tidemark.providers.registry.registered_schema import RegisteredSchema
from tidemark.providers.registry.registry_settings import RegistrySettings
from tidemark.providers.topic.message_limit import MessageLimit
from tidemark.providers.topic.staging_settings import StagingSettings
from tidemark.sinks.settings import SinkSettings
from tidemark.text import with_nearest

SHORTEST, LONGEST = timedelta(seconds=10), timedelta(hours=1)  # of a transaction


class MessageFormat(StrEnum):
    JSON = "json"
    RAW = "raw"
    AVRO = "avro"
    PROTOBUF = "protobuf"

    @property
    def registered(self) -> bool:
        """Return whether values of this format have the id of a schema in a registry."""
        return self in (MessageFormat.AVRO, MessageFormat.PROTOBUF)


class Partitioner(StrEnum):
    """The rule that chooses a message's partition. A message without a key may go to any partition."""

    MURMUR2 = "murmur2"
    CRC32 = "crc32"
    SOURCE = "source"


class Compression(StrEnum):
    LZ4 = "lz4"
    ZSTD = "zstd"
    SNAPPY = "snappy"
    GZIP = "gzip"
    NONE = "none"


class Settings(StagingSettings):
    """A Kafka topic to which each manifest is appended in one transaction, with headers that say where messages come
    from.

    Exactly one of ``connection`` and ``bootstrap_servers`` is set; the cluster need not be that of the source.
    """

    kind = "topic"
    output_keys = frozenset({"key", "format", "value", "partitioner", "subject", "auto_register"})
    in_order = True
    connection_keys = ("connection", "staging_connection")

    name: Name = Field(default="topic", description="Name of this sink, unique in the pipeline.")
    topic: Topic = Field(description="The topic to write to; it must exist.", examples=["orders_clean"])
    connection: Annotated[str, AfterValidator(values.connection_id)] | None = Field(
        default=None, description="Id of an Airflow connection of type kafka.", examples=["kafka_default"]
    )
    bootstrap_servers: Annotated[str, AfterValidator(values.servers)] | None = Field(
        default=None, validate_default=True, description="Instead of a connection: host:port, several with commas."
    )
    key: tuple[str, ...] = Field(
        default=(),
        description="Columns that make the key of a message: the text of one, a JSON object of several; else the "
        "record's own key.",
        examples=[["order_id"]],
    )
    format: MessageFormat = Field(
        default=MessageFormat.JSON,
        description="The value of a message: a JSON object of the columns, one column, or an Avro record or Protobuf "
        "message of the columns with the id of its schema in a registry.",
    )
    registry: RegistrySettings | None = Field(
        default=None, validate_default=True, description="For format: avro or protobuf, the registry of its schema."
    )
    subject: str | None = Field(
        default=None, min_length=1, description="The subject of the schema in the registry; TOPIC-value by default."
    )
    auto_register: StrictBool = Field(
        default=False,
        description="Whether the schema of the columns is registered; else the subject's newest schema must fit them.",
    )
    value: str | None = Field(
        default=None, validate_default=True, description="The column that is the value, for format: raw."
    )
    partitioner: Partitioner = Field(
        default=Partitioner.MURMUR2,
        description="How a key chooses its partition: murmur2 as Java's clients, crc32 as librdkafka; source: the "
        "number of the partition in the source.",
    )
    compression: Compression = Field(default=Compression.LZ4, description="Compression of the messages.")
    dead_letters: Topic | None = Field(
        default=None, description="Topic for records that cannot be used; TOPIC-dead-letters by default."
    )
    transaction_timeout: Duration = Field(
        default=timedelta(minutes=5),
        description="How long one manifest's transaction may take. After a crash, readers of committed messages may "
        "have to wait so long.",
        json_schema_extra={"default": "5m"},
    )
    staging_connection: Annotated[str, AfterValidator(values.connection_id)] | None = Field(
        default=None,
        description="Id of the Airflow connection of the store, for staging at an address such as s3://bucket/prefix.",
    )

    _schema: RegisteredSchema | None = PrivateAttr(default=None)
    _schemas: dict[str, Any] = PrivateAttr(default_factory=dict)

    _one_address = field_validator("bootstrap_servers")(one_address)

    @field_validator("key")
    @classmethod
    def _unique_key(cls, key: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(key)) < len(key):
            raise wrong("must name each column once")
        return key

    @field_validator("value")
    @classmethod
    def _value_of_raw(cls, value: str | None, info: ValidationInfo) -> str | None:
        if "format" in info.data and (info.data["format"] is MessageFormat.RAW) != (value is not None):
            raise wrong("is for format: raw, which needs it: the column that is the value")
        return value

    @field_validator("registry")
    @classmethod
    def _registry_of_format(cls, registry: RegistrySettings | None, info: ValidationInfo) -> RegistrySettings | None:
        if "format" in info.data and info.data["format"].registered != (registry is not None):
            raise wrong("is for format: avro and protobuf, which need it: where the schema of the values is")
        return registry

    @field_validator("transaction_timeout")
    @classmethod
    def _bounded(cls, timeout: timedelta) -> timedelta:
        if not SHORTEST <= timeout <= LONGEST:
            raise wrong("must be from 10s to 1h")
        return timeout

    @model_validator(mode="after")
    def _separate_topics(self) -> Self:
        if self.dead_letter_topic in (self.topic, self.markers_topic):
            raise wrong_at(
                "dead_letters", f"must differ from the topic and from its topic of markers, {self.markers_topic}"
            )
        if self.staging_connection is not None and not is_remote(self.staging):
            raise wrong_at("staging_connection", "is for staging such as s3://bucket/prefix; this one is a folder")
        return self

    @property
    def markers_topic(self) -> str:
        """The topic of markers. Its name is fixed, because it says who owns the topic: everybody who claims the topic
        looks there."""
        return f"{self.topic}-markers"

    @property
    def dead_letter_topic(self) -> str:
        return self.dead_letters or f"{self.topic}-dead-letters"

    @property
    def cluster(self) -> str:
        """The name of the cluster in messages; it contains no secret."""
        return str(self._address())

    def _address(self) -> Address:
        return Address(self.connection, self.bootstrap_servers)

    @property
    def target(self) -> str:
        return f"{self.cluster}, topic {self.topic}"

    def meets(self, other: SinkSettings) -> bool:
        if not isinstance(other, Settings) or not self._address().is_same(other._address()):
            return False
        return bool(set(self._topics()) & set(other._topics()))

    def writes_topics(self) -> tuple[Address | None, tuple[str, ...]]:
        return self._address(), self._topics()

    def _topics(self) -> tuple[str, ...]:
        return self.topic, self.dead_letter_topic, self.markers_topic

    def store_settings(self) -> Mapping[str, Any]:
        return {"connection": self.staging_connection} if self.staging_connection else {}

    def order(self) -> dict[str, Any]:
        order: dict[str, Any] = {"key": list(self.key), "value": self.value, "store": dict(self.store_settings())}
        if self._schema is not None:
            order |= {"schema": self._schema.as_dict(), "schemas": self._schemas}
        return order

    def storable(self) -> Storable:
        """Declare the form of the messages. Their longest size is not known here: the topic decides it."""
        schema = None if self._schema is None else json.dumps(self._schema.as_dict())
        limit = MessageLimit(self.topic, self.key, self.value, self.compression.value, schema=schema)
        return replace(super().storable(), checks=(limit.check(),))

    def uses_registry(self) -> bool:
        return self.registry is not None

    def pinned(self, rows: RowSettings, pins: Pins) -> Self:
        """Return the settings with a pinned schema: with ``auto_register`` that of the columns, else the subject's
        newest.

        The newest must fit the columns. The schema of an earlier attempt is used again as long as it fits.
        """
        if self.registry is None:
            return self
        # Imported late: it takes its time, and most commands ask no registry.
        from tidemark.providers.topic.schema import chosen_schema, form_of

        pinned = self.model_copy()
        pinned._schema, pinned._schemas = chosen_schema(
            self.name, form_of(self.format), self.registry.order(), self.subject or f"{self.topic}-value",
            rows.arrow_schema(), pins, auto_register=self.auto_register,
        )  # fmt: skip
        return pinned

    def problem_with(self, rows: RowSettings) -> str | None:
        # Imported late: it needs pyarrow, which checking the other settings does without.
        from tidemark.sinks.encoding.json_text import refuse_unwritable

        columns = rows.arrow_schema()
        for key, names in (("key", self.key), ("value", (self.value,) if self.value else ())):
            for name in names:
                if name not in columns.names:
                    return with_nearest(f"has no column {name} for its {key}", name, columns.names, listed=True)
        if self.value is not None:
            kind = str(columns.field(self.value).type)
            return None if kind in ("string", "binary") else f"may not have {self.value} as its value: it is {kind}"
        try:
            if self.format.registered:
                from tidemark.providers.topic.schema import form_of

                form_of(self.format).derived(columns, "Row")
            else:
                refuse_unwritable(columns)
        except ConfigurationError as problem:
            return f"may not have format {self.format}: {problem.what}"
        return None

    def place_of(self, pipeline_name: str, topic: str, when: datetime | None) -> str:
        del pipeline_name, topic
        return f"{self.cluster}, topic {self.dead_letter_topic if when is None else self.topic}"

    def connections(self) -> set[str]:
        return super().connections() | (self.registry.connections() if self.registry else set())
