"""``event_time`` of a pipeline file: the time of a record, which decides its folder."""

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, WithJsonSchema, field_validator
from pydantic import model_validator as check

from tidemark.config import values
from tidemark.config.base import Duration, Section, wrong_at
from tidemark.config.values import wrong
from tidemark.decoders.settings import RowSettings
from tidemark.decoders.topic_settings import DecodeByTopic
from tidemark.model.order import OnInvalid, TimeUnit
from tidemark.text import with_nearest
from tidemark.times.time_pattern import TimePattern

LATEST = datetime(2200, 1, 1, tzinfo=UTC)


class TimeSource(StrEnum):
    SOURCE_TIMESTAMP = "source_timestamp"


def _pattern(value: str) -> str:
    try:
        TimePattern(value)
    except ValueError as problem:
        raise wrong(str(problem)) from None
    return value


def _earliest(value: object) -> datetime:
    moment = values.moment(value, ())
    if moment >= LATEST:
        raise wrong(f"is not before {LATEST:%Y-%m-%d}")
    return moment


class EventTimeSettings(Section):
    """The time at which a record happened. Without ``field``, ``header`` and ``source`` it is the source's
    timestamp.
    """

    field: str | None = Field(
        default=None,
        min_length=1,
        description="The decoded field with the time, or a path such as `meta.created.at` (a field with a dot in its "
        "name wins): a date-time, a date, text (RFC 3339, else `pattern`, `unit`), or a whole number "
        "since 1970.",
        examples=["created_at", "meta.created.at"],
    )
    header: str | None = Field(
        default=None,
        min_length=1,
        description="Instead of a field: the header with the time as text; of several the last.",
    )
    source: TimeSource | None = Field(
        default=None,
        alias="from",
        validate_default=True,
        description="Use the record's timestamp in the source: the default without `field` and `header`.",
    )
    unit: TimeUnit | None = Field(
        default=None,
        description="The unit of whole numbers since 1970; without it `ms`, and texts are no numbers.",
    )
    pattern: Annotated[str, AfterValidator(_pattern)] | None = Field(
        default=None,
        description='How a text holds the time when it is not RFC 3339, such as `"%d/%b/%Y:%H:%M:%S %z"`: '
        "[patterns](#patterns-of-times).",
        examples=["%d/%b/%Y:%H:%M:%S %z"],
    )
    timezone: Annotated[str, AfterValidator(values.timezone)] = Field(
        default="UTC",
        description="The zone of times that name none, such as `Europe/Berlin`. Folders are always in UTC.",
        examples=["UTC", "Europe/Berlin"],
    )
    allowed_lateness: Duration = Field(
        default=timedelta(),
        description="How long after its event time a record may arrive without counting as late; no late record is "
        "dropped. An hour is [complete](operations.md#hours) this long after its end at the earliest.",
        json_schema_extra={"default": "0s"},
    )
    on_invalid: OnInvalid = Field(
        default=OnInvalid.FAIL,
        description="What becomes of a record without a usable time. `source_timestamp`: that is its event time; when "
        "it is not usable either, it is a dead letter.",
    )
    min: Annotated[datetime, BeforeValidator(_earliest), WithJsonSchema({"type": "string", "format": "date-time"})] = (
        Field(
            default=datetime(1970, 1, 1, tzinfo=UTC),
            description="An earlier time is not usable. A time in the year 2200 or later is never usable.",
            json_schema_extra={"default": "1970-01-01T00:00:00Z"},
        )
    )
    max_ahead: Duration | None = Field(
        default=None,
        description="A time further than this after the record's timestamp in the source is not usable: no thousands "
        "of folders by a wrong clock.",
    )

    @field_validator("header", "source")
    @classmethod
    def _one_source(cls, source: str | None, info: ValidationInfo) -> str | None:
        others = [key for key in ("field", "header") if key != info.field_name and info.data.get(key) is not None]
        if source is not None and others:
            raise wrong(f"is set beside {others[0]}: only one of them may say where the time is")
        return source

    @check(mode="after")
    def _one_way_to_read(self) -> Self:
        if self.pattern is not None and self.unit is not None:
            raise wrong_at("pattern", "is set beside unit: a text is a pattern or a whole number")
        if self.pattern is not None and self.field is None and self.header is None:
            raise wrong_at("pattern", "needs a field or a header with the text")
        return self

    def order(self) -> dict[str, Any]:
        """Return what the executors need. Without ``field`` and ``header``, event time is the source's timestamp."""
        return {
            "field": self.field,
            "header": self.header,
            "timezone": self.timezone,
            "unit": self.unit and self.unit.value,
            "pattern": self.pattern,
            "allowed_lateness_s": self.allowed_lateness.total_seconds(),
            "on_invalid": self.on_invalid.value,
            "min": self.min.isoformat(),
            "max_ahead_s": None if self.max_ahead is None else self.max_ahead.total_seconds(),
        }


