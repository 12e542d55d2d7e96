"""What one pipeline file may say: every key, its type, its bounds and its default.

    Pipeline
    +-- source: Source                    one key: the kind of source
    |   +-- kafka: KafkaSource
    |       +-- starting_offsets: StartingPoint    unless it is a word or a time
    |       +-- slice: Slice
    |       +-- options: KafkaOptions
    +-- decode: JsonDecode | RawDecode    told apart by `format`
    +-- event_time: EventTime
    +-- sinks: Sink, ..                   one key each: the kind of sink, in `sink_settings`

A new decoder or sink is one model, one enum member and one line in `Decode` or `Sink`. The pipeline files are read by
`configuration`; the only file opened here is the JSON Schema that `decode.schema` names.
"""

import json
from collections.abc import Mapping
from datetime import date, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StrictBool,
    StrictInt,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from tidemark import notation
from tidemark.notation import wrong
from tidemark.record_settings import Decode, EventTime, OnError, check_field
from tidemark.sections import Duration, Name, Schedule, Section, Size, Topic, wrong_at
from tidemark.sink_settings import Sink
from tidemark.starting_point import ExplicitOffsets, StartingOffsets
from tidemark.suggestion import nearest


class Cut(StrEnum):
    """Up to where a run reads: the first offset at or after its cut, or whatever is there now."""

    SCHEDULE = "schedule"
    LATEST = "latest"


class Gaps(StrEnum):
    """Which offsets of a range may hold no record that a reader can see."""

    NONE = "none"
    TRANSACTIONS = "transactions"
    COMPACTED = "compacted"


class OnDataLoss(StrEnum):
    """What planning does with offsets that Kafka dropped before they were read."""

    FAIL = "fail"
    RECORD = "record"


class Slice(Section):
    """How much one manifest may cover; a larger backlog becomes several, worked on side by side."""

    max_records: StrictInt = Field(default=5_000_000, ge=1, le=10**12, description="Records of one slice, at most.")
    max_bytes: Size = Field(
        default=2**30,
        description="Bytes of one slice, at most, by the record size measured so far.",
        json_schema_extra={"default": "1GiB"},
    )
    max_slices: StrictInt = Field(
        default=1000, ge=1, le=1000, description="Slices of one run, at most; the next run goes on."
    )


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
        default=None, alias="request.timeout.ms", ge=1000, le=600_000, description="Milliseconds one request may take."
    )
    fetch_max_bytes: Size | None = Field(
        default=None, alias="fetch.max.bytes", description="Size of one fetch, at most."
    )
    max_partition_fetch_bytes: Size | None = Field(
        default=None, alias="max.partition.fetch.bytes", description="Size of one partition's part of a fetch, at most."
    )

    def client_config(self) -> dict[str, str]:
        """The options that are set, by the names Kafka's clients know."""
        return {key: str(one) for key, one in self.model_dump(by_alias=True, exclude_none=True).items()}


def _client_config(value: object) -> dict[str, str]:
    return KafkaOptions.model_validate(value).client_config()


