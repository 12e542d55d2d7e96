"""``starting_offsets`` of a pipeline file: a word, a time, the name of a consumer group, or offsets by partition."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, StrictInt, WithJsonSchema

from tidemark.config import values
from tidemark.config.base import Topic
from tidemark.sources.starting_points import CommonStart, StartMapping, json_schema_of_start, read_start

LAST_OFFSET: Final = 2**63 - 1


@dataclass(frozen=True)
class CommittedOffsets:
    """Start where a consumer group has committed."""

    group: str


@dataclass(frozen=True)
class ExplicitOffsets:
    """Start at these offsets, by topic and partition."""

    offsets: Mapping[str, Mapping[int, int]]


Partition = Annotated[int, BeforeValidator(values.partition)]
Offset = Annotated[StrictInt, Field(ge=0, le=LAST_OFFSET)]


class StartingPoint(StartMapping):
    """``starting_offsets`` as a mapping, with exactly one key."""

    starts: ClassVar = {"group": CommittedOffsets, "offsets": ExplicitOffsets}

    group: Annotated[str, AfterValidator(values.group)] | None = Field(
        default=None, description="A consumer group that has stopped: start where it has committed."
    )
    offsets: dict[Topic, dict[Partition, Offset]] | None = Field(
        default=None, description="An offset for every partition, by topic and partition."
    )


def _starting_offsets(value: object) -> Any:
    return read_start(value, StartingPoint, ("{group: NAME}", "{offsets: {TOPIC: {PARTITION: OFFSET}}}"))


_PARTITIONS: Final[dict[str, Any]] = {
    "type": "object",
    "propertyNames": {"pattern": values.PARTITION_PATTERN},
    "additionalProperties": {"type": "integer", "minimum": 0, "maximum": LAST_OFFSET},
}
StartingOffsets = Annotated[
    CommonStart | CommittedOffsets | ExplicitOffsets,
    PlainValidator(_starting_offsets, json_schema_input_type=StartingPoint),
    WithJsonSchema(
        json_schema_of_start(
            {
                "group": {"type": "string", "minLength": 1, "maxLength": 255, "default": None},
                "offsets": {"type": "object", "additionalProperties": _PARTITIONS, "default": None},
            },
            {"group": "connect-flights"},
        )
    ),
]
