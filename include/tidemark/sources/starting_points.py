"""The values that ``starting_offsets`` may have for every source: earliest, latest or a time. A kind adds its own
mapping."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Final, Literal, assert_never

from tidemark.config import values
from tidemark.config.base import Section
from tidemark.config.values import wrong
from tidemark.model.offsets import TopicPartition
from tidemark.model.partitions import Bounds

CommonStart = Literal["earliest", "latest"] | datetime
_WORDS: Final = ("earliest", "latest")


class StartMapping(Section):
    """``starting_offsets`` as a mapping with exactly one key; ``starts`` has for each key the function that builds the
    start."""

    starts: ClassVar[Mapping[str, Callable[[Any], Any]]]

    def settings(self) -> Any:
        """Return the start that the key defines; raise if there is no key, or more than one."""
        given = [(name, value) for name, value in self if value is not None]
        if len(given) != 1:
            raise wrong(f"must hold one key: {' or '.join(self.starts)}")
        [(name, value)] = given
        return self.starts[name](value)


def read_start(value: object, mapping: type[StartMapping], shapes: tuple[str, ...]) -> Any:
    """Return a word, a time in UTC, or the start of a mapping. ``shapes`` are the allowed mappings, for the message."""
    if isinstance(value, Mapping):
        return mapping.model_validate(value).settings()
    return value if isinstance(value, str) and value in _WORDS else values.moment(value, _WORDS, shapes)


def json_schema_of_start(mapping: Mapping[str, Any], example: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of ``starting_offsets``. ``mapping`` has the schemas of the keys that this kind's mapping
    has."""
    of_mapping = {
        "type": "object",
        "properties": mapping,
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }
    return {
        "anyOf": [{"enum": list(_WORDS)}, {"type": "string", "format": "date-time"}, of_mapping],
        "examples": ["earliest", "2024-01-31T00:00:00Z", example],
    }


def common_starts(
    wanted: CommonStart,
    bounds: Mapping[TopicPartition, Bounds],
    offsets_at: Callable[[Sequence[TopicPartition], datetime], Mapping[TopicPartition, tuple[int, datetime] | None]],
) -> dict[TopicPartition, int]:
    """Return the first offset to read of every partition, inside its bounds."""
    match wanted:
        case "earliest":
            return {place: bound.log_start for place, bound in bounds.items()}
        case "latest":
            return {place: bound.last_stable for place, bound in bounds.items()}
        case datetime() as when:
            answers = offsets_at(list(bounds), when)
            # A record of an open transaction, or one that arrived since, lies above the last stable offset.
            return {
                place: min(answer[0], bounds[place].last_stable) if answer else bounds[place].last_stable
                for place, answer in answers.items()
            }
        case other:
            assert_never(other)
