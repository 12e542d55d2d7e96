"""The Arrow columns of a reader's Avro schema, and the conversions of values for these columns.

    null                      text, always null          array<T>      list<T>
    boolean                   bool                       map<T>        map<text, T>
    int, long                 int32, int64               record        struct; of a whole record: one column per field
    float, double             float32, float64           [null, T]     T, nullable
    bytes, fixed              binary                     other unions  text: the value as JSON, with the texts of dates,
                                                                       times and decimals in it
    string, enum              text                       recursive     refused

    date                                      date32
    timestamp-millis, timestamp-micros        timestamp(us, UTC)
    decimal                                   decimal128; text beyond 38 digits
    uuid, time-*, local-timestamp-*           text
    timestamp-nanos, duration, others         as the type below them

A schema that is not a record is one column, ``value``. Inside a nested column every part is nullable, as in Spark.
As Avro demands, a logical type on another type than its own is ignored, and so is a decimal with a wrong precision or
scale.
"""

import base64
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import MAX_PREC, Context, Decimal
from functools import partial
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from tidemark.decoders.names import WHOLE, check_names
from tidemark.providers.avro.schema import PARTS, kind_of, parts_of, takes_no_bytes, without_null, wrong

Convert = Callable[[Any], Any]
LONGEST_DECIMAL = 38
LONGEST_TEXT: Final = 10_000  # digits of a decimal that becomes text
EXACT: Final = Context(prec=MAX_PREC)  # for arithmetic with decimals that never rounds
DEEPEST = 32
MOST_TYPES = 10_000
TIMESTAMP: Final = pa.timestamp("us", "UTC")
_PLAIN: Final = {
    "null": pa.string(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "bytes": pa.binary(), "string": pa.string(), "fixed": pa.binary(), "enum": pa.string(),
}  # fmt: skip
_LOGICAL: Final[Mapping[str, str]] = {
    "date": "int", "time-millis": "int", "time-micros": "long",
    **{f"{kind}-{unit}": "long" for kind in ("timestamp", "local-timestamp") for unit in ("millis", "micros", "nanos")},
}  # fmt: skip
_NOTHING: Final = "."  # a name that no field of Avro can have
_BEYOND: Final = "a time outside the years 1 to 9999"
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - of times that have no zone


@dataclass(frozen=True)
class AvroColumn:
    """One column: its field, and the conversion of a value that was read; None if Arrow accepts the value unchanged."""

    field: pa.Field
    convert: Convert | None


@dataclass(frozen=True)
class AvroRows:
    """The schema of a reader, and its columns: one for each field of a record."""

    schema: Any
    columns: tuple[AvroColumn, ...]

    @property
    def is_record(self) -> bool:
        return kind_of(self.schema) == "record"

    @property
    def arrow(self) -> pa.Schema:
        return pa.schema([column.field for column in self.columns])


def rows_of(schema: Any, unread: str | None = None) -> AvroRows:
    """Return the rows of a reader's schema. Of the field ``unread`` the rows only tell whether it is null.

    Raises ``ConfigurationError`` if the schema is recursive, or has no columns.
    """
    if kind_of(schema) != "record":
        _refuse_endless_columns(schema)
        return AvroRows(schema, (column(WHOLE, schema),))
    fields = [_unread(field) if field["name"] == unread else field for field in schema["fields"]]
    if not fields:
        raise wrong("is a record without fields")
    rows = {**schema, "fields": fields}
    _refuse_endless_columns(rows)
    check_names([field["name"] for field in fields], lambda name: f"the Avro schema has a field {name}, which")
    return AvroRows(rows, tuple(column(field["name"], field["type"]) for field in fields))


def _unread(field: Mapping[str, Any]) -> dict[str, Any]:
    """Return a field of the same name whose record has only a field that no writer has. So its default is taken, and
    nothing of the record is read."""
    record, may_be_null = without_null(field["type"])
    if kind_of(record) != "record":
        return dict(field)
    empty = {**record, "fields": [{"name": _NOTHING, "type": "boolean", "default": True}]}
    return {**field, "type": ["null", empty], "default": None} if may_be_null else {**field, "type": empty}


def _refuse_endless_columns(schema: Any) -> None:
    """Raise ``ConfigurationError`` for a recursive schema, which columns cannot have, or one that is too deep or too
    large."""
    waiting: list[tuple[Any, tuple[str, ...]]] = [(schema, ())]
    seen = 0
    while waiting:
        part, above = waiting.pop()
        seen += 1
        if seen > MOST_TYPES or len(above) > DEEPEST:
            raise wrong(f"has more than {MOST_TYPES} types, or is nested deeper than {DEEPEST}")
        kind = kind_of(part)
        if kind == "record":
            if part["name"] in above:
                raise wrong(f"is recursive: {part['name']} contains itself, and columns have a fixed depth")
            if not part["fields"]:
                raise wrong(f"holds a record without fields, {part['name']}")
        if kind == "array" and takes_no_bytes(part["items"]):
            raise wrong("has an array whose items take no bytes: a short record could hold billions of them")
        name = part["name"] if kind == "record" else "" if kind in PARTS else None
        waiting += [(inner, above if name is None else (*above, name)) for inner in parts_of(part)]


def logical_of(schema: Any) -> tuple[str, int] | None:
    """Return (logical type, scale of a decimal or 0); None without a logical type, or for one that readers must
    ignore."""
    if not isinstance(schema, Mapping):
        return None
    name, kind = schema.get("logicalType"), kind_of(schema)
    if not isinstance(name, str):
        return None
    if _LOGICAL.get(name) == kind or (name == "uuid" and kind == "fixed" and schema["size"] == 16):
        return name, 0
    if name != "decimal" or kind not in ("bytes", "fixed"):
        return None
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision or not precision:
        return None
    if scale > LONGEST_TEXT:
        return None
    most = math.floor(math.log10(2) * (8 * schema["size"] - 1)) if kind == "fixed" else precision
    return (name, scale) if precision <= most else None


def column(name: str, schema: Any) -> AvroColumn:
    """Return the column of a field, whose schema has its names resolved."""
    kind, convert = _typed(schema)
    return AvroColumn(pa.field(name, kind, nullable=without_null(schema)[1]), convert)


def _typed(schema: Any) -> tuple[pa.DataType, Convert | None]:
    """Return (Arrow type, conversion) of values that are not null; a conversion is never called with None."""
    schema, _ = without_null(schema)
    kind = kind_of(schema)
    if kind == "union":
        return pa.string(), _as_json
    if kind == "record":
        return _struct(schema)
    if kind in PARTS:
        inner, convert = _typed(schema[PARTS[kind]])
        if kind == "array":
            return pa.list_(pa.field("element", inner)), partial(_each, convert) if convert else None
        return pa.map_(pa.string(), inner), partial(_each_entry, convert)
    return _logical(schema) or (_PLAIN[kind], None)


def _struct(schema: Any) -> tuple[pa.DataType, Convert | None]:
    typed = {field["name"]: _typed(field["type"]) for field in schema["fields"]}
    check_names([*typed], lambda name: f"the Avro schema has a field {schema['name']}.{name}, which", inside=True)
    converts = {name: convert for name, (_, convert) in typed.items() if convert}
    kind = pa.struct([pa.field(name, arrow) for name, (arrow, _) in typed.items()])
    return kind, partial(_each_field, converts) if converts else None


def _logical(schema: Any) -> tuple[pa.DataType, Convert | None] | None:
    """Return (Arrow type, conversion); None for a logical type that is read as the type below it."""
    match logical_of(schema):
        case ("date", _):
            return pa.date32(), None
        case ("timestamp-millis", _):
            return TIMESTAMP, _in_microseconds
        case ("timestamp-micros", _):
            return TIMESTAMP, None
        case ("local-timestamp-millis", _):
            return pa.string(), partial(_local, unit=1_000)
        case ("local-timestamp-micros", _):
            return pa.string(), partial(_local, unit=1)
        case ("time-millis", _):
            return pa.string(), partial(_time, unit=1_000)
        case ("time-micros", _):
            return pa.string(), partial(_time, unit=1)
        case ("decimal", scale):
            if schema["precision"] > LONGEST_DECIMAL:
                return pa.string(), partial(_decimal_text, 10**LONGEST_TEXT, scale=scale)
            return pa.decimal128(schema["precision"], scale), partial(_decimal, 10 ** schema["precision"], scale=scale)
        case ("uuid", _):
            return pa.string(), _uuid
        case _:
            return None


def _each(convert: Convert, values: Any) -> Any:
    return [None if value is None else convert(value) for value in values]


def _each_entry(convert: Convert | None, values: Any) -> Any:
    if convert is None:
        return list(values.items())
    return [(key, None if value is None else convert(value)) for key, value in values.items()]


def _each_field(converts: Mapping[str, Convert], value: Any) -> Any:
    converted = {name: convert(value[name]) for name, convert in converts.items() if value.get(name) is not None}
    return {**value, **converted}


def as_text(schema: Any) -> Convert | None:
    """Return the conversion of a branch's values to what JSON holds for them, for a union of several types.

    None if a value needs no conversion. A conversion is never called with None, and raises ``ValueError``.
    """
    schema, _ = without_null(schema)
    match kind_of(schema):
        case "union":
            return None  # the inner union has already converted the value
        case "record":
            texts = {field["name"]: as_text(field["type"]) for field in schema["fields"]}
            converts = {name: convert for name, convert in texts.items() if convert}
            return partial(_each_field, converts) if converts else None
        case "array":
            convert = as_text(schema["items"])
            return partial(_each, convert) if convert else None
        case "map":
            convert = as_text(schema["values"])
            return partial(_each_value, convert) if convert else None
    match logical_of(schema):
        case ("date", _):
            return _date_text
        case ("timestamp-millis", _):
            return partial(_instant_text, unit=1_000)
        case ("timestamp-micros", _):
            return partial(_instant_text, unit=1)
        case ("decimal", scale):
            return partial(_decimal_text, 10 ** schema["precision"], scale=scale)
    typed = _logical(schema)
    return typed and typed[1]


def _each_value(convert: Convert, values: Any) -> Any:
    return {key: None if value is None else convert(value) for key, value in values.items()}


def _date_text(value: int) -> str:
    return _moment(value * 86_400_000_000).date().isoformat()


def _instant_text(value: int, unit: int) -> str:
    return f"{_local(value, unit)}Z"


def _in_microseconds(value: int) -> int:
    if not -(2**63) <= value * 1_000 < 2**63:
        raise ValueError(_BEYOND)
    return value * 1_000


def _local(value: int, unit: int) -> str:
    return _moment(value * unit).isoformat(timespec="microseconds")


def _moment(microseconds: int) -> datetime:
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        raise ValueError(_BEYOND) from None


def _time(value: int, unit: int) -> str:
    if not 0 <= value * unit < 86_400_000_000:
        raise ValueError(f"{value} is not a time of a day")
    return (_EPOCH + timedelta(microseconds=value * unit)).time().isoformat(timespec="microseconds")


def _decimal(most: int, value: Any, scale: int) -> Decimal:
    """Return the decimal. Its digits as a whole number must be below ``most``, because the time to make one grows with
    the square of its length."""
    number = int.from_bytes(value, "big", signed=True)
    if abs(number) >= most:
        raise ValueError("a decimal has more digits than its type")
    return EXACT.scaleb(Decimal(number), -scale)


def _decimal_text(most: int, value: Any, scale: int) -> str:
    return f"{_decimal(most, value, scale):f}"


def _uuid(value: Any) -> str:
    return str(UUID(bytes=value))


def _as_json(value: Any) -> str:
    """Return the value as JSON, with bytes as base64, and numbers that JSON lacks as text."""
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value