class KafkaSource(Section):
    """Topics of one Kafka cluster. Either ``connection`` or ``bootstrap_servers`` is set, never both."""

    connection: Annotated[str, AfterValidator(notation.connection_id)] | None = Field(
        default=None, description="Id of an Airflow connection.", examples=["kafka_default"]
    )
    bootstrap_servers: Annotated[str, AfterValidator(notation.servers)] | None = Field(
        default=None, validate_default=True, description="Instead of a connection: host:port, several with commas."
    )
    topics: tuple[Topic, ...] = Field(
        description="Names of the topics.", examples=[["flights"]], json_schema_extra={"minItems": 1}
    )
    starting_offsets: StartingOffsets = Field(
        default="earliest",
        description="Where to start when the pipeline is first planned: earliest, latest, a time, where a consumer "
        "group has committed, or an offset for each partition.",
    )
    cut: Cut = Field(default=Cut.SCHEDULE, description="A run reads up to the end of its interval, or up to now.")
    gaps: Gaps = Field(default=Gaps.NONE, description="Which offsets may hold no record.")
    slice: Slice = Field(default_factory=Slice, description="How much one manifest may cover.")
    on_data_loss: OnDataLoss = Field(
        default=OnDataLoss.FAIL, description="What to do when Kafka dropped records unread."
    )
    options: Annotated[dict[str, str], BeforeValidator(_client_config, json_schema_input_type=KafkaOptions)] = Field(
        default_factory=dict, description="Tuning of the Kafka client, by Kafka's own names."
    )

    @field_validator("bootstrap_servers")
    @classmethod
    def _one_address(cls, servers: str | None, info: ValidationInfo) -> str | None:
        if "connection" not in info.data:
            return servers
        if servers is None and info.data["connection"] is None:
            raise wrong("is missing, and so is connection: one of them says where Kafka is")
        if servers is not None and info.data["connection"] is not None:
            raise wrong("is set beside connection: only one of them may say where Kafka is")
        return servers

    @field_validator("topics")
    @classmethod
    def _unique_topics(cls, topics: tuple[str, ...]) -> tuple[str, ...]:
        if not topics:
            raise wrong("must have at least one entry")
        twice = sorted({one for one in topics if topics.count(one) > 1})
        if twice:
            raise wrong(f"must name each topic once, has twice: {', '.join(twice)}")
        return topics

    @field_validator("starting_offsets")
    @classmethod
    def _known_topics(cls, start: StartingOffsets, info: ValidationInfo) -> StartingOffsets:
        topics = info.data.get("topics")
        if isinstance(start, ExplicitOffsets) and topics is not None:
            for topic in start.offsets:
                if topic not in topics:
                    said = f"is not in source.kafka.topics; {nearest(topic, topics)}".removesuffix("; ")
                    raise wrong_at(("offsets", topic), said)
        return start


class Source(Section):
    kafka: KafkaSource = Field(description="Topics of a Kafka cluster.")


def _conf_key(key: str) -> str:
    if not key.startswith("spark."):
        raise wrong("must be a Spark property, which starts with spark.")
    if reason := Spark.why_refused(key.lower()):
        raise wrong(f"is not allowed: {reason}")
    return key


def _conf_value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise wrong("must be text, a number, true or false")


class Spark(Section):
    """Properties of the Spark application that works on one manifest."""

    refused: ClassVar[Mapping[str, str]] = {
        "spark.jars*": "Tidemark brings its own jars",
        "spark.submit.*": "Tidemark submits the application itself",
        "spark.app.*": "the application is named after its manifest",
        "spark.redaction.*": "it keeps secrets out of plans, pages and logs",
        "spark.sql.session.timezone": "everything here is UTC",
        "spark.executorenv.airflow_conn*": "properties are seen in process lists; executors look connections up in "
        "their own environment",
        "spark.master": "the Spark connection, or --master, says where it runs",
        "*password*": "properties are seen in process lists; give secrets by the environment",
        "*secret*": "properties are seen in process lists; give secrets by the environment",
        "*token*": "properties are seen in process lists; give secrets by the environment",
    }

    conf: dict[
        Annotated[str, AfterValidator(_conf_key)],
        Annotated[str, BeforeValidator(_conf_value), WithJsonSchema({"type": ["string", "number", "boolean"]})],
    ] = Field(default={}, description="Spark properties.", examples=[{"spark.executor.memory": "4g"}])


