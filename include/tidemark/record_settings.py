"""How a record becomes a row of a pipeline: ``decode`` and ``event_time``."""

import json
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator

from tidemark import notation
from tidemark.errors import ConfigurationError
from tidemark.notation import wrong
from tidemark.sections import Duration, Section, Surroundings, wrong_at
from tidemark.suggestion import nearest


class OnError(StrEnum):
    """What becomes of a record that cannot be decoded, or not be placed in time."""

    FAIL = "fail"
    DEAD_LETTER = "dead_letter"


class DecodeFormat(StrEnum):
    JSON = "json"
    RAW = "raw"


class TimeSource(StrEnum):
    KAFKA_TIMESTAMP = "kafka_timestamp"


class TimeUnit(StrEnum):
    """The unit of an event time that is a whole number since 1970-01-01 UTC."""

    MILLISECONDS = "ms"
    SECONDS = "s"


def _read_schema(value: object, info: ValidationInfo) -> object:
    """The content instead of the path: an order must be complete without the files of this machine."""
    if not isinstance(value, str | dict):
        raise wrong("must be the name of a JSON Schema file, a JSON Schema, or columns such as id BIGINT, name STRING")
    if isinstance(value, dict) or not value.endswith(".json"):
        return value
    path = Surroundings.of(info).folder / value
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise wrong(f"names a file that cannot be read: {path}: {problem.strerror}") from None
    except RecursionError:
        raise wrong(f"names a file that is nested too deeply: {path}") from None
    except ValueError as problem:
        raise wrong(f"names a file that is not JSON: {path}: {problem}") from None


def _parsable(schema: str | dict[str, Any]) -> str | dict[str, Any]:
    _fields(schema)
    return schema


def _fields(schema: str | dict[str, Any]) -> dict[str, tuple[str, bool]]:
    """The Arrow type of each field, as text, and whether it may be null."""
    # Late, because it brings pyarrow, and a pipeline of raw records has no use for it.
    from tidemark.decoders import json_schema

    try:
        return {one.name: (str(one.type), one.arrow.nullable) for one in json_schema.parse(schema)}
    except ConfigurationError as problem:
        raise wrong(f"does not parse: {problem.what}") from None


class JsonDecode(Section):
    """One JSON object per record, checked strictly against ``record_schema`` (the key ``schema``)."""

    format: Literal[DecodeFormat.JSON]
    record_schema: Annotated[str | dict[str, Any], BeforeValidator(_read_schema), AfterValidator(_parsable)] = Field(
        alias="schema",
        description="A JSON Schema file (its name ends in .json), a JSON Schema, or columns as Spark DDL.",
        examples=["flights.schema.json", "id BIGINT NOT NULL, name STRING"],
    )

    tombstones: tuple[str, ...] = Field(
        default=(),
        description="Fields that the key of a record without a value holds as JSON; such a record deletes its row.",
        examples=[["product_id", "location_id"]],
    )

    @field_validator("tombstones")
    @classmethod
    def _known_fields(cls, tombstones: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        known = _fields(info.data["record_schema"]) if "record_schema" in info.data else {}
        for field in tombstones if known else ():
            if field not in known:
                close = nearest(field, known)
                raise wrong(" ".join(f"names {field}, which is not in the schema; {close}".split()).rstrip(";"))
        return tombstones

    def order(self) -> dict[str, Any]:
        """What the executors must know, complete without any file."""
        order = {"format": self.format.value, "schema": self.record_schema}
        return {**order, "tombstones": list(self.tombstones)} if self.tombstones else order

    def field_types(self) -> dict[str, str]:
        """The Arrow type, as text, of each top-level field."""
        return {name: kind for name, (kind, _) in _fields(self.record_schema).items()}

    def never_null(self) -> set[str]:
        """The top-level fields that every row has, also one made of a tombstone."""
        present = {name for name, (_, nullable) in _fields(self.record_schema).items() if not nullable}
        return present & set(self.tombstones) if self.tombstones else present


class RawDecode(Section):
    """Key, value, headers and timestamp as they are."""

    format: Literal[DecodeFormat.RAW]

    @property
    def tombstones(self) -> tuple[str, ...]:
        """None: a raw record without a value is a row like any other."""
        return ()

    def order(self) -> dict[str, Any]:
        return {"format": self.format.value}

    def field_types(self) -> dict[str, str]:
        """Columns by name; none of them can be a key or an event time."""
        return {}

    def never_null(self) -> set[str]:
        return set()


Decode = Annotated[JsonDecode | RawDecode, Field(discriminator="format")]


class EventTime(Section):
    """When a record happened. Neither ``field`` nor ``source`` set means Kafka's timestamp."""

    field: str | None = Field(default=None, min_length=1, description="The decoded field that holds the time.")
    source: TimeSource | None = Field(
        default=None, alias="from", validate_default=True, description="Instead of a field."
    )
    unit: TimeUnit = Field(
        default=TimeUnit.MILLISECONDS, description="Unit of a field that is a whole number since 1970."
    )
    timezone: Annotated[str, AfterValidator(notation.timezone)] = Field(
        default="UTC", description="IANA zone of times that name none.", examples=["UTC", "Europe/Berlin"]
    )
    allowed_lateness: Duration = Field(
        default=timedelta(),
        description="How long after its time a record may reach Kafka and not be counted as late.",
        json_schema_extra={"default": "0s"},
    )
    on_invalid: OnError = Field(default=OnError.FAIL, description="What to do with a record without a usable time.")

    @field_validator("source")
    @classmethod
    def _one_source(cls, source: TimeSource | None, info: ValidationInfo) -> TimeSource | None:
        if source is not None and info.data.get("field") is not None:
            raise wrong("is set beside field: only one of them may say where the time is")
        return source

    def order(self) -> dict[str, Any]:
        """What the executors must know; a ``field`` of None is Kafka's timestamp."""
        return {
            "field": self.field,
            "timezone": self.timezone,
            "unit": self.unit.value,
            "allowed_lateness_s": self.allowed_lateness.total_seconds(),
            "on_invalid": self.on_invalid.value,
        }


def check_field(event_time: EventTime, decode: JsonDecode | RawDecode) -> None:
    """Refuse an event time whose field the decoded records do not have, or that can hold no time."""
    if event_time.field is None:
        return
    if isinstance(decode, RawDecode):
        raise wrong_at("field", "needs decoded fields, and raw records have none; write from: kafka_timestamp")
    types = decode.field_types()
    kind = types.get(event_time.field)
    if kind is None:
        close = nearest(event_time.field, types)
        raise wrong_at("field", " ".join(f"is not in the schema; {close} allowed: {', '.join(types)}".split()))
    if not kind.startswith(("timestamp", "date", "string", "int")):
        raise wrong_at("field", f"is {kind} in the schema; a time is a date-time, a date, text or a whole number")
