"""PostgreSQL's types with difficult values, and the value that a copy of each must have.

The source itself computes the right value: with ``to_jsonb``, or another expression if Debezium writes another form of
the same value. A copy may have any format and any target, so both sides are converted to a comparable form.
"""

import json
import math
import struct
from base64 import b64decode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

Comparable = Callable[[Any], Any]


def number(value: Any) -> Any:
    """A number without the zeros at its end; NaN and infinities as text."""
    made = Decimal(str(value))
    return made.normalize() if made.is_finite() else str(made)


def double(value: Any) -> str:
    made = float(str(value).replace("Infinity", "inf"))
    return "nan" if math.isnan(made) else repr(made)


def single(value: Any) -> str:
    made = float(str(value).replace("Infinity", "inf"))
    return "nan" if math.isnan(made) else repr(struct.unpack("f", struct.pack("f", made))[0])


def text(value: Any) -> Any:
    return value


def document(value: Any) -> Any:
    """Return what a JSON text holds, or the map itself."""
    return json.loads(value) if isinstance(value, str) else dict(value)


def content(value: Any) -> bytes:
    """Bytes, which the source writes as base64."""
    return b64decode(value) if isinstance(value, str) else bytes(value)


def bits(value: Any) -> bytes:
    """Bits as Debezium writes them: the lowest byte first. Zeros at the end say nothing."""
    if isinstance(value, str) and set(value) <= {"0", "1"} and not value.isspace():
        whole = int(value or "0", 2)
        return whole.to_bytes((whole.bit_length() + 7) // 8, "little")
    return content(value).rstrip(b"\0")


def moment(value: Any) -> str:
    """A moment in UTC; of the source, what ISO 8601 has no form for stays as it is."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return value
    value = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return str(value.isoformat(timespec="microseconds"))


def day(value: Any) -> str:
    return value.isoformat() if isinstance(value, date) else str(value)


def point(value: Any) -> tuple[str, str]:
    made = document(value)
    return double(made["x"]), double(made["y"])


def list_of(part: Comparable) -> Comparable:
    return lambda value: [None if each is None else part(each) for each in (document_list(value))]


def document_list(value: Any) -> list[Any]:
    return json.loads(value) if isinstance(value, str) else list(value)


@dataclass(frozen=True)
class SourceType:
    """One type. ``line`` is its column in ``decode.schema``; ``unit`` is its entry in ``times``, for records without a
    schema.

    ``right`` is the expression, for a column ``{}``, of the value that a copy must have. ``values`` are in SQL.
    """

    name: str
    sql: str
    line: str
    values: Sequence[str]
    comparable: Comparable = text
    right: str = "to_jsonb({})"
    unit: str | None = None
    refused: Sequence[str] = ()  # values that are null, or that no column can hold
    sent: bool = True  # whether the connector has a form for it


_TIMES: Final = ("'2024-02-29 01:02:03.123456'", "'1969-12-31 23:59:59.999999'", "'0001-01-01 00:00:00'",
                 "'9999-12-31 23:59:59.999999'", "'1500-01-01 00:00:00'")  # fmt: skip
_NO_TIMES: Final = ("'0044-03-15 BC'", "'10000-01-01'", "'infinity'", "'-infinity'")
_WITH_ZONE: Final = tuple(f"{value[:-1]}+00'" for value in _TIMES)
_STRINGS: Final = {
    "varchar_20": ("varchar(20)", ["'ab'", "''", "'žluť 🐎'"]),
    "text_": ("text", ["'ab'", "E'line\\nbreak \\\"q\\\" \\\\ back'", "'𝄞'"]),
    "char_5": ("char(5)", ["'ab'", "'abcde'"]),
    "citext_": ("citext", ["'Ab'"]),
    "uuid_": ("uuid", ["'6f1c2d3e-0000-4000-8000-00000000000a'"]),
    "xml_": ("xml", ["'<a>1</a>'"]),
    "enum_": ("mood", ["'ok'", "'happy'"]),
    "inet_": ("inet", ["'10.1.2.3'", "'10.1.2.0/24'", "'::1'"]),
    "cidr_": ("cidr", ["'10.1.2.0/24'"]),
    "macaddr_": ("macaddr", ["'08:00:2b:01:02:03'"]),
    "macaddr8_": ("macaddr8", ["'08:00:2b:01:02:03:04:05'"]),
    "ltree_": ("ltree", ["'Top.Science'"]),
    "int4range_": ("int4range", ["'[1,5)'", "'empty'", "'[1,)'"]),
    "int8range_": ("int8range", ["'[1,5)'"]),
    "numrange_": ("numrange", ["'[1.5,5)'"]),
    "daterange_": ("daterange", ["'[2024-01-01,2024-02-01)'"]),
    "tsrange_": ("tsrange", ["'[2024-01-01 00:00,2024-02-01 00:00)'"]),
    "tstzrange_": ("tstzrange", ["'[2024-01-01 00:00+00,2024-02-01 00:00+00)'"]),
}
TYPES: Final[tuple[SourceType, ...]] = (
    SourceType("smallint_", "smallint", "SMALLINT", ["12", "-32768", "32767"]),
    SourceType("integer_", "integer", "INT", ["12", "-2147483648", "2147483647"]),
    SourceType("bigint_", "bigint", "BIGINT", ["12", "-9223372036854775808", "9223372036854775807"]),
    SourceType("oid_", "oid", "BIGINT", ["12", "4294967295"], number),
    SourceType("domain_", "posint", "INT", ["12"]),
    SourceType("numeric_10_2", "numeric(10,2)", "DECIMAL(10,2)", ["12.30", "-99999999.99", "0.01", "0"], number,
               refused=["'NaN'"]),
    SourceType("numeric_38_10", "numeric(38,10)", "DECIMAL(38,10)",
               ["12.3", "-9999999999999999999999999999.9999999999", "0.0000000001"], number),
    SourceType("numeric_5_0", "numeric(5,0)", "DECIMAL(5,0)", ["12", "-99999"], number),
    SourceType("numeric_60_20", "numeric(60,20)", "DECIMAL(38,20)", ["12.3"], number,
               refused=["1234567890123456789012345678901234567890.12345678901234567890"]),
    SourceType("numeric_", "numeric", "STRING", ["12.3", "-0.000001", "123456789012345678901234567890.12345678"],
               number, refused=["'NaN'", "'Infinity'", "'-Infinity'"]),
    SourceType("domain_price", "price", "DECIMAL(10,2)", ["12.30"], number),
    SourceType("money_", "money", "DECIMAL(38,2)", ["12.34", "-92233720368547758.08"], number, "to_jsonb({}::numeric)"),
    SourceType("real_", "real", "FLOAT", ["1.1", "-3.4e38", "1e-40", "'NaN'", "'Infinity'"], single),
    SourceType("double_", "double precision", "DOUBLE",
               ["1.1", "-1.7976931348623157e308", "5e-324", "0.1", "'NaN'", "'Infinity'", "'-Infinity'"], double),
    SourceType("boolean_", "boolean", "BOOLEAN", ["true", "false"]),
    SourceType("bit_1", "bit(1)", "BOOLEAN", ["B'1'", "B'0'"], right="to_jsonb({} = B'1')"),
    SourceType("bit_12", "bit(12)", "BINARY", ["B'100000000001'"], bits, "to_jsonb({}::text)"),
    SourceType("varbit_", "bit varying", "BINARY", ["B'1000000000010'"], bits, "to_jsonb({}::text)"),
    *(SourceType(name, sql, "STRING", values) for name, (sql, values) in _STRINGS.items()),
    SourceType("json_", "json", "STRING", ["'{\"b\": 1, \"a\": [1.50]}'", "'null'", "'\"x\"'"],
               right="to_jsonb({}::text)"),
    SourceType("jsonb_", "jsonb", "STRING", ["'{\"b\": 1, \"a\": [1.50]}'", "'12345678901234567890.10'"],
               right="to_jsonb({}::text)"),
    SourceType("bytea_", "bytea", "BINARY", ["'\\x0102ff'", "'\\x'", "'\\x00'"], content,
               "to_jsonb(encode({}, 'base64'))"),
    SourceType("hstore_", "hstore", "STRING", ["'a=>1, b=>NULL'", "''"], document),
    SourceType("date_", "date", "DATE", ["'2024-02-29'", "'1969-12-31'", "'0001-01-01'", "'9999-12-31'"], day,
               unit="days", refused=_NO_TIMES),
    SourceType("timestamp_", "timestamp", "TIMESTAMP", _TIMES, moment, unit="us", refused=_NO_TIMES),
    SourceType("timestamp_3", "timestamp(3)", "TIMESTAMP", ["'2024-02-29 01:02:03.123'", "'1969-12-31 23:59:59.999'"],
               moment, unit="ms"),
    SourceType("timestamp_0", "timestamp(0)", "TIMESTAMP", ["'2024-02-29 01:02:03'"], moment, unit="ms"),
    SourceType("timestamptz_", "timestamptz", "TIMESTAMP", _WITH_ZONE, moment, refused=_NO_TIMES),
    SourceType("timestamptz_3", "timestamptz(3)", "TIMESTAMP", ["'2024-02-29 01:02:03.123+05:30'"], moment),
    SourceType("time_", "time", "BIGINT", ["'01:02:03.123456'", "'00:00:00'", "'23:59:59.999999'"],
               right="to_jsonb((extract(epoch FROM {}) * 1000000)::bigint)"),
    SourceType("timetz_", "timetz", "STRING", ["'01:02:03.123456+02'", "'23:59:59.999999-12'"],
               right="to_jsonb(replace(({} AT TIME ZONE 'UTC')::text, '+00', 'Z'))"),
    SourceType("interval_", "interval", "BIGINT", ["'1 day 02:03:04.5'", "'-3 days'"],
               right="to_jsonb((extract(epoch FROM {}) * 1000000)::bigint)"),
    SourceType("point_", "point", "STRUCT<x: DOUBLE, y: DOUBLE, wkb: BINARY, srid: INT>", ["'(1.5,-2.25)'"], point,
               "CASE WHEN {0} IS NOT NULL THEN jsonb_build_object('x', {0}[0], 'y', {0}[1]) END"),
    SourceType("int_array", "int[]", "ARRAY<INT>", ["'{1,2,NULL}'", "'{}'"], list_of(number)),
    SourceType("text_array", "text[]", "ARRAY<STRING>", ["'{a,NULL,\"x,y\"}'", "'{}'"], list_of(text)),
    SourceType("uuid_array", "uuid[]", "ARRAY<STRING>", ["'{6f1c2d3e-0000-4000-8000-00000000000a}'"], list_of(text)),
    SourceType("enum_array", "mood[]", "ARRAY<STRING>", ["'{ok,sad}'"], list_of(text)),
    SourceType("numeric_array", "numeric(10,2)[]", "ARRAY<DECIMAL(10,2)>", ["'{1.50,NULL,-2.25}'"], list_of(number)),
    SourceType("double_array", "double precision[]", "ARRAY<DOUBLE>", ["'{1.5,NULL}'", "'{NaN}'"], list_of(double)),
    SourceType("bool_array", "boolean[]", "ARRAY<BOOLEAN>", ["'{t,f,NULL}'"], list_of(text)),
    SourceType("date_array", "date[]", "ARRAY<DATE>", ["'{2024-02-29,NULL,1969-12-31}'"], list_of(day), unit="days"),
    SourceType("timestamp_array", "timestamp[]", "ARRAY<TIMESTAMP>", ["'{2024-02-29 01:02:03.123456,NULL}'"],
               list_of(moment), unit="us"),
    SourceType("timestamptz_array", "timestamptz[]", "ARRAY<TIMESTAMP>", ["'{2024-02-29 01:02:03.123456+00,NULL}'"],
               list_of(moment)),
    SourceType("composite_", "pair", "STRING", ["ROW(1, 'x')::pair"], sent=False),
    SourceType("pg_lsn_", "pg_lsn", "STRING", ["'0/16B3748'"], sent=False),
    SourceType("line_", "line", "STRING", ["'{1,2,3}'"], sent=False),
)  # fmt: skip
"""``sent``: false for types that Debezium leaves out unless ``include.unknown.datatypes`` is true."""

DEFINITIONS: Final = """
    CREATE EXTENSION hstore; CREATE EXTENSION citext; CREATE EXTENSION ltree;
    CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
    CREATE DOMAIN posint AS integer CHECK (VALUE > 0);
    CREATE DOMAIN price AS numeric(10,2);
    CREATE TYPE pair AS (a int, b text);
"""
"""The types of tests that PostgreSQL does not have by itself."""


def schema_of(types: Sequence[SourceType]) -> str:
    """The lines of ``decode.schema``."""
    return ", ".join(f"{each.name} {each.line}" for each in types)


def units_of(types: Sequence[SourceType]) -> dict[str, str]:
    """Return what ``times`` says of JSON without schemas."""
    return {each.name: each.unit for each in types if each.unit is not None}


def right_values(types: Sequence[SourceType]) -> str:
    """The expression of all values that a copy must have, as one JSON object."""
    members = ", ".join(f"'{each.name}', {each.right.format(each.name)}" for each in types)
    return f"jsonb_build_object({members})" if len(types) <= 50 else " || ".join(
        right_values(types[at : at + 50]) for at in range(0, len(types), 50))  # fmt: skip


def comparable(types: Sequence[SourceType], row: dict[str, Any]) -> dict[str, Any]:
    """A row of the source or of a copy, of which each column can be compared."""
    return {each.name: None if row.get(each.name) is None else each.comparable(row[each.name]) for each in types}


def of_source(document: str) -> dict[str, Any]:
    """Return what ``right_values`` gave, with all digits."""
    made: dict[str, Any] = json.loads(document, parse_float=Decimal)
    return made