class Pipeline(Section):
    """One pipeline file, complete and checked: schema files are read, roots absolute, variables replaced."""

    name: Name = Field(alias="pipeline", description="Name of the pipeline and of its DAG; no two files may share it.")
    description: str = Field(default="", description="What it is for; shown in Airflow.")
    schedule: Schedule | None = Field(
        default=None, description="An Airflow preset or a cron expression; null: only by hand."
    )
    start_date: Annotated[date, BeforeValidator(notation.day)] = Field(
        default=date(2024, 1, 1), description="The first day a scheduled run may cover."
    )
    catchup: StrictBool = Field(
        default=False, description="Whether to run the intervals since start_date, or only the newest."
    )
    max_active_runs: StrictInt = Field(
        default=1, ge=1, le=100, description="Runs of this pipeline at the same time, at most."
    )
    retries: StrictInt = Field(default=2, ge=0, le=100, description="Times Airflow tries a failed task again.")
    retry_delay: Duration = Field(
        default=timedelta(seconds=10),
        description="How long Airflow waits before that.",
        json_schema_extra={"default": "10s"},
    )
    spark: Spark = Field(default_factory=Spark, description="The Spark application.")
    source: Source = Field(description="Where the records come from.")
    decode: Decode = Field(description="How a record becomes a row.")
    event_time: EventTime = Field(
        default_factory=EventTime, description="When a record happened, which decides its folder."
    )
    on_error: OnError = Field(default=OnError.FAIL, description="What to do with a record that cannot be decoded.")
    sinks: tuple[Sink, ...] = Field(description="Where the rows go.", json_schema_extra={"minItems": 1})

    @model_validator(mode="before")
    @classmethod
    def _invalid_as_error(cls, data: Any) -> Any:
        """A record without a usable time shares the fate of an undecodable one, unless the file says otherwise."""
        if not isinstance(data, Mapping) or data.get("on_error") not in tuple(OnError):
            return data
        event_time = data.get("event_time", {})
        if not isinstance(event_time, Mapping):
            return data
        return {**data, "event_time": {"on_invalid": data["on_error"], **event_time}}

    @field_validator("event_time")
    @classmethod
    def _usable_time(cls, event_time: EventTime, info: ValidationInfo) -> EventTime:
        if "decode" in info.data:
            check_field(event_time, info.data["decode"])
        return event_time

    @field_validator("sinks")
    @classmethod
    def _apart(cls, sinks: tuple[Sink, ...]) -> tuple[Sink, ...]:
        if not sinks:
            raise wrong("must have at least one entry")
        for index, sink in enumerate(sinks):
            for other in sinks[:index]:
                if sink.name == other.name:
                    raise wrong_at(index, f'is the second sink called "{sink.name}": give it a name of its own')
                if sink.meets(other):
                    raise wrong_at(
                        index, f'shares its target with the sink "{other.name}": neither may write into the other'
                    )
        return sinks

    @field_validator("sinks")
    @classmethod
    def _columns(cls, sinks: tuple[Sink, ...], info: ValidationInfo) -> tuple[Sink, ...]:
        if "decode" in info.data:
            for index, sink in enumerate(sinks):
                if message := sink.why_not(info.data["decode"]):
                    raise wrong_at(index, message)
        return sinks

    def connections(self) -> set[str]:
        """The ids of all Airflow connections that the file names, of its source and of its sinks."""
        named = {self.source.kafka.connection, *(getattr(one, "connection", None) for one in self.sinks)}
        return {one for one in named if one is not None}

    def fingerprint(self) -> str:
        """SHA-256 of all that decides which rows and files a range becomes; where they lie does not matter.

        A key at its default does not count, so a later version that adds keys does not make old output look stale.
        """
        settings = {
            "decode": self.decode.model_dump(mode="json", exclude_defaults=True),
            "event_time": self.event_time.model_dump(mode="json", exclude_defaults=True),
            "on_error": self.on_error,
            "sinks": sorted([one.kind, one.name, one.decides_output()] for one in self.sinks),
        }
        return sha256(json.dumps(settings, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a pipeline file, for editors; ``${NAME}`` is not known to it."""
    schema = Pipeline.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Tidemark pipeline"}
