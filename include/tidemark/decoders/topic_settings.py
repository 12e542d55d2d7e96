"""``decode`` as a list: a decoder per topic, ``[{topics: [..], format: ..}, ..]``."""

from dataclasses import dataclass, replace
from typing import Any, Self

import pyarrow as pa
from pydantic import Field, model_validator

from tidemark.config.base import Pattern, Topic
from tidemark.config.values import wrong
from tidemark.decoders.by_topic.topic_filter import TopicFilter, problem_with_topic
from tidemark.decoders.by_topic.united import united
from tidemark.decoders.pins import Pins
from tidemark.decoders.settings import DecodeSettings, RowSettings
from tidemark.errors import ConfigurationError


class TopicSettings(DecodeSettings):
    """The keys of an entry of the list beside those of its format: ``topics``, ``topics_regex``, or both."""

    topics: tuple[Topic, ...] = Field(
        default=(),
        description="Only in [a list of entries](#topics-of-several-formats): the topics that are decoded so.",
        examples=[["flights"]],
    )
    topics_regex: Pattern | None = Field(
        default=None,
        description="The same, for each topic whose whole name matches.",
        examples=["orders-.*"],
    )

    @model_validator(mode="after")
    def _some_topics(self) -> Self:
        if not self.topics and self.topics_regex is None:
            raise wrong("names no topics: each entry of a list needs topics, topics_regex, or both")
        return self

    def topic_filter(self) -> TopicFilter:
        return TopicFilter(self.topics, self.topics_regex)


@dataclass(frozen=True)
class DecodeByTopic:
    """One format for each entry. The object is also its own ``rows``, which have the columns of all entries."""

    entries: tuple[TopicSettings, ...]

    @property
    def format(self) -> str:
        return " and ".join(dict.fromkeys(entry.format for entry in self.entries))

    def problem_with_topic(self, topic: str) -> str | None:
        return problem_with_topic(topic, [entry.topic_filter() for entry in self.entries])

    def finds_unknown_fields(self) -> bool:
        return any(entry.finds_unknown_fields() for entry in self.entries)

    def connections(self) -> set[str]:
        return set[str]().union(*(entry.connections() for entry in self.entries))

    def uses_registry(self) -> bool:
        return any(entry.uses_registry() for entry in self.entries)

    def pinned(self, pins: Pins) -> "DecodeByTopic":
        """Return the same with all schemas pinned. An entry without ``schema`` uses the subject of its only topic."""
        return DecodeByTopic(
            tuple(
                entry.pinned(replace(pins, topics=entry.topics if entry.topics_regex is None else ()))
                for entry in self.entries
            )
        )

    def decides_output(self) -> dict[str, Any]:
        return {"by_topic": [entry.decides_output() for entry in self.entries]}

    def pinned_output(self) -> dict[str, Any]:
        """Return the pinned schemas, by the number of the entry."""
        outputs = {str(index): entry.pinned_output() for index, entry in enumerate(self.entries)}
        return {index: output for index, output in outputs.items() if output}

    def record_order(self) -> dict[str, Any]:
        return {
            "by_topic": [{**entry.topic_filter().order(), "decode": entry.record_order()} for entry in self.entries]
        }

    def columns(self) -> dict[str, str] | None:
        columns: dict[str, str] = {}
        for entry in self.entries:
            known = entry.columns()
            if known is None:
                return None
            columns |= {name: kind for name, kind in known.items() if name not in columns}
        return columns

    def field_types(self) -> dict[str, str]:
        return self.columns() or {}

    def never_null(self) -> set[str]:
        return set.intersection(*(entry.never_null() for entry in self.entries))

    def record_key(self) -> tuple[str, ...] | None:
        return None

    def problem_with_record_key(self) -> str | None:
        return "is record_key, and the entries of decode have keys of their own: list the columns in its place"

    def tombstone_fields(self) -> tuple[str, ...]:
        """Return the columns that every tombstone has."""
        named = [entry.tombstone_fields() for entry in self.entries if entry.tombstone_fields()]
        return tuple(field for field in named[0] if all(field in fields for fields in named)) if named else ()

    def fans_out(self) -> bool:
        return False

    def rows(self) -> RowSettings | None:
        return None if self.columns() is None else self

    def arrow_schema(self) -> pa.Schema:
        return united([rows.arrow_schema() for entry in self.entries if (rows := entry.rows()) is not None])

    def problem_with_columns(self) -> str | None:
        """Return why the columns of the entries do not fit together; None if they do, or if some are not known yet."""
        for index, entry in enumerate(self.entries):
            if problem := entry.problem_with_columns():
                return f"entry {index} {problem}"
        if not self.tombstone_fields() and sum(bool(entry.tombstones) for entry in self.entries) > 1:
            return "has tombstones without a common field: give all entries with tombstones the same fields"
        if self.columns() is None:
            return None
        try:
            self.arrow_schema()
        except ConfigurationError as error:
            return f"cannot give one table: {error.what}; {error.next_step}"
        return None


RecordSettings = DecodeSettings | DecodeByTopic
"""``decode`` of a pipeline file: one format, or one for each entry of a list."""
