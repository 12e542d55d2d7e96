"""``source: {rabbitmq: ..}``."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, Field, PlainValidator, StrictInt, ValidationInfo, WithJsonSchema, field_validator

from tidemark.config import values
from tidemark.config.base import Topic, wrong_at
from tidemark.config.values import wrong
from tidemark.sources.settings import Gaps, SourceSettings
from tidemark.sources.starting_points import CommonStart, StartMapping, json_schema_of_start, read_start
from tidemark.text import with_nearest

LAST_OFFSET: Final = 2**62


class Identity(StrEnum):
    """The fact that tells a stream from another stream of the same name."""

    STORED = "stored"
    LAST_RECORD = "last_record"


@dataclass(frozen=True)
class StoredOffsets:
    """Start after the offset that a consumer of this name has stored."""

    consumer: str


@dataclass(frozen=True)
class StreamOffsets:
    """Start at these offsets, by stream."""

    offsets: Mapping[str, int]


ID: Final = "tidemark.id"  # the name under which a stream stores the number that tells it from a recreated one


def _consumer(name: str) -> str:
    if name == ID:
        raise wrong("is the name under which Tidemark stores the number of a stream; choose another")
    return name


Consumer = Annotated[str, Field(min_length=1, max_length=255), AfterValidator(_consumer)]
Offset = Annotated[StrictInt, Field(ge=0, le=LAST_OFFSET)]


class StreamStart(StartMapping):
    """``starting_offsets`` as a mapping, with exactly one key."""

    starts: ClassVar = {"consumer": StoredOffsets, "offsets": StreamOffsets}

    consumer: Consumer | None = Field(
        default=None, description="A named consumer that has stopped: start behind the offset that it has stored."
    )
    offsets: dict[Topic, Offset] | None = Field(default=None, description="An offset for every stream.")


def _starting_offsets(value: object) -> Any:
    return read_start(value, StreamStart, ("{consumer: NAME}", "{offsets: {STREAM: OFFSET}}"))


_OFFSETS: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": {"type": "integer", "minimum": 0, "maximum": LAST_OFFSET},
    "default": None,
}
StartingOffsets = Annotated[
    CommonStart | StoredOffsets | StreamOffsets,
    PlainValidator(_starting_offsets, json_schema_input_type=StreamStart),
    WithJsonSchema(
        json_schema_of_start(
            {
                "consumer": {"type": "string", "minLength": 1, "maxLength": 255, "default": None},
                "offsets": _OFFSETS,
            },
            {"consumer": "archive"},
        )
    ),
]


class Settings(SourceSettings):
    """Streams of one virtual host of RabbitMQ. Exactly one of ``streams`` and ``super_stream`` is set."""

    kind = "rabbitmq"
    selecting_keys = frozenset({"streams", "super_stream"})
    gaps_advice = "if consumers store offsets in the stream, write gaps: tracking"
    refused: ClassVar[Mapping[str, str]] = {
        "queue*": "classic and quorum queues have no offsets, so no batch of them can be read twice: bind a stream to "
        "the exchange beside the queue, and name it under streams",
        "topics*": "a topic of RabbitMQ is a stream: write streams, or super_stream",
        "bootstrap_servers": "write connection, the id of an Airflow connection",
    }

    connection: Annotated[str, AfterValidator(values.connection_id)] = Field(
        description="Id of an Airflow connection.", examples=["rabbitmq_default"]
    )
    topics: tuple[Topic, ...] = Field(
        default=(), alias="streams", description="Names of the streams.", examples=[["orders"]]
    )
    super_stream: Topic | None = Field(
        default=None,
        validate_default=True,
        description="Instead of streams: all members of a super stream, also later ones.",
        examples=["invoices"],
    )
    starting_offsets: StartingOffsets = Field(
        default="earliest",
        description="Where to start when the pipeline is first planned: earliest, latest, a time, behind what a named "
        "consumer has stored, or an offset for each stream.",
    )
    gaps: Literal[Gaps.NONE, Gaps.TRACKING] = Field(
        default=Gaps.TRACKING,
        description="Which offsets may hold no record: none, or those that entries of the server take, such as offsets "
        "that consumers store. They are read a second time.",
    )
    identity: Identity = Field(
        default=Identity.STORED,
        description="What tells a stream from one that is made again under its name: a number that is stored in it, or "
        "its last published record alone, where the user may not store one. It stays as it was at the first plan.",
    )
    progress_consumer: Consumer | None = Field(
        default=None,
        description="A name under which the offset up to which all is published is stored, for tools that watch "
        "consumers. Tidemark never reads it.",
        examples=["tidemark-orders"],
    )

    @field_validator("super_stream")
    @classmethod
    def _streams_or_super_stream(cls, super_stream: str | None, info: ValidationInfo) -> str | None:
        streams = info.data.get("topics")
        if super_stream is None and streams == ():
            raise wrong("is missing, and so is streams: one of them must say which streams are read")
        if super_stream is not None and streams:
            raise wrong("is given beside streams: write one of them")
        return super_stream

    @field_validator("starting_offsets")
    @classmethod
    def _known_streams(cls, start: StartingOffsets, info: ValidationInfo) -> StartingOffsets:
        streams = info.data.get("topics")
        if isinstance(start, StreamOffsets) and streams:
            for stream in start.offsets:
                if stream not in streams:
                    raise wrong_at(
                        ("offsets", stream), with_nearest("is not in source.rabbitmq.streams", stream, streams)
                    )
        return start

    @property
    def rule(self) -> str | None:
        return self.super_stream

    def reads(self, topic: str) -> bool:
        """Return whether the pipeline reads a stream of this name.

        A member of a super stream has its name, a hyphen, and a number or a routing key.
        """
        return super().reads(topic) or (self.super_stream is not None and topic.startswith(f"{self.super_stream}-"))

    @property
    def described(self) -> str:
        return super().described if self.super_stream is None else f"all of the super stream {self.super_stream}"

    def connections(self) -> set[str]:
        return {self.connection}
