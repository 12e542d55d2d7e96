"""``aggregate``: what sinks of totals add up, by which key."""

import json
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, WithJsonSchema, field_validator, model_validator

from tidemark.config.base import Duration, Section, wrong_at
from tidemark.config.values import wrong
from tidemark.decoders.settings import NULLABLE, RowSettings
from tidemark.errors import SinkRefused
from tidemark.providers.postgres.aggregates.value_columns import WINDOW, WORDS, Function, ValueColumn, value_columns
from tidemark.text import with_nearest

PLACES = ("_topic", "_partition")  # the place of a record in its source, never null
CONTRIBUTIONS = "_contributions"  # the suffix of the table beside the totals
COLUMN_PATTERN = "^[a-z][a-z0-9_]{0,55}$"  # PostgreSQL has 63 bytes, and an average adds a suffix
_EXACT = ("int", "uint", "decimal")
_UNORDERED = ("bool", "binary", "list", "struct", "map")


def _value(text: str) -> str:
    if not re.match(WORDS, text):
        raise wrong("must be count, or one of count, sum, min, max and average of a column, such as sum(price)")
    return text


Value = Annotated[str, AfterValidator(_value), WithJsonSchema({"type": "string", "pattern": WORDS})]


class Aggregate(Section):
    """The values that are added up, and the key.

    A key is a value of each column in ``group_by``, in one window of event time.
    """

    group_by: tuple[str, ...] = Field(
        default=(),
        description="The columns that make a key; none may be null, and `_topic` and `_partition` are allowed.",
        examples=[["product_id"]],
    )
    window: Duration | None = Field(
        default=None,
        description="The length of a window of event time, such as `1h`. Windows begin at 1970-01-01 UTC, so those "
        "of `7d` begin on Thursdays. Without it, all time is one window.",
        examples=["1h", "1d"],
    )
    values: dict[str, Value] = Field(
        description="Column of the table: `count`, or `count`, `sum`, `min`, `max` or `average` of a column, such "
        "as `sum(price)`.",
        examples=[{"orders": "count", "revenue": "sum(price)"}],
        json_schema_extra={"minProperties": 1, "propertyNames": {"pattern": COLUMN_PATTERN}},
    )

    @field_validator("group_by")
    @classmethod
    def _unique_key(cls, group_by: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(group_by)) < len(group_by):
            raise wrong("must name each column once")
        if WINDOW in group_by:
            raise wrong(f"may not have {WINDOW}: that column holds the window")
        return group_by

    @field_validator("window")
    @classmethod
    def _whole_seconds(cls, window: timedelta | None) -> timedelta | None:
        if window is not None and window < timedelta(seconds=1):
            raise wrong("must be 1s or longer")
        return window

    @model_validator(mode="after")
    def _separate_columns(self) -> Self:
        if not self.group_by and self.window is None:
            raise wrong_at("group_by", "is missing, and so is window: one of them makes the key of a total")
        if not self.values:
            raise wrong_at("values", "must have at least one entry")
        columns = [*self.key]
        for name, text in self.values.items():
            if not re.match(COLUMN_PATTERN, name):
                raise wrong_at(("values", name), "must be a column of 1 to 56 lower-case letters, digits and _")
            for column in value_columns({name: text}):
                if column.name in columns:
                    raise wrong_at(("values", name), f"gives a second column {column.name}")
                columns.append(column.name)
        return self

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a total."""
        return self.group_by + ((WINDOW,) if self.window else ())

    @property
    def value_columns(self) -> tuple[ValueColumn, ...]:
        return tuple(value_columns(self.values))

    def order(self) -> dict[str, Any]:
        """Return what the executors need."""
        seconds = int(self.window.total_seconds()) if self.window else None
        return {
            "group_by": list(self.group_by),
            "window_s": seconds,
            "parts": [column.as_dict() for column in self.value_columns],
        }

    def definition(self) -> str:
        """Return the definition of a table of totals as text. Two definitions in one table would mix."""
        return json.dumps(self.order())

    def refuse_other_totals(self, pipeline_name: str, owner: str, definition: str, **context: object) -> None:
        """Raise ``SinkRefused`` if a table holds totals with another definition, or those of another pipeline."""
        own = owner == pipeline_name
        if own and definition == self.definition():
            return
        what = "by another aggregate than this one" if own else f"of pipeline {owner}"
        put_back = "put the aggregate that they were made by back into the pipeline file; or " if own else ""
        raise SinkRefused(
            f"the table holds totals {what}, and the two would mix",
            next_step=f"nothing was written; {put_back}give this sink another table and another name, then: "
            f"tidemark fill {pipeline_name} NAME --why TEXT",
            **context,
        )

    def problem_with(self, rows: RowSettings) -> str | None:
        """Return why these rows cannot be added up, as a sentence that continues a key; None if they can."""
        types, never_null = rows.field_types(), rows.never_null()
        if rows.tombstone_fields():
            return "may not have decode.tombstones: a deletion takes nothing away from totals; use a filter instead"
        return self._problem_with_key(types, never_null) or self._problem_with_values(types)

    def _problem_with_key(self, types: Mapping[str, str], never_null: set[str]) -> str | None:
        for column in self.group_by:
            if column in PLACES:
                continue
            if column not in types:
                return with_nearest(f"has no column {column} for its group_by", column, types, listed=True)
            if column not in never_null:
                return f"may not have {column} in its group_by: {NULLABLE}"
            if types[column].startswith(("list", "struct", "map", "double", "float")):
                return f"may not have {column} in its group_by: it is {types[column]}"
        return None

    def _problem_with_values(self, types: Mapping[str, str]) -> str | None:
        for column in self.value_columns:
            if column.source is None:
                continue
            if column.source not in types:
                return with_nearest(f"has no column {column.source} for its values", column.source, types, listed=True)
            kind = types[column.source]
            if column.function is Function.SUM and not kind.startswith(_EXACT):
                return (
                    f"may not add up {column.source}: it is {kind}, and only whole numbers and decimals have one exact "
                    "sum; declare it as DECIMAL(p, s), or cast it in transform"
                )
            if column.function in (Function.MIN, Function.MAX) and kind.startswith(_UNORDERED):
                return f"may not have {column.function}({column.source}): it is {kind}"
        return None
