"""The units of times and dates that Debezium writes as numbers, counted from 1970-01-01.

The connector's ``time.precision.mode`` decides the unit. If a record has a schema, the name of a field's type gives the
unit; a column of another format needs it from the pipeline file.
"""

from enum import StrEnum
from typing import Final


class Unit(StrEnum):
    DAYS = "days"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"
    NANOSECONDS = "ns"


class Decimals(StrEnum):
    """The meaning of a text for a decimal in JSON without a schema: Debezium's decimal.handling.mode."""

    BASE64 = "base64"  # precise
    TEXT = "text"  # string


NAMED: Final = {  # the unit by the name of a field's type, which is based on a number
    "io.debezium.time.Date": Unit.DAYS,
    "io.debezium.time.Timestamp": Unit.MILLISECONDS,
    "io.debezium.time.MicroTimestamp": Unit.MICROSECONDS,
    "io.debezium.time.NanoTimestamp": Unit.NANOSECONDS,
    "org.apache.kafka.connect.data.Date": Unit.DAYS,
    "org.apache.kafka.connect.data.Timestamp": Unit.MILLISECONDS,
}
"""Source: "Temporal types" of Debezium's connector for PostgreSQL."""
