"""``event_time`` of a pipeline file: the time of a record, which decides its folder."""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from tidemark.config import values
from tidemark.config.base import Duration, Section, wrong_at
from tidemark.config.values import wrong
from tidemark.decoders.settings import RowSettings
from tidemark.order import OnError, TimeUnit
from tidemark.suggestion import with_nearest


class TimeSource(StrEnum):
    KAFKA_TIMESTAMP = "kafka_timestamp"


class EventTimeSettings(Section):
    """When a record happened: Kafka's timestamp when neither ``field`` nor ``source`` is set."""

    field: str | None = Field(default=None, min_length=1, description="The decoded field that holds the time.")
    source: TimeSource | None = Field(
        default=None, alias="from", validate_default=True, description="Instead of a field."
    )
    unit: TimeUnit = Field(
        default=TimeUnit.MILLISECONDS, description="Unit of a field that is a whole number since 1970."
    )
    timezone: Annotated[str, AfterValidator(values.timezone)] = Field(
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
        """What the executors need; a ``field`` of None is Kafka's timestamp."""
        return {
            "field": self.field,
            "timezone": self.timezone,
            "unit": self.unit.value,
            "allowed_lateness_s": self.allowed_lateness.total_seconds(),
            "on_invalid": self.on_invalid.value,
        }


def check_field(event_time: EventTimeSettings, rows: RowSettings) -> None:
    """Raise unless the rows have the field of an event time, with a type that can hold a time."""
    if event_time.field is None:
        return
    types = rows.field_types()
    if not types:
        raise wrong_at(
            "field", f"needs decoded fields, and {rows.format} records have none; write from: kafka_timestamp"
        )
    kind = types.get(event_time.field)
    if kind is None:
        raise wrong_at("field", with_nearest("is not in the schema", event_time.field, types, listed=True))
    if not kind.startswith(("timestamp", "date", "string", "int")):
        raise wrong_at("field", f"is {kind} in the schema; a time is a date-time, a date, text or a whole number")
