"""An Avro schema as Arrow columns, and what fastavro reads as values of these columns.

    null                      text, always null          array<T>      list<T>
    boolean                   bool                       map<T>        map<text, T>
    int, long                 int32, int64               record        struct; of a whole record: one column per field
    float, double             float32, float64           [null, T]     T, nullable
    bytes, fixed              binary                     other unions  text: the value as JSON
    string, enum              text                       recursive     refused

    date                                      date32
    timestamp-millis, timestamp-micros        timestamp(us, UTC)
    decimal                                   decimal128; text beyond 38 digits
    uuid, time-*, local-timestamp-*           text
    timestamp-nanos, duration, others         as the type below them

A schema that is not a record is one column, ``value``. Inside a nested column every part is nullable, as in Spark.
"""

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import MAX_PREC, Context, Decimal
from functools import partial
from typing import Any, Final
from uuid import UUID

import fastavro
import pyarrow as pa

from tidemark.decoders.names import WHOLE
from tidemark.errors import ConfigurationError

Convert = Callable[[Any], Any]
LONGEST_DECIMAL = 38
EXACT: Final = Context(prec=MAX_PREC)  # of decimals: nothing is rounded
DEEPEST = 32
MOST_TYPES = 10_000
_PARTS: Final = {"array": "items", "map": "values"}
TIMESTAMP: Final = pa.timestamp("us", "UTC")
_PLAIN: Final = {
    "null": pa.string(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "bytes": pa.binary(), "string": pa.string(), "fixed": pa.binary(), "enum": pa.string(),
}  # fmt: skip
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - of times that have no zone


@dataclass(frozen=True)
class AvroColumn:
    """One column: its field, and how a value of fastavro becomes one of Arrow (None: it is one already)."""

    field: pa.Field
    convert: Convert | None


@dataclass(frozen=True)
class AvroSchema:
    """A schema with names resolved and references inlined.

    ``bare`` is the same without logical types: fastavro then gives the numbers that were written, and has no limits of
    its own (it raises for times after the year 9999).
    """

    full: Any
    bare: Any
    columns: tuple[AvroColumn, ...]

    @property
    def is_record(self) -> bool:
        return bool(kind_of(self.full) == "record")

    @property
    def arrow(self) -> pa.Schema:
        return pa.schema([column.field for column in self.columns])

    def without(self, name: str) -> "AvroSchema":
        """The same without the column of a field, whose values may then be any that Avro can read."""
        return replace(self, columns=tuple(column for column in self.columns if column.field.name != name))


def parsed(text: str, references: Sequence[tuple[str, str]] = ()) -> AvroSchema:
    """Read a schema and what it refers to; ``ConfigurationError`` when it is wrong, recursive, or has no columns."""
    named: dict[str, Any] = {}
    try:
        for _, reference in references:
            fastavro.parse_schema(json.loads(reference), named_schemas=named)
        schema = fastavro.parse_schema(json.loads(text), named_schemas=named)
    except RecursionError:
        raise _wrong("is nested too deeply") from None
    except Exception as problem:  # fastavro raises KeyError, TypeError and others for what is not a schema
        raise _wrong(f"is not valid: {type(problem).__name__}: {problem}"[:300]) from None
    full = _Expansion(named).of(schema)
    if kind_of(full) == "record":
        columns = [column(field["name"], field["type"]) for field in full["fields"]]
        if not columns:
            raise _wrong("is a record without fields")
    else:
        columns = [column(WHOLE, full)]
    for made in columns:
        if made.field.name.startswith("_"):
            raise _wrong(f"has a field {made.field.name}: columns that begin with _ are those of the record's place")
    return AvroSchema(full, fastavro.parse_schema(bare(full)), tuple(columns))


def kind_of(schema: Any) -> str:
    """``union``, the name of a primitive, or ``record``, ``enum``, ``fixed``, ``array``, ``map``."""
    if isinstance(schema, list):
        return "union"
    return schema if isinstance(schema, str) else str(schema["type"])


def without_null(schema: Any) -> tuple[Any, bool]:
    """(T, True) of a union of null and one T; else the schema as it is, and whether it can be null."""
    if not isinstance(schema, list):
        return schema, schema == "null"
    others = [branch for branch in schema if kind_of(branch) != "null"]
    return (others[0] if len(others) == 1 else schema), len(others) < len(schema)


class _Expansion:
    """Writes named types out wherever they are named, so that a walk needs no names."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._left = MOST_TYPES

    def of(self, schema: Any, above: tuple[str, ...] = ()) -> Any:
        self._left -= 1
        if self._left < 0 or len(above) > DEEPEST:
            raise _wrong(f"has more than {MOST_TYPES} types, or is nested deeper than {DEEPEST}")
        if isinstance(schema, list):
            return [self.of(branch, above) for branch in schema]
        if isinstance(schema, str):
            return schema if schema in _PLAIN and schema not in self._named else self._by_name(schema, above)
        kind = schema["type"]
        if not isinstance(kind, str) or kind not in ("record", "error", "array", "map", *_PLAIN):
            return self.of(kind, above)  # {"type": {"type": ..}}, or a name
        kept = {key: value for key, value in schema.items() if not key.startswith("__")}
        inner = (*above, schema.get("name", ""))
        if kind in ("record", "error"):
            if schema["name"] in above:
                raise _wrong(f"is recursive: {schema['name']} holds itself, and columns cannot")
            fields = [{**field, "type": self.of(field["type"], inner)} for field in schema["fields"]]
            return {**kept, "type": "record", "fields": fields}
        part = _PARTS.get(kind)
        if part is None:
            return kept if kind in ("enum", "fixed") or "logicalType" in kept else kind
        items = self.of(schema[part], inner)
        if kind == "array" and takes_no_bytes(items):
            raise _wrong("has an array whose items take no bytes: a short record could hold billions of them")
        return {**kept, part: items}

    def _by_name(self, name: str, above: tuple[str, ...]) -> Any:
        if name in above:
            raise _wrong(f"is recursive: {name} holds itself, and columns cannot")
        return self.of(self._named[name], above)


def takes_no_bytes(schema: Any) -> bool:
    kind = kind_of(schema)
    if kind == "record":
        return all(takes_no_bytes(field["type"]) for field in schema["fields"])
    return kind == "null" or (kind == "fixed" and schema["size"] == 0)


def bare(schema: Any, defined: set[str] | None = None) -> Any:
    """A schema for fastavro or another library: without logical types, each named type written out once."""
    defined = set() if defined is None else defined
    if isinstance(schema, list):
        return [bare(branch, defined) for branch in schema]
    if isinstance(schema, str):
        return schema
    if "name" in schema:
        if schema["name"] in defined:
            return schema["name"]
        defined.add(schema["name"])
    kept = {key: value for key, value in schema.items() if key not in ("logicalType", "precision", "scale")}
    if kept["type"] == "record":
        return {**kept, "fields": [{**field, "type": bare(field["type"], defined)} for field in kept["fields"]]}
    part = _PARTS.get(kept["type"])
    if part is not None:
        return {**kept, part: bare(kept[part], defined)}
    return kept if kept["type"] in ("enum", "fixed") else kept["type"]


def column(name: str, schema: Any) -> AvroColumn:
    """The column of a field, whose schema has its names resolved."""
    kind, convert = _typed(schema)
    return AvroColumn(pa.field(name, kind, nullable=without_null(schema)[1]), convert)


def _typed(schema: Any) -> tuple[pa.DataType, Convert | None]:
    """(Arrow type, conversion) of what is not null; a conversion is never called with None."""
    schema, _ = without_null(schema)
    kind = kind_of(schema)
    if kind == "union":
        return pa.string(), _as_json
    if kind == "record":
        return _struct(schema)
    if kind in _PARTS:
        inner, convert = _typed(schema[_PARTS[kind]])
        if kind == "array":
            return pa.list_(pa.field("element", inner)), partial(_each, convert) if convert else None
        return pa.map_(pa.string(), inner), partial(_each_entry, convert)
    logical = None if isinstance(schema, str) else _logical(kind, schema)
    if logical is not None:
        return logical
    return _PLAIN[kind], _as_bytes if kind in ("bytes", "fixed") else None


def _struct(schema: Any) -> tuple[pa.DataType, Convert | None]:
    typed = {field["name"]: _typed(field["type"]) for field in schema["fields"]}
    if not typed:
        raise _wrong(f"holds a record without fields, {schema['name']}")
    converts = {name: convert for name, (_, convert) in typed.items() if convert}
    kind = pa.struct([pa.field(name, arrow) for name, (arrow, _) in typed.items()])
    return kind, partial(_each_field, converts) if converts else None


def _logical(kind: str, schema: Mapping[str, Any]) -> tuple[pa.DataType, Convert | None] | None:
    """None for a logical type that is read as the type below it; one on the wrong type is none, as Avro says."""
    match (schema.get("logicalType"), kind):
        case ("date", "int"):
            return pa.date32(), None
        case ("timestamp-millis", "long"):
            return TIMESTAMP, _in_microseconds
        case ("timestamp-micros", "long"):
            return TIMESTAMP, None
        case ("local-timestamp-millis", "long"):
            return pa.string(), partial(_local, unit=1_000)
        case ("local-timestamp-micros", "long"):
            return pa.string(), partial(_local, unit=1)
        case ("time-millis", "int"):
            return pa.string(), partial(_time, unit=1_000)
        case ("time-micros", "long"):
            return pa.string(), partial(_time, unit=1)
        case ("decimal", "bytes" | "fixed"):
            precision, scale = schema.get("precision", 0), schema.get("scale", 0)
            if not (isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision and precision):
                return None
            if precision > LONGEST_DECIMAL:
                return pa.string(), partial(_decimal_text, scale=scale)
            return pa.decimal128(precision, scale), partial(_decimal, scale=scale)
        case ("uuid", "fixed") if schema["size"] == 16:
            return pa.string(), _uuid
        case _:
            return None


# Conversions: of values that fastavro gives, and of defaults, which it gives as the schema's JSON holds them.


def _each(convert: Convert, values: Any) -> Any:
    return [None if value is None else convert(value) for value in values]


def _each_entry(convert: Convert | None, values: Any) -> Any:
    if convert is None:
        return list(values.items())
    return [(key, None if value is None else convert(value)) for key, value in values.items()]


def _each_field(converts: Mapping[str, Convert], value: Any) -> Any:
    converted = {name: convert(value[name]) for name, convert in converts.items() if value.get(name) is not None}
    return {**value, **converted}


def _as_bytes(value: Any) -> bytes:
    return value.encode("latin-1") if isinstance(value, str) else value


def _in_microseconds(value: int) -> int:
    return value * 1_000


def _local(value: int, unit: int) -> str:
    return (_EPOCH + timedelta(microseconds=value * unit)).isoformat(timespec="microseconds")


def _time(value: int, unit: int) -> str:
    if not 0 <= value * unit < 86_400_000_000:
        raise ValueError(f"{value} is not a time of a day")
    return (_EPOCH + timedelta(microseconds=value * unit)).time().isoformat(timespec="microseconds")


def _decimal(value: Any, scale: int) -> Decimal:
    return EXACT.scaleb(Decimal(int.from_bytes(_as_bytes(value), "big", signed=True)), -scale)


def _decimal_text(value: Any, scale: int) -> str:
    return f"{_decimal(value, scale):f}"


def _uuid(value: Any) -> str:
    return str(UUID(bytes=_as_bytes(value)))


def _as_json(value: Any) -> str:
    """The value as JSON; bytes as base64, and numbers that JSON lacks as text."""
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def _wrong(what: str) -> ConfigurationError:
    return ConfigurationError(
        f"the Avro schema {what}", next_step="correct the schema; docs/configuration.md lists types"
    )