def check_field(event_time: EventTimeSettings, rows: RowSettings) -> None:
    """Raise if the rows lack the field of an event time, or if it has a type that cannot hold a time."""
    if event_time.field is None:
        return
    types = rows.field_types()
    if isinstance(rows, DecodeByTopic) and event_time.on_invalid is not OnInvalid.SOURCE_TIMESTAMP:
        _check_entries(event_time.field, rows)
    if not types:
        raise wrong_at(
            "field", f"needs decoded fields, and {rows.format} records have none; write from: source_timestamp"
        )
    kind = _member(types, event_time.field)
    if kind is None:
        raise wrong_at("field", with_nearest("is not in the schema", event_time.field, _paths(types), listed=True))
    if not kind.startswith(("timestamp", "date", "string", "int", "uint")):
        raise wrong_at("field", f"is {kind} in the schema; a time is a date-time, a date, text or a whole number")
    if event_time.pattern is not None and kind != "string":
        raise wrong_at("pattern", f"is for text, and {event_time.field} is {kind} in the schema")


def _check_entries(path: str, decode: DecodeByTopic) -> None:
    """Raise for topics whose schema lacks the field while others have it: none of their records would have a time."""
    lacking = [entry for entry in decode.entries if _member(entry.columns() or {}, path) is None]
    if lacking and len(lacking) < len(decode.entries):
        named = [name for entry in lacking for name in (*entry.topics, entry.topics_regex) if name]
        raise wrong_at(
            "field",
            f"is {path}, which the schema of topic {', '.join(named)} does not have; add it there, make it with "
            "transform, or write on_invalid: source_timestamp",
        )


def _member(types: dict[str, str], path: str) -> str | None:
    """Return the type of a field, or of a member of structs, as text; None if no field has this path."""
    if path in types:
        return types[path]
    members, kind = types, None
    for name in path.split("."):
        kind = members.get(name)
        if kind is None:
            return None
        members = _members(kind)
    return kind


def _members(kind: str) -> dict[str, str]:
    """Return the members of a type as Arrow writes it, such as ``struct<a: int64, b: list<item: string>>``; no members
    if it is not a struct.
    """
    if not kind.startswith("struct<"):
        return {}
    pieces, depth = [""], 0
    for sign in kind.removeprefix("struct<")[:-1]:
        depth += {"<": 1, "[": 1, "(": 1, ">": -1, "]": -1, ")": -1}.get(sign, 0)
        if sign == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += sign
    named = [piece.strip().removesuffix(" not null").partition(": ") for piece in pieces]
    return {name: member for name, _, member in named}


def _paths(types: dict[str, str]) -> list[str]:
    """Return the paths that may be written: fields at the top, and members of structs below them."""
    paths = []
    for name, kind in types.items():
        members = _members(kind)
        paths += [f"{name}.{path}" for path in _paths(members)] if members else [name]
    return paths
